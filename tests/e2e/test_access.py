#!/usr/bin/python3
"""Who may do what: users' tokens, what they see of each other, sessions of browsers, the Unix socket, TLS, limits of
users, requests that are sent again, and who did what."""
import http.client
import json
import os
import pwd
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import unittest

from ithaca_e2e import ITHACA, LINE, SOURCE_DIR, Client, Daemon, form, refused, until


def ithaca(*args, env=None):
    """The command line with nothing of this environment that names a daemon; returns the ended process."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("ITHACA_")}
    return subprocess.run([ITHACA, *args], capture_output=True, text=True, timeout=60, env={**clean, **(env or {})})


def make_certificate(folder, name):
    """One of localhost's own; paths of it and its key."""
    cert, key = os.path.join(folder, name + "cert.pem"), os.path.join(folder, name + "key.pem")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
                    "-keyout", key, "-out", cert], check=True, capture_output=True, timeout=60)
    os.chmod(key, 0o600)
    return cert, key


class UnixClient(Client):
    """Requests over a Unix socket, without a token."""

    def __init__(self, path):
        super().__init__(0, "")
        self.path = path

    def request(self, method, path, body=None, headers=None, token=None):
        connection = http.client.HTTPConnection("localhost", timeout=self.timeout)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(self.path)
        sent = {**({"Authorization": f"Bearer {token}"} if token else {}), **(headers or {})}
        return self.exchange(connection, method, path, body, sent)


class Users(unittest.TestCase):
    """One daemon, an admin, and the users ann and bob."""

    @classmethod
    def setUpClass(cls):
        cls.data_dir = tempfile.mkdtemp(prefix="ithaca-e2e-")
        cls.socket = os.path.join(cls.data_dir, "socket")
        cls.daemon = Daemon("--socket", cls.socket, data_dir=cls.data_dir)
        cls.admin = cls.daemon.client()
        cls.ann, cls.bob = (Client(cls.daemon.port, cls.make(user=user)["token"]) for user in ("ann", "bob"))
        cls.file = cls.ann.upload(LINE * 4)["id"]
        cls.job = cls.ann.submit(cls.file, ithaca={"max_steps": 1, "seq_len": 64})["id"]
        cls.done = cls.ann.wait(cls.job)

    @classmethod
    def tearDownClass(cls):
        status = cls.daemon.stop()
        left = os.path.exists(cls.socket)
        log = cls.daemon.log()
        shutil.rmtree(cls.data_dir, ignore_errors=True)
        assert status == 0 and not left, f"exit status {status}, socket left: {left}\n{log}"

    @classmethod
    def make(cls, **body):
        answer = cls.admin.post("/v1/tokens", body)
        assert answer.status == 200, answer.text
        return answer.json()

    # ---- tokens

    def test_tokens_are_made_listed_and_revoked(self):
        made = self.make(user="eve", name="laptop", scope="read", expires_in_s=3600)
        self.assertRegex(made["token"], r"^ithaca-[A-Za-z0-9_-]{43}$")
        self.assertTrue(made["token"].startswith(made["prefix"]) and len(made["prefix"]) == 15)
        self.assertEqual(made["expires_at"], made["created_at"] + 3600)
        self.assertEqual((made["user"], made["scope"], made["last_used_at"]), ("eve", "read", None))
        eve = Client(self.daemon.port, made["token"])
        self.assertEqual(eve.get("/v1/session").json(), {"object": "session", "user": "eve", "scope": "read",
                                                         "expires_at": made["expires_at"]})
        for answer in (eve.post("/v1/fine_tuning/jobs", {}), eve.get("/v1/tokens"), self.ann.post("/v1/tokens", {})):
            self.assertEqual((answer.status, answer.error()["code"]), (403, "forbidden"))

        def listed():
            page = self.admin.get("/v1/tokens?limit=1000").json()
            self.assertNotIn(made["token"], json.dumps(page))
            return {one["id"]: one for one in page["data"]}
        self.assertIsNotNone(listed()[made["id"]]["last_used_at"])
        self.assertIn("token-admin", listed())
        self.assertEqual(self.admin.delete(f"/v1/tokens/{made['id']}").json(),
                         {"id": made["id"], "object": "token", "revoked": True})
        answer = eve.get("/v1/files")
        self.assertEqual((answer.status, answer.error()["message"]), (401, "the token was revoked"))
        self.assertIsNotNone(listed()[made["id"]]["revoked_at"])
        self.assertEqual(self.admin.delete("/v1/tokens/token-none").status, 404)
        self.assertEqual(self.admin.delete("/v1/tokens/token-admin").error()["code"], "invalid_state")
        with open(os.path.join(self.data_dir, "jobs.db"), "rb") as file:
            self.assertNotIn(made["token"].encode()[15:], file.read())

    def test_refusals_name_the_field(self):
        for body, param in (({}, "user"), ({"user": "a b"}, "user"), ({"user": "../x"}, "user"), ({"user": "a" * 65}, "user"),
                            ({"user": 1}, "user"), ({"user": "a", "scope": "root"}, "scope"),
                            ({"user": "a", "expires_in_s": 1}, "expires_in_s"),
                            ({"user": "a", "expires_in_s": "x"}, "expires_in_s"),
                            ({"user": "a", "name": "x" * 129}, "name"), ({"user": "a", "colour": 1}, "colour")):
            answer = self.admin.post("/v1/tokens", body)
            self.assertEqual((answer.status, answer.error()["param"]), (400, param), body)

    def test_command_line(self):
        made = ithaca("--data-dir", self.data_dir, "tokens", "create", "--user", "dan", "--days", "2", "--name", "ci")
        self.assertEqual(made.returncode, 0, made.stderr)
        token = made.stdout.strip()
        where = {"ITHACA_URL": f"http://127.0.0.1:{self.daemon.port}"}
        who = ithaca("whoami", env={**where, "ITHACA_TOKEN": token})
        self.assertEqual((who.returncode, who.stdout), (0, "dan (submit)\n"), who.stderr)
        self.assertEqual(ithaca("tokens", "list", env={**where, "ITHACA_TOKEN": token}).returncode, 77)
        listed = ithaca("--data-dir", self.data_dir, "tokens", "list")
        line = next(line for line in listed.stdout.splitlines() if token[:15] in line)
        self.assertRegex(line, r"  made (\d{4}-\d\d-\d\d)  used \d{4}-\d\d-\d\d  ends \d{4}-\d\d-\d\d  ci$")
        self.assertRegex(listed.stdout, r"(?m)^token-admin .*  ends -           admin\.token$")
        self.assertNotIn(token, listed.stdout)
        revoked = ithaca("--data-dir", self.data_dir, "tokens", "revoke", line.split()[0])
        self.assertEqual(revoked.returncode, 0, revoked.stderr)
        self.assertEqual(ithaca("whoami", env={**where, "ITHACA_TOKEN": token}).returncode, 77)
        for wrong in (("tokens",), ("tokens", "make"), ("tokens", "create"), ("tokens", "create", "--user", "a", "--days", "0")):
            self.assertEqual(ithaca("--data-dir", self.data_dir, *wrong).returncode, 64, wrong)

    # ---- what users see of each other

    def test_others_things_are_not_there(self):
        job, file = self.job, self.file
        self.assertEqual(self.done["ithaca"]["state"], "succeeded", self.done)
        self.assertEqual(self.done["ithaca"]["owner"], "ann")
        result = self.done["fine_tuned_model"]
        jobs = "/v1/fine_tuning/jobs"
        upload = self.ann.post("/v1/uploads", {"bytes": 10, "filename": "a", "mime_type": "text/jsonl",
                                               "purpose": "fine-tune"}).json()["id"]
        with open(os.path.join(SOURCE_DIR, "api", "openapi.json"), encoding="utf-8") as document:
            paths = json.load(document)["paths"]
        seen = 0
        for path, operations in paths.items():  # every one there is, and will be
            prefix, _, rest = path.partition("{id}")
            mine = {jobs + "/": job, "/v1/files/": file, "/v1/uploads/": upload}.get(prefix)
            for method in operations if mine else ():
                hidden, missing = (self.bob.request(method.upper(), prefix + one + rest) for one in (mine, "none"))
                self.assertEqual((hidden.status, missing.status), (404, 404), (method, path, hidden.text))
                self.assertEqual(hidden.error()["message"], missing.error()["message"].replace("none", mine))
                seen += 1
                # A file of a model needs its name, and this job has no profile.
                if method == "get" and rest not in ("/model/content", "/profile", "/trace"):
                    self.assertEqual(self.admin.request("HEAD", prefix + mine + rest).status, 200, path)
                    self.assertEqual(self.ann.request("HEAD", prefix + mine + rest).status, 200, path)
        self.assertGreater(seen, 15)
        self.assertEqual(self.ann.post(f"/v1/uploads/{upload}/cancel").status, 200)
        for name in (result, job):
            self.assertEqual((self.bob.get(f"/v1/models/{name}").status, self.ann.get(f"/v1/models/{name}").status), (404, 200))
        for path in ("/v1/queue", "/v1/gpus"):
            self.assertNotIn(job, self.bob.get(path).text)
        for body in ({"model": "tiny-llama", "training_file": file}, {"model": result, "training_file": self.bob.upload(LINE)["id"]},
                     {"model": "tiny-llama", "training_file": self.bob.upload(LINE)["id"], "validation_file": file}):
            answer = self.bob.post(jobs, body)
            self.assertIn(answer.status, (400, 404), answer.text)
            self.assertIn(answer.error()["param"], ("model", "training_file", "validation_file"))
        answer = self.bob.post("/v1/fine_tuning/preview", {"model": "tiny-llama", "training_file": file})
        self.assertEqual((answer.status, answer.error()["param"]), (404, "training_file"))
        answer = self.bob.post("/v1/chat/completions", {"model": result, "messages": [{"role": "user", "content": "a"}]})
        self.assertEqual((answer.status, answer.error()["param"]), (404, "model"))
        self.assertEqual(self.bob.get(jobs).json()["data"], [])

        def ids(client, path):
            return [one["id"] for one in client.get(path).json()["data"]]
        self.assertIn(job, ids(self.admin, jobs))
        self.assertEqual(ids(self.ann, jobs), [job])
        self.assertEqual(ids(self.ann, "/v1/files?purpose=fine-tune"), [file])
        self.assertNotIn(file, ids(self.bob, "/v1/files"))
        self.assertIn(result, ids(self.ann, "/v1/models"))
        self.assertNotIn(result, ids(self.bob, "/v1/models"))
        self.assertIn("tiny-llama", ids(self.bob, "/v1/models"))

    def test_stream_of_all_jobs_is_of_ones_own(self):
        mine = self.bob.submit(self.bob.upload(LINE)["id"], ithaca={"max_steps": 1, "seq_len": 64})["id"]
        self.bob.wait(mine)
        seen = set()
        for _, _, data in self.bob.stream("/v1/stream", last_event_id="0-0"):  # from the first row of all
            seen.add(data["job_id"])
            if data.get("state") == "succeeded":
                break
        self.assertEqual(seen, {mine})

    # ---- sessions

    def cookie(self, answer):
        return answer.headers["Set-Cookie"].split(";")[0]

    def test_session(self):
        answer = self.ann.post("/v1/session")
        self.assertEqual((answer.status, answer.json()["user"]), (200, "ann"))
        attributes = answer.headers["Set-Cookie"].split("; ")[1:]
        self.assertEqual(attributes, ["Max-Age=43200", "Path=/", "HttpOnly", "SameSite=Strict"])
        host = f"127.0.0.1:{self.daemon.port}"
        browser = Client(self.daemon.port, "")

        def ask(method, path, **more):
            headers = {"Cookie": self.cookie(answer), "Host": host}
            headers.update({key.replace("_", "-"): value for key, value in more.items()})
            return browser.exchange(http.client.HTTPConnection("127.0.0.1", self.daemon.port, timeout=30), method, path,
                                    None, headers)
        self.assertEqual(ask("GET", f"/v1/fine_tuning/jobs/{self.job}").status, 200)
        self.assertEqual(ask("GET", "/v1/files", Sec_Fetch_Site="none").status, 200)
        self.assertEqual(ask("GET", "/v1/files", Sec_Fetch_Site="same-origin").status, 200)
        for site in ("cross-site", "same-site"):
            self.assertEqual(ask("GET", "/v1/files", Sec_Fetch_Site=site).status, 403)
        resume = f"/v1/fine_tuning/jobs/{self.job}/resume"
        for more in ({}, {"Sec_Fetch_Site": "none"}, {"Sec_Fetch_Site": "same-site"}, {"Origin": "null"},
                     {"Origin": f"http://evil.example:{self.daemon.port}"}, {"Origin": "http://127.0.0.1:1"}):
            self.assertEqual(ask("POST", resume, **more).status, 403, more)
        for more in ({"Sec_Fetch_Site": "same-origin"}, {"Origin": f"http://{host}"}):
            self.assertEqual(ask("POST", resume, **more).error()["code"], "invalid_state", more)  # it was heard: the job is done
        secret = self.cookie(answer).split("=", 1)[1]
        self.assertEqual(browser.get("/v1/files", token=secret).status, 401)  # no Bearer token
        self.assertEqual(ask("POST", "/v1/session", Origin=f"http://{host}").error()["code"], "invalid_state")
        self.assertEqual(ask("GET", "/v1/files", Authorization="Bearer x").status, 401)  # the token comes first
        self.assertEqual(ask("DELETE", "/v1/session").status, 403)
        self.assertEqual(ask("DELETE", "/v1/session", Origin=f"http://{host}").json(), {"object": "session", "ended": True})
        self.assertEqual(ask("GET", "/v1/files").status, 401)
        self.assertEqual(self.ann.delete("/v1/session").error()["code"], "invalid_state")

    def test_session_ends_with_its_token(self):
        made = self.make(user="eve", expires_in_s=600)
        answer = Client(self.daemon.port, made["token"]).post("/v1/session")
        self.assertEqual(answer.json()["expires_at"], made["expires_at"])
        headers = {"Cookie": self.cookie(answer)}
        connection = http.client.HTTPConnection("127.0.0.1", self.daemon.port, timeout=30)
        self.assertEqual(self.admin.exchange(connection, "GET", "/v1/files", None, headers).status, 200)
        self.admin.delete(f"/v1/tokens/{made['id']}")
        connection = http.client.HTTPConnection("127.0.0.1", self.daemon.port, timeout=30)
        self.assertEqual(self.admin.exchange(connection, "GET", "/v1/files", None, headers).status, 401)

    # ---- the Unix socket

    def test_unix_socket(self):
        local = UnixClient(self.socket)
        self.assertEqual(os.stat(self.socket).st_mode & 0o777, 0o660)
        self.assertEqual(local.get("/v1/session").json(),
                         {"object": "session", "user": "admin", "scope": "admin", "expires_at": None})
        self.assertEqual(local.get("/v1/session", token=self.ann.token).json()["user"], "ann")  # a token wins
        self.assertEqual(local.get("/v1/session", token="wrong").status, 401)
        file = local.upload(LINE * 1000)
        self.assertEqual(local.get(f"/v1/files/{file['id']}/content").body, LINE * 1000)
        who = ithaca("--url", f"unix:{self.socket}", "whoami")
        self.assertEqual((who.returncode, who.stdout), (0, "admin (admin)\n"), who.stderr)
        events = ithaca("--url", f"unix:{self.socket}", "watch", self.job)
        self.assertEqual(events.returncode, 0, events.stderr)
        self.assertEqual(ithaca("--url", "unix:/nonexistent/socket", "whoami").returncode, 69)

    @unittest.skipUnless(os.geteuid() == 0, "only root can be somebody else")
    def test_unix_socket_knows_its_peer(self):
        nobody = pwd.getpwnam("nobody")
        os.chmod(self.data_dir, 0o711)
        os.chmod(self.socket, 0o666)
        code = ("import http.client, socket\n"
                "connection = http.client.HTTPConnection('localhost')\n"
                "connection.sock = socket.socket(socket.AF_UNIX)\n"
                f"connection.sock.connect({self.socket!r})\n"
                "connection.request('GET', '/v1/session')\n"
                "print(connection.getresponse().read().decode())\n")
        found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, user=nobody.pw_uid,
                               group=nobody.pw_gid, extra_groups=[])
        os.chmod(self.data_dir, 0o700)
        os.chmod(self.socket, 0o660)
        self.assertEqual(found.returncode, 0, found.stderr)
        self.assertEqual(json.loads(found.stdout)["user"], "nobody")
        self.assertEqual(json.loads(found.stdout)["scope"], "submit")


class Again(unittest.TestCase):
    """Requests that are sent again, over restarts of the daemon."""

    def test_one_job_whatever_happens(self):
        with Daemon() as daemon:
            client = daemon.client()
            job = {"model": "tiny-llama", "training_file": client.upload(LINE)["id"], "ithaca": {"max_steps": 1, "seq_len": 64}}
            key, count = {"Idempotency-Key": "night-7"}, {"x-stainless-retry-count": "0"}
            keyed = client.post("/v1/fine_tuning/jobs", job, headers=key).json()["id"]
            counted = client.post("/v1/fine_tuning/jobs", job, headers=count).json()["id"]
            self.assertNotEqual(keyed, counted)
            daemon.kill()
            daemon.start()
            client = daemon.client()
            again = client.post("/v1/fine_tuning/jobs", job, headers=key)
            self.assertEqual((again.status, again.json()["id"], again.headers["Idempotent-Replayed"]), (200, keyed, "true"))
            again = client.post("/v1/fine_tuning/jobs", job, headers={"x-stainless-retry-count": "1"})
            self.assertEqual((again.status, again.json()["id"]), (200, counted))
            other = client.post("/v1/fine_tuning/jobs", {**job, "seed": 3}, headers=key)
            self.assertEqual((other.status, other.error()["code"]), (422, "idempotency_key_reused"))
            self.assertEqual(len(client.get("/v1/fine_tuning/jobs").json()["data"]), 2)
            asked = client.post(f"/v1/fine_tuning/jobs/{keyed}/cancel")
            events = client.get(f"/v1/fine_tuning/jobs/{keyed}/events").json()["data"]
            told = [event["data"] for event in reversed(events) if "cancel" in event["data"].get("state", "")][:1]
            if asked.status == 200:  # it had not ended before
                self.assertEqual([(one["user"], one["request_id"]) for one in told],
                                 [("admin", asked.headers["X-Request-Id"])])
                self.assertIn(f"{asked.headers['X-Request-Id']}: POST /v1/fine_tuning/jobs/{keyed}/cancel by admin", daemon.log())


class Doors(unittest.TestCase):
    """Settings of the sockets, each with a daemon of its own."""

    def test_socket_is_taken_over_and_not_stolen(self):
        with tempfile.TemporaryDirectory(prefix="ithaca-e2e-") as folder:
            path = os.path.join(folder, "socket")
            with Daemon("--socket", path, "--socket-mode", "0600") as first:
                self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
                status, log = refused("--socket", path)
                self.assertEqual(status, 75)
                self.assertIn("another daemon listens on", log)
                self.assertEqual(UnixClient(path).get("/healthz").status, 200)
                first.kill()  # the socket stays
                self.assertTrue(os.path.exists(path))
                first.start()
                self.assertEqual(UnixClient(path).get("/healthz").status, 200)
            self.assertFalse(os.path.exists(path))
            with open(path, "w", encoding="utf-8"):
                pass
            status, log = refused("--socket", path)
            self.assertEqual(status, 75)
            self.assertIn("is no socket", log)
            self.assertTrue(os.path.exists(path))

    @unittest.skipUnless(shutil.which("openssl"), "no openssl to make a certificate")
    def test_tls(self):
        with tempfile.TemporaryDirectory(prefix="ithaca-e2e-") as folder:
            cert, key = make_certificate(folder, "")
            with Daemon("--tls-cert", cert, "--tls-key", key) as daemon:
                self.assertRegex(daemon.read("url"), r"^https://127\.0\.0\.1:\d+$")
                trusted = ssl.create_default_context(cafile=cert)

                def ask(path, context=trusted, method="GET", body=None, **headers):
                    connection = http.client.HTTPSConnection("127.0.0.1", daemon.port, timeout=30, context=context)
                    return daemon.client().exchange(connection, method, path, body,
                                                    {"Authorization": f"Bearer {daemon.token}", **headers})
                self.assertEqual(ask("/v1/session").json()["user"], "admin")
                with self.assertRaises(ssl.SSLCertVerificationError):
                    ask("/healthz", ssl.create_default_context())
                self.assertIn("Secure", ask("/v1/session", method="POST").headers["Set-Cookie"].split("; "))
                body, kind = form([("purpose", None, b"fine-tune"), ("file", "a.jsonl", LINE * 20000)])
                uploaded = ask("/v1/files", method="POST", body=body, **{"Content-Type": kind})
                self.assertEqual(uploaded.status, 200, uploaded.text)
                self.assertEqual(ask(f"/v1/files/{uploaded.json()['id']}/content").body, LINE * 20000)
                plain = ithaca("--data-dir", daemon.data_dir, "whoami")
                self.assertEqual(plain.returncode, 69, plain.stderr)
                self.assertIn("by --cacert", plain.stderr)
                told = ithaca("--data-dir", daemon.data_dir, "--cacert", cert, "whoami")
                self.assertEqual((told.returncode, told.stdout), (0, "admin (admin)\n"), told.stderr)
                told = ithaca("--data-dir", daemon.data_dir, "models", env={"ITHACA_CACERT": cert})
                self.assertEqual(told.returncode, 0, told.stderr)
                with socket.create_connection(("127.0.0.1", daemon.port), timeout=10) as raw:
                    raw.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                    self.assertFalse(raw.recv(100).startswith(b"HTTP/"))
                stream = http.client.HTTPSConnection("127.0.0.1", daemon.port, timeout=30, context=trusted)
                stream.request("GET", "/v1/stream", headers={"Authorization": f"Bearer {daemon.token}"})
                self.assertEqual(stream.getresponse().status, 200)  # open while the daemon stops
            stream.close()
            os.chmod(key, 0o644)
            for args, text in ((("--tls-cert", cert, "--tls-key", key), "others may read it"), (("--tls-cert", cert), "go together"),
                               (("--tls-cert", cert, "--tls-key", cert), "PEM")):
                if args[-1] == cert:
                    os.chmod(cert, 0o600)
                status, log = refused(*args)
                self.assertNotEqual(status, 0)
                self.assertIn(text, log)

    @unittest.skipUnless(shutil.which("openssl"), "no openssl to make a certificate")
    def test_certificate_is_renewed(self):
        """SIGHUP: who comes has the new one; what is under way ends well; what cannot be used changes nothing."""
        with tempfile.TemporaryDirectory(prefix="ithaca-e2e-") as folder:
            used = cert, key = make_certificate(folder, "")
            pairs = [make_certificate(folder, name) for name in ("first.", "second.", "third.")]
            trust = [ssl.create_default_context(cafile=pair[0]) for pair in pairs]

            def put(pair):
                for source, target in zip(pair, used):
                    shutil.copy(source, target + ".new")
                    os.chmod(target + ".new", 0o600)
                    os.rename(target + ".new", target)

            put(pairs[0])
            with Daemon("--tls-cert", cert, "--tls-key", key) as daemon:
                auth = {"Authorization": f"Bearer {daemon.token}"}
                descriptors = f"/proc/{daemon.process.pid}/fd"

                def connect(number):
                    connection = http.client.HTTPSConnection("127.0.0.1", daemon.port, timeout=10, context=trust[number])
                    connection.connect()
                    return connection

                def serves(number):
                    try:
                        connect(number).close()
                    except ssl.SSLCertVerificationError:
                        return False
                    return True

                def renew(number, text="are read again"):
                    def told():
                        return daemon.log().count(text)
                    put(pairs[number])
                    before = told()
                    daemon.process.send_signal(signal.SIGHUP)
                    until("SIGHUP is told of", 5, lambda: told() > before)

                self.assertEqual([serves(number) for number in range(3)], [True, False, False])
                open_before = len(os.listdir(descriptors))
                stream, kept, later, upload = (connect(0) for _ in range(4))
                stream.request("GET", "/v1/stream", headers=auth)
                events = stream.getresponse()
                for connection in (kept, later):
                    connection.request("GET", "/v1/session", headers=auth)
                    self.assertEqual(connection.getresponse().read()[:1], b"{")
                body, kind = form([("purpose", None, b"fine-tune"), ("file", "a.jsonl", LINE * 1000)])
                upload.putrequest("POST", "/v1/files")
                for name, value in {**auth, "Content-Type": kind, "Content-Length": str(len(body))}.items():
                    upload.putheader(name, value)
                upload.endheaders(body[:20000])
                renew(1)
                self.assertEqual([serves(number) for number in range(3)], [False, True, False])
                events.read()  # to its end, which comes: a browser opens it again
                kept.request("GET", "/v1/session", headers=auth)  # by the certificate that it came with, for the last time
                self.assertEqual(kept.getresponse().getheader("Connection"), "close")
                later.request("GET", "/v1/stream", headers=auth)  # so is a stream that is asked for now
                later.getresponse().read()  # to its end: it does not wait for the next renewal, to be in its way
                renew(2, "from before the last renewal are still under way")
                self.assertEqual([serves(number) for number in range(3)], [False, True, False])
                upload.send(body[20000:])
                answer = upload.getresponse()
                self.assertEqual((answer.status, answer.getheader("Connection")), (200, "close"), answer.read())
                for connection in (stream, kept, later, upload):
                    connection.close()

                def asked_again():
                    daemon.process.send_signal(signal.SIGHUP)
                    return serves(2)
                until("nothing is left from before", 10, asked_again, every=0.3)
                self.assertEqual([serves(number) for number in range(3)], [False, False, True])
                with open(key, "w", encoding="utf-8") as file:
                    file.write("no key\n")
                before = daemon.log().count("PEM")

                def told_of_it():
                    daemon.process.send_signal(signal.SIGHUP)
                    return daemon.log().count("PEM") > before
                until("it is told of", 5, told_of_it, every=0.3)
                self.assertTrue(serves(2))
                until("all doors but one are closed", 10, lambda: len(os.listdir(descriptors)) <= open_before)
                connect(2).close()
        with Daemon() as daemon:
            daemon.process.send_signal(signal.SIGHUP)
            until("it is told of", 5, lambda: "tls_cert is not set" in daemon.log())
            self.assertEqual(daemon.client().get("/healthz").status, 200)

    def test_no_tls_beyond_loopback_is_warned_of(self):
        with Daemon("--listen", "0.0.0.0") as daemon:
            self.assertIn("has no TLS", daemon.log())
        with Daemon() as daemon:
            self.assertNotIn("has no TLS", daemon.log())


if __name__ == "__main__":
    unittest.main()
