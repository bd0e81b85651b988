#!/usr/bin/python3
"""How long an upload in parts takes to complete, and how quick the daemon stays meanwhile.

    python3 tests/bench/bench_uploads.py [MEBIBYTES]     (default 1024)
"""
import os
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
from ithaca_e2e import Daemon, form  # noqa: E402

MIB = 1 << 20
PART = 64 * MIB


def main():
    total = (int(sys.argv[1]) if len(sys.argv) > 1 else 1024) * MIB
    with Daemon() as daemon:
        client = daemon.client(timeout=600)
        upload = client.post("/v1/uploads", {"bytes": total, "filename": "big.jsonl", "mime_type": "application/jsonl",
                                             "purpose": "fine-tune"}).json()["id"]
        begun, ids = time.monotonic(), []
        for at in range(0, total, PART):
            body, kind = form([("data", "part", os.urandom(MIB) * (min(PART, total - at) // MIB))])
            ids.append(client.post(f"/v1/uploads/{upload}/parts", body, headers={"Content-Type": kind}).json()["id"])
        print(f"{len(ids)} parts of {total // MIB} MiB in all sent in {time.monotonic() - begun:.2f} s")
        times, done = [], threading.Event()

        def ask():
            probe = daemon.client()
            while not done.is_set():
                asked = time.monotonic()
                probe.get("/healthz")
                times.append(time.monotonic() - asked)
        prober = threading.Thread(target=ask)
        prober.start()
        begun = time.monotonic()
        answer = client.post(f"/v1/uploads/{upload}/complete", {"part_ids": ids})
        took = time.monotonic() - begun
        done.set()
        prober.join()
        assert answer.json()["file"]["bytes"] == total, answer.text
        times.sort()
        print(f"completed in {took:.2f} s; meanwhile /healthz {len(times)} times: median {times[len(times) // 2] * 1e3:.1f} ms, "
              f"p99 {times[len(times) * 99 // 100] * 1e3:.1f} ms, most {times[-1] * 1e3:.1f} ms")


if __name__ == "__main__":
    main()
