#!/usr/bin/python3
"""What a request costs by the door it comes through, and what remembering it costs: median and 99th percentile of requests one
after the other over a kept connection, with 9,000 other tokens in the store.

    ITHACA_BUILD_DIR=build/ci python3 tests/bench/bench_access.py [REQUESTS]
"""
import http.client
import json
import os
import socket
import sqlite3
import ssl
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
from ithaca_e2e import Daemon  # noqa: E402

LINE = b'{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}\n'
REQUESTS = int(sys.argv[1]) if len(sys.argv) > 1 else 2000


def figures(name, connection, method, path, headers, body=lambda i: None, count=REQUESTS):
    """Prints the spread of the times from request to whole answer."""
    times = []
    for i in range(count):
        begun = time.perf_counter()
        connection.request(method, path, body=body(i), headers=headers(i))
        answer = connection.getresponse()
        text = answer.read()
        times.append(time.perf_counter() - begun)
        assert answer.status == 200, text
    times.sort()
    print(f"{name:42} {1e6 * times[count // 2]:8.0f} us   {1e6 * times[count * 99 // 100]:8.0f} us", flush=True)


def main():
    with tempfile.TemporaryDirectory(prefix="ithaca-bench-") as folder:
        cert, key, path = (os.path.join(folder, name) for name in ("cert.pem", "key.pem", "socket"))
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj",
                        "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert],
                       check=True, capture_output=True)
        os.chmod(key, 0o600)
        with Daemon("--socket", path) as daemon:
            daemon.stop()
            with sqlite3.connect(os.path.join(daemon.data_dir, "jobs.db")) as store:
                store.executemany("INSERT INTO tokens (id, parent, prefix, hash, name, user, scope, created_ms, expires_ms) VALUES "
                                  "(?, '', ?, randomblob(32), '', 'ann', 'submit', 1, 0)",
                                  [(f"token-{i}", f"ithaca-{i:08}") for i in range(9000)])
            store.close()
            daemon.start()
            bearer = {"Authorization": f"Bearer {daemon.token}"}
            print(f"{'':42} {'median':>11}   {'p99':>11}")
            plain = http.client.HTTPConnection("127.0.0.1", daemon.port)
            figures("GET /healthz, no token", plain, "GET", "/healthz", lambda i: {})
            figures("GET /v1/session, token", plain, "GET", "/v1/session", lambda i: bearer)
            local = http.client.HTTPConnection("localhost")
            local.sock = socket.socket(socket.AF_UNIX)
            local.sock.connect(path)
            figures("GET /v1/session, Unix socket, no token", local, "GET", "/v1/session", lambda i: {})
            job = json.dumps({"model": "tiny-llama", "training_file": daemon.client().upload(LINE)["id"], "ithaca": {"hold": True}})
            figures("POST a job", plain, "POST", "/v1/fine_tuning/jobs", lambda i: bearer, lambda i: job, 300)
            figures("POST a job, Idempotency-Key", plain, "POST", "/v1/fine_tuning/jobs",
                    lambda i: {**bearer, "Idempotency-Key": str(i)}, lambda i: job, 300)
            figures("POST it again", plain, "POST", "/v1/fine_tuning/jobs",
                    lambda i: {**bearer, "Idempotency-Key": str(i)}, lambda i: job, 300)
        with Daemon("--tls-cert", cert, "--tls-key", key) as daemon:
            bearer = {"Authorization": f"Bearer {daemon.token}"}
            secure = http.client.HTTPSConnection("127.0.0.1", daemon.port, context=ssl.create_default_context(cafile=cert))
            figures("GET /v1/session, token, TLS", secure, "GET", "/v1/session", lambda i: bearer)


if __name__ == "__main__":
    main()
