"""Every command of the command line: its help, options that it does not have, a daemon that is away, --json."""
import json
import os
import re
import shlex
import subprocess
import unittest

from ithaca_e2e import ITHACA, LINE, SOURCE_DIR, Daemon

LINES = LINE * 20
AWAY = "http://127.0.0.1:1"
LOCAL = ("help", "plan", "ladder", "calibrate", "doctor", "fields", "completion", "man")  # they need no daemon
# What a command needs to get as far as asking the daemon; others need nothing, or a job.
WORDS = {"submit": ["--model", "m", "--training-file", "file-x"], "preview": ["--model", "m", "--training-file", "file-x"],
         "compare": ["ftjob-a", "ftjob-b"], "download": ["ftjob-a", "--output", "/nonexistent/x"],
         "sample": ["--model", "m", "--prompt", "p"], "files": ["ls"], "tokens": ["list"], "top": ["--once"],
         "update": ["ftjob-a", "--set", "priority=1"], "prune": ["--kind", "logs"]}


def run(*words, **variables):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ITHACA_")}
    return subprocess.run([ITHACA, *words], capture_output=True, encoding="utf-8", timeout=60, check=False,
                          env=environment | variables)


COMMANDS = re.findall(r"^  ([a-z]+) ", run("--help").stdout, re.M)


class Commands(unittest.TestCase):
    def test_help_has_groups(self):
        """No group is so long that nobody reads it."""
        text = run("--help").stdout.split("\nOptions of all commands\n")[0]
        groups = [len(re.findall(r"^  [a-z]+ ", group, re.M)) for group in text.split("\n\n")[2:]]
        self.assertEqual(sum(groups), len(COMMANDS))
        self.assertGreaterEqual(len(groups), 5)
        self.assertLessEqual(max(groups), 18)

    def test_help(self):
        for command in COMMANDS:
            done = run(command, "--help")
            self.assertEqual((done.returncode, done.stderr), (0, ""), command)
            self.assertTrue(done.stdout.startswith(f"usage: ithaca {command}"), done.stdout)
            self.assertEqual(run(command, "-h").stdout, done.stdout)
            self.assertEqual(run("help", command).stdout, done.stdout)
        self.assertEqual(run("help").stdout, run("--help").stdout)
        self.assertEqual(run("help", "shwo").stderr,
                         "ithaca: help: unknown command shwo; did you mean show? (see `ithaca --help`)\n")

    def test_unknown_options(self):
        for command in COMMANDS:
            done = run(command, "--jsom")
            self.assertEqual((done.returncode, done.stdout), (64, ""), command)
            self.assertEqual(done.stderr, f"ithaca: {command}: unknown option --jsom; did you mean --json?\n")
            done = run(command, "--json", "--zzzzzzzz")
            self.assertEqual(json.loads(done.stderr)["error"]["code"], "usage", command)

    def test_daemon_is_away(self):
        for command in COMMANDS:
            if command in LOCAL:
                continue
            words = WORDS.get(command, ["ftjob-a"])
            done = run(command, "--url", AWAY, *words)
            if done.returncode == 64 and command not in WORDS:
                words = []  # it takes no job
                done = run(command, "--url", AWAY)
            if done.returncode == 64 and command not in WORDS:
                continue  # a command that this test does not know: it has said what it misses
            self.assertEqual((done.returncode, done.stdout), (69, ""), (command, done.stderr))
            self.assertRegex(done.stderr, rf"^ithaca: {AWAY}: [^\n]*\(is ithacad running\?\)\n$", command)
            done = run("--json", command, *words, ITHACA_URL=AWAY)
            self.assertEqual((done.returncode, done.stdout), (69, ""), command)
            self.assertEqual(json.loads(done.stderr)["error"]["code"], "unavailable", command)

    def test_readme(self):
        """What README shows is taken as it stands; what needs no daemon shows something."""
        with open(os.path.join(SOURCE_DIR, "README.md"), encoding="utf-8") as file:
            shown = re.findall(r"^    (ithaca .*)$", file.read(), re.M)
        lines = [words for line in shown for words in re.split(r"\s{2,}(?=ithaca )", re.sub(r"\s+#.*|[][]", "", line))]
        self.assertGreater(len(lines), 40)
        for line in lines:
            words = line.split()[1:] if '"' not in line else shlex.split(line)[1:]
            if "--run" in words or words[0] == "calibrate":
                continue  # it measures
            done = run("--url", AWAY, *words)
            self.assertIn(done.returncode, (0, 65, 66, 69), (line, done.stderr))  # 65: does not fit; 66: no such file
            self.assertTrue(done.stdout or done.returncode in (66, 69), (line, done.stderr))

    def test_json(self):
        """What is shown can be had as one JSON value."""
        with Daemon() as daemon:
            client = daemon.client()
            file = client.upload(LINES)["id"]
            job = client.submit(file, ithaca={"seq_len": 64, "hold": True})["id"]
            for words in (["ls"], ["show", job], ["events", job], ["logs", job], ["checkpoints", job],
                          ["compare", job, job], ["models"], ["files", "ls"], ["files", "show", file], ["queue"], ["gpus"],
                          ["top"], ["du"], ["whoami"], ["tokens", "list"], ["fields"], ["hold", job], ["release", job],
                          ["update", job, "--set", "priority=-1"], ["cancel", job], ["rm", job]):
                done = run("--data-dir", daemon.data_dir, "--json", *words)
                self.assertEqual((done.returncode, done.stderr), (0, ""), words)
                self.assertIsInstance(json.loads(done.stdout), dict, words)


if __name__ == "__main__":
    unittest.main()
