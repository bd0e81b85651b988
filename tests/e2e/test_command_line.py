"""The command line against a running daemon: files in and out, addresses and tokens, Ctrl-C."""
import http.server
import json
import os
import re
import signal
import socket
import stat
import subprocess
import tempfile
import threading
import unittest

from ithaca_e2e import ITHACA, LINE, Daemon, DaemonTest, until

LINES = LINE * 20


class Cli(DaemonTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.file_id = cls.client.upload(LINES)["id"]

    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.place = place.name

    def run_cli(self, *arguments, data_dir=None, **variables):
        """Environment: the daemon's folder (data_dir=None) and nothing else of Ithaca, but for what is given."""
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith("ITHACA_") and name.lower() not in ("http_proxy", "no_proxy")}
        environment["ITHACA_DATA_DIR"] = self.daemon.data_dir if data_dir is None else data_dir
        environment.update(variables)
        return subprocess.run([ITHACA, *arguments], capture_output=True, timeout=60, check=False, env=environment)

    def test_get_writes_what_was_uploaded(self):
        output = os.path.join(self.place, "file.jsonl")
        done = self.run_cli("files", "get", self.file_id, "--output", output)
        self.assertEqual((done.returncode, done.stdout), (0, b""), done.stderr)
        with open(output, "rb") as file:
            self.assertEqual(file.read(), LINES)
        self.assertEqual(self.run_cli("files", "get", self.file_id).stdout, LINES)
        missing = os.path.join(self.place, "missing.jsonl")
        done = self.run_cli("files", "get", "file-none", "--output", missing)
        self.assertEqual(done.returncode, 66)
        self.assertEqual(os.listdir(self.place), ["file.jsonl"])  # nothing half there either

    def test_get_leaves_links_and_pipes_what_they_are(self):
        target, link, pipe = (os.path.join(self.place, name) for name in ("target", "link", "pipe"))
        os.symlink("target", link)
        with open(target, "wb") as file:
            file.write(b"old")
        self.assertEqual(self.run_cli("files", "get", self.file_id, "--output", link).returncode, 0)
        self.assertTrue(os.path.islink(link))
        with open(target, "rb") as file:
            self.assertEqual(file.read(), LINES)
        os.mkfifo(pipe)
        with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE) as reader:
            try:
                self.assertEqual(self.run_cli("files", "get", self.file_id, "--output", pipe).returncode, 0)
                self.assertTrue(stat.S_ISFIFO(os.stat(pipe).st_mode))
                self.assertEqual(reader.communicate(timeout=60)[0], LINES)
            finally:
                reader.kill()

    def test_upload_of_a_folder_is_refused(self):
        for arguments in (["files", "upload", self.place],
                          ["submit", "--model", "tiny-llama", "--training-file", self.place]):
            done = self.run_cli(*arguments)
            self.assertEqual(done.returncode, 65)
            self.assertIn(b"is a folder; upload one file", done.stderr)
        done = self.run_cli("files", "upload", os.path.join(self.place, "none"))
        self.assertEqual(done.returncode, 66)
        self.assertIn(b"none: No such file", done.stderr)

    def test_unusual_names(self):
        for name in ("we ird \"n\u00e4me\";$(x).jsonl", "-v.jsonl", "a,b;type=text.jsonl"):
            path = os.path.join(self.place, name)
            with open(path, "wb") as file:
                file.write(LINES)
            done = self.run_cli("files", "upload", path)
            self.assertEqual(done.returncode, 0, done.stderr)
            file_id = done.stdout.decode().strip()
            self.assertEqual(self.run_cli("files", "get", file_id).stdout, LINES)
            self.assertEqual(self.run_cli("files", "rm", file_id).returncode, 0)

    def test_this_machine_is_reached_past_a_proxy(self):
        nowhere = {"http_proxy": "http://127.0.0.1:1"}
        self.assertEqual(self.run_cli("ls", **nowhere).returncode, 0)
        for host in ("localhost", "127.0.0.1"):
            done = self.run_cli("--url", f"http://{host}:{self.daemon.port}/", "ls", **nowhere)
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_token_goes_to_its_own_daemon_only(self):
        seen = []

        class Stranger(http.server.BaseHTTPRequestHandler):
            def do_GET(self):  # pylint: disable=invalid-name
                seen.append(self.headers.get("Authorization"))
                self.send_response(401)
                self.end_headers()

            def log_message(self, *arguments):
                pass

        with tempfile.TemporaryDirectory() as home, http.server.HTTPServer(("127.0.0.1", 0), Stranger) as server:
            os.symlink(self.daemon.data_dir, os.path.join(home, "ithaca"))
            threading.Thread(target=server.serve_forever, daemon=True).start()
            url = f"http://127.0.0.1:{server.server_port}"
            found = {"data_dir": "", "XDG_DATA_HOME": home}  # nobody named the folder
            done = self.run_cli("--url", url, "ls", **found)
            self.assertEqual(done.returncode, 77)
            self.assertIn(b"set ITHACA_TOKEN", done.stderr)
            self.run_cli("--url", url, "ls", ITHACA_TOKEN="given", **found)
            self.run_cli("--url", url, "ls")
            server.shutdown()
            self.assertEqual(seen, [None, "Bearer given", f"Bearer {self.daemon.token}"])
            done = self.run_cli("--url", f"http://localhost:{self.daemon.port}", "ls", **found)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(self.run_cli("ls", ITHACA_URL="", **found).returncode, 0)

    def test_refused_jobs_leave_no_file_behind(self):
        """Or say which, and how to use it: one that only the submit itself refuses."""
        path = os.path.join(self.place, "train.jsonl")
        with open(path, "wb") as file:
            file.write(LINES)
        files = self.run_cli("files", "ls").stdout
        for options in (["--model", "no-such-model"], ["--model", "tiny-llama", "--set", "seq_len=0"],
                        ["--model", "tiny-llama", "--set", "gpus=63"],
                        ["--model", "tiny-llama", "--validation-file", os.path.join(self.place, "absent.jsonl")]):
            done = self.run_cli("submit", "--training-file", path, *options)
            self.assertNotEqual(done.returncode, 0, options)
            self.assertEqual(self.run_cli("files", "ls").stdout, files, (options, done.stderr))
        done = self.run_cli("submit", "--training-file", path, "--model", "tiny-llama", "--set", "seq_len=64", "--set",
                            'depends_on=["ftjob-none"]')
        self.assertNotEqual(done.returncode, 0)
        said = re.search(rb"^(file-\S+) stays: submit with --training-file \1, or remove it: ithaca files rm \1$",
                         done.stderr, re.M)
        self.assertTrue(said, done.stderr)
        self.assertEqual(self.run_cli("files", "rm", said[1].decode()).returncode, 0)
        self.assertEqual(self.run_cli("files", "ls").stdout, files)

    def test_ctrl_c_leaves_the_job_and_says_so(self):
        path = os.path.join(self.place, "train.jsonl")
        with open(path, "wb") as file:
            file.write(LINES)
        environment = {**os.environ, "ITHACA_DATA_DIR": self.daemon.data_dir}
        command = [ITHACA, "submit", "--model", "tiny-llama", "--training-file", path, "--follow", "--set",
                   "seq_len=64", "--set", "max_steps=100000"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as follow:
            try:
                job = follow.stdout.readline().decode().strip()
                client = self.daemon.client()
                until("the job runs", 30, lambda: client.job(job)["ithaca"]["state"] == "running")
                while b"running" not in follow.stderr.readline():
                    pass
                follow.send_signal(signal.SIGINT)
                said = follow.communicate(timeout=60)[1].decode()
            finally:
                follow.kill()
        self.assertEqual(follow.returncode, -signal.SIGINT)
        self.assertIn(f"the job goes on; see it: ithaca watch {job}, end it: ithaca cancel {job}\n", said)
        self.assertEqual(client.job(job)["ithaca"]["state"], "running")
        self.assertEqual(self.run_cli("cancel", job).stdout.decode(), f"{job} is cancelled\n")

    def test_more_than_a_page_and_deletion(self):
        client = self.daemon.client()
        jobs = [client.submit(self.file_id, ithaca={"seq_len": 64, "max_steps": 1, "hold": True})["id"] for _ in range(2)]
        done = self.run_cli("ls", "--limit", "1")
        self.assertIn(jobs[1], done.stdout.decode())
        self.assertEqual(done.stderr.decode(), "these are the newest 1; there are older jobs: --limit N shows more\n")
        self.assertEqual(self.run_cli("ls", "--limit", "1000").stderr, b"")
        until("the job is checked", 30, lambda: client.job(jobs[0])["ithaca"]["state"] == "queued")
        self.assertIn(b"there are older events", self.run_cli("events", jobs[0], "--limit", "1").stderr)
        self.assertIn(b"cancel it", self.run_cli("rm", jobs[0]).stderr)
        ended = client.wait(client.submit(self.file_id, ithaca={"seq_len": 64, "max_steps": 1})["id"])["id"]
        later = client.submit(self.file_id, ithaca={"seq_len": 64, "hold": True, "depends_on": [ended]})["id"]
        self.assertIn(f"job {later} depends on it".encode(), self.run_cli("rm", ended).stderr)
        jobs += [later, ended]
        for job in jobs:
            self.run_cli("cancel", job)  # the last one has ended: refused
            self.assertRegex(self.run_cli("rm", job).stdout.decode(), rf"^{job} is deleted: [0-9.]+ MiB are freed\n$")
            self.assertIn(b"there is no", self.run_cli("show", job).stderr)
            self.assertFalse(os.path.exists(os.path.join(self.daemon.data_dir, "jobs", job)))
        until("the trash is empty", 20, lambda: not os.listdir(os.path.join(self.daemon.data_dir, "trash")))


class Stall:
    """A relay to a daemon whose connections can fall silent without being closed, as behind a router that forgot them."""

    def __init__(self, port):
        self.target, self.silent, self.served = port, threading.Event(), 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            near, _ = self.listener.accept()
            far = socket.create_connection(("127.0.0.1", self.target))
            self.served += 1
            silent = self.silent  # of this connection: later ones have the next event
            threading.Thread(target=self.relay, args=(near, far, silent), daemon=True).start()
            threading.Thread(target=self.relay, args=(far, near, silent), daemon=True).start()

    @staticmethod
    def relay(source, sink, silent):
        while data := source.recv(65536):
            if not silent.is_set():
                sink.sendall(data)
        if not silent.is_set():
            sink.close()

    def stall(self):
        """Connections that are open now say nothing more; later ones work."""
        before, self.silent = self.silent, threading.Event()
        before.set()


class Watch(unittest.TestCase):
    def test_stalled_stream_is_taken_up_again(self):
        with Daemon() as daemon:
            client, relay = daemon.client(), Stall(daemon.port)
            daemon.hold(2)
            file = client.upload(LINES)
            job = client.submit(file["id"], ithaca={"seq_len": 64, "max_steps": 4, "batch": {"sequences": 2}})["id"]
            environment = {**os.environ, "ITHACA_URL": f"http://127.0.0.1:{relay.port}", "ITHACA_TOKEN": daemon.token,
                           "ITHACA_STREAM_SILENCE_S": "2"}
            with subprocess.Popen([ITHACA, "--json", "watch", job], stdout=subprocess.PIPE, env=environment) as watch:
                try:
                    lines = []
                    while not any('"step":2' in line for line in lines):
                        lines.append(watch.stdout.readline().decode())
                    relay.stall()
                    served = relay.served
                    daemon.hold(None)
                    rest = watch.communicate(timeout=120)[0].decode().splitlines()
                finally:
                    watch.kill()
            self.assertEqual(watch.returncode, 0)
            self.assertGreater(relay.served, served)
            events = [json.loads(line) for line in lines + rest]
            self.assertEqual(events[-1]["event"], "end")
            steps = [one["data"]["step"] for one in events if one["event"] == "metrics" and "loss" in one["data"]["metrics"]]
            self.assertEqual(steps, [1, 2, 3, 4])  # none is lost, none comes twice


if __name__ == "__main__":
    unittest.main()
