#!/usr/bin/python3
"""A daemon with much in its store: how long it takes to start, also after it was killed, and what each request costs.

    python3 tests/bench/bench_large.py [--jobs N] [--queued N] [--events N] [--points N] [--keep DIR]

One line a request: time to its last byte (median, most), the daemon's time of a processor meanwhile, a request, and bytes of the answer.
--keep: the data folder, filled at the first run and used as it is by later ones.
"""
import argparse
import http.client
import json
import os
import sqlite3
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
from ithaca_e2e import LINE, Daemon, cpu_seconds, resident_bytes  # noqa: E402
from job_copies import job_copies  # noqa: E402

METRICS = 20  # of a job that has points; its steps are so many less than its points
LONG_JOB = 100000  # points of it


class Store:
    """Rows by the million: without indexes while they come, and by SQLite itself."""

    def __init__(self, daemon, name):
        self.database = sqlite3.connect(os.path.join(daemon.data_dir, name), isolation_level=None)
        self.database.execute("PRAGMA synchronous = OFF")
        self.database.execute("PRAGMA cache_size = -200000")
        self.database.execute("PRAGMA foreign_keys = OFF")

    def fill(self, table, sql):
        indexes = self.database.execute("SELECT name, sql FROM sqlite_master WHERE type = 'index' AND tbl_name = ? AND sql IS NOT NULL",
                                        (table,)).fetchall()
        self.database.execute("BEGIN")
        for name, _ in indexes:
            self.database.execute(f"DROP INDEX {name}")
        self.database.execute(sql)
        for _, made in indexes:
            self.database.execute(made)
        self.database.execute("COMMIT")

    def close(self):
        self.database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self.database.close()


def series(count):
    return f"WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {count})"


def fill(daemon, options):
    client = daemon.client()
    file = client.upload(LINE)["id"]
    job = client.submit(file, metadata={"team": "a"}, ithaca={"seq_len": 64, "hold": True})["id"]
    client.wait(job, ("queued",))
    daemon.stop()
    ended = options.jobs - options.queued
    job_copies(daemon.data_dir, job, (
        {"id": f"ftjob-large{i:07}", "owner": f"user{i % 50}",
         **({"state": "succeeded", "attempt": 1, "started_ms": 10**12 + i * 1000, "finished_ms": 10**12 + i * 1000 + 900000,
             "steps_done": 40, "steps_total": 40} if i < ended else {})} for i in range(options.jobs)))
    store = Store(daemon, "jobs.db")
    store.fill("attempts", "INSERT INTO attempts (job_id, number, started_ms, ended_ms, keeper_pid, keeper_start_time, boot_id, outcome, "
                           "from_step, step, tokens) SELECT id, 1, started_ms, finished_ms, 1, 1, '', 'ok', 0, 40, 4000 FROM jobs "
                           "WHERE attempt = 1")
    store.fill("job_events", f"{series(options.events)} INSERT INTO job_events (id, job_id, created_ms, level, type, message, data_json) "
                             f"SELECT printf('ftevent-large%08d', i), printf('ftjob-large%07d', i % {options.jobs}), 1000000000000 + i, "
                             "'info', 'message', 'Step 1200 is saved: ftckpt-1200, 123456789 bytes.', '{\"checkpoint\":\"x\"}' FROM n")
    store.close()
    store = Store(daemon, "metrics.db")
    for number in range(options.jobs):
        store.database.execute("INSERT INTO jobs (number, id) VALUES (?, ?)", (number + 1, f"ftjob-large{number:07}"))
    for first, count, jobs in ((1, LONG_JOB, 1), (2, options.points, min(ended, options.jobs - 1))):
        steps = count // METRICS // jobs
        store.fill("points", f"{series(count)} INSERT INTO points (job, attempt, step, rank, metric, value, wall_s) SELECT "
                             f"{first} + i / {METRICS * max(steps, 1)}, 1, 1 + i / {METRICS} % {max(steps, 1)}, 0, i % {METRICS}, 1.0 + i % 97, "
                             "1e9 + i FROM n")
    store.close()


class Asker:
    def __init__(self, daemon):
        self.daemon = daemon
        self.headers = {"Authorization": f"Bearer {daemon.token}", "Content-Type": "application/json"}

    def ask(self, path, method="GET", body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.daemon.port, timeout=600)
        connection.request(method, path, body=body, headers=self.headers)
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        assert answer.status == 200, f"{method} {path}: {answer.status} {text[:300]}"
        return text

    def tell(self, path, count=3, method="GET", body=None):
        pid, walls = self.daemon.process.pid, []
        used = cpu_seconds(pid)
        for _ in range(count):
            begun = time.monotonic()
            text = self.ask(path, method, body)
            walls.append(1000 * (time.monotonic() - begun))
        used = 1000 * (cpu_seconds(pid) - used) / count
        walls.sort()
        print(f"{method} {path[:66]:68} {walls[count // 2]:8.1f} {walls[-1]:8.1f} ms, processor {used:7.1f} ms, {len(text):8} bytes", flush=True)


def start(daemon, what):
    begun = time.monotonic()
    daemon.start(wait=False)
    while not daemon.exists("url"):
        assert daemon.process.poll() is None, daemon.log()
        time.sleep(0.01)
    print(f"{what}: {time.monotonic() - begun:.2f} s, {cpu_seconds(daemon.process.pid):.2f} s of a processor, "
          f"{resident_bytes(daemon.process.pid) >> 20} MiB", flush=True)


def requests(daemon, options):
    asker = Asker(daemon)
    last = json.loads(asker.ask("/v1/fine_tuning/jobs?limit=1"))["data"][0]["id"]
    job, long = f"ftjob-large{options.jobs - options.queued - 1:07}", "ftjob-large0000000"
    jobs = "/v1/fine_tuning/jobs"
    for path in (
            "/healthz", f"{jobs}/{last}", f"{jobs}?limit=20", f"{jobs}?limit=100", f"{jobs}?limit=1000", f"{jobs}?limit=20&after=ftjob-large0000030",
            f"{jobs}?limit=20&metadata[team]=a", f"{jobs}?limit=20&metadata[team]=nobody", f"{jobs}?limit=20&metadata=null",
            f"{jobs}/{job}/events", f"{jobs}/{job}/events?limit=100", "/v1/queue", "/v1/queue?limit=1000", "/v1/queue?after=5000&limit=1000",
            "/v1/usage", "/v1/usage?by=user", "/v1/gpus", "/v1/models", "/v1/files", "/v1/experiments", "/metrics", "/readyz",
            f"{jobs}/{long}/metrics?max_points=400", f"{jobs}/{long}/metrics?keys=loss&max_points=1000", f"{jobs}/{long}/metrics?limit=1000",
            f"{jobs}/{job}/metrics?max_points=400", f"{jobs}/{long}/memory", "/v1/storage", "/v1/storage"):
        asker.tell(path)
    user = daemon.client().user("user7")
    asker.headers["Authorization"] = f"Bearer {user.token}"
    print("as one of 50 users:")
    for path in (f"{jobs}?limit=20", f"{jobs}?limit=100", "/v1/queue", "/v1/usage"):
        asker.tell(path)
    user = daemon.client().user("nobody")
    asker.headers["Authorization"] = f"Bearer {user.token}"
    print("as a user without jobs:")
    for path in (f"{jobs}?limit=20", "/v1/queue", "/v1/usage", "/v1/files"):
        asker.tell(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--jobs", type=int, default=50000)
    parser.add_argument("--queued", type=int, default=10000)
    parser.add_argument("--events", type=int, default=1000000)
    parser.add_argument("--points", type=int, default=2000000)
    parser.add_argument("--keep")
    options = parser.parse_args()
    filled = options.keep and os.path.exists(os.path.join(options.keep, "filled"))
    if options.keep:
        os.makedirs(options.keep, exist_ok=True)
    with Daemon("--device", "cpu", "--cpu-slots", "8", data_dir=options.keep, wait=not filled) as daemon:
        if not filled:
            begun = time.monotonic()
            fill(daemon, options)
            with open(os.path.join(daemon.data_dir, "filled"), "w", encoding="utf-8"):
                pass
            print(f"filled in {time.monotonic() - begun:.0f} s")
        daemon.kill()
        sizes = [os.path.getsize(os.path.join(daemon.data_dir, name)) >> 20 for name in ("jobs.db", "metrics.db")]
        print(f"{options.jobs} jobs, {options.queued} of them queued, {options.events} events, {options.points} points: jobs.db has "
              f"{sizes[0]} MiB, metrics.db {sizes[1]} MiB")
        start(daemon, "start")
        daemon.stop(600)
        start(daemon, "start after a clean stop")
        requests(daemon, options)
        print(f"{resident_bytes(daemon.process.pid) >> 20} MiB")
        daemon.client().post("/v1/admin/drain")
        daemon.kill()
        start(daemon, "start after a kill")
        daemon.stop(600)
        for line in daemon.log().splitlines():
            if " loop: " in line or " store: " in line:
                print(line)


if __name__ == "__main__":
    main()
