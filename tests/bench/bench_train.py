#!/usr/bin/env python3
"""Tokens/s of the example job on the CPU: tiny-llama, seq_len 256, 8 sequences a step, 2 ranks of 1 thread.

    /usr/bin/python3 tests/bench/bench_train.py [--build build/ci] [--ranks 2] [--threads 1] [--steps 40] [--set '{"recompute":"input"}']

Runs the real programs without a daemon: --init-model, --prepare, --keep. Prints the median of the steps and
where time went. Other load on the machine shows in the spread between the slowest and fastest step.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parents[2]


def write_json(path, value):
    with open(path, "w") as file:
        json.dump(value, file)
    return str(path)


def run(options, folder):
    worker = str((SOURCE / options.build / "worker" / "ithaca-worker").resolve())
    base, job = folder / "base", folder / "job"
    attempt = job / "attempt-1"
    (job / "tokens").mkdir(parents=True)
    attempt.mkdir()
    ithaca = {"gpus": options.ranks, "seq_len": 256, "max_steps": options.steps, "optimizer": {"learning_rate": 1e-3},
              "batch": {"sequences": 8, "grad_accum": -(-8 // options.ranks)}}
    ithaca.update(json.loads(options.set))
    spec = {"model": "tiny-llama", "training_file": "file-bench", "seed": 1, "ithaca": ithaca}
    files = [{"path": str(SOURCE / "deploy/example/train.jsonl"), "name": "train.jsonl",
              "out_path": str(job / "tokens/train.tok"), "report_path": str(job / "tokens/report.json")}]
    subprocess.run([worker, "--init-model", "tiny-llama", str(base)], check=True)
    request = {"model_dir": str(base), "spec": spec, "files": files, "error_path": str(folder / "error.json"),
               "progress_path": str(folder / "progress.json"), "cache_dir": str(folder / "cache")}
    subprocess.run([worker, "--prepare", write_json(folder / "request.json", request)], check=True,
                   stdout=subprocess.DEVNULL)
    write_json(attempt / "plan.json", {
        "job_id": "bench", "attempt": 1, "world": options.ranks, "secret": "00" * 32, "socket": "",
        "shm_name": f"/ithaca-bench-{os.getpid()}", "job_dir": str(job), "model_dir": str(base), "model_name": "m",
        "heartbeat_limit_ms": 60000, "coll_timeout_ms": 60000, "orphan_limit_ms": 60000, "threads": options.threads, "gpus": [], "memory_digest": "", "purpose": "train", "peak_flops": 0,
        "resume_from": "", "steps_done": 0,
        "spec": spec})
    subprocess.run([worker, "--keep", str(attempt)], check=True)
    return (attempt / "rank-0.log").read_text()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build/ci")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--set", default="{}", help="fields of the job's ithaca object, JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        log = run(options, pathlib.Path(folder))
    rates, phases = [], ""
    for line in log.splitlines():
        if line.startswith("metrics ") and " tokens_per_s=" in line:
            rates.append(float(line.split(" tokens_per_s=")[1].split()[0]))
        if "time in steps" in line:
            phases = line.split(": ", 1)[1]
    rates = rates[2:]  # the first steps touch memory for the first time
    load = os.getloadavg()[0]
    print(f"train tiny-llama, {options.ranks} ranks x {options.threads} threads: {statistics.median(rates):.0f} tokens/s "
          f"(slowest {min(rates):.0f}, fastest {max(rates):.0f}; {len(rates)} steps; load {load:.1f})")
    print(phases)


if __name__ == "__main__":
    main()
