#!/usr/bin/python3
"""The HTTP side of the real daemon: tokens, shapes of errors, framing that two programs could read differently,
uploads, paging, streams and stopping."""
import gzip
import http.client
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
import unittest

from ithaca_e2e import ITHACAD, LINE, OPENAPI, Daemon, cpu_seconds, form, raw, slowdown, until

UPLOAD_MAX = 1 << 20
CONFIG = {"model_type": "llama", "vocab_size": 264, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
          "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512, "rms_norm_eps": 1e-5,
          "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": True}


def status_of(answer):
    """Status of the first answer in raw bytes; 0 when there is none."""
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else 0


def open_stream(daemon, path="/v1/stream"):
    """A socket with an open stream, and the first bytes of its answer."""
    connection = socket.create_connection(("127.0.0.1", daemon.port), timeout=10)
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {daemon.token}\r\n\r\n".encode())
    return connection, connection.recv(65536)


def cpu_of(pid, seconds):
    """Processor seconds a process uses in some seconds."""
    before = cpu_seconds(pid)
    time.sleep(seconds)
    return cpu_seconds(pid) - before


class Http(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.data_dir = tempfile.mkdtemp(prefix="ithaca-e2e-")
        os.makedirs(os.path.join(cls.data_dir, "models", "shape-only"))
        with open(os.path.join(cls.data_dir, "models", "shape-only", "config.json"), "w", encoding="utf-8") as file:
            json.dump(CONFIG, file)
        with open(os.path.join(cls.data_dir, "settings.json"), "w", encoding="utf-8") as file:
            json.dump({"upload_bytes_max": UPLOAD_MAX, "streams_max": 4, "model_aliases": {"alias": "shape-only"}}, file)
        cls.daemon = Daemon(data_dir=cls.data_dir)
        cls.client = cls.daemon.client()

    @classmethod
    def tearDownClass(cls):
        status = cls.daemon.stop()
        log = cls.daemon.log()
        shutil.rmtree(cls.data_dir, ignore_errors=True)
        assert status == 0, f"exit status {status}\n{log}"

    # ---- tokens

    def test_tokens(self):
        self.assertEqual(self.client.get("/healthz", token="").status, 200)
        for headers in ({"Authorization": ""}, {"Authorization": "Basic YTpi"}, {"Authorization": "Bearer wrong"},
                        {"Authorization": "Bearer ithaca-" + "A" * 43}):
            answer = self.client.get("/v1/files", headers=headers)
            self.assertEqual(answer.status, 401, headers)
            self.assertEqual(answer.error()["code"], "invalid_api_key")
            self.assertEqual(answer.headers["WWW-Authenticate"], "Bearer")
        self.assertEqual(self.client.get("/v1/files").status, 200)
        token_file = os.path.join(self.data_dir, "admin.token")
        self.assertEqual(os.stat(token_file).st_mode & 0o777, 0o600)
        self.assertRegex(self.daemon.token, r"^ithaca-[A-Za-z0-9_-]{43}$")
        with open(os.path.join(self.data_dir, "jobs.db"), "rb") as file:
            self.assertNotIn(self.daemon.token.encode(), file.read())

    # ---- answers

    def test_not_found_and_methods(self):
        self.assertEqual(self.client.get("/nothing").error()["code"], "not_found")
        self.assertEqual(self.client.get("/v1/files/file-none").status, 404)
        self.assertEqual(self.client.get("/v1/fine_tuning/jobs/ftjob-none").status, 404)
        for words, hint in ((("sample", "--model", "nope", "--prompt", "x"), "`ithaca models`"),
                            (("--url", f"https://127.0.0.1:{self.daemon.port}", "ls"), "write http://")):
            told = self.daemon.ithaca(*words)
            self.assertNotEqual(told.returncode, 0)
            self.assertIn(hint, told.stderr)
        self.assertEqual(self.client.get("/v1/models/none").error()["param"], "model")
        answer = self.client.request("PUT", "/v1/files")
        self.assertEqual(answer.status, 405)
        self.assertEqual(sorted(answer.headers["Allow"].split(", ")), ["GET", "HEAD", "POST"])
        answer.error()
        self.assertEqual(self.client.request("OPTIONS", "/v1/files").status, 405)

    def test_head_is_get_without_body(self):
        answer = self.client.request("HEAD", "/v1/models")
        self.assertEqual((answer.status, answer.body), (200, b""))
        self.assertGreater(int(answer.headers["Content-Length"]), 10)

    # ---- framing

    def refused(self, head, body=b""):
        auth = f"Authorization: Bearer {self.daemon.token}\r\n".encode()
        # A second request follows: were the first one's body misread, it would be answered too.
        answer = raw(self.daemon.port, head.replace(b"AUTH\r\n", auth) + b"\r\n" + body
                     + b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        self.assertEqual(status_of(answer), 400, (head, answer))
        self.assertEqual(answer.count(b"HTTP/1.1 "), 1, (head, answer))
        self.assertEqual(sorted(json.loads(answer.split(b"\r\n\r\n", 1)[1])["error"]),
                         ["code", "message", "param", "type"])

    def test_smuggling(self):
        post = b"POST /v1/fine_tuning/jobs HTTP/1.1\r\nAUTH\r\n"
        self.refused(post + b"Host: localhost\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n", body=b"0\r\n\r\n")
        self.refused(post + b"Host: localhost\r\nContent-Length: 3\r\nContent-Length: 3\r\n", body=b"{}\n")
        self.refused(post + b"Host: localhost\r\nContent-Length: 3\r\nContent-Length: 4\r\n", body=b"{}\n")
        self.refused(post + b"Host: localhost\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
                     body=b"0\r\n\r\n")
        self.refused(post + b"Host: localhost\r\nTransfer-Encoding: gzip, chunked\r\n", body=b"0\r\n\r\n")
        self.refused(b"GET /v1/files HTTP/1.1\r\nAUTH\r\nHost: localhost\r\nHost: localhost\r\n")
        self.refused(b"GET http://localhost/v1/files HTTP/1.1\r\nAUTH\r\nHost: localhost\r\n")

    def test_no_host(self):
        answer = raw(self.daemon.port, b"GET /v1/files HTTP/1.1\r\n\r\nGET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        self.assertEqual((status_of(answer), answer.count(b"HTTP/1.1 ")), (400, 1), answer)
        library = subprocess.run(["pkg-config", "--modversion", "libmicrohttpd"], capture_output=True, text=True, check=True)
        if library.stdout.startswith("0."):  # later ones answer with a page of their own
            self.assertEqual(json.loads(answer.split(b"\r\n\r\n", 1)[1])["error"]["message"], "the Host header is missing")

    def test_every_route_refuses_in_one_shape(self):
        """The shape itself is checked by the client, against the schema Error."""
        def refuse(method, target, statuses, **more):
            answer = self.client.request(method, target, **more)
            self.assertIn(answer.status, statuses, f"{method} {target}: {answer.text}")
            error = answer.error()
            self.assertGreater(len(error["message"]), 12, error)
            self.assertNotIn(self.data_dir, error["message"])
            return error
        for path, methods in OPENAPI.root["paths"].items():
            target = path.replace("{id}", "nothing-here").replace("{model}", "nothing-here")
            for method, operation in ((verb.upper(), operation) for verb, operation in methods.items()):
                if operation["security"]:
                    refuse(method, target, (401,), token="nothing")
                if "{" in path:
                    body = {} if "application/json" in operation.get("requestBody", {}).get("content", {}) else None
                    refuse(method, target, (400, 404), body=body)
                if "application/json" in operation.get("requestBody", {}).get("content", {}):
                    for body in (b"{", b"[]", b'{"no_such_field": 1}'):
                        refuse(method, target, (400, 404), body=body, headers={"Content-Type": "application/json"})
                if "multipart/form-data" in operation.get("requestBody", {}).get("content", {}):
                    refuse(method, target, (400, 404), body=b"x", headers={"Content-Type": "multipart/form-data; boundary=b"})
                for one in operation["parameters"]:
                    if one["in"] == "query" and one["schema"].get("type") == "integer" and "{" not in path:
                        self.assertEqual(refuse(method, f"{target}?{one['name']}=x", (400,))["param"], one["name"])

    def test_long_targets_and_headers(self):
        self.assertEqual(self.client.get("/v1/files?" + "a" * 9000).status, 400)
        answer = self.client.get("/v1/files?" + "a" * 9000, headers={"X": "a" * 40000})
        self.assertEqual(answer.error()["message"], "the request target is longer than 8192 bytes")

    def test_what_is_no_http(self):
        """libmicrohttpd refuses it with a page of its own, which cannot be changed: openapi.json says so. 0: no answer."""
        host = b"Host: localhost\r\n"
        post = b"POST /v1/files HTTP/1.1\r\n" + host + f"Authorization: Bearer {self.daemon.token}\r\n".encode()
        chunked = post + b"Content-Type: multipart/form-data; boundary=b\r\nTransfer-Encoding: chunked\r\n\r\n"
        part = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\nabc\r\n'
        chunked += b"%x\r\n%s\r\n" % (len(part), part)
        before = self.client.get("/v1/files").json()
        descriptors = f"/proc/{self.daemon.process.pid}/fd"
        open_before = len(os.listdir(descriptors))
        for sent, statuses in (
                (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 300 + b"\r\n\r\n", (0, 400)),  # begins TLS
                (b"garbage\r\n\r\n", (0, 400)),
                (b"GET /healthz\r\n" + host + b"\r\n", (400, 505)),
                (b"GET /healthz HTTP/x\r\n" + host + b"\r\n", (400,)),
                (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", (505,)),
                (b"GET /healthz HTTP/1.1\r\n" + host + b"nothing\r\n\r\n", (400,)),
                (b"GET /healthz HTTP/1.1\r\n" + host + b"X: " + b"a" * 100000 + b"\r\n\r\n", (431,)),
                (b"GET /healthz HTTP/1.1\r\n" + host + b"X: a\r\n" * 5000 + b"\r\n", (431,)),
                (b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\n" + host + b"\r\n", (414,)),
                (post + b"Content-Length: -1\r\n\r\n", (400,)),
                (post + b"Content-Length: 3x\r\n\r\n", (400,)),
                (post + b"Content-Length: 99999999999999999999\r\n\r\n", (413,)),
                (chunked + b"zz\r\nabc\r\n0\r\n\r\n", (400,)),
                (chunked + b"3\r\nabcdef0\r\n\r\n", (400,)),
                (chunked + b"ffffffffffffffffff\r\nabc\r\n0\r\n\r\n", (413,))):
            answer = raw(self.daemon.port, sent)  # to its end: the connection is closed
            self.assertIn(status_of(answer), statuses, (sent[:200], answer))
            self.assertNotIn(b"200 OK", answer, sent[:200])
        until("spool files are gone", 5, lambda: not self.leftovers())
        until("descriptors are closed", 5, lambda: len(os.listdir(descriptors)) <= open_before)
        self.assertEqual(self.client.get("/v1/files").json(), before)

    # ---- JSON bodies

    def test_bad_json_names_line_and_column(self):
        answer = self.client.post("/v1/fine_tuning/jobs", b'{"model": "m",\n  "training_file": }')
        self.assertEqual((answer.status, answer.error()["code"]), (400, "invalid_json"))
        self.assertRegex(answer.error()["message"], r"line 2 column \d+")
        answer = self.client.post("/v1/fine_tuning/jobs", '{"model": "m"}'.encode("utf-16"))
        self.assertIn("line 1 column 0: a byte that is not UTF-8, it looks like UTF-16", answer.error()["message"])
        for body in (b"", b"[]", b'{"a":1,"a":2}', b"[" * 1000, b'"\xff"'):
            self.assertEqual(self.client.post("/v1/fine_tuning/jobs", body).error()["code"], "invalid_json", body)

    def test_compressed_bodies_by_name(self):
        body, kind = form([("purpose", None, b"fine-tune"), ("file", "t.jsonl", LINE)])
        for path, sent, kind in (("/v1/fine_tuning/jobs", b'{"model": "m"}', "application/json"), ("/v1/files", body, kind)):
            answer = self.client.post(path, gzip.compress(sent), headers={"Content-Type": kind, "Content-Encoding": "gzip"})
            self.assertEqual((answer.status, answer.error()["param"]), (400, "Content-Encoding"), answer.text)

    # ---- jobs

    def test_job_object(self):
        file = self.client.upload(LINE * 3)
        job = self.client.submit(file["id"], model="alias", suffix="try", seed=7, metadata={"team": "a b", "n": "1"},
                                 ithaca={"seq_len": 128})
        for key in ("id", "object", "created_at", "error", "fine_tuned_model", "finished_at", "hyperparameters", "model",
                    "organization_id", "result_files", "status", "trained_tokens", "training_file", "validation_file",
                    "seed"):
            self.assertIn(key, job)
        self.assertRegex(job["id"], r"^ftjob-[A-Za-z0-9]{24}$")
        self.assertEqual((job["object"], job["seed"], job["error"]), ("fine_tuning.job", 7, None))
        self.assertEqual(job["ithaca"]["spec"]["seq_len"], 128)
        self.assertNotIn("auto", json.dumps(job["ithaca"]["spec"]["context_parallel"]))
        self.assertEqual(self.client.job(job["id"])["id"], job["id"])

        def found(query):
            return [one["id"] for one in self.client.get("/v1/fine_tuning/jobs?" + query).json()["data"]]
        self.assertEqual(found("metadata%5Bteam%5D=a%20b"), [job["id"]])
        self.assertEqual(found("metadata%5Bteam%5D=a%20b&metadata%5Bn%5D=2"), [])
        self.assertNotIn(job["id"], found("metadata=null"))
        events = self.client.get(f"/v1/fine_tuning/jobs/{job['id']}/events").json()
        self.assertRegex(events["data"][-1]["id"], r"^ftevent-")
        self.assertEqual(self.client.get(f"/v1/fine_tuning/jobs/{job['id']}/metrics?keys=nothing").error()["param"], "keys")
        self.assertEqual(self.client.get(f"/v1/fine_tuning/jobs/{job['id']}/logs?rank=1").error()["param"], "rank")

    def test_stream_replays_and_ends(self):
        file = self.client.upload(LINE)
        job = self.client.submit(file["id"], model="shape-only")["id"]
        self.client.post(f"/v1/fine_tuning/jobs/{job}/cancel")  # or it has failed: the folder has no tokenizer
        messages = list(self.client.stream(f"/v1/fine_tuning/jobs/{job}/stream"))
        self.assertEqual(messages[-1][0], "end")
        self.assertEqual(messages[-1][2]["id"], job)
        states = [data["state"] for event, _, data in messages if event == "state"]
        self.assertEqual(states[0], "validating")
        self.assertEqual(states[-1], self.client.job(job)["ithaca"]["state"])
        events = [(event_id, data["id"]) for event, event_id, data in messages if event == "event"]
        again = [data["id"] for event, _, data in
                 self.client.stream(f"/v1/fine_tuning/jobs/{job}/stream", last_event_id=events[0][0]) if event == "event"]
        self.assertEqual(again, [event for _, event in events[1:]])
        answer = self.client.get(f"/v1/fine_tuning/jobs/{job}/stream", headers={"Last-Event-ID": "x"})
        self.assertEqual(answer.status, 400)

    def test_stream_limit_and_lost_clients(self):
        def stream():
            return open_stream(self.daemon)
        self.assertEqual(self.client.request("HEAD", "/v1/stream").status, 200)
        streams = [stream() for _ in range(4)]
        for _, head in streams:
            self.assertEqual(status_of(head), 200)
            self.assertIn(b"text/event-stream", head)
        self.assertEqual(self.client.get("/v1/stream").status, 429)
        self.assertLess(cpu_of(self.daemon.process.pid, 2), 0.2)  # a quiet stream costs nothing
        for connection, _ in streams:
            connection.close()
        # A lost client is noticed without waiting for a heartbeat.

        def place():
            connection, head = stream()
            connection.close()
            return status_of(head) == 200
        until("streams are free again", 5, place)

    # ---- files

    def post_form(self, parts, chunked=False):
        body, kind = form(parts)
        if chunked:
            body = iter([body[i:i + 1000] for i in range(0, len(body), 1000)])
        return self.client.post("/v1/files", body, headers={"Content-Type": kind})

    def leftovers(self):
        return [name for name in os.listdir(os.path.join(self.data_dir, "files")) if ".tmp-" in name]

    def test_upload_any_order_and_framing(self):
        data = LINE * 500
        for chunked in (False, True):
            for order in (("file", "purpose"), ("purpose", "file")):
                parts = {"file": ("file", "train.jsonl", data), "purpose": ("purpose", None, b"fine-tune")}
                answer = self.post_form([parts[name] for name in order], chunked)
                self.assertEqual(answer.status, 200, answer.text)
                file = answer.json()
                self.assertEqual((file["object"], file["bytes"], file["filename"], file["purpose"], file["status"]),
                                 ("file", len(data), "train.jsonl", "fine-tune", "processed"))
                self.assertEqual(self.client.get(f"/v1/files/{file['id']}/content").body, data)
                self.assertEqual(self.client.get(f"/v1/files/{file['id']}").json(), file)
                self.assertEqual(self.client.delete(f"/v1/files/{file['id']}").json(),
                                 {"id": file["id"], "object": "file", "deleted": True})
                self.assertEqual(self.client.get(f"/v1/files/{file['id']}").status, 404)
                self.assertEqual(self.client.get(f"/v1/files/{file['id']}/content").status, 404)
                self.assertFalse(os.path.exists(os.path.join(self.data_dir, "files", file["id"])))

    def test_upload_over_the_limit(self):
        """R60."""
        exact, over = b"x" * UPLOAD_MAX, b"x" * (UPLOAD_MAX + 1)
        purpose = ("purpose", None, b"fine-tune")
        file = self.post_form([("file", "exact", exact), purpose])
        self.assertEqual(file.status, 200, file.text)
        for chunked in (False, True):
            answer = self.post_form([("file", "over", over), purpose], chunked)
            self.assertEqual((answer.status, answer.error()["param"]), (413, "file"), answer.text)
        for path, kind in (("files", "multipart/form-data; boundary=b"), ("fine_tuning/jobs", "application/json")):
            answer = raw(self.daemon.port, f"POST /v1/{path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "
                         f"{self.daemon.token}\r\nContent-Type: {kind}\r\nContent-Length: {64 * UPLOAD_MAX}\r\n\r\n".encode())
            self.assertEqual(status_of(answer), 413, answer)  # before a byte of the body was sent
        self.client.delete(f"/v1/files/{file.json()['id']}")
        until("spool files are gone", 5, lambda: not self.leftovers())

    def test_upload_client_gone(self):
        """R60."""
        before = self.client.get("/v1/files").json()
        body, kind = form([("purpose", None, b"fine-tune"), ("file", "t.jsonl", LINE * 5000)])
        head = (f"POST /v1/files HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self.daemon.token}\r\n"
                f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n").encode()
        with socket.create_connection(("127.0.0.1", self.daemon.port), timeout=10) as connection:
            connection.sendall(head + body[:200000])
            until("the spool file is there", 5, self.leftovers)
        until("the spool file is gone", 5, lambda: not self.leftovers())
        for sent in range(1, 200000, 10000):  # data and end may arrive together
            with socket.create_connection(("127.0.0.1", self.daemon.port), timeout=10) as connection:
                connection.sendall(head + body[:sent])
        self.client.get("/healthz")
        until("the spool files are gone", 5, lambda: not self.leftovers())
        self.assertEqual(self.client.get("/v1/files").json(), before)

    def test_upload_from_a_half_closed_client(self):
        body, kind = form([("purpose", None, b"fine-tune"), ("file", "t.jsonl", LINE * 2000)])
        with socket.create_connection(("127.0.0.1", self.daemon.port), timeout=10) as connection:
            connection.sendall((f"POST /v1/files HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "
                                f"{self.daemon.token}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
                                "\r\n").encode() + body)
            connection.shutdown(socket.SHUT_WR)
            self.assertEqual(status_of(connection.recv(65536)), 200)

    def test_paging(self):
        made = [self.client.upload(LINE * (i + 1))["id"] for i in range(5)]
        seen, after = [], ""
        for _ in range(100):
            page = self.client.get(f"/v1/files?limit=2{after}").json()
            self.assertEqual(page["object"], "list")
            ids = [one["id"] for one in page["data"]]
            self.assertLessEqual(len(ids), 2)
            if ids:
                self.assertEqual((page["first_id"], page["last_id"]), (ids[0], ids[-1]))
            seen += ids
            if not page["has_more"]:
                break
            after = f"&after={ids[-1]}"
        self.assertEqual([one for one in seen if one in made], made[::-1])
        self.assertEqual(len(seen), len(set(seen)))
        oldest = self.client.get("/v1/files?order=asc").json()
        self.assertEqual([one["id"] for one in oldest["data"]], seen[::-1])
        empty = self.client.get("/v1/files?purpose=none").json()
        self.assertEqual(empty, {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False})
        for query, param in (("limit=0", "limit"), ("limit=x", "limit"), ("limit=1&limit=2", "limit"),
                             ("order=up", "order"), ("after=file-none", "after"), ("after=" + "a" * 200, "after")):
            answer = self.client.get("/v1/files?" + query)
            self.assertEqual((answer.status, answer.error()["param"]), (400, param), query)

    def test_paging_goes_on_after_what_was_deleted(self):
        for make, path in ((lambda: self.client.upload(LINE)["id"], "/v1/files"), (self.make_ended_job, "/v1/fine_tuning/jobs")):
            made = [make() for _ in range(5)]
            seen, after = [], ""
            while True:  # as OpenAI's clients page: by the last id of the page before, whatever became of it
                page = self.client.get(f"{path}?limit=2{after}").json()
                for one in page["data"]:
                    if one["id"] in made:
                        self.assertEqual(self.client.delete(f"{path}/{one['id']}").status, 200)
                        seen.append(one["id"])
                if not page["has_more"]:
                    break
                after = f"&after={page['last_id']}"
            self.assertEqual(seen, made[::-1])
            answer = self.client.get(f"{path}?after=none")
            self.assertEqual((answer.status, answer.error()["param"]), (400, "after"))

    def make_ended_job(self):
        job = self.client.submit(self.client.upload(LINE)["id"], model="shape-only", ithaca={"hold": True, "seq_len": 64})
        self.client.post(f"/v1/fine_tuning/jobs/{job['id']}/cancel")
        return job["id"]

    # ---- models

    def test_models(self):
        models = {one["id"]: one for one in self.client.get("/v1/models").json()["data"]}
        self.assertEqual(models["shape-only"]["object"], "model")
        self.assertEqual(self.client.get("/v1/models/alias").json(), models["shape-only"])


class Life(unittest.TestCase):
    """Starting and stopping."""

    def test_stop_with_open_requests(self):
        with Daemon() as daemon:
            stream, got = open_stream(daemon)
            upload = socket.create_connection(("127.0.0.1", daemon.port), timeout=10)
            upload.sendall(f"POST /v1/files HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {daemon.token}\r\n"
                           "Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 1000\r\n\r\n--b".encode())
            idle = socket.create_connection(("127.0.0.1", daemon.port), timeout=10)
            begun = time.monotonic()
            self.assertEqual(daemon.stop(), 0, daemon.log())
            self.assertLess(time.monotonic() - begun, 5 * slowdown())
            while piece := stream.recv(65536):
                got += piece
            self.assertTrue(got.endswith(b"0\r\n\r\n"), got)  # the last chunk: a clean end
            for connection in (stream, upload, idle):
                connection.close()
            self.assertFalse(daemon.exists("url"))
            self.assertEqual(os.listdir(os.path.join(daemon.data_dir, "files")), [])

    def test_disk_full(self):
        data_dir = tempfile.mkdtemp(prefix="ithaca-e2e-")
        files = os.path.join(data_dir, "files")
        os.mkdir(files)
        try:
            if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", files], capture_output=True,
                              check=False).returncode != 0:
                self.skipTest("no right to mount a small disk")
            with Daemon(data_dir=data_dir) as daemon:
                client = daemon.client()
                body, kind = form([("file", "big.jsonl", b"x" * 4000000), ("purpose", None, b"fine-tune")])
                answer = client.post("/v1/files", body, headers={"Content-Type": kind})
                self.assertEqual((answer.status, answer.error()["code"]), (507, "no_space"))
                self.assertEqual(client.get("/v1/files").json()["data"], [])
                self.assertEqual(os.listdir(files), [])
                self.assertEqual(client.upload(LINE)["bytes"], len(LINE))
        finally:
            subprocess.run(["umount", files], capture_output=True, check=False)
            shutil.rmtree(data_dir, ignore_errors=True)

    def fails(self, *args):
        done = subprocess.run([ITHACAD, *args], capture_output=True, text=True, timeout=30, check=False)
        lines = [line for line in done.stderr.splitlines() if line.startswith("ithacad: ")]
        self.assertEqual(len(lines), 1, done.stderr)
        return done.returncode, lines[0]

    def test_second_daemon_and_port_in_use(self):
        with Daemon() as daemon, tempfile.TemporaryDirectory() as other:
            status, line = self.fails("--data-dir", daemon.data_dir, "--port", "0")
            self.assertEqual(status, 75, line)
            status, line = self.fails("--data-dir", other, "--port", str(daemon.port))
            self.assertEqual(status, 75, line)
            self.assertIn(f"port {daemon.port}", line)
            self.assertFalse(os.path.exists(os.path.join(other, "url")))
            self.assertEqual(daemon.client().get("/healthz").status, 200)

    def test_command_line(self):
        self.assertEqual(self.fails("--colour", "red")[0], 64)
        self.assertEqual(self.fails("--port")[0], 64)
        status, line = self.fails("--port", "70000")
        self.assertEqual(status, 78)
        self.assertIn("port", line)
        version = subprocess.run([ITHACAD, "--version"], capture_output=True, text=True, check=True).stdout
        self.assertRegex(version, r"^ithacad \d+\.\d+\.\d+\n$")
        shown = subprocess.run([ITHACAD, "--help"], capture_output=True, text=True, check=True).stdout
        self.assertIn("--data-dir", shown)
        for before in (["run"], ["--port", "0"]):
            again = subprocess.run([ITHACAD, *before, "--help"], capture_output=True, text=True, check=True)
            self.assertEqual(again.stdout, shown)
        with open("/dev/full", "w", encoding="utf-8") as full:
            lost = subprocess.run([ITHACAD, "schema"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual((lost.returncode, lost.stderr), (74, "ithacad: standard output cannot be written\n"))
        schema = subprocess.run([ITHACAD, "schema"], capture_output=True, text=True, check=True).stdout
        self.assertIn("/v1/fine_tuning/jobs", json.loads(schema)["paths"])


if __name__ == "__main__":
    unittest.main()
