#!/usr/bin/env python3
"""A drill: ranks of running jobs die, hang and run out of memory, on whatever this machine has; what it takes until all
is clean again is printed.

    tests/fault/drill_ranks.py [--ranks N] [--seq-len S] [--limit SECONDS]     one to two minutes

Each drill does one thing to one rank of a job of N ranks (2) and then waits until the job has failed with a reason that
names this rank (and, where the others waited for it, the collective), until no process of the job is left, its GPUs are
given out again, and a next job has succeeded on all of them. All of that but the last must be there within the limit (30 s).

    kill 1, kill 0    SIGKILL in the middle of a step
    stop 1            SIGSTOP: it lives and does nothing; limits are the daemon's defaults
    memory 1          stopped as it starts, until another process has nearly all memory of its GPU (on the CPU: until the
                      rank itself may have no more than a little), then let go

The GPUs must be in nobody's use. All is done by a daemon of its own, on a free port, in a temporary folder."""
import argparse
import os
import re
import resource
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
import ithaca_e2e as e2e  # noqa: E402

LINE = b'{"messages":[{"role":"user","content":"Where?"},{"role":"assistant","content":"By the quay."}]}\n'
LEFT_MIB = 1536          # of a GPU's memory: for a rank's context and NCCL, not for its arena
LEFT_CPU_MIB = 1024      # of address space beyond what a rank has at its start: for threads and libraries likewise
LARGE_SEQ_LEN = 1 << 17  # a rank's arena of the built-in model is then above 3 GiB

# Holds all but so many MiB of the GPU that it sees, until its stdin ends. The driver's own calls: nothing need be installed.
OCCUPY = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
free, total = ctypes.c_size_t(), ctypes.c_size_t()
calls = [cuda.cuInit(0), cuda.cuDeviceGet(ctypes.byref(device), 0), cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device),
         cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))]
calls.append(cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(free.value - (int(sys.argv[1]) << 20))))
print("held" if not any(calls) else calls, flush=True)
sys.stdin.read()
"""


class Drill:
    def __init__(self, daemon, options):
        self.daemon, self.options = daemon, options
        self.client = daemon.client()
        self.file = self.client.upload(LINE * 64)["id"]
        self.occupant = None
        self.cuda = any(gpu["kind"] == "gpu" for gpu in self.gpus())

    def gpus(self):
        return self.client.get("/v1/gpus").json()["data"]

    def processes(self, job_id):
        return e2e.processes_of(job_id)

    def rank(self, job_id, number):
        """Pid of a rank, or None."""
        for pid, command in self.processes(job_id):
            words = command.split()
            if "--rank" in words and words[words.index("--rank") + 1] == str(number):
                return pid
        return None

    def submit(self, steps, seq_len=None):
        ithaca = {"gpus": self.options.ranks, "seq_len": seq_len or self.options.seq_len, "max_steps": steps, "max_restarts": 0,
                  "recompute": "none", "batch": {"sequences": self.options.ranks}, "save": {"every_steps": 100000}}
        return self.client.submit(self.file, model="tiny-llama", ithaca=ithaca)["id"]

    # ---- what is done to a rank

    def strike(self, number, what):
        job_id = self.submit(100000)
        e2e.until("steps are done", 120, lambda: self.client.job(job_id)["ithaca"]["steps_done"] > 2)
        os.kill(self.rank(job_id, number), what)
        return job_id

    def kill(self, number):
        return self.strike(number, signal.SIGKILL)

    def stop(self, number):
        return self.strike(number, signal.SIGSTOP)

    def memory(self, number):
        job_id = self.submit(100000, LARGE_SEQ_LEN)
        pid = e2e.until("the rank starts", 60, lambda: self.rank(job_id, number), every=0.002)
        os.kill(pid, signal.SIGSTOP)
        if self.cuda:
            uuid = self.client.job(job_id)["ithaca"]["gpus"][number]
            self.occupant = subprocess.Popen([sys.executable, "-c", OCCUPY, str(LEFT_MIB)], text=True, stdin=subprocess.PIPE,
                                             stdout=subprocess.PIPE, env={**os.environ, "CUDA_VISIBLE_DEVICES": uuid})
            answer = self.occupant.stdout.readline().strip()
            assert answer == "held", f"the GPU's memory cannot be taken: {answer}"
        else:
            with open(f"/proc/{pid}/statm", encoding="ascii") as file:
                limit = int(file.read().split()[0]) * resource.getpagesize() + (LEFT_CPU_MIB << 20)
            resource.prlimit(pid, resource.RLIMIT_AS, (limit, limit))
        os.kill(pid, signal.SIGCONT)
        return job_id

    def release(self):
        if self.occupant is not None:
            self.occupant.communicate("", timeout=30)
            self.occupant = None

    # ---- what comes of it

    def run(self, what, number, expected):
        """One drill; whether all went as it should."""
        job_id = getattr(self, what)(number)
        start = time.monotonic()
        job = self.client.wait(job_id, seconds=120)
        failed = time.monotonic() - start
        e2e.until("no process is left", 60, lambda: not self.processes(job_id))
        gone = time.monotonic() - start
        self.release()
        e2e.until("GPUs are given out again", 60, lambda: all(gpu["state"] == "free" for gpu in self.gpus()))
        clean = time.monotonic() - start
        following = self.client.wait(self.submit(2), seconds=120)
        succeeded = time.monotonic() - start
        message = (job["error"] or {}).get("message", "")
        good = (job["status"] == "failed" and following["status"] == "succeeded" and clean < self.options.limit and
                re.search(expected.format(number=number), message, re.DOTALL | re.IGNORECASE) is not None)
        print(f"{what + ' ' + str(number):10} {failed:8.1f} {gone:8.1f} {clean:8.1f} {succeeded:8.1f}  "
              f"{'' if good else 'BAD: '}{(job['error'] or {}).get('code')}: {message}", flush=True)
        return good


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seq-len", type=int, default=1024)
    parser.add_argument("--limit", type=float, default=30)
    options = parser.parse_args()
    begin = time.monotonic()
    with e2e.Daemon(device=e2e.device_for(options.ranks)) as daemon:
        drill = Drill(daemon, options)
        collective = r"; collective \d+ \(.+\): (rank {number} had not|all its ranks had) come"
        print(f"{options.ranks} ranks of tiny-llama, seq_len {options.seq_len}, on "
              f"{'GPUs' if drill.cuda else 'the CPU'}; seconds from the blow until\n"
              f"{'drill':10} {'failed':>8} {'no proc':>8} {'clean':>8} {'next ok':>8}  reason")
        try:
            results = [drill.run("kill", 1, "^rank {number} was ended by signal 9 .*" + collective),
                       drill.run("kill", 0, "^rank {number} was ended by signal 9 .*" + collective),
                       drill.run("stop", 1, "^rank {number} gave no sign of life" + ".*" + collective),
                       drill.run("memory", 1, "rank {number} .*memory")]
        finally:
            drill.release()
    print(f"{sum(results)} of {len(results)} went as they should, in {time.monotonic() - begin:.0f} s")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
