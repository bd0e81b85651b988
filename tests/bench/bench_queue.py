#!/usr/bin/python3
"""A daemon with 10,000 jobs in its queue: how long it takes to take them up, to answer, and what it costs to have them.

    python3 tests/bench/bench_queue.py [JOBS]
"""
import http.client
import json
import os
import sqlite3
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
from ithaca_e2e import Daemon, cpu_seconds, resident_bytes  # noqa: E402
from job_copies import job_copies  # noqa: E402

LINE = b'{"messages":[{"role":"user","content":"Where?"},{"role":"assistant","content":"By the quay."}]}\n'


def times(daemon, what, count, method, path, body=None):
    """The daemon's answers alone: a client of the tests would check them, too."""
    taken = []
    headers = {"Authorization": f"Bearer {daemon.token}", "Content-Type": "application/json"}
    connection = http.client.HTTPConnection("127.0.0.1", daemon.port)
    for _ in range(count):
        begun = time.monotonic()
        connection.request(method, path, body=json.dumps(body) if body else None, headers=headers)
        answer = connection.getresponse()
        text = answer.read()
        taken.append((time.monotonic() - begun) * 1000)
        assert answer.status == 200, text
    connection.close()
    taken.sort()
    print(f"{what:24} median {taken[count // 2]:7.1f} ms, p99 {taken[min(count - 1, count * 99 // 100)]:7.1f} ms")


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10000
    with Daemon("--device", "cpu", "--cpu-slots", "8") as daemon:
        client = daemon.client()
        file = client.upload(LINE)["id"]
        job = client.submit(file, ithaca={"seq_len": 64, "gpus": 2})["id"]
        assert client.post("/v1/admin/drain").status == 200
        client.wait(job, ("queued", "running", "succeeded"))
        job = client.submit(file, ithaca={"seq_len": 64, "gpus": 2})["id"]
        client.wait(job, ("queued",))
        daemon.stop()
        with sqlite3.connect(os.path.join(daemon.data_dir, "jobs.db")) as database:
            database.execute("PRAGMA foreign_keys = OFF")
            database.execute("DELETE FROM jobs WHERE id <> ?", (job,))
        job_copies(daemon.data_dir, job, ({"id": f"ftjob-bench{i:06}", "owner": f"user{i % 50}"} for i in range(count - 1)))
        begun = time.monotonic()
        daemon.start()
        client = daemon.client()
        assert client.get("/v1/queue?limit=1").json()["waiting_count"] == count
        print(f"{count} jobs: taken up in {time.monotonic() - begun:.2f} s")
        pid = daemon.process.pid
        begun, used = time.monotonic(), cpu_seconds(pid)
        time.sleep(10)
        print(f"with nothing asked: {100 * (cpu_seconds(pid) - used) / (time.monotonic() - begun):.1f} % of a core, "
              f"{resident_bytes(pid) / 2**20:.0f} MiB")
        path = f"/v1/fine_tuning/jobs/{job}"
        times(daemon, "/healthz", 1000, "GET", "/healthz")
        times(daemon, "/v1/queue", 50, "GET", "/v1/queue")
        times(daemon, "/v1/queue, 1000 of them", 50, "GET", "/v1/queue?after=5000&limit=1000")
        times(daemon, "one job", 200, "GET", path)
        times(daemon, "a change of priority", 50, "PATCH", path, {"ithaca": {"priority": 1}})


if __name__ == "__main__":
    main()
