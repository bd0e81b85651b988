"""ithacad under a service manager, which this test plays: it is told of every state, hears the heartbeat, and passes sockets that
outlive the daemon. The units are held against systemd's own checks, where it is installed."""
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import unittest

import ithaca_e2e as e2e

UNITS = os.path.join(e2e.BUILD_DIR, "deploy")


class Manager:
    """Starts ithacad as systemd would: descriptors from 3 on, LISTEN_PID its own."""

    def __init__(self, abstract=False):
        self.folder = tempfile.mkdtemp(prefix="ithaca-e2e-")
        self.data_dir = os.path.join(self.folder, "data")
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        name = f"{self.folder}/notify"
        self.notify.bind("\0" + name if abstract else name)
        self.notify.settimeout(20)
        self.env = {"NOTIFY_SOCKET": "@" + name if abstract else name}
        self.process = None

    def start(self, *args, pass_on=(), listen_pid="$$", **env):
        """pass_on: sockets, which get the descriptors 3, 4, ..."""
        # Kept above those they will be, so that none is overwritten before it is moved.
        high = [fcntl.fcntl(each.fileno(), fcntl.F_DUPFD, 64) for each in pass_on]
        moves = " ".join(f"{3 + i}<&{fd} {fd}<&-" for i, fd in enumerate(high))
        command = f'LISTEN_PID={listen_pid} exec "$0" run "$@" {moves}'
        env = {**os.environ, **self.env, **env}
        if pass_on:
            env["LISTEN_FDS"] = str(len(pass_on))
        with open(f"{self.folder}/log", "ab") as log:
            self.process = subprocess.Popen(["/bin/bash", "-c", command, e2e.ITHACAD, "--data-dir", self.data_dir, *args],
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=high, env=env)
        for fd in high:
            os.close(fd)

    def log(self):
        with open(f"{self.folder}/log", encoding="utf-8", errors="replace") as file:
            return file.read()

    def hear(self, wanted):
        """Messages up to the one that has a line that is wanted."""
        heard = []
        while not heard or wanted not in heard[-1]:
            try:
                heard.append(self.notify.recv(4096).decode().split("\n"))
            except socket.timeout:
                raise AssertionError(f"no {wanted}, only {heard}\n{self.log()}") from None
        return heard

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(20)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if kind is not None:
            print(f"--- log of ithacad\n{self.log()}---")
        self.notify.close()
        shutil.rmtree(self.folder)


def listener(family, address):
    made = socket.socket(family, socket.SOCK_STREAM)
    made.bind(address)
    made.listen(16)
    return made


def ask(family, address):
    """A request is sent; the answer is for answer()."""
    client = socket.socket(family, socket.SOCK_STREAM)
    client.settimeout(20)
    client.connect(address)
    client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    return client


def answer(client):
    with client:
        return client.recv(65536).split(b"\r\n", 1)[0]


class Service(unittest.TestCase):
    def test_is_told_of_every_state(self):
        for abstract in (False, True):
            with self.subTest(abstract=abstract), Manager(abstract) as manager:
                manager.start("--port", "0", WATCHDOG_USEC="200000")
                heard = manager.hear("READY=1")
                self.assertIn("EXTEND_TIMEOUT_USEC=1800000000", heard[0])
                self.assertTrue(os.path.exists(os.path.join(manager.data_dir, "url")), "ready before it serves")
                for _ in range(3):
                    manager.hear("WATCHDOG=1")
                manager.process.send_signal(signal.SIGTERM)
                manager.hear("STOPPING=1")
                self.assertEqual(manager.process.wait(20), 0)
                self.assertNotIn("does not reach", manager.log())

    def test_heartbeat_is_only_for_whom_it_is_asked_of(self):
        with Manager() as manager:
            manager.start("--port", "0", WATCHDOG_USEC="20000", WATCHDOG_PID="1")
            manager.hear("READY=1")
            manager.process.send_signal(signal.SIGTERM)
            heard = manager.hear("STOPPING=1")
            self.assertEqual(manager.process.wait(20), 0)
            self.assertNotIn(["WATCHDOG=1"], heard)

    def test_a_manager_that_is_gone_stops_nothing(self):
        with Manager() as manager:
            os.unlink(f"{manager.folder}/notify")
            manager.start("--port", "0")
            e2e.until("ithacad serves", 20, lambda: os.path.exists(os.path.join(manager.data_dir, "url")))
            self.assertEqual(manager.stop(), 0)
            self.assertIn("does not reach", manager.log())

    def test_passed_sockets_outlive_the_daemon(self):
        with Manager() as manager:
            path = f"{manager.folder}/socket"
            with listener(socket.AF_UNIX, path) as local, listener(socket.AF_INET, ("127.0.0.1", 0)) as tcp:
                doors = [(socket.AF_UNIX, path), (socket.AF_INET, tcp.getsockname())]
                other = os.path.join(manager.folder, "unused")
                for _ in range(2):
                    early = [ask(*door) for door in doors]  # while nobody is there
                    # The daemon's own settings name other places; what is passed counts.
                    manager.start("--listen", "127.0.0.2", "--port", "1", "--socket", other, pass_on=[local, tcp])
                    manager.hear("READY=1")
                    for client in early + [ask(*door) for door in doors]:
                        self.assertEqual(answer(client), b"HTTP/1.1 200 OK")
                    with open(os.path.join(manager.data_dir, "url"), encoding="utf-8") as file:
                        self.assertEqual(file.read(), f"http://127.0.0.1:{tcp.getsockname()[1]}\n")
                    for fd in (3, 4):  # no rank or other child gets them
                        with open(f"/proc/{manager.process.pid}/fdinfo/{fd}", encoding="utf-8") as file:
                            flags = next(line.split()[1] for line in file if line.startswith("flags:"))
                        self.assertTrue(int(flags, 8) & os.O_CLOEXEC)
                    self.assertEqual(manager.stop(), 0)
                    self.assertTrue(os.path.exists(path))
                    self.assertFalse(os.path.exists(other))

    def test_ipv6_is_passed(self):
        try:
            tcp = listener(socket.AF_INET6, ("::1", 0))
        except OSError:
            self.skipTest("no IPv6 here")
        with tcp, Manager() as manager:
            manager.start(pass_on=[tcp])
            manager.hear("READY=1")
            self.assertEqual(answer(ask(socket.AF_INET6, tcp.getsockname())), b"HTTP/1.1 200 OK")
            self.assertEqual(manager.stop(), 0)

    def test_sockets_that_cannot_be_used_are_refused(self):
        with listener(socket.AF_INET, ("127.0.0.1", 0)) as one, listener(socket.AF_INET, ("127.0.0.1", 0)) as two, \
                socket.socket(socket.AF_INET, socket.SOCK_STREAM) as deaf, \
                listener(socket.AF_UNIX, f"\0ithaca-test-{os.getpid()}") as abstract:
            for passed, reason in (([one, two], "descriptors 3 and 4 are both TCP; ithacad takes one of each"),
                                   ([one, deaf], "descriptor 4 is no socket that listens"),
                                   ([abstract], "descriptor 3 is neither TCP nor a Unix socket with a path")):
                with self.subTest(reason), Manager() as manager:
                    manager.start("--port", "0", pass_on=passed)
                    self.assertEqual(manager.process.wait(20), 78)
                    self.assertIn("LISTEN_FDS: " + reason, manager.log())

    def test_sockets_of_another_process_are_left_alone(self):
        with listener(socket.AF_INET, ("127.0.0.1", 0)) as tcp, Manager() as manager:
            manager.start("--port", "0", pass_on=[tcp], listen_pid="1")
            manager.hear("READY=1")
            with open(os.path.join(manager.data_dir, "url"), encoding="utf-8") as file:
                self.assertNotIn(f":{tcp.getsockname()[1]}\n", file.read())
            self.assertEqual(manager.stop(), 0)


@unittest.skipUnless(shutil.which("systemd-analyze"), "systemd is not installed")
@unittest.skipUnless(os.path.exists(os.path.join(UNITS, "ithacad.service")), "built without ITHACA_SERVICE")
class Units(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="ithaca-e2e-")
        self.addCleanup(shutil.rmtree, self.folder)
        for unit in ("ithacad.service", "ithacad.socket"):
            with open(os.path.join(UNITS, unit), encoding="utf-8") as file:
                text = file.read()
            with open(os.path.join(self.folder, unit), "w", encoding="utf-8") as file:
                file.write(text.replace("/usr/bin/ithacad", e2e.ITHACAD))

    def analyze(self, *words):
        done = subprocess.run(["systemd-analyze", *words], capture_output=True, encoding="utf-8", timeout=60, check=False)
        return done.returncode, done.stdout + done.stderr

    def test_are_understood(self):
        paths = [os.path.join(self.folder, unit) for unit in ("ithacad.service", "ithacad.socket")]
        _, told = self.analyze("verify", "--man=no", *paths)
        # Before systemd 254 there is no DelegateSubgroup=; the file says so.
        wrong = [line for line in told.splitlines() if "ithacad" in line and "'DelegateSubgroup'" not in line]
        self.assertEqual(wrong, [])

    def test_an_error_would_be_seen(self):
        path = os.path.join(self.folder, "ithacad.service")
        with open(path, "a", encoding="utf-8") as file:
            file.write("[Service]\nKillMood=process\n")
        self.assertIn("KillMood", self.analyze("verify", "--man=no", path)[1])

    def test_are_hardened(self):
        status, told = self.analyze("security", "--offline=yes", "--threshold=35", os.path.join(self.folder, "ithacad.service"))
        if "unrecognized option" in told:
            self.skipTest("this systemd-analyze has no --offline")
        self.assertEqual(status, 0, told)


if __name__ == "__main__":
    unittest.main()
