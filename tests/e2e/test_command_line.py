"""The command line against a running daemon: files in and out, addresses and tokens, Ctrl-C."""
import http.server
import os
import signal
import stat
import subprocess
import tempfile
import threading
import unittest

from ithaca_e2e import ITHACA, Daemon, until

LINES = b'{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}]}\n' * 20


class Cli(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon()
        cls.file_id = cls.daemon.client().upload(LINES)["id"]

    @classmethod
    def tearDownClass(cls):
        cls.daemon.__exit__(None, None, None)

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
                self.assertEqual(reader.communicate(timeout=10)[0], LINES)
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
                said = follow.communicate(timeout=10)[1].decode()
            finally:
                follow.kill()
        self.assertEqual(follow.returncode, -signal.SIGINT)
        self.assertIn(f"the job goes on; see it: ithaca watch {job}, end it: ithaca cancel {job}\n", said)
        self.assertEqual(client.job(job)["ithaca"]["state"], "running")
        self.assertEqual(self.run_cli("cancel", job).stdout.decode(), f"{job} is cancelled\n")


if __name__ == "__main__":
    unittest.main()
