"""Webhooks: a receiver that fails, a daemon that is killed, signatures, order, and where they may not go."""
import base64
import contextlib
import hashlib
import hmac
import http.server
import json
import os
import sqlite3
import threading
import time
import unittest

from ithaca_e2e import LINE, OPENAPI, Daemon, until

LINES = LINE * 32
SMALL = {"max_steps": 4, "seq_len": 64, "batch": {"sequences": 1}}


class Receiver:
    """Keeps what is posted to it; answers with the statuses given, then with 204."""

    def __init__(self, *statuses):
        self.statuses, self.got, self.lock = list(statuses), [], threading.Lock()
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                with receiver.lock:
                    status = receiver.statuses.pop(0) if receiver.statuses else 204
                    receiver.got.append((status, dict(self.headers), self.path, body))
                self.send_response(status)
                if status in (301, 302, 307):
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0" if status == 204 else "5")
                self.end_headers()
                if status != 204:
                    self.wfile.write(b"never")

            def log_message(self, *words):
                pass
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,))
        self.thread.start()
        self.port = self.server.server_address[1]

    def url(self, path="/hook"):
        return f"http://127.0.0.1:{self.port}{path}"

    def taken(self):
        """(type, id of the job) of what was answered 2xx, in order."""
        with self.lock:
            bodies = [json.loads(body) for status, _, _, body in self.got if 200 <= status < 300]
        return [(body["type"].replace("fine_tuning.job.", ""), body["data"]["id"]) for body in bodies]

    def close(self):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


class Webhooks(unittest.TestCase):
    def receiver(self, *statuses):
        receiver = Receiver(*statuses)
        self.addCleanup(receiver.close)
        return receiver

    def check_signature(self, secret, headers, body):
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        mac = hmac.new(base64.b64decode(secret.removeprefix("whsec_")), signed, hashlib.sha256).digest()
        self.assertEqual(headers["webhook-signature"], "v1," + base64.b64encode(mac).decode())
        self.assertLess(abs(int(headers["webhook-timestamp"]) - time.time()), 60)

    def test_fails_twice_and_the_daemon_is_killed(self):
        receiver = self.receiver(500, 302)
        with Daemon("--webhook-hosts", f"127.0.0.1:{receiver.port}") as daemon:
            client = daemon.client()
            secret = client.get("/v1/webhooks").json()["secret"]
            file_id = client.upload(LINES)["id"]
            daemon.hold(2)
            job = client.submit(file_id, ithaca={**SMALL, "webhook": receiver.url()})["id"]
            until("the first try", 20, lambda: len(receiver.got) >= 1)
            daemon.kill()
            daemon.start()
            daemon.hold(None)
            client = daemon.client()
            client.wait(job)
            until("all is told", 20, lambda: ("succeeded", job) in receiver.taken())
            # Each once, in the order of the events, whoever sent them; a try that fails has the same id.
            self.assertEqual(receiver.taken(), [(state, job) for state in (
                "validating", "queued", "starting", "running", "succeeded")])
            failed = [headers["webhook-id"] for status, headers, _, _ in receiver.got if status >= 300]
            self.assertEqual(len(set(failed)), 1)
            self.assertEqual({path for _, _, path, _ in receiver.got}, {"/hook"})  # no redirect was followed
            events = client.get(f"/v1/fine_tuning/jobs/{job}/events?limit=100").json()["data"]
            ids = [event["id"] for event in events[::-1] if "state" in event["data"]]
            self.assertEqual([headers["webhook-id"] for status, headers, _, _ in receiver.got if status == 204], ids)
            for _, headers, _, body in receiver.got:
                self.check_signature(secret, headers, body)
            for _, _, _, body in receiver.got:
                OPENAPI.validate(json.loads(body), {"$ref": "#/components/schemas/WebhookMessage"}, "message")
            told = json.loads(receiver.got[-1][3])
            self.assertEqual((told["object"], told["id"], told["data"]["ithaca"]["owner"]), ("event", ids[-1], "admin"))
            self.assertTrue(told["data"]["ithaca"]["fine_tuned_model"].startswith("ft:tiny-llama:"))
            self.assertNotIn(daemon.data_dir, receiver.got[-1][3].decode())
            until("none waits", 20, lambda: client.get("/v1/webhooks").json()["waiting"] == 0)
            self.assertEqual(os.listdir(os.path.join(daemon.data_dir, "webhooks")), [])
            # An event that cannot be told holds up nothing.
            daemon.stop()
            with contextlib.closing(sqlite3.connect(os.path.join(daemon.data_dir, "jobs.db"))) as store, store:
                store.execute("INSERT INTO job_events (id, job_id, created_ms, level, type, message, data_json) "
                              "VALUES ('ftevent-bad', ?, 0, 'info', 'message', 'x', '{\"state\":')", (job,))
            daemon.start()
            client = daemon.client()
            # Another secret: the next message is signed with it.
            new = client.post("/v1/webhooks/rotate").json()["secret"]
            self.assertNotEqual(new, secret)
            client.submit(file_id, ithaca={**SMALL, "hold": True, "webhook": receiver.url("/new")})
            until("another job", 20, lambda: receiver.got[-1][2] == "/new")
            self.check_signature(new, receiver.got[-1][1], receiver.got[-1][3])
            self.assertIn(f"ftevent-bad of {job} is not told: ", daemon.log())
            ben = client.post("/v1/tokens", {"user": "ben"}).json()["token"]
            self.assertNotIn(client.get("/v1/webhooks", token=ben).json()["secret"], (secret, new))

    def test_alerts_and_the_operators_webhook(self):
        receiver = self.receiver()
        with Daemon("--webhook-url", receiver.url("/all?x=1"), "--stall-alert-s", "1") as daemon:
            client = daemon.client()
            file_id = client.upload(LINES)["id"]
            daemon.hold(2)
            job = client.submit(file_id, ithaca={**SMALL, "max_steps": 40, "on_nonfinite": "skip",
                                                 "optimizer": {"learning_rate": 10, "weight_decay": 10,
                                                               "schedule": "constant", "clip": 0}})["id"]
            until("it has stalled", 20, lambda: ("stalled", job) in receiver.taken())
            time.sleep(1.1)  # it is told once, however long it lasts
            daemon.hold(None)
            client.wait(job)
            until("all is told", 20, lambda: ("succeeded", job) in receiver.taken())
            told = [word for word, _ in receiver.taken()]
            self.assertEqual((told.count("stalled"), told.count("nonfinite")), (1, 1), told)
            self.assertLess(told.index("stalled"), told.index("nonfinite"))
            events = client.get(f"/v1/fine_tuning/jobs/{job}/events?limit=100").json()["data"]
            self.assertEqual(sorted(event["data"]["alert"] for event in events if "alert" in event["data"]),
                             ["nonfinite", "stalled"])

    def test_where_they_may_not_go(self):
        receiver = self.receiver(410)
        inside = f"localhost:{receiver.port}"
        with Daemon("--webhook-hosts", f"hooks.example.com,*,{inside}") as daemon:
            client = daemon.client()
            file_id = client.upload(LINES)["id"]

            def submit(url, **more):
                return client.post("/v1/fine_tuning/jobs", {"model": "tiny-llama", "training_file": file_id, **more,
                                                            "ithaca": {**SMALL, "hold": True, "webhook": url}})
            for url in ("gopher://hooks.example.com/", "http://a@hooks.example.com/", "http://hooks.example.com/#x", "x"):
                answer = submit(url)
                self.assertEqual((answer.status, answer.error()["param"]), (400, "ithaca.webhook"), url)
            # Gone is gone; "*" is the internet, and this machine is not part of it, by whatever name.
            gone = submit(f"http://{inside}/").json()["id"]
            hidden = submit(f"http://127.0.0.1:{receiver.port}/").json()["id"]

            def told(job, words):
                return any(words in event["message"] for event in client.get(
                    f"/v1/fine_tuning/jobs/{job}/events").json()["data"])
            until("given up", 20, lambda: told(gone, "to the webhook at localhost is given up after 1 tries: status 410"))
            until("refused", 20, lambda: "127.0.0.1 has not been taken and is sent again: failed: its address" in daemon.log())
            self.assertEqual([path for _, _, path, _ in receiver.got][:1], ["/"])
            self.assertGreater(client.get("/v1/webhooks").json()["waiting"], 0)
            # What was allowed when the job was submitted is asked again when it is sent.
            daemon.stop()
            daemon.args = ()
            daemon.start()
            client = daemon.client()
            until("not allowed any more", 20, lambda: told(hidden, "webhooks may not go to 127.0.0.1"))
            until("none waits", 20, lambda: client.get("/v1/webhooks").json()["waiting"] == 0)
            refusal = submit("https://hooks.example.com/").error()
            self.assertIn("webhook_hosts, which is empty", refusal["message"])
            refusal = client.request("PATCH", f"/v1/fine_tuning/jobs/{hidden}", {"ithaca": {"webhook": "http://a.b"}})
            self.assertEqual(refusal.error()["param"], "ithaca.webhook")
            self.assertEqual(client.request("PATCH", f"/v1/fine_tuning/jobs/{hidden}",
                                            {"ithaca": {"webhook": None}}).status, 200)
            shown = daemon.ithaca("webhooks", "show").stdout
            self.assertRegex(shown, r"secret   whsec_[A-Za-z0-9+/=]{44}\nhosts    none .*\nwaiting  0\n")


if __name__ == "__main__":
    unittest.main()
