#!/usr/bin/env python3
"""A storm: jobs run while daemon, keepers and ranks are killed (SIGKILL) at random moments, round after round.

    tests/fault/storm.py [--rounds N] [--seconds S] [--seed K]     ends after N rounds or S seconds, whichever comes first

A round kills one of: the daemon, a keeper, a rank, the daemon and then a keeper or rank, everything at once; or pauses
and resumes a job. The daemon is started again after a while. Jobs that have ended are looked at, and deleted but for the
newest (a disk does not hold thousands). In all that, and when the storm is over, all must be well:

    every job that was submitted and not deleted is there once, and has succeeded (max_restarts is out of reach)
    every step of it has its loss exactly once, in the newest attempt that did it, and none twice in one attempt
    the model is bit by bit that of a job in calm weather
    every checkpoint that was ever listed was whole, and so is every one that is listed now
    no process is left, neither of the jobs nor of what the daemon started; the daemon has no more descriptors than a
    new one
    both databases are whole

Every hundredth round says how far it is. A failure prints the seed; the same seed makes the same choices (not the same
moments)."""
import argparse
import hashlib
import json
import os
import random
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
import ithaca_e2e as e2e  # noqa: E402

LINE = '{"messages":[{"role":"user","content":"Where is ship %d?"},{"role":"assistant","content":"At quay %d."}]}\n'
DATA = "".join(LINE % (number, 7 * number % 10) for number in range(24)).encode()
STEPS = 24
JOBS = 2  # at once
KEPT = 6  # of those that have ended
JOB = {"gpus": 2, "seq_len": 32, "max_steps": STEPS, "batch": {"sequences": 2}, "max_restarts": 100,
       "save": {"every_steps": 4, "keep": 3}}
TARGETS = ("daemon", "daemon", "keeper", "rank", "rank", "daemon+keeper", "daemon+rank", "all", "pause")


class Storm:
    def __init__(self, daemon, seed):
        self.daemon, self.random = daemon, random.Random(seed)
        self.client = daemon.client()
        self.file = self.client.upload(DATA)["id"]
        self.running = []  # jobs that have not ended, as far as is known
        self.counts = {}
        calm = self.client.submit(self.file, seed=1, ithaca=JOB)["id"]
        self.submitted = [calm]  # those that are there, the newest last
        self.reference = self.digest(self.client.wait(calm, seconds=120)["id"])
        self.count = 1

    def digest(self, job_id):
        with open(os.path.join(self.daemon.data_dir, "jobs", job_id, "model", "model.safetensors"), "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()

    def processes(self, word):
        """Pids of living keepers (--keep) or ranks (--rank)."""
        return [pid for pid, command in e2e.processes_of(self.daemon.data_dir) if word in command.split()]

    def job(self, job_id):
        return self.client.job(job_id)

    def unfinished(self):
        """Jobs that have not ended. Those that have since the last time are looked at."""
        for job_id in self.running[:]:
            job = self.job(job_id)
            if job["ithaca"]["state"] in e2e.END_STATES:
                self.check_job(job)
                self.running.remove(job_id)
        return self.running

    def fill(self):
        """Deletes and submits. What is listed are the jobs that are there, once each, in their order."""
        while len(self.submitted) > KEPT + JOBS and self.submitted[0] not in self.unfinished():
            answer = self.client.delete(f"/v1/fine_tuning/jobs/{self.submitted.pop(0)}")
            assert answer.status == 200, answer.text
        for _ in range(JOBS - len(self.unfinished())):
            self.submitted.append(self.client.submit(self.file, seed=1, ithaca=JOB)["id"])
            self.running.append(self.submitted[-1])
            self.count += 1
        listed = [job["id"] for job in self.client.get("/v1/fine_tuning/jobs?limit=100").json()["data"]]
        assert listed == self.submitted[::-1], f"{self.submitted} were submitted, {listed[::-1]} are listed"

    def kill(self, pids):
        if pids:
            pid = self.random.choice(sorted(pids))
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # it has just ended

    def check_listed(self, job_id):
        """Listed checkpoints are whole. One may be removed (save.keep) between the list and the look."""
        for _ in range(3):
            listed = self.client.get(f"/v1/fine_tuning/jobs/{job_id}/checkpoints?limit=100").json()["data"]
            torn = [one for one in listed if not self.is_whole(job_id, one["step_number"])]
            if not torn:
                return
        raise AssertionError(f"{job_id}: torn checkpoints are listed: {torn}")

    def is_whole(self, job_id, step):
        folder = os.path.join(self.daemon.data_dir, "jobs", job_id, "checkpoints", f"step-{step}")
        try:
            with open(os.path.join(folder, "manifest.json"), encoding="utf-8") as file:
                manifest = json.load(file)
            return manifest["step"] == step and all(
                os.path.getsize(os.path.join(folder, part["name"])) == part["bytes"] for part in manifest["files"])
        except FileNotFoundError:
            return False

    def strike(self, target):
        if target == "pause":
            waiting = self.unfinished()
            if waiting:
                job_id = self.random.choice(waiting)
                self.client.post(f"/v1/fine_tuning/jobs/{job_id}/pause")  # 400 when it has just ended
                self.client.post(f"/v1/fine_tuning/jobs/{job_id}/resume")
            return
        if target == "all":
            pids = self.processes("--keep") + self.processes("--rank")
            self.daemon.kill()
            for pid in pids:
                self.kill([pid])
        if "daemon" in target:
            self.daemon.kill()
        if "+" in target:
            time.sleep(self.random.uniform(0, 0.6))
        if "keeper" in target:
            self.kill(self.processes("--keep"))
        if "rank" in target:
            self.kill(self.processes("--rank"))

    def round(self):
        target = self.random.choice(TARGETS)
        self.counts[target] = self.counts.get(target, 0) + 1
        self.fill()
        time.sleep(self.random.choice((0.1, 1.5, 3)) * self.random.random())
        self.strike(target)
        if self.daemon.process.poll() is not None:
            time.sleep(self.random.uniform(0, 0.8))
            self.daemon.start()
            self.client = self.daemon.client()
        for job_id in self.unfinished():
            self.check_listed(job_id)

    # ---- when it is over

    def check_points(self, job_id, attempts):
        path = f"/v1/fine_tuning/jobs/{job_id}/metrics?keys=loss"
        for attempt in [None, *range(1, attempts + 1)]:
            series = self.client.get(path + (f"&attempt={attempt}" if attempt else "")).json()["data"]
            steps = sorted(point[0] for one in series for point in one["points"])
            if attempt is None:
                assert steps == list(range(1, STEPS + 1)), f"{job_id}: losses of steps {steps}"
            else:
                assert len(steps) == len(set(steps)), f"{job_id}, attempt {attempt}: losses of steps {steps}"

    def check_job(self, job):
        """One that has ended."""
        assert job["status"] == "succeeded", f"{job['id']}: {job['error']}"
        assert job["trained_tokens"], job
        self.check_points(job["id"], job["ithaca"]["attempt"])
        self.check_listed(job["id"])
        assert self.digest(job["id"]) == self.reference, f"{job['id']}: another model"

    def check_all(self):
        for job_id in self.running:
            self.client.wait(job_id, seconds=120)
        for job_id in self.submitted:
            self.check_job(self.job(job_id))
        left = e2e.processes_of(self.daemon.data_dir, ignore={self.daemon.process.pid})
        assert not left, f"processes are left: {left}"
        there = os.listdir(os.path.join(self.daemon.data_dir, "jobs"))
        assert sorted(there) == sorted(self.submitted), f"folders of {there}, jobs {self.submitted}"

    def end(self):
        """The daemon has the descriptors of a new one, and the databases are whole."""
        def held():
            return sorted(e2e.descriptors(self.daemon.process.pid))
        used = held()
        assert self.daemon.stop() == 0, "ithacad did not end well"
        self.daemon.start()
        fresh = held()
        assert len(used) <= len(fresh), f"descriptors are left: {used}; a new daemon has {fresh}"
        assert self.daemon.stop() == 0, "ithacad did not end well"
        e2e.check_databases(self.daemon.data_dir)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=1000000)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "little"))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    begun, done = time.monotonic(), 0
    with e2e.Daemon(env={"ITHACA_HEARTBEAT_LIMIT_S": "10"}) as daemon:
        storm = Storm(daemon, options.seed)
        while done < options.rounds and time.monotonic() - begun < options.seconds:
            storm.round()
            done += 1
            if done % 100 == 0:
                print(f"{done} rounds, {time.monotonic() - begun:.0f} s", flush=True)
        storm.check_all()
        storm.end()
    print(f"{done} rounds, {storm.count} jobs, {time.monotonic() - begun:.0f} s: {storm.counts}")


if __name__ == "__main__":
    main()
