#!/usr/bin/python3
"""deploy/RUNBOOK.md has an entry for every error of api/errors.def, and what it and deploy/INSTALL.md name is there."""
import json
import os
import re
import unittest

ROOT = os.environ.get("ITHACA_SOURCE_DIR") or os.path.dirname(
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PAGES = ("deploy/RUNBOOK.md", "deploy/INSTALL.md")


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def settings():
    return set(re.findall(r"^SETTING_\w+\s*\((\w+),", read("api/settings.def"), re.M))


def entries(page):
    """Code -> text below its heading."""
    parts = re.split(r"^### `(\w+)`$", page, flags=re.M)
    return list(zip(parts[1::2], parts[2::2]))


class Runbook(unittest.TestCase):
    def test_has_every_code_once(self):
        codes = re.findall(r'^X\(\w+, "(\w+)"', read("api/errors.def"), re.M)
        self.assertGreater(len(codes), 40)
        self.assertEqual(sorted(code for code, _ in entries(read(PAGES[0]))), sorted(codes))

    def test_every_entry_says_what_to_look_at_and_do(self):
        for code, text in entries(read(PAGES[0])):
            with self.subTest(code):
                self.assertRegex(text, r"\A\n\w[^\n]{20,}(\n[^\n-][^\n]*)*\n- Look at: .{10,}\n(  .*\n)*- Do: .{10,}")

    def test_commands_are_there(self):
        table = read("clients/cli/commands.def")
        commands = re.split(r"^COMMAND\((\w+)", table, flags=re.M)
        options = {name: set(re.findall(r'^(?:OPTION|FLAG)\("(--[\w-]+)"', text, re.M)) | {"--json", "--url", "--cacert", "--data-dir"}
                   for name, text in zip(commands[1::2], commands[2::2])}
        verbs = {name: set(re.findall(r'^VERB\("(\w+)"', text, re.M)) for name, text in zip(commands[1::2], commands[2::2])}
        self.assertIn("create", verbs["tokens"])
        for page in PAGES:
            for command, rest in re.findall(r"^(?:sudo )?ithaca ([a-z]+)((?: [^\s`;,|)]+)*)", "\n".join(quoted(read(page))), re.M):
                with self.subTest(page=page, command=command):
                    self.assertIn(command, options)
                    self.assertLessEqual(set(re.findall(r"--[\w-]+", rest)), options[command])
                    word = rest.split()[0] if rest.split() else ""
                    if verbs[command] and re.fullmatch(r"[a-z]+", word):
                        self.assertIn(word, verbs[command])

    def test_settings_are_there(self):
        known = settings()
        fields = set(re.findall(r"^\w+\s*\(([a-z_]+)", read("api/job_fields.def"), re.M))
        self.assertIn("upload_bytes_max", known)
        for page in PAGES:
            named = set(re.findall(r"`([a-z]+_(?:[a-z]+_)*(?:max|s|mib|days|bytes|dir|hosts|file))`", read(page)))
            with self.subTest(page):
                self.assertLessEqual(named - fields, known | {code for code, _ in entries(read(page))})

    def test_settings_files_are_right(self):
        files = re.findall(r"^ {4}(\{\".*?\})$", read("deploy/INSTALL.md"), re.M | re.S)
        files.append(read("deploy/systemd/ithacad.json"))
        self.assertGreater(len(files), 1)
        for text in files:
            self.assertLessEqual(set(json.loads(text)), settings())


def quoted(text):
    """What stands between backticks, and lines that are indented: commands."""
    return re.findall(r"`([^`\n]+)`", text) + re.findall(r"^ {4}(.+)$", text, re.M)


if __name__ == "__main__":
    unittest.main()
