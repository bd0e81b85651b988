#!/usr/bin/env python3
"""A drill: a job's whole way through the daemon on whatever this machine has, GPUs where there are some.

    tests/fault/drill_service.py [--ranks N] [--seq-len S] [--keep DIR]     two minutes

    run       submit, metrics and memory while it runs, success; the result answers
    cancel    in the middle of a step: until no process is left and the GPUs are free, 5 s at most
    pause     and resume: the same loss at the end as the run that was not stopped, on as many ranks
    preempt   a job of higher priority takes the ranks over: both succeed, the first with the same loss
    sequence  ten jobs on all ranks, one after the other, and as many of one rank as there is room for, at once: no port,
              segment or GPU of one stands in the way of another
    visible   a daemon under CUDA_VISIBLE_DEVICES, by number and by UUID, sees that GPU alone and runs a job on it
              (GPUs only)

--keep: the first run's result goes to DIR/service, with its logits, for tests/bench/export_in_transformers.py DIR.

The GPUs must be in nobody's use. All is done by daemons of its own, on free ports, in temporary folders."""
import argparse
import json
import os
import shutil
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
import ithaca_e2e as e2e  # noqa: E402

LINE = b'{"messages":[{"role":"user","content":"Where?"},{"role":"assistant","content":"By the quay."}]}\n'
CANCEL_MAX = 5.0
STEPS = 40
SEQUENCE = 10  # jobs
TOKENS = 200   # whose logits are kept
TEXT = "By the quay."
SEEN = ("loss", "grad_norm", "tokens_per_s", "compute_s", "device_bytes")  # of each run, on the way


class Drill:
    def __init__(self, daemon, options):
        self.daemon, self.options = daemon, options
        self.client = daemon.client()
        self.file = self.client.upload(LINE * 64)["id"]
        self.cuda = any(gpu["kind"] == "gpu" for gpu in self.gpus())

    def gpus(self):
        return self.client.get("/v1/gpus").json()["data"]

    def submit(self, steps, ranks=None, **more):
        ranks = ranks or self.options.ranks
        ithaca = {"gpus": ranks, "seq_len": self.options.seq_len, "max_steps": steps, "batch": {"sequences": 2},
                  "save": {"every_steps": 100000}, **more}
        return self.client.submit(self.file, model="tiny-llama", seed=1, ithaca=ithaca)["id"]

    def metric(self, job_id, name):
        series = self.client.get(f"/v1/fine_tuning/jobs/{job_id}/metrics?keys={name}").json()["data"]
        return series[-1]["points"] if series else []  # of the last attempt

    def loss(self, job_id):
        return self.metric(job_id, "loss")[-1][1]

    def steps_done(self, job_id, more_than):
        e2e.until("steps are done", 120, lambda: self.client.job(job_id)["ithaca"]["steps_done"] > more_than)

    def free(self, job_id):
        e2e.until("no process is left", 60, lambda: not e2e.processes_of(job_id))
        e2e.until("all is free", 60, lambda: all(gpu["state"] == "free" for gpu in self.gpus()))

    def run(self):
        start = time.monotonic()
        job_id = self.submit(STEPS)
        self.steps_done(job_id, 1)
        first = time.monotonic() - start
        missing = [name for name in SEEN if not self.metric(job_id, name) and (self.cuda or name != "device_bytes")]
        job = self.client.wait(job_id, seconds=180)
        done = time.monotonic() - start
        answer = self.client.post("/v1/chat/completions", {"model": job["fine_tuned_model"], "max_tokens": 8, "messages":
                                                           [{"role": "user", "content": "Where?"}]}).json()
        text = answer["choices"][0]["message"]["content"]
        self.want = self.loss(job_id)
        if self.options.keep is not None:
            self.keep(job_id)
        print(f"run      first steps after {first:.1f} s, succeeded after {done:.1f} s; loss {self.want:.4f}; answers {text!r}")
        return job["status"] == "succeeded" and not missing

    def keep(self, job_id):
        out = os.path.join(self.options.keep, "service")
        shutil.copytree(os.path.join(self.daemon.data_dir, "jobs", job_id, "model"), os.path.join(out, "model"))
        program = os.path.join(e2e.BUILD_DIR, "tests", "export_logits")
        with open(os.path.join(out, "logits.json"), "w", encoding="utf-8") as file:
            subprocess.run([program, os.path.join(out, "model"), str(TOKENS)], stdout=file, check=True)
        with open(os.path.join(out, "text.json"), "w", encoding="utf-8") as file:
            json.dump({"text": TEXT, "ids": list(TEXT.encode())}, file)  # tiny-llama's tokens are bytes

    def cancel(self):
        job_id = self.submit(100000)
        self.steps_done(job_id, 2)
        start = time.monotonic()
        self.client.post(f"/v1/fine_tuning/jobs/{job_id}/cancel")
        job = self.client.wait(job_id, seconds=60)
        ended = time.monotonic() - start
        self.free(job_id)
        free = time.monotonic() - start
        print(f"cancel   {job['status']} after {ended:.1f} s, all free after {free:.1f} s")
        return job["status"] == "cancelled" and free < CANCEL_MAX

    def pause(self):
        self.daemon.hold(STEPS // 2)
        job_id = self.submit(STEPS)
        self.steps_done(job_id, 2)
        start = time.monotonic()
        self.client.post(f"/v1/fine_tuning/jobs/{job_id}/pause")
        self.daemon.hold(None)
        self.client.wait(job_id, ("paused",), seconds=60)
        paused = time.monotonic() - start
        self.client.post(f"/v1/fine_tuning/jobs/{job_id}/resume")
        job = self.client.wait(job_id, seconds=180)
        loss = self.loss(job_id)
        print(f"pause    paused after {paused:.1f} s; resumed: {job['status']}, loss {loss:.4f}, {self.want:.4f} not stopped")
        return job["status"] == "succeeded" and abs(loss - self.want) < 2e-3

    def preempt(self):
        self.daemon.hold(STEPS // 2)
        low = self.submit(STEPS, preemptible=True, priority=-1)
        self.steps_done(low, 2)
        start = time.monotonic()
        high = self.submit(2)
        self.client.wait(high, ("running",), seconds=60)
        taken = time.monotonic() - start
        self.daemon.hold(None)
        ends = [self.client.wait(job_id, seconds=180) for job_id in (high, low)]
        attempt, loss = ends[1]["ithaca"]["attempt"], self.loss(low)
        print(f"preempt  the other runs after {taken:.1f} s; {', '.join(job['status'] for job in ends)}; attempt {attempt}, "
              f"loss {loss:.4f}, {self.want:.4f} not stopped")
        return all(job["status"] == "succeeded" for job in ends) and attempt == 2 and abs(loss - self.want) < 2e-3

    def sequence(self):
        start = time.monotonic()
        ends = [self.client.wait(self.submit(2), seconds=120)["status"] for _ in range(SEQUENCE)]
        each = (time.monotonic() - start) / SEQUENCE
        at_once = [self.submit(2, ranks=1) for _ in self.gpus()]
        ends += [self.client.wait(job_id, seconds=120)["status"] for job_id in at_once]
        print(f"sequence {ends.count('succeeded')} of {len(ends)} succeeded; {each:.1f} s a job, then {len(at_once)} at once")
        return set(ends) == {"succeeded"}


def visible(options, gpus):
    """Whether a daemon that may see one GPU sees that one and runs on it."""
    good = True
    number = len(gpus) - 1
    for value in (str(number), gpus[number]["id"]):
        with e2e.Daemon(env={"CUDA_VISIBLE_DEVICES": value}, device="auto") as daemon:
            drill = Drill(daemon, options)
            seen = [gpu["id"] for gpu in drill.gpus()]
            job_id = drill.submit(2, ranks=1)
            job = drill.client.wait(job_id, seconds=120)
            good = good and seen == [gpus[number]["id"]] == job["ithaca"]["gpus"] and job["status"] == "succeeded"
            print(f"visible  CUDA_VISIBLE_DEVICES={value}: {', '.join(seen)}; a job on it {job['status']}")
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seq-len", type=int, default=1024)
    parser.add_argument("--keep", metavar="DIR")
    options = parser.parse_args()
    begin = time.monotonic()
    with e2e.Daemon("--preempt-after-s", "0", device=e2e.device_for(options.ranks)) as daemon:
        drill = Drill(daemon, options)
        gpus = drill.gpus()
        print(f"{options.ranks} ranks of tiny-llama, seq_len {options.seq_len}, on {'GPUs' if drill.cuda else 'the CPU'}",
              flush=True)
        results = [drill.run(), drill.cancel(), drill.pause(), drill.preempt(), drill.sequence()]
    if drill.cuda:
        results.append(visible(options, gpus))
    print(f"{sum(results)} of {len(results)} went as they should, in {time.monotonic() - begin:.0f} s")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
