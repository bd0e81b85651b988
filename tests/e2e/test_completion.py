"""Shell completion as shells do it: the scripts that `ithaca completion` prints, in bash, and in zsh and fish where there
are such; keys pressed in a bash of its own terminal."""
import os
import pty
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest

from ithaca_e2e import ITHACA, LINE, DaemonTest, slowdown

LINES = LINE * 20
BASH = """source <(ithaca completion bash)
COMP_LINE=$1 COMP_POINT=${#1}
_ithaca ithaca
printf '%s\\n' "${COMPREPLY[@]}"
"""


class Completion(DaemonTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        file = cls.client.upload(LINES)["id"]
        cls.job = cls.client.submit(file, ithaca={"seq_len": 64, "hold": True})["id"]
        cls.folder = tempfile.mkdtemp(prefix="ithaca-completion-")
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        os.mkdir(os.path.join(cls.folder, "sub folder"))
        with open(os.path.join(cls.folder, "train a.jsonl"), "wb") as file:
            file.write(LINES)
        cls.environment = {**os.environ, "ITHACA_DATA_DIR": cls.daemon.data_dir, "HOME": cls.folder,
                           "PATH": os.path.dirname(ITHACA) + ":" + os.environ["PATH"]}

    def run_shell(self, *words):
        done = subprocess.run(words, capture_output=True, encoding="utf-8", timeout=30, env=self.environment,
                              cwd=self.folder, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout.split("\n")[:-1]

    def bash(self, line):
        """What bash would put in the place of the last word, or of its part after '=' or ':'."""
        return [one for one in self.run_shell("bash", "--norc", "-c", BASH, "bash", line) if one]

    def test_bash(self):
        for line, candidates in (("ithaca sub", ["submit"]),
                                 ("ithaca submit --fol", ["--follow"]),
                                 ("ithaca plan --backend=cu", ["cuda", "cuda_own"]),
                                 ("ithaca submit --set lora.exp", ["lora.export="]),
                                 ("ithaca submit --set hold=", ["true", "false"]),
                                 ("ithaca submit --training-file tr", ["train a.jsonl"]),
                                 ("ithaca submit --training-file=tr", ["train a.jsonl"]),
                                 ("ithaca download x --output su", ["sub folder"]),
                                 ("ithaca show ", [self.job]),
                                 ("ithaca show ftjob-", [self.job]),
                                 (f"ithaca --url http://127.0.0.1:{self.daemon.port} show ft", [self.job]),
                                 ("ithaca --url http://127.0.0.1:1 show ft", []),  # nobody is there: nothing is said
                                 ("ithaca zzz", [])):
            self.assertEqual(self.bash(line), candidates, line)
        self.assertIn("whoami", self.bash("ithaca "))

    def test_no_waiting_for_a_daemon(self):
        """One that is there and says nothing."""
        with socket.create_server(("127.0.0.1", 0)) as silent:
            start = time.monotonic()
            self.assertEqual(self.bash(f"ithaca --url http://127.0.0.1:{silent.getsockname()[1]} show ft"), [])
            self.assertLess(time.monotonic() - start, 5 * slowdown())

    def press(self, words, prompt, pairs):
        """Keys in a shell of a terminal, and what is seen then."""
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(self.folder)
            os.execvpe(words[0], words, self.environment | {"PS1": prompt, "TERM": "dumb"})
        try:
            for keys, expected in pairs:
                seen, deadline = b"", time.monotonic() + 100
                os.write(terminal, keys)
                while expected not in seen:
                    self.assertLess(time.monotonic(), deadline, (expected, seen))
                    if select.select([terminal], [], [], 0.1)[0]:
                        seen += os.read(terminal, 4096)
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            os.close(terminal)

    def test_bash_keys(self):
        """Tabs in a terminal: a word is finished, with a space; a field is not, until its value is there."""
        self.press(["bash", "--norc", "--noprofile", "-i"], "$ ",
                   ((b"source <(ithaca completion bash); echo rea''dy\n", b"ready\r\n"),
                    (b"ithaca subm\t", b"ithaca submit "), (b"--set lora.exp\t", b"lora.export="), (b"bo\t", b"both "),
                    (b"--training-file tr\t", b"train\\ a.jsonl ")))

    @unittest.skipUnless(shutil.which("fish"), "no fish")
    def test_fish(self):
        script = "ithaca completion fish | source; complete -C $argv[1]"
        for line, candidate in (("ithaca sub", "submit\tsubmit a fine-tuning job"), ("ithaca show ft", f"{self.job}\tqueued"),
                                ("ithaca submit --set lora.exp", "lora.export=\t"), ("ithaca queue dr", "drain\t"),
                                ("ithaca submit --training-file tr", "train a.jsonl")):
            found = self.run_shell("fish", "--no-config", "-c", script, line)
            self.assertTrue(found and found[0].startswith(candidate.replace("queued", "")), (line, found))

    @unittest.skipUnless(shutil.which("zsh"), "no zsh")
    def test_zsh(self):
        """Its functions run only where keys are pressed."""
        self.press(["zsh", "-f", "-i"], "% ",
                   ((b"autoload -Uz compinit; compinit -u -D; source <(ithaca completion zsh); echo rea''dy\n", b"ready"),
                    (b"ithaca subm\t", b"it "), (b"--set lora.exp\t", b"ort="), (b"bo\t", b"th "),
                    (b"--training-file tr\t", b"ain\\ a.jsonl")))


if __name__ == "__main__":
    unittest.main()
