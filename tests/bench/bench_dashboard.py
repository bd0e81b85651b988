#!/usr/bin/python3
"""The dashboard with many jobs and points: first paint, interactions, and the memory of a stream of the daemon.
    python3 tests/bench/bench_dashboard.py [jobs] [points] [rounds]     needs what tests/browser/test_browser.py needs
"""
import json
import os
import socket
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "e2e"), os.path.join(HERE, "..", "browser")]
import history  # noqa: E402
from ithaca_e2e import EXAMPLE_DIR, Daemon, until  # noqa: E402
from job_copies import job_copies  # noqa: E402
from test_browser import find_browser  # noqa: E402

RANKS = 2
STREAMS = 100


def fill(daemon, jobs, points):
    """A job with so many points, and copies of its row: returns its id and the number of points."""
    client = daemon.client()
    file = client.upload(os.path.join(EXAMPLE_DIR, "train.jsonl"))["id"]
    job = client.submit(file, ithaca={"hold": True, "gpus": RANKS, "seq_len": 128})["id"]
    client.post(f"/v1/fine_tuning/jobs/{job}/cancel")
    daemon.stop()
    job_copies(daemon.data_dir, job, ({"id": f"ftjob-{number:024}"} for number in range(jobs - 1)))
    steps = points // (len(history.OF_JOB) + RANKS * len(history.OF_RANKS))
    wrote = history.write(daemon.data_dir, job, steps, RANKS)
    daemon.start()
    return job, wrote


def resident(daemon):
    with open(f"/proc/{daemon.process.pid}/smaps_rollup", encoding="utf-8") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Pss_Anon:"))


def stream_kib(daemon):
    """Memory of the daemon that a stream of all jobs takes, KiB."""
    ask = f"GET /v1/stream HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {daemon.token}\r\n\r\n".encode()

    def streams(count):
        made = [socket.create_connection(("127.0.0.1", daemon.port)) for _ in range(count)]
        for one in made:
            one.sendall(ask)
            assert one.recv(15) == b"HTTP/1.1 200 OK", "a stream"
        return made
    first = streams(5)  # what is allocated once
    before = resident(daemon)
    more = streams(STREAMS)
    after = resident(daemon)
    for one in first + more:
        one.close()
    return (after - before) / STREAMS


def main():
    jobs, points, rounds = (int(word) for word in (sys.argv[1:] + ["1000", "100000", "7"][len(sys.argv) - 1:]))
    browser = find_browser()
    with Daemon() as daemon:
        job, wrote = fill(daemon, jobs, points)
        until("the list", 10, lambda: daemon.client().get("/v1/fine_tuning/jobs?limit=1").status == 200)
        print(f"{jobs} jobs, {wrote} points of one on {RANKS} ranks, {rounds} rounds; milliseconds")
        done = subprocess.run(["node", os.path.join(HERE, "..", "browser", "bench.mjs"), f"http://127.0.0.1:{daemon.port}", daemon.token,
                               browser, job, str(jobs), str(rounds)], stdout=subprocess.PIPE, text=True, check=True)
        print("| what | median | least | most |\n| --- | ---: | ---: | ---: |")
        for name, times in json.loads(done.stdout).items():
            print(f"| {name} | {statistics.median(times):.0f} | {min(times):.0f} | {max(times):.0f} |")
        print(f"A stream of all jobs takes {stream_kib(daemon):.1f} KiB of the daemon (mean of {STREAMS}).")


if __name__ == "__main__":
    main()
