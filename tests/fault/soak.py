#!/usr/bin/env python3
"""A soak: for minutes, clients do all that leaves something behind, and take it away again. What the daemon holds is the
same at the end as it was early on:

    tests/fault/soak.py [--minutes M] [--seed K]

A round uploads a file (whole, or in parts), submits jobs, of which one ends, one is cancelled and one paused, resumed and
cancelled, follows their streams, asks for what pages ask for, and deletes jobs and file. After every hundredth of the time
what is left is looked at; the last look must not differ from that after a quarter of the time:

    memory of the daemon: within GROWTH_BYTES
    descriptors, threads, processes, files in the data folder: the same
    rows of the databases' tables: the same, but of REMEMBERED; bytes of all files: within GROWTH_BYTES"""
import argparse
import os
import random
import sqlite3
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
import ithaca_e2e as e2e  # noqa: E402

LINE = '{"messages":[{"role":"user","content":"Where is ship %d?"},{"role":"assistant","content":"At quay %d."}]}\n'
JOB = {"seq_len": 32, "max_steps": 3, "batch": {"sequences": 1}, "save": {"every_steps": 1}}
GROWTH_BYTES = 4 << 20
REMEMBERED = ("uploads", "replays", "gone", "attempts_gone")  # tables of what has ended: for hours, thousands, accounts
LOGS = ("ithacad.log", "housekeeping.log")  # they grow with what is done; rotating them is the operator's


class Soak:
    def __init__(self, daemon, seed):
        self.daemon, self.random, self.client = daemon, random.Random(seed), daemon.client()
        self.pid, self.rounds = daemon.process.pid, 0

    # ---- a round

    def upload(self):
        first = self.random.randrange(1 << 30)  # a shard of its own
        data = "".join(LINE % (number, number % 7) for number in range(first, first + 24)).encode()
        if self.rounds % 2 == 0:
            return self.client.upload(data)["id"]
        upload = self.client.post("/v1/uploads", {"filename": "parts.jsonl", "purpose": "fine-tune", "bytes": len(data),
                                                  "mime_type": "application/jsonl"}).json()["id"]
        parts = []
        for piece in (data[:1000], data[1000:]):
            body, kind = e2e.form([("data", "part", piece)])
            parts.append(self.client.post(f"/v1/uploads/{upload}/parts", body, headers={"Content-Type": kind}).json()["id"])
        return self.client.post(f"/v1/uploads/{upload}/complete", {"part_ids": parts}).json()["file"]["id"]

    def submit(self, file_id, **more):
        return self.client.submit(file_id, ithaca={**JOB, **more}, metadata={"soak": str(self.rounds)})["id"]

    def post(self, job, verb):
        answer = self.client.post(f"/v1/fine_tuning/jobs/{job}/{verb}")
        assert answer.status in (200, 400), answer.text  # 400: it has just ended

    def watch(self, job):
        for _ in self.client.stream(f"/v1/fine_tuning/jobs/{job}/stream"):
            pass

    def round(self):
        file_id = self.upload()
        jobs = [self.submit(file_id), self.submit(file_id, max_steps=100000), self.submit(file_id, max_steps=100000)]
        watcher = threading.Thread(target=self.watch, args=(jobs[0],))
        watcher.start()
        stream = self.client.stream("/v1/stream")
        next(stream)
        self.client.wait(jobs[0])
        self.post(jobs[1], "cancel")
        for verb in ("pause", "resume", "cancel"):
            self.post(jobs[2], verb)
        for path in ("events", "checkpoints", "metrics", "logs", "memory"):
            self.client.get(f"/v1/fine_tuning/jobs/{jobs[0]}/{path}")
        for path in ("fine_tuning/jobs", "queue", "gpus", "files", "storage", "nothing"):
            self.client.get(f"/v1/{path}")
        watcher.join()
        stream.close()  # in the middle
        for job in jobs:
            self.client.wait(job)
            answer = self.client.delete(f"/v1/fine_tuning/jobs/{job}")
            assert answer.status == 200, answer.text
        for file in self.client.get("/v1/files").json()["data"]:  # what jobs left too: their results
            self.client.delete(f"/v1/files/{file['id']}")
        self.rounds += 1

    # ---- what is left

    def settle(self):
        """Until what goes on beside (the trash, points of jobs that are gone, closed connections) has been done."""
        e2e.until("all has settled", 60, lambda: not self.moving(), every=0.5)
        self.client.post("/v1/storage/prune", {"kinds": ["shards"]})  # those that jobs in the trash have are in use
        e2e.until("shards are gone", 60, lambda: not self.moving(), every=0.5)

    def moving(self):
        trash = os.path.join(self.daemon.data_dir, "trash")
        return (os.path.isdir(trash) and os.listdir(trash)) or self.rows("metrics.db", "points") or len(
            e2e.processes_of(self.daemon.data_dir)) > 1

    def descriptors(self):
        """The fewest of a second: a connection may be about to close."""
        counts = []
        for _ in range(10):
            counts.append(len(e2e.descriptors(self.pid)))
            time.sleep(0.1)
        return min(counts)

    def rows(self, name, table):
        return self.database(name, lambda database: database.execute(f"SELECT count(*) FROM {table}").fetchone()[0])

    def database(self, name, ask):
        database = sqlite3.connect(f"file:{os.path.join(self.daemon.data_dir, name)}?mode=ro", uri=True)
        try:
            return ask(database)
        finally:
            database.close()

    def look(self):
        """What must be the same, and bytes that may differ a little."""
        self.settle()
        same = {"descriptors": self.descriptors(), "threads": len(os.listdir(f"/proc/{self.pid}/task"))}
        for name in ("jobs.db", "metrics.db"):
            for table in self.database(name, lambda database: [row[0] for row in database.execute(
                    "SELECT name FROM sqlite_schema WHERE type = 'table'") if row[0] not in REMEMBERED]):
                same[f"rows of {name}: {table}"] = self.rows(name, table)
        files = {os.path.join(folder, one): os.path.getsize(os.path.join(folder, one))
                 for folder, _, names in os.walk(self.daemon.data_dir) for one in names}
        same["files"] = sorted(os.path.relpath(path, self.daemon.data_dir) for path in files)
        near = {"memory": e2e.resident_bytes(self.pid)}
        near["bytes of files"] = sum(size for path, size in files.items() if os.path.basename(path) not in LOGS)
        return same, near


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "little"))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    begun, early, looks = time.monotonic(), None, 0
    with e2e.Daemon("--cpu-slots", "2") as daemon:
        soak = Soak(daemon, options.seed)
        while (share := (time.monotonic() - begun) / (60 * options.minutes)) < 1:
            soak.round()
            if share >= 0.01 * looks:
                same, near = soak.look()
                print(f"{soak.rounds} rounds, {60 * options.minutes * share:.0f} s: {near} {same['descriptors']} descriptors, "
                      f"{same['threads']} threads, {len(same['files'])} files", flush=True)
                looks = int(100 * share) + 1
            if early is None and share >= 0.25:
                early = soak.look()
        late = soak.look()
        print(f"{soak.rounds} rounds in {time.monotonic() - begun:.0f} s\nafter a quarter: {early}\nat the end: {late}")
        grown = [f"{key}: {early[0][key]}, then {value}" for key, value in late[0].items() if value != early[0][key]]
        grown += [f"{key}: {early[1][key]}, then {value}" for key, value in late[1].items()
                  if value > early[1][key] + GROWTH_BYTES]
        assert not grown, "; ".join(grown)
        assert daemon.stop() == 0, "ithacad did not end well"
        e2e.check_databases(daemon.data_dir)


if __name__ == "__main__":
    main()
