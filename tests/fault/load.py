#!/usr/bin/env python3
"""The daemon under load: eight jobs that each send 100 points a second, dashboards, idle streams, slow uploads, clients
that mean ill, and other processes at its databases: one that holds both locks for ten seconds, one that reads all the
time (field case R55). Nothing is lost and nobody waits:

    tests/fault/load.py [--seconds S] [--streams N] [--uploads N] [--connections N] [--dashboards N] [--cancels N] [--idle S]

    every job succeeds; every point of every step is there once, and steps did not wait for the store
    no answer takes half as long as the locks are held; how long they take is told
    what comes slowly arrives whole, though it takes many times the idle limit (R60); streams stay open, and heads
    that never end are cut
    the log of metrics.db stays below its bound; memory and descriptors come back to where they were
"""
import argparse
import multiprocessing
import os
import re
import resource
import sqlite3
import sys
import threading
import time
import traceback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
import ithaca_e2e as e2e  # noqa: E402
import load_clients as clients  # noqa: E402

JOBS = 8
POINTS_A_STEP = 14  # at least; the least load is checked
PACE = 100 / POINTS_A_STEP  # steps a second, so that a job sends 100 points
LOCK_S = 10
LOG_BYTES_MAX = 300 << 20  # the daemon's bound, and what is on the way
JOB = {"gpus": 1, "seq_len": 16, "batch": {"sequences": 1}, "save": {"every_steps": 1000000}, "max_restarts": 0}


class Threads:
    """Calls step() of each client at its interval until the end; the first failure is the scene's."""

    def __init__(self):
        self.over, self.failures, self.threads = threading.Event(), [], []

    def start(self, every, *steps):
        def work():
            due = time.monotonic()
            try:
                while not self.over.is_set():
                    for step in steps:
                        step()
                    due = max(due + every, time.monotonic())
                    self.over.wait(max(0.0, due - time.monotonic()))
            except BaseException:  # told by end()
                self.failures.append(traceback.format_exc())
        thread = threading.Thread(target=work)
        thread.start()
        self.threads.append(thread)

    def end(self):
        self.over.set()
        for thread in self.threads:
            thread.join()
        assert not self.failures, "\n".join(self.failures)


class Guests:
    """Other processes at the databases, as sqlite3 on the command line is."""

    def __init__(self, data_dir):
        self.paths = [os.path.join(data_dir, name) for name in ("jobs.db", "metrics.db")]
        self.locked_at = 0.0

    def open(self, path):
        return sqlite3.connect(path, timeout=30, isolation_level=None)

    def read(self, over):
        reader = self.open(self.paths[1])
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM points").fetchone()
        over.wait()
        reader.close()

    def lock(self, seconds):
        held = [self.open(path) for path in self.paths]
        for database in held:
            database.execute("BEGIN IMMEDIATE")
        self.locked_at = time.time()
        time.sleep(seconds)
        for database in held:
            database.execute("ROLLBACK")
            database.close()

    def log_bytes(self):
        try:
            return os.path.getsize(self.paths[1] + "-wal")
        except FileNotFoundError:
            return 0


def durations(client):
    """How long requests took by the daemon's own count, from the first line to the end of the answer: bounds of its
    histogram under which a half and 90 of 100 lie (the slow uploads are among the rest)."""
    buckets = [(float(bound), int(count)) for bound, count in re.findall(
        r'^ithaca_http_request_duration_seconds_bucket{.*le="([^"]+)"} (\d+)', client.get("/metrics").text, re.MULTILINE)]
    total = buckets[-1][1]
    half, most = (next(bound for bound, count in buckets if count >= share * total) for share in (0.5, 0.9))
    return f"by the daemon's count half of {total} requests took less than {1000 * half:g} ms, 90 of 100 less than {1000 * most:g} ms"


class Load:
    def __init__(self, daemon, options):
        self.daemon, self.options, self.client = daemon, options, daemon.client()
        self.steps = int(options.seconds * PACE)
        self.pid = daemon.process.pid
        self.threads, self.guests = Threads(), Guests(daemon.data_dir)
        self.log_peak, self.clients = 0, []
        self.file = self.client.upload(clients.LINE * 32)["id"]
        self.daemon.hold(1)
        self.jobs = [self.submit(max_steps=self.steps) for _ in range(JOBS)]
        for job in self.jobs:
            self.client.wait(job, states=("running",), seconds=120)
        held = [self.submit(hold=True) for _ in range(options.cancels)]
        self.pipe, far = multiprocessing.Pipe()
        self.probe = multiprocessing.Process(target=clients.probe, args=(
            daemon, ["/healthz", f"/v1/fine_tuning/jobs/{self.jobs[0]}"], held, 0.03, far), daemon=True)
        self.probe.start()  # before any thread is there

    def submit(self, **fields):
        return self.client.submit(self.file, seed=1, ithaca={**JOB, **fields})["id"]

    def look(self):
        self.log_peak = max(self.log_peak, self.guests.log_bytes())

    def dashboard(self, number):
        """Its stream, and what its pages ask for again and again."""
        asker, job = clients.Asker(self.daemon), self.jobs[number % JOBS]
        paths = ["/v1/fine_tuning/jobs?limit=50", "/v1/queue", "/v1/gpus", f"/v1/fine_tuning/jobs/{job}",
                 f"/v1/fine_tuning/jobs/{job}/metrics?max_points=400", f"/v1/fine_tuning/jobs/{job}/events"]

        def poll():
            for path in paths:
                asker.ask(path)
            asker.end()  # it is idle for longer than connections may be
        return poll

    def gather(self):
        """The crowd: one thread for all that only wait, one a dashboard."""
        daemon, options = self.daemon, self.options
        streams = [clients.IdleStream(daemon) for _ in range(options.streams + options.dashboards)]
        uploads = [clients.SlowUpload(daemon, int(options.seconds * 4)) for _ in range(options.uploads)]
        loris = [clients.Slowloris(daemon) for _ in range(options.connections)]
        deaf = [clients.NeverReads(daemon, "/v1/fine_tuning/jobs?limit=1000") for _ in range(5)]
        self.clients = streams + uploads + loris + deaf
        self.threads.start(0.25, *[one.step for one in self.clients])
        self.threads.start(0.1, clients.Vanishing(daemon, options.seed).step)
        self.threads.start(0.2, self.look)
        for number in range(options.dashboards):
            self.threads.start(1.0, self.dashboard(number))

    def run(self):
        """Raises the gate step by step; when it is half way, the databases are locked."""
        self.gather()
        self.threads.start(0, lambda: self.guests.read(self.threads.over))
        begun, locked, told = time.monotonic(), None, False
        while (passed := time.monotonic() - begun) < self.options.seconds:
            self.daemon.hold(1 + int(passed * PACE))
            if locked is None and passed > 1:
                locked = threading.Thread(target=self.guests.lock, args=(LOCK_S,))
                locked.start()
            if locked is not None and not locked.is_alive() and not told:
                told = True
                self.pipe.send("cancel")
            time.sleep(0.02)
        self.daemon.hold(None)
        locked.join()

    # ---- when it is over

    def check_jobs(self):
        for job_id in self.jobs:
            job = self.client.wait(job_id, seconds=120)
            assert job["status"] == "succeeded", f"{job_id}: {job['error']}"
            assert job["ithaca"]["attempt"] == 1, job

    def check_points(self):
        """Every metric of a job has every step once (some are told once a job), and half of those that the gate let through
        while the databases were locked were done by then. Returns points, and the longest time between two steps."""
        database = sqlite3.connect(f"file:{self.guests.paths[1]}?mode=ro", uri=True)
        rows = database.execute("SELECT j.id, m.name, count(*), count(DISTINCT p.step), max(p.step) FROM points p "
                                "JOIN jobs j ON j.number = p.job JOIN metric_names m ON m.number = p.metric "
                                "GROUP BY 1, 2").fetchall()
        for job, metric, count, steps, last in rows:
            assert count == steps and steps in (1, self.steps) and last in (1, self.steps), \
                f"{job}, {metric}: {count} points of {steps} steps up to {last}"
        rows = [row for row in rows if row[3] == self.steps]
        assert {row[0] for row in rows} == set(self.jobs)
        assert len(rows) >= JOBS * POINTS_A_STEP, f"{len(rows) / JOBS} points a step: less load than is said"
        of_losses = "FROM points p JOIN metric_names m ON m.number = p.metric WHERE m.name = 'loss' AND p.step > 1"
        fewest = min(row[0] for row in database.execute(
            f"SELECT count(*) FILTER (WHERE p.wall_s BETWEEN ? AND ?) {of_losses} GROUP BY p.job",
            (self.guests.locked_at, self.guests.locked_at + LOCK_S)))
        assert fewest >= LOCK_S * PACE / 2, f"a job did {fewest} steps in {LOCK_S} s: they waited for the store"
        pause = database.execute(
            "SELECT max(pause) FROM (SELECT p.wall_s - lag(p.wall_s) OVER (PARTITION BY p.job ORDER BY p.step) AS pause "
            f"{of_losses})").fetchone()[0]
        database.close()
        return sum(row[2] for row in rows), pause

    def answers(self):
        self.pipe.send("end")
        assert self.pipe.poll(60), "the probe has failed"
        times = self.pipe.recv()
        self.probe.join()
        return times

    def tell(self, points, pause, before):
        print(f"{JOBS} jobs, {self.options.seconds:g} s, {points} points ({points / self.options.seconds:.0f} a second); "
              f"{self.options.dashboards} dashboards, {self.options.streams} idle streams, {self.options.uploads} slow uploads, "
              f"{self.options.connections} endless heads")
        print(f"longest time between two steps {pause:.2f} s; log of metrics.db at most {self.log_peak >> 20} MiB; daemon: "
              f"{before[0] >> 20} MiB before, {e2e.resident_bytes(self.pid) >> 20} after, "
              f"{e2e.cpu_seconds(self.pid):.1f} s of a processor; {durations(self.client)}")

    def end(self, before):
        times = self.answers()
        self.threads.end()
        for one in self.clients:
            one.end()
        self.check_jobs()
        points, pause = self.check_points()
        self.tell(points, pause, before)
        for one in times:
            print(one.tell())
            assert max(one.seconds) < LOCK_S / 2, f"{one.name}: an answer took {max(one.seconds):.2f} s"
        assert self.log_peak < LOG_BYTES_MAX, f"metrics.db-wal has grown to {self.log_peak} bytes"
        e2e.until("descriptors are given back", 20, lambda: len(e2e.descriptors(self.pid)) <= before[1])
        grown = e2e.resident_bytes(self.pid) - before[0]
        assert grown < 128 << 20, f"the daemon's memory has grown by {grown >> 20} MiB"
        files = self.client.get("/v1/files?limit=10000").json()["data"]
        assert len(files) == 1 + self.options.uploads + JOBS, f"{len(files)} files: half of one is listed"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=12)
    parser.add_argument("--dashboards", type=int, default=10)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--uploads", type=int, default=50)
    parser.add_argument("--connections", type=int, default=100, help="of clients whose head never ends")
    parser.add_argument("--cancels", type=int, default=10)
    parser.add_argument("--idle", type=int, default=3, help="the daemon's limit, s: more than it is ever late by")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "little"))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    most = options.streams + options.uploads + options.connections + 100
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4 * most, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),) * 2)
    with e2e.Daemon("--cpu-slots", str(JOBS), "--connections-max", str(most), "--idle-limit-s", str(options.idle), "--streams-max",
                    str(options.streams + options.dashboards + 20)) as daemon:
        before = (e2e.resident_bytes(daemon.process.pid), len(e2e.descriptors(daemon.process.pid)))
        load = Load(daemon, options)
        try:
            load.run()
            load.end(before)
        finally:
            load.threads.over.set()
            load.probe.kill()
        assert daemon.stop() == 0, "ithacad did not end well"


if __name__ == "__main__":
    main()
