#!/usr/bin/env python3
"""One system call of the daemon fails: the Nth open, write, fsync, rename, spawn, mmap, accept, read, timer or watch from
some moment on, with an error that it may have. After each:

    tests/fault/failing_calls.py [--calls N] [--starts N] [--jobs N] [--seed K] [--all]

    the daemon answers, or it has ended by itself with one sentence that says why, and starts again
    what was answered is there: files with their bytes, jobs in a state that the API can name; what was refused is not
    a job that ran meanwhile has succeeded, or failed with its reason; no step of it is there twice
    both databases are whole

--all walks every call of every kind with every error, until the scene passes without meeting one, and every third of a
start; of a job that runs, which makes thousands, and without --all it takes a sample. A failure prints the seed and the call. The shared library of failing_calls.c does it (LD_PRELOAD)."""
import argparse
import errno
import mmap
import os
import random
import struct
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
import ithaca_e2e as e2e  # noqa: E402

LIBRARY = os.path.join(e2e.BUILD_DIR, "tests", "libfailing_calls.so")
KINDS = {  # in the order of failing_calls.c
    "open": (errno.EMFILE, errno.ENOSPC, errno.EIO), "write": (errno.ENOSPC, errno.EIO, errno.EINTR),
    "fsync": (errno.EIO, errno.ENOSPC), "rename": (errno.ENOSPC, errno.EIO), "spawn": (errno.EAGAIN, errno.ENOMEM),
    "mmap": (errno.ENOMEM,), "accept": (errno.EMFILE, errno.ECONNABORTED, errno.EINTR), "read": (errno.EIO, errno.EINTR),
    "timer": (errno.EMFILE,), "watch": (errno.ENOMEM, errno.ENOSPC)}
NAMES = list(KINDS)
LINE = b'{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}\n'
JOB = {"seq_len": 32, "max_steps": 4, "batch": {"sequences": 1}, "save": {"every_steps": 2}}


class Control:
    """The file that the library maps: kind, after, errnum, fired, and how many calls of each kind there were."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "control")
        with open(self.path, "wb") as file:
            file.write(bytes(4 * (4 + len(NAMES))))
        with open(self.path, "r+b") as file:
            self.map = mmap.mmap(file.fileno(), 0)

    def arm(self, kind, after, errnum):
        self.map[0:16] = struct.pack("4i", NAMES.index(kind), 0, errnum, 0)
        self.map[4:8] = struct.pack("i", after)

    def disarm(self):
        """Whether the call has come."""
        self.map[4:8] = bytes(4)
        return struct.unpack("i", self.map[12:16])[0] > 0

    def calls(self, kind):
        at = 16 + 4 * NAMES.index(kind)
        return struct.unpack("i", self.map[at:at + 4])[0]


class Scene:
    def __init__(self, folder, seed):
        self.random = random.Random(seed)
        self.control = Control(folder)
        os.mkdir(os.path.join(folder, "data"))
        self.daemon = e2e.Daemon(data_dir=os.path.join(folder, "data"), env={
            "LD_PRELOAD": LIBRARY, "ITHACA_FAILING_CALLS": self.control.path})
        self.files, self.jobs, self.said, self.what = {}, {}, [], "the start"

    def answers(self, call):
        """An answer, or None where the connection was cut: a failing accept, say, or no memory for an answer."""
        try:
            return call(self.daemon.client(timeout=20))
        except (OSError, e2e.http.client.HTTPException):
            return None

    def upload(self):
        data = LINE * self.random.randint(1, 20)
        body, kind = e2e.form([("purpose", None, b"fine-tune"), ("file", "a.jsonl", data)])
        answer = self.answers(lambda client: client.post("/v1/files", body, headers={"Content-Type": kind}))
        if answer is not None and answer.status == 200:
            self.files[answer.json()["id"]] = data
            return answer.json()["id"]
        assert answer is None or answer.status >= 500, answer.text
        return None

    def submit(self, file_id, **fields):
        body = {"model": "tiny-llama", "training_file": file_id, "seed": 1, "ithaca": {**JOB, **fields}}
        answer = self.answers(lambda client: client.post("/v1/fine_tuning/jobs", body))
        if answer is not None and answer.status == 200:
            self.jobs[answer.json()["id"]] = None
            return answer.json()["id"]
        assert answer is None or answer.status >= 500, answer.text
        return None

    def act(self, runs):
        """Some of everything that writes; runs: a job trains to its end."""
        file_id = self.upload()
        file_id = file_id or next(iter(self.files), None)
        job = self.submit(file_id, hold=not runs) if file_id is not None else None
        if job is None:
            return
        if runs:
            self.settle(job)
            return
        self.answers(lambda client: client.get(f"/v1/fine_tuning/jobs/{job}/events"))
        self.answers(lambda client: client.post(f"/v1/fine_tuning/jobs/{job}/cancel"))

    def settle(self, job):
        """Waits for a job's end, through a daemon that ends and is started again."""
        def over():
            self.revive()
            answer = self.answers(lambda client: client.get(f"/v1/fine_tuning/jobs/{job}"))
            return answer is not None and answer.status == 200 and answer.json()["ithaca"]["state"] in e2e.END_STATES
        e2e.until(f"{job} has ended", 90, over)

    def revive(self):
        """A daemon that has ended has said why, and the next one starts."""
        status = self.daemon.process.poll()
        if status is None:
            return
        last = self.daemon.log().strip().rsplit("\n", 1)[-1]
        assert status > 0 and last.startswith("ithacad: "), f"ended with {status}: {last}"
        self.said.append(f"{self.what}: {last}")
        self.control.disarm()
        self.daemon.kill()
        self.daemon.start()

    def check(self):
        """All that was answered is there, and nothing else."""
        client = self.daemon.client()
        assert client.get("/healthz").status == 200 and client.get("/readyz").status == 200
        listed = {file["id"]: file["bytes"] for file in client.get("/v1/files?purpose=fine-tune").json()["data"]}
        for file_id, data in self.files.items():
            assert listed.get(file_id) == len(data), f"{file_id}: {listed.get(file_id)} bytes of {len(data)}"
            assert client.get(f"/v1/files/{file_id}/content").body == data
        seen = {job["id"]: job for job in client.get("/v1/fine_tuning/jobs?limit=10000").json()["data"]}
        for job_id in self.jobs:
            assert job_id in seen, f"{job_id} is lost"

    def round(self, kind, after, errnum, runs=False):
        """Whether the call came."""
        self.what = f"call {after} of {kind}, {errno.errorcode[errnum]}{', a job runs' if runs else ''}"
        self.control.arm(kind, after, errnum)
        self.act(runs)
        fired = self.control.disarm()
        self.revive()
        self.check()
        return fired

    def start(self, kind, after, errnum):
        """The daemon starts while a call fails: it serves, or says why it cannot; the next one does."""
        self.what = f"call {after} of {kind}, {errno.errorcode[errnum]}, at the start"
        assert self.daemon.stop() == 0, "it did not end well"
        self.control.arm(kind, after, errnum)
        self.daemon.start(wait=False)
        e2e.until("it serves or ends", 30, lambda: self.daemon.process.poll() is not None or (  # url alone: it may yet end
            self.daemon.exists("url") and self.answers(lambda client: client.get("/healthz")) is not None))
        fired = self.control.disarm()
        self.revive()
        self.check()
        return fired

    def walk(self, call, every):
        """call(kind, after, errnum) for every kind and error, every so many calls, until none is met any more."""
        met = 0
        for kind, errors in KINDS.items():
            for errnum in errors:
                after = 1
                while call(kind, after, errnum):
                    met, after = met + 1, after + every
        return met

    def sample(self, call, count, most):
        """count calls that come, of kinds in turn, among the first `most` of their kind."""
        met = 0
        for number in range(count):
            kind = NAMES[number % len(NAMES)]
            met += call(kind, self.random.randint(1, most), self.random.choice(KINDS[kind]))
        return met

    def end(self):
        client = self.daemon.client()
        for job_id in self.jobs:
            job = client.job(job_id)
            if job["ithaca"]["state"] not in e2e.END_STATES:
                client.post(f"/v1/fine_tuning/jobs/{job_id}/cancel")
                job = client.wait(job_id, seconds=60)
            if job["ithaca"]["state"] == "failed":
                assert job["error"]["message"], job
                self.said.append(f"{job_id} has failed: {job['error']['message']}")
            self.jobs[job_id] = job["ithaca"]["state"]
        assert self.daemon.stop() == 0, "it did not end well"
        left = e2e.processes_of(self.daemon.data_dir)
        assert not left, f"processes are left: {left}"
        e2e.check_databases(self.daemon.data_dir)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--calls", type=int, default=60)
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--starts", type=int, default=6)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "little"))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="ithaca-e2e-") as folder:
        scene = Scene(folder, options.seed)

        def run(*call):
            return scene.round(*call, runs=True)
        try:
            if options.all:
                met = [scene.walk(scene.round, 1), scene.sample(run, 40 * options.jobs, 200), scene.walk(scene.start, 3)]
            else:
                met = [scene.sample(scene.round, options.calls, 12), scene.sample(run, options.jobs, 30),
                       scene.sample(scene.start, options.starts, 20)]
            assert all(count > 0 for count in met), f"{met} calls have failed: the library does nothing"
            scene.end()
        except BaseException:
            print(f"seed {options.seed}, {scene.what}\n--- log of ithacad\n{scene.daemon.log()[-6000:]}---", file=sys.stderr)
            scene.daemon.kill()
            raise
        states = {state: list(scene.jobs.values()).count(state) for state in sorted(set(scene.jobs.values()))}
        print(f"{met[0]} calls have failed, {met[1]} while a job ran, {met[2]} at a start; {len(scene.said)} times the daemon "
              f"ended; {len(scene.files)} files, jobs: {states}", *scene.said, sep="\n")


if __name__ == "__main__":
    main()
