"""`ithaca top` in a terminal of its own: what it shows, its keys, other sizes, a daemon that goes and comes back; the
terminal is given back whatever ends it."""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import unittest

from ithaca_e2e import ITHACA, LINE, DaemonTest, processes_of, until

LINES = LINE * 20
ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?25h\x1b[?1049l"


class Terminal:
    """A pseudoterminal in which a program runs; frame is what the last whole drawing shows."""

    def __init__(self, *words, columns=110, rows=30, **variables):
        self.near, self.far = pty.openpty()
        self.resize(columns, rows)
        self.before = termios.tcgetattr(self.far)
        environment = {**os.environ, "TERM": "xterm", **variables}
        self.process = subprocess.Popen([ITHACA, *words], stdin=self.far, stdout=self.far, stderr=subprocess.PIPE,
                                        env=environment, start_new_session=True)
        self.seen = b""

    def resize(self, columns, rows):
        fcntl.ioctl(self.far, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self):
        while select.select([self.near], [], [], 0)[0]:
            self.seen += os.read(self.near, 65536)

    @property
    def frame(self):
        """The last drawing that is whole: it ends by clearing what is below it."""
        self.read()
        frames = re.findall(rb"\x1b\[H((?:(?!\x1b\[H).)*)\x1b\[J", self.seen, re.S)
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", frames[-1].decode()) if frames else ""

    def until(self, text, seconds=10):
        """The frame that shows the text."""
        try:
            return until(f"{text!r} is shown", seconds, lambda: text in self.frame and self.frame)
        except AssertionError as missing:
            raise AssertionError(f"{missing}; there is\n{self.frame}") from None

    def until_not(self, text, seconds=10):
        until(f"{text!r} is shown no more", seconds, lambda: text not in self.frame)

    def keys(self, text):
        os.write(self.near, text.encode())

    def end(self):
        """Its exit status; what it left on stderr."""
        try:
            errors = self.process.communicate(timeout=60)[1]
        finally:
            self.process.kill()
        self.read()
        return self.process.returncode, errors

    def is_given_back(self):
        self.read()
        return self.seen.rstrip().endswith(LEAVE) and termios.tcgetattr(self.far) == self.before

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stderr.close()
        os.close(self.near)
        os.close(self.far)


class Top(DaemonTest):
    arguments = ("--cpu-slots", "2")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.file = cls.client.upload(LINES)["id"]
        cls.daemon.hold(3)
        cls.running = cls.submit()
        until("a step", 30, lambda: cls.client.job(cls.running)["ithaca"]["steps_done"] == 3)
        cls.first, cls.second = cls.queued(), cls.queued()

    @classmethod
    def submit(cls):
        return cls.client.submit(cls.file, ithaca={"seq_len": 64, "max_steps": 9, "gpus": 2,
                                                   "batch": {"sequences": 2}})["id"]

    @classmethod
    def queued(cls):
        return cls.client.wait(cls.submit(), ("queued",))["id"]

    def open(self, **more):
        terminal = Terminal("top", "--data-dir", self.daemon.data_dir, **more)
        self.addCleanup(terminal.close)
        return terminal

    def test_1_once(self):
        done = self.daemon.ithaca("top", "--once")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("\x1b", done.stdout)
        self.assertRegex(done.stdout, rf"{self.running} +admin +running +3/9 +[0-9.]+ +[0-9]+ .*tiny-llama\n")
        self.assertRegex(done.stdout, rf"1 +{self.first} +admin +queued .* needs 2 of 2 slots")
        environment = {**os.environ, "COLUMNS": "50"}
        narrow = subprocess.run([ITHACA, "top", "--once", "--data-dir", self.daemon.data_dir], capture_output=True,
                                encoding="utf-8", timeout=30, check=True, env=environment)
        self.assertLessEqual(max(len(line) for line in narrow.stdout.splitlines()), 50)
        done = self.daemon.ithaca("top")  # no terminal
        self.assertEqual(done.returncode, 64)
        self.assertIn("--once", done.stderr)

    def test_2_keys(self):
        terminal = self.open(NO_COLOR="1")
        frame = terminal.until(f"> {self.running}")
        self.assertIn(ENTER, terminal.seen)
        self.assertNotRegex(terminal.seen, rb"\x1b\[\d+m.*\x1b\[7m")
        self.assertEqual(len(frame.splitlines()), 30)
        terminal.keys("j")
        terminal.until(f"> 1  {self.first}")
        terminal.keys("\x1b[B")  # down
        terminal.until(f"> 2  {self.second}")
        terminal.keys("\x1b[Ak\r")
        frame = terminal.until("memory of a rank: ")
        self.assertTrue(frame.startswith("ithaca top"))
        self.assertRegex(frame, rf"\n{self.running}  running  tiny-llama  of admin")
        self.assertRegex(frame, r"\n\d\d:\d\d:\d\dZ  info +")
        terminal.keys("q")
        terminal.until(f"> {self.running}")
        terminal.keys("jjc")
        terminal.until(f"cancel {self.second}?")
        terminal.keys("n")
        terminal.until_not(f"cancel {self.second}?")
        terminal.keys("cy")
        terminal.until(f"{self.second} is cancelled", 60)
        self.assertEqual(self.client.job(self.second)["ithaca"]["state"], "cancelled")
        terminal.keys("q")
        self.assertEqual(terminal.end(), (0, b""))
        self.assertTrue(terminal.is_given_back())

    def test_3_sizes_and_stops(self):
        terminal = self.open()
        terminal.until(f"> {self.running}")
        self.assertIn(b"\x1b[7m> ftjob", terminal.seen)
        terminal.resize(40, 8)
        terminal.process.send_signal(signal.SIGWINCH)
        until("it is drawn for the new size", 5, lambda: len(terminal.frame.splitlines()) == 8)
        widest = max(terminal.frame.splitlines(), key=len)
        self.assertLessEqual(len(widest), 40, repr(widest))
        terminal.process.send_signal(signal.SIGTSTP)
        until("it has stopped", 5, lambda: os.waitid(os.P_PID, terminal.process.pid,
                                                     os.WSTOPPED | os.WNOHANG | os.WNOWAIT))
        self.assertTrue(terminal.is_given_back())
        terminal.seen = b""
        terminal.process.send_signal(signal.SIGCONT)
        terminal.until(self.running[:10])
        self.assertTrue(terminal.seen.startswith(ENTER))
        terminal.process.send_signal(signal.SIGTERM)
        self.assertEqual(terminal.end()[0], -signal.SIGTERM)
        self.assertTrue(terminal.is_given_back())

    def test_4_daemon_goes_and_comes_back(self):
        """On another port. A job is paused from here."""
        terminal = self.open()
        terminal.until(f"> {self.running}")
        self.daemon.kill()
        terminal.until("lost: ")
        self.daemon.start()
        terminal.until_not("lost: ")
        terminal.until(f"> {self.running}")  # it was not there for a moment, and is selected again
        ranks = [pid for pid, command in processes_of(self.running) if "--rank" in command.split()]
        self.assertEqual(len(ranks), 2)
        for rank in ranks:  # what takes long is not waited for, but followed
            os.kill(rank, signal.SIGSTOP)
        terminal.keys("p")
        terminal.until(f"{self.running} is pausing")
        for rank in ranks:
            os.kill(rank, signal.SIGCONT)
        terminal.until(f"{self.running} is paused", 60)
        terminal.process.send_signal(signal.SIGINT)
        self.assertEqual(terminal.end()[0], -signal.SIGINT)
        self.assertTrue(terminal.is_given_back())


if __name__ == "__main__":
    unittest.main()
