#!/usr/bin/python3
"""A page of 1,000 jobs (GET /v1/fine_tuning/jobs?limit=1000), and what it keeps others from:
    python3 tests/bench/bench_jobs.py [rounds]
Jobs have run: each has an attempt on two GPUs and points. Meanwhile another client asks for /healthz; the longest of its
answers is what the loop was held. One line a figure: median, least and most, ms.
"""
import http.client
import json
import multiprocessing
import os
import sqlite3
import statistics
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "e2e"))
from ithaca_e2e import EXAMPLE_DIR, Daemon, cpu_seconds  # noqa: E402
from job_copies import job_copies  # noqa: E402

JOBS, STEPS = 1000, 20
PATH = f"/v1/fine_tuning/jobs?limit={JOBS}"


def fill(daemon):
    """Copies of a job that was cancelled as it ran: state, attempt, GPUs, and the two metrics that a list shows."""
    client = daemon.client()
    file = client.upload(os.path.join(EXAMPLE_DIR, "train.jsonl"))["id"]
    job = client.submit(file, ithaca={"hold": True, "gpus": 2, "seq_len": 128})["id"]
    client.post(f"/v1/fine_tuning/jobs/{job}/cancel")
    daemon.stop()
    ids = [f"ftjob-{number:024}" for number in range(JOBS)]
    job_copies(daemon.data_dir, job, ({"id": one, "attempt": 1, "steps_done": STEPS, "steps_total": 40, "started_ms": 1} for one in ids))
    with sqlite3.connect(os.path.join(daemon.data_dir, "jobs.db")) as store:
        columns = [row[1:4] for row in store.execute("PRAGMA table_info(attempts)")]
        known = {"number": 1, "gpus": ",".join(f"GPU-{i}-1f2e4c3d-0000-0000-0000-000000000000" for i in range(2))}
        for one in ids:
            row = {name: {**known, "job_id": one}.get(name, "" if kind == "TEXT" else 0) for name, kind, _ in columns}
            store.execute(f"INSERT INTO attempts ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", list(row.values()))
    with sqlite3.connect(os.path.join(daemon.data_dir, "metrics.db")) as store:
        numbers = dict(store.execute("SELECT name, number FROM metric_names"))
        for one in ids:
            own = store.execute("INSERT INTO jobs (id) VALUES (?)", (one,)).lastrowid
            store.executemany("INSERT INTO points (job, attempt, step, rank, metric, value, wall_s) VALUES (?, 1, ?, 0, ?, ?, 1.7e9)",
                              [(own, step, numbers[name], 1 + step / 7) for step in range(1, STEPS + 1)
                               for name in ("loss", "grad_norm", "learning_rate", "tokens_per_s", "step_time_s")])
    daemon.start()


def get(daemon, path):
    """The bytes of an answer, not held against the schema as the tests' client does, which takes longer than the daemon."""
    connection = http.client.HTTPConnection("127.0.0.1", daemon.port)
    connection.request("GET", path, headers={"Authorization": f"Bearer {daemon.token}"})
    answer = connection.getresponse().read()
    connection.close()
    return answer


def ask(daemon, over, longest):
    """In a process of its own, for two threads share a lock of Python's."""
    while not over.is_set():
        start = time.monotonic()
        get(daemon, "/healthz")
        longest.value = max(longest.value, 1000 * (time.monotonic() - start))


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    with Daemon() as daemon:
        fill(daemon)
        whole, held = [], []
        before = cpu_seconds(daemon.process.pid)
        for _ in range(rounds):
            start = time.monotonic()
            answer = get(daemon, PATH)
            whole.append(1000 * (time.monotonic() - start))
        assert len(json.loads(answer)["data"]) == JOBS
        took = 1000 * (cpu_seconds(daemon.process.pid) - before) / rounds
        print(f"the daemon's time for a page of {len(answer)} bytes: {took:.0f} ms")
        over, longest = multiprocessing.Event(), multiprocessing.Value("d")
        other = multiprocessing.Process(target=ask, args=(daemon, over, longest))
        other.start()
        for _ in range(rounds):
            time.sleep(0.1)
            longest.value = 0
            get(daemon, PATH)
            time.sleep(0.1)
            held.append(longest.value)
        over.set()
        other.join()
        for name, took in (("the page, to its last byte", whole), ("the longest /healthz beside it", held)):
            print(f"{name}: {statistics.median(took):.0f} ({min(took):.0f} to {max(took):.0f}) ms")


if __name__ == "__main__":
    main()
