#!/usr/bin/python3
"""How long a survey and a prune of many jobs take, and how long others wait for the daemon meanwhile.

    python3 tests/bench/bench_storage.py [--jobs 10000]

Makes a data folder of jobs that have succeeded (rows in the store; small files where a job leaves large ones), then asks
for /v1/storage, prunes all, and asks /healthz all the while.
"""
import argparse
import os
import statistics
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
from ithaca_e2e import Daemon  # noqa: E402
from job_copies import job_copies  # noqa: E402

LINE = b'{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}]}\n'
FILES = ("checkpoints/step-100/rank-0.ckpt", "checkpoints/step-100/manifest.json", "checkpoints/step-200/rank-0.ckpt",
         "checkpoints/step-200/manifest.json", "model/config.json", "model/model.safetensors", "model/tokenizer.json",
         "attempt-1/rank-0.log", "attempt-1/keeper.log", "attempt-1/plan.json", "tokens/train.tok", "tokens/report.json")


def copies(data_dir, job, count):
    """The finished job again and again: its row, with other ids, and a folder each."""
    ids = [f"ftjob-copy{number:020d}" for number in range(count)]
    job_copies(data_dir, job, ({"id": name, "fine_tuned_model": "", "result_file": ""} for name in ids))
    for path in (os.path.join(data_dir, "jobs", name, part) for name in ids for part in FILES):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(b"x" * 100)


class Watch:
    """Asks /healthz every 5 ms; how long the answers took."""

    def __init__(self, client):
        self.client, self.times, self.stop = client, [], False
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.stop:
            begun = time.monotonic()
            assert self.client.get("/healthz").status == 200
            self.times.append((time.monotonic() - begun) * 1000)
            time.sleep(0.005)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *why):
        self.stop = True
        self.thread.join()

    def __str__(self):
        ordered = sorted(self.times)
        return (f"/healthz {len(ordered)} times: median {statistics.median(ordered):.1f} ms, "
                f"p99 {ordered[int(len(ordered) * 0.99)]:.1f} ms, longest {ordered[-1]:.1f} ms")


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--jobs", type=int, default=10000)
    count = options.parse_args().jobs
    with Daemon() as daemon:
        client = daemon.client(timeout=600)
        job = client.submit(client.upload(LINE * 32)["id"], ithaca={"max_steps": 2, "seq_len": 64})["id"]
        client.wait(job)
        daemon.stop()
        copies(daemon.data_dir, job, count)
        daemon.start()
        client = daemon.client(timeout=600)
        with Watch(daemon.client()) as watch:
            time.sleep(3)
        print(f"nothing else: {watch}")
        for what, ask in (("survey", lambda: client.get("/v1/storage")),
                          ("survey again", lambda: client.get("/v1/storage")),
                          ("prune", lambda: client.post("/v1/storage/prune", {}))):
            with Watch(daemon.client()) as watch:
                begun = time.monotonic()
                answer = ask()
                took = time.monotonic() - begun
            assert answer.status == 200, answer.text
            body = answer.json()
            print(f"{what} of {count} jobs: {took:.2f} s, {body.get('count', len(body.get('jobs', [])))} told; {watch}")


if __name__ == "__main__":
    main()
