#!/usr/bin/env python3
"""What a profile costs the steps that are profiled, on a GPU: rank 0 of eight of the 8B shape, rehearsed through a daemon of
its own; of a job's steps those in the middle are profiled, those before and after are not. Median step times and their
ratio, job by job, and what the first profiled step took; on a machine without a GPU tiny-llama stands in.

    tests/bench/bench_profile_gpu.py [--jobs 3] [--seq-len 131072] [--layers 4] [--steps 6]
"""
import argparse
import os
import statistics
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
import ithaca_e2e as e2e  # noqa: E402

WARM = 4  # steps: libraries start, memory is touched for the first time
U1 = {"context_parallel": {"kind": "upipe", "heads_per_stage": 1}, "recompute": "attention", "offload": "host"}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=3)
    parser.add_argument("--seq-len", type=int, default=131072)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--steps", type=int, default=6, help="profiled; as many before them and after")
    options = parser.parse_args()
    first, last = WARM + options.steps + 1, WARM + 2 * options.steps
    with e2e.Daemon(device="auto") as daemon:
        client = daemon.client()
        cuda = any(gpu["kind"] == "gpu" for gpu in client.get("/v1/gpus").json()["data"])
        ithaca = {"max_steps": last + options.steps, "batch": {"sequences": 1}, "profile": {"steps": [first, last]},
                  "rehearse": {"world": 8, "layers": options.layers}}
        ithaca.update({**U1, "seq_len": options.seq_len, "memory_limit_gib": 79} if cuda else {"seq_len": 512})
        body = {"model": "llama3-8b" if cuda else "tiny-llama", "seed": 1, "ithaca": ithaca}
        for _ in range(options.jobs):
            job = client.wait(client.post("/v1/fine_tuning/jobs", body).json()["id"], seconds=600)
            assert job["status"] == "succeeded", job
            points = client.get(f"/v1/fine_tuning/jobs/{job['id']}/metrics?keys=step_time_s").json()["data"][-1]["points"]
            times = [point[1] for point in points if point[0] > WARM]
            assert len(times) == 3 * options.steps, points
            profiled = times[options.steps:2 * options.steps]
            plain = times[:options.steps] + times[2 * options.steps:]
            ratio = statistics.median(profiled) / statistics.median(plain)
            print(f"{job['model']}, a step {statistics.median(plain):.4f} s ({min(plain):.4f} to {max(plain):.4f}), profiled "
                  f"{statistics.median(profiled):.4f} ({min(profiled):.4f} to {max(profiled):.4f}; the first {profiled[0]:.4f}): "
                  f"{100 * (ratio - 1):+.2f} %", flush=True)


if __name__ == "__main__":
    main()
