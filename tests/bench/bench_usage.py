#!/usr/bin/python3
"""How long /v1/usage takes over many attempts, and how long others wait for the daemon meanwhile.

    python3 tests/bench/bench_usage.py [--attempts 400000]

Writes attempts of deleted jobs into the store, two a job, of 97 users over months, and asks by user and by day; /healthz is
asked all the while.
"""
import argparse
import os
import sqlite3
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
from bench_storage import Watch  # noqa: E402
from ithaca_e2e import Daemon  # noqa: E402


def rows(count):
    for i in range(count):
        begun = 1760000000000 + i * 3000
        yield (f"ftjob-{i // 2:024d}", i % 2 + 1, f"user-{i % 97}", "tiny-llama", "succeeded", begun, begun + 600000, 2, i % 2,
               "ok", 0, 10, -1, 1000)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--attempts", type=int, default=400000)
    count = parser.parse_args().attempts
    with Daemon("--device", "cpu") as daemon:
        daemon.stop()
        store = sqlite3.connect(os.path.join(daemon.data_dir, "jobs.db"))
        store.executemany("INSERT INTO attempts_gone VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)", rows(count))
        store.commit()
        store.close()
        daemon.start()
        client = daemon.client()
        for by in ("user", "day"):
            times = []
            with Watch(client) as watch:
                for _ in range(5):
                    begun = time.monotonic()
                    assert client.get(f"/v1/usage?by={by}").json()["total"]["attempts"] == count
                    times.append(time.monotonic() - begun)
            print(f"by {by}: {min(times):.2f} to {max(times):.2f} s, median {statistics.median(times):.2f} s; meanwhile {watch}")


if __name__ == "__main__":
    main()
