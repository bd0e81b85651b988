#!/usr/bin/python3
"""House rules that a machine can check. Each rule is one function that yields "file:line: what and how to mend".

Run alone: python3 tests/tidy/test_tidy.py [rule ...]
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.environ.get("ITHACA_SOURCE_DIR") or os.path.dirname(
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FOLDERS = ("api", "common", "daemon", "worker", "clients", "tests")
MAX_LINES, MAX_FUNCTION, MAX_COLUMNS = 500, 70, 100

# Folder -> folders whose headers it may include.
MAY_INCLUDE = {
    "api": {"api"},
    "common": {"api", "common"},
    "daemon": {"api", "common", "daemon"},
    "worker": {"api", "common", "worker"},
    "clients": {"api", "common", "clients"},
}
# Third-party header -> files that may include it (ARCHITECTURE.md, "Libraries").
LIBRARY_HOMES = {
    r"microhttpd\.h": r"daemon/(http|sse)\w*\.[ch]$",
    r"jansson\.h": r"common/json\.h$",
    r"sqlite3\.h": r"daemon/store\w*\.[ch]$",
    r"curl/.*": r"(clients/cli/(client|main)\.c|daemon/webhook_send\.c)$",
    r"cblas\.h|openblas.*": r"worker/cpu/\w+\.[ch]$",
    r"omp\.h": r"worker/cpu/\w+\.[ch]$",
    r"sodium\.h": r"daemon/(auth\w*|webhook_sign)\.c$",
    r"xxhash\.h": r"(common/io\w*|worker/checkpoint\w*)\.c$",
    r"zlib\.h|zstd\.h": r"common/io\w*\.c$",
    r"nccl\.h|cuda.*|cublas.*|cudnn.*|cupti.*": r"worker/cuda/.*",
    r"liburing\.h": r"worker/offload_file\.c$",
    r"pcre2\.h|utf8proc\.h": r"common/tokenizer\w*\.c$",
    r"cmocka\.h": r"tests/lib/cmocka\.h$",
}
BANNED = {
    r"(?:malloc|calloc|realloc|free|strdup|strndup|aligned_alloc|asprintf|vasprintf)":
        ("mem_*", r"common/mem\.c$|clients/cli/main\.c$"),  # main frees what json_dumps made
    r"(?:strcpy|strcat|sprintf|vsprintf|strtok|gets|strncat|strncpy)": ("snprintf or buf_*", None),
    r"(?:atoi|atol|atof)": ("strtoll with a check", None),
    r"(?:gmtime|localtime|ctime|asctime)": ("clock_iso", None),
    r"(?:rand|srand|random|drand48)": ("common/rng.h", None),
    r"(?:sleep|usleep|nanosleep|clock_gettime|gettimeofday|time)": ("common/clock.h", r"common/clock\.c$"),
    r"(?:system|popen|alloca|setjmp|longjmp)": ("nothing of the kind", None),
}


def sources(*endings):
    for folder in FOLDERS:
        for base, _, names in os.walk(os.path.join(ROOT, folder)):
            for name in sorted(names):
                if name.endswith(endings):
                    yield os.path.relpath(os.path.join(base, name), ROOT)


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def code_only(text):
    """The text with comments and string contents blanked, line numbers kept."""
    def blank(match):
        token = match.group(0)
        if token[0] in "\"'":
            return token[0] + " " * (len(token) - 2) + token[0]
        return re.sub(r"[^\n]", " ", token)
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', blank, text, flags=re.S)


def rule_includes_point_one_way():
    for path in sources(".c", ".h", ".cu"):
        folder = path.split("/")[0]
        for number, line in enumerate(read(path).split("\n"), 1):
            match = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
            if not match:
                continue
            target = match.group(1).split("/")[0]
            if target not in FOLDERS:
                yield f'{path}:{number}: include "{match.group(1)}" from the root ("common/err.h")'
            elif folder in MAY_INCLUDE and target not in MAY_INCLUDE[folder]:
                yield f"{path}:{number}: {folder}/ may not include {target}/"


def rule_libraries_have_one_home():
    for path in sources(".c", ".h", ".cu"):
        for number, line in enumerate(read(path).split("\n"), 1):
            match = re.match(r"\s*#\s*include\s+<([^>]+)>", line)
            if not match:
                continue
            for header, home in LIBRARY_HOMES.items():
                if path.startswith("tests/") and not home.startswith("tests/"):
                    continue  # tests may include what they test
                if re.fullmatch(header, match.group(1)) and not re.search(home, path):
                    yield f"{path}:{number}: <{match.group(1)}> belongs to files matching {home}"


def rule_banned_calls():
    for path in sources(".c", ".h", ".cu"):
        if path.startswith("tests/"):
            continue
        for number, line in enumerate(code_only(read(path)).split("\n"), 1):
            for names, (instead, home) in BANNED.items():
                if home and re.search(home, path):
                    continue
                for match in re.finditer(r"(?<![\w.>])" + names + r"\s*\(", line):
                    yield f"{path}:{number}: {match.group(0).rstrip('( ')} is banned; use {instead}"


def rule_lengths():
    for path in sources(".c", ".h", ".cu", ".def"):
        lines = read(path).split("\n")
        if len(lines) - 1 > MAX_LINES and not path.endswith(".def"):
            yield f"{path}: {len(lines) - 1} lines; split it by ideas (limit {MAX_LINES})"
        for number, line in enumerate(lines, 1):
            if len(line) > MAX_COLUMNS and not path.endswith(".def"):
                yield f"{path}:{number}: {len(line)} columns (limit {MAX_COLUMNS}); clang-format -i"
            if line.rstrip() != line:
                yield f"{path}:{number}: white space at the end of the line"
        start = None
        for number, line in enumerate(lines, 1):
            if line == "{" and path.endswith((".c", ".cu")):
                start = number
            elif line.startswith("}") and start:
                if line == "}" and number - start - 1 > MAX_FUNCTION:
                    yield f"{path}:{start}: a function of {number - start - 1} lines (limit {MAX_FUNCTION})"
                start = None


def rule_files_open_with_their_design():
    for path in sources(".c", ".h", ".cu", ".def"):
        if not read(path).lstrip().startswith("/*"):
            yield f"{path}:1: open with a comment that says what the file is for"


def rule_symbols_carry_their_files_noun():
    for path in sources(".c"):
        folder = path.split("/")[0]
        if folder == "tests":
            continue
        noun = os.path.basename(path)[:-2]
        words = noun.split("_")
        prefixes = ["_".join(words[:n]) for n in range(1, len(words) + 1)]
        if path.startswith("worker/cpu/"):
            prefixes += ["ops_cpu", "cpu", "device_cpu"]
        if path.startswith("worker/cuda/"):
            prefixes += ["ops_cuda", "cuda", "device_cuda"]
        text = code_only(read(path))
        for match in re.finditer(r"^(?!static|extern|typedef|struct \w+ \{|#)[a-z][\w \*]*?[ \*](\w+)\([^;{]*\)\s*\n\{",
                                 text, flags=re.M):
            name = match.group(1)
            if name != "main" and not any(name == p or name.startswith(p + "_") for p in prefixes):
                number = text[:match.start()].count("\n") + 1
                yield f"{path}:{number}: {name} does not begin with the file's noun ({noun})"


def rule_figures_for_people_are_plain():
    for path in sources(".c"):
        if not path.startswith("clients/"):
            continue
        for number, line in enumerate(read(path).split("\n"), 1):
            if re.search(r"%[-+ #0-9]*\.(\d+|\*)g", line):
                yield f"{path}:{number}: from some size on this prints 1.13e+04; use number_plain() (common/number.h)"


def rule_headers_of_kernels_are_cpp_too():
    compiler = shutil.which("g++") or shutil.which("clang++")
    if not compiler:
        return
    with tempfile.TemporaryDirectory() as folder:
        probe = os.path.join(folder, "probe.cc")
        with open(probe, "w", encoding="utf-8") as file:
            file.write('#include "worker/device.h"\n#include "worker/ops.h"\n')
        done = subprocess.run([compiler, "-std=c++17", "-I", ROOT, "-fsyntax-only", probe],
                              capture_output=True, text=True, check=False)
        if done.returncode:
            yield "worker/ops.h, worker/device.h do not compile as C++17:\n" + done.stderr


def rule_nothing_of_one_machine():
    for base, folders, names in os.walk(ROOT):
        folders[:] = [f for f in folders if f not in (".git", "build", "node_modules")]
        for name in names:
            path = os.path.join(base, name)
            if name in (os.path.basename(__file__), ".git") or os.path.getsize(path) > 1 << 20:
                continue
            with open(path, "rb") as file:
                text = file.read().decode("utf-8", "replace")
            for match in re.finditer(r"(?<![\w./])/work/|/root/\.|\.pyenv|https?://(?:[\w.]*npmjs|pypi\.)", text):
                number = text[:match.start()].count("\n") + 1
                yield f"{os.path.relpath(path, ROOT)}:{number}: a path or host of one machine: {match.group(0)}"


def rule_layout():
    tool = shutil.which("clang-format-14") or shutil.which("clang-format")
    if not tool:
        return
    version = subprocess.run([tool, "--version"], capture_output=True, text=True, check=False).stdout
    if " 14." not in version:
        return  # other versions break lines a little differently
    files = [path for path in sources(".c", ".h", ".cu")]
    done = subprocess.run([tool, "--dry-run", "--Werror", "--ferror-limit=1"] + files, cwd=ROOT,
                          capture_output=True, text=True, check=False)
    for line in done.stderr.split("\n"):
        match = re.match(r"(\S+?):(\d+):\d+: error", line)
        if match:
            yield f"{match.group(1)}:{match.group(2)}: clang-format -i {match.group(1)}"


RULES = {name: rule for name, rule in globals().items() if name.startswith("rule_")}


class Tidy(unittest.TestCase):
    """One test a rule, and one that each text rule can fail."""

    def test_rules_can_fail(self):
        self.assertIn("strcpy", code_only('a = strcpy(b, "malloc(");'))
        self.assertNotIn("malloc", code_only('a = strcpy(b, "malloc("); /* malloc( */'))


for rule_name, rule_function in RULES.items():
    def check(self, rule=rule_function):
        faults = list(rule())
        self.assertFalse(faults, f"{len(faults)} faults:\n" + "\n".join(faults))
    setattr(Tidy, "test_" + rule_name[len("rule_"):], check)

if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        for rule_name in sys.argv[1:]:
            print("\n".join(RULES["rule_" + rule_name]()))
    else:
        unittest.main()
