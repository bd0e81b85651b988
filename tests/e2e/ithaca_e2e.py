"""What end-to-end tests share: a daemon of their own on a free port, a client, raw sockets. Standard library only.

    with Daemon() as daemon:
        client = daemon.client()
        answer = client.get("/v1/models")
        assert answer.status == 200, answer.text
        job = client.submit(file_id, model="tiny-llama", ithaca={"gpus": 2})
        job = client.wait(job["id"])

The daemon is stopped by its pid when the block ends, and its log is printed when the block failed.
"""
import http.client
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import unittest

from openapi_check import Document

SOURCE_DIR = os.environ.get("ITHACA_SOURCE_DIR") or os.path.dirname(
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD_DIR = os.environ.get("ITHACA_BUILD_DIR") or os.path.join(SOURCE_DIR, "build", "ci")
ITHACAD = os.path.join(BUILD_DIR, "daemon", "ithacad")
ITHACA = os.path.join(BUILD_DIR, "clients", "ithaca")
WORKER = os.path.join(BUILD_DIR, "worker", "ithaca-worker")
EXAMPLE_DIR = os.path.join(SOURCE_DIR, "deploy", "example")
OPENAPI = Document(os.path.join(SOURCE_DIR, "api", "openapi.json"))
LINE = b'{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}]}\n'  # of a training file
END_STATES = ("succeeded", "failed", "cancelled")


PATIENCE = 5  # a machine that others keep busy may take so many times as long


def until(what, seconds, question, every=0.05):
    """Asks again until the answer is true; fails after some seconds of a quiet machine. Returns the answer."""
    deadline = time.monotonic() + PATIENCE * seconds
    while True:
        answer = question()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {PATIENCE * seconds} s")
        time.sleep(every)


def slowdown():
    """How many times as long as alone what computes takes now, with all else that runs here. For limits of time."""
    wall, used = time.monotonic(), time.process_time()
    while time.process_time() - used < 0.1:
        pass
    return max(1.0, (time.monotonic() - wall) / 0.1)


class Answer:
    """A whole HTTP answer."""

    def __init__(self, response):
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()

    @property
    def text(self):
        return self.body.decode("utf-8", "replace")

    def json(self):
        return json.loads(self.body)

    def error(self):
        """The error object, its shape checked."""
        error = self.json()["error"]
        assert sorted(error) == ["code", "message", "param", "type"], error
        return error


class Client:
    """Requests with the admin's token; one connection a request. Every answer is held against api/openapi.json."""

    def __init__(self, port, token, timeout=60):
        self.port, self.token, self.timeout = port, token, timeout

    def request(self, method, path, body=None, headers=None, token=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=self.timeout)
        sent = {"Authorization": f"Bearer {self.token if token is None else token}"}
        sent.update(headers or {})
        return self.exchange(connection, method, path, body, sent)

    @staticmethod
    def exchange(connection, method, path, body, sent):
        """One request over a connection that ends with it."""
        if isinstance(body, (dict, list)):
            body = json.dumps(body).encode()
            sent.setdefault("Content-Type", "application/json")
        try:
            connection.request(method, path, body=body, headers=sent)
            answer = Answer(connection.getresponse())
            OPENAPI.check(method, path, answer.status, answer.headers["Content-Type"], answer.body)
            return answer
        finally:
            connection.close()

    def get(self, path, **more):
        return self.request("GET", path, **more)

    def post(self, path, body=None, **more):
        return self.request("POST", path, body=body, **more)

    def delete(self, path, **more):
        return self.request("DELETE", path, **more)

    def user(self, name, scope="submit"):
        """A client for another user, by a token that this one makes."""
        answer = self.post("/v1/tokens", {"user": name, "scope": scope})
        assert answer.status == 200, answer.text
        return Client(self.port, answer.json()["token"])

    def upload(self, data, filename="train.jsonl", purpose="fine-tune"):
        """Bytes, or the path of a file; returns the file object."""
        if isinstance(data, str):
            with open(data, "rb") as file:
                data = file.read()
        body, kind = form([("purpose", None, purpose.encode()), ("file", filename, data)])
        answer = self.post("/v1/files", body, headers={"Content-Type": kind})
        assert answer.status == 200, answer.text
        return answer.json()

    def submit(self, training_file, model="tiny-llama", **fields):
        answer = self.post("/v1/fine_tuning/jobs", {"model": model, "training_file": training_file, **fields})
        assert answer.status == 200, answer.text
        return answer.json()

    def job(self, job_id):
        answer = self.get(f"/v1/fine_tuning/jobs/{job_id}")
        assert answer.status == 200, answer.text
        return answer.json()

    def wait(self, job_id, states=END_STATES, seconds=60):
        """The job, once its ithaca.state is one of the states."""
        def question():
            job = self.job(job_id)
            return job if job["ithaca"]["state"] in states else None
        return until(f"{job_id} is {' or '.join(states)}", seconds, question)

    def cancel(self, job_id):
        """The job, cancelled. The request itself may be answered before."""
        answer = self.post(f"/v1/fine_tuning/jobs/{job_id}/cancel")
        assert answer.status == 200, answer.text
        return self.wait(job_id, ("cancelled",))

    def stream(self, path, last_event_id=None):
        """Messages of an event stream: (event, id, data); comments are left out. Ends when the stream does."""
        headers = {"Authorization": f"Bearer {self.token}"}
        if last_event_id is not None:
            headers["Last-Event-ID"] = last_event_id
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=self.timeout)
        try:
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            assert response.status == 200, response.read()
            fields = {}
            for line in response:
                line = line.decode().rstrip("\n")
                if line.startswith(":"):
                    continue
                if line:
                    key, _, value = line.partition(": ")
                    fields[key] = value
                    continue
                if "data" in fields:
                    yield fields.get("event", "message"), fields.get("id"), json.loads(fields["data"])
                fields = {}
        finally:
            connection.close()


def form(parts, boundary="ithaca-test-boundary"):
    """multipart/form-data of (name, filename or None, bytes); returns body and Content-Type."""
    body = b""
    for name, filename, data in parts:
        named = f'; filename="{filename}"' if filename is not None else ""
        body += f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"{named}\r\n\r\n'.encode()
        body += data + b"\r\n"
    return body + f"--{boundary}--\r\n".encode(), f"multipart/form-data; boundary={boundary}"


def raw(port, data, seconds=10):
    """Sends bytes as they are; returns all that comes back until the server closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as connection:
        connection.sendall(data)
        got = b""
        try:
            while piece := connection.recv(65536):
                got += piece
        except ConnectionResetError:
            pass
        return got


class Daemon:
    """An ithacad with a data folder of its own (removed at the end unless it was given).

    Its jobs run on the CPU, whatever the machine has, unless a file plays GPUs or another device is asked for."""

    def __init__(self, *args, data_dir=None, env=None, wait=True, before=None, device="cpu"):
        self.own_dir = data_dir is None
        self.data_dir = data_dir or tempfile.mkdtemp(prefix="ithaca-e2e-")
        self.log_path = os.path.join(self.data_dir, "ithacad.log")
        self.args, self.process, self.device = args, None, device
        self.before = before  # called in each daemon's process before it is one
        self.gate_path = os.path.join(self.data_dir, "step.gate")
        self.env = {"ITHACA_WORKER_STEP_GATE": self.gate_path, **(env or {})}
        self.start(wait)

    def hold(self, last_step):
        """No job of this daemon begins a step above this one, however fast the machine is; None: all go on."""
        if last_step is None:
            if os.path.exists(self.gate_path):
                os.unlink(self.gate_path)
            return
        with open(self.gate_path + ".new", "w", encoding="utf-8") as file:
            file.write(f"{last_step}\n")
        os.rename(self.gate_path + ".new", self.gate_path)

    def start(self, wait=True):
        device = "auto" if "--gpu-file" in self.args else self.device
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                [ITHACAD, "run", "--data-dir", self.data_dir, "--port", "0", *self.args],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=self.before,
                env={**os.environ, "ITHACA_DEVICE": device, **self.env})
        if wait:
            until("ithacad listens", 30, lambda: self.exists("url") or self.process.poll() is not None)
            assert self.process.poll() is None, self.log()

    def exists(self, name):
        return os.path.exists(os.path.join(self.data_dir, name))

    def read(self, name):
        with open(os.path.join(self.data_dir, name), encoding="utf-8") as file:
            return file.read().strip()

    @property
    def port(self):
        return int(self.read("url").rsplit(":", 1)[1])

    @property
    def token(self):
        return self.read("admin.token")

    def client(self, **more):
        return Client(self.port, self.token, **more)

    def ithaca(self, *words, seconds=60):
        """The command line, for this daemon."""
        return subprocess.run([ITHACA, "--data-dir", self.data_dir, *words], capture_output=True, encoding="utf-8",
                              timeout=seconds, check=False)

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def stop(self, seconds=20 * PATIENCE):
        """SIGTERM; returns the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=seconds)

    def kill(self):
        """SIGKILL; what it has started lives on. start() begins the next one on the same folder."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if self.exists("url"):  # it names a dead port
            os.unlink(os.path.join(self.data_dir, "url"))

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        try:
            self.stop()
        except subprocess.TimeoutExpired:
            self.kill()
            kind = kind or AssertionError
        if kind is not None:
            print(f"--- log of ithacad\n{self.log()}---", file=sys.stderr)
        if self.own_dir:
            shutil.rmtree(self.data_dir, ignore_errors=True)


class DaemonTest(unittest.TestCase):
    """Tests that share a daemon (self.daemon) and its admin's client (self.client). A class names the arguments and the
    environment of its own."""
    arguments, env = (), None

    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon(*cls.arguments, env=cls.env)
        cls.addClassCleanup(cls.daemon.__exit__, None, None, None)
        cls.client = cls.daemon.client()


def device_for(ranks):
    """The device of a daemon for jobs of so many ranks: its own choice, but the CPU where there are too few GPUs."""
    with Daemon(device="auto") as daemon:
        gpus = [gpu for gpu in daemon.client().get("/v1/gpus").json()["data"] if gpu["kind"] == "gpu"]
    return "cpu" if 0 < len(gpus) < ranks else "auto"


def cpu_seconds(pid):
    """Processor seconds that a process has had."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid):
    """Memory that a process has now."""
    with open(f"/proc/{pid}/statm", encoding="utf-8") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def descriptors(pid):
    """What each descriptor of a process is of."""
    folder = f"/proc/{pid}/fd"
    found = []
    for number in os.listdir(folder):
        try:
            found.append(os.readlink(os.path.join(folder, number)))
        except FileNotFoundError:
            pass  # closed meanwhile
    return found


def check_databases(data_dir):
    """Those of a daemon that has ended: every page, reference and key is whole, so no point is there twice."""
    for name in ("jobs.db", "metrics.db"):
        database = sqlite3.connect(os.path.join(data_dir, name))
        try:
            assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)], name
            assert not database.execute("PRAGMA foreign_key_check").fetchall(), name
        finally:
            database.close()


def refused(*args, **more):
    """Exit status and log of a daemon that does not start."""
    with Daemon(*args, wait=False, **more) as daemon:
        return daemon.process.wait(timeout=30), daemon.log()


def processes_of(text, ignore=()):
    """(pid, command line) of every process whose command line contains a text, such as a data folder."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                command = file.read().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        if text in command and int(pid) != os.getpid() and int(pid) not in ignore:
            found.append((int(pid), command))
    return found
