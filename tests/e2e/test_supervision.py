"""Control groups of version 2: a daemon in a group of its own gives each job one. What left session and parents ends with the
job all the same, memory that ran out is named, and groups that a killed daemon left are removed. Skipped where this process
may make no groups; nothing outside the group that the test makes is changed.

A rank that hangs in the kernel is played by version 1's freezer, whose processes are in state D and deaf to SIGKILL; that
test is skipped where there is none."""
import os
import signal
import sys
import time
import unittest

import ithaca_e2e as e2e

LINE = b'{"messages":[{"role":"user","content":"Where?"},{"role":"assistant","content":"By the quay."}]}\n'
JOB = {"gpus": 2, "seq_len": 64, "max_steps": 100000, "batch": {"sequences": 2}, "max_restarts": 0}


def mounted(kind, option=None):
    """The folder where a hierarchy is mounted, or None."""
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        for line in file:
            fields, _, more = line.partition(" - ")
            if more.split()[0] == kind and (option is None or option in more.split()[2].split(",")):
                return fields.split()[4]
    return None


def write(*path, text):
    with open(os.path.join(*path), "w", encoding="utf-8") as file:
        file.write(text)


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return file.read()


def make_group():
    """A group below that of this process, or None."""
    mount = mounted("cgroup2")
    own = [line[3:].rstrip("\n") for line in read("/proc/self/cgroup").splitlines() if line.startswith("0::")]
    if mount is None or not own:
        return None
    group = os.path.join(mount + own[0].rstrip("/"), f"ithaca-test-{os.getpid()}")
    try:
        os.mkdir(group)
    except OSError:
        return None
    return group


def remove_group(group):
    """With all that is in it."""
    if os.path.exists(os.path.join(group, "cgroup.kill")):
        write(group, "cgroup.kill", text="1")
    e2e.until("the group is empty", 10, lambda: "populated 0" in read(group, "cgroup.events"))
    for folder, _, _ in os.walk(group, topdown=False):
        os.rmdir(folder)


GROUP = make_group()


def tearDownModule():
    if GROUP is not None:
        remove_group(GROUP)


def stray(group):
    """A process in the group, in a session of its own, whose parents have ended; returns its pid."""
    end, begin = os.pipe()
    child = os.fork()
    if child == 0:
        write(group, "cgroup.procs", text="0")
        os.setsid()
        if os.fork() != 0:
            os._exit(0)
        os.write(begin, b"%d" % os.getpid())
        os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(100)"])
    os.waitpid(child, 0)
    pid = int(os.read(end, 20))
    os.close(end)
    os.close(begin)
    return pid


def state(pid):
    """Its letter in /proc; "" when it is gone."""
    try:
        return read("/proc", str(pid), "stat").rpartition(")")[2].split()[0].replace("Z", "")
    except OSError:
        return ""


class Scene(unittest.TestCase):
    """A daemon in a group, for all tests of a class."""
    group, args = None, ()

    @classmethod
    def setUpClass(cls):
        cls.daemon = e2e.Daemon("--stop-grace-s", "1", *cls.args, before=cls.enter)
        cls.client = cls.daemon.client()
        cls.file = cls.client.upload(LINE * 20)["id"]

    @classmethod
    def enter(cls):
        """In the daemon's process, before it is one."""
        if cls.group is not None:  # where memory is counted, its children alone may have processes
            leaf = os.path.join(cls.group, "ithacad")
            write(leaf if os.path.exists(leaf) else cls.group, "cgroup.procs", text="0")

    @classmethod
    def tearDownClass(cls):
        cls.daemon.__exit__(None, None, None)

    def running(self):
        """A job that waits before its third step, and the folder of its group."""
        self.daemon.hold(2)
        job_id = self.client.submit(self.file, seed=7, ithaca=JOB)["id"]
        e2e.until("two steps", 60, lambda: self.client.job(job_id)["ithaca"]["steps_done"] >= 2, every=0.02)
        return job_id, self.of(job_id)

    def of(self, job_id, attempt=1):
        return os.path.join(self.group or "", f"ithaca-{job_id}-{attempt}")

    def pids(self, job_id, word="--rank"):
        return [pid for pid, command in e2e.processes_of(job_id) if word in command.split()]

    def cancel(self, job_id):
        self.client.post(f"/v1/fine_tuning/jobs/{job_id}/cancel")

    def ends(self, job_id, state_name, seconds=20):
        return self.client.wait(job_id, states=(state_name,), seconds=seconds)

    def events(self, job_id):
        return [event["message"] for event in
                self.client.get(f"/v1/fine_tuning/jobs/{job_id}/events?limit=100").json()["data"]]


@unittest.skipIf(GROUP is None, "no control groups of version 2 that can be written here")
class Groups(Scene):
    group, args = GROUP, ("--job-memory-margin-mib", "4096")

    def test_1_is_told(self):
        self.assertIn(f"each job is a control group in {GROUP}", self.daemon.log())

    def test_2_stray_process_ends_with_the_job(self):
        job_id, group = self.running()
        self.assertEqual(sorted(map(int, read(group, "cgroup.procs").split())),
                         sorted(self.pids(job_id) + self.pids(job_id, "--keep")))
        left = stray(group)
        self.assertNotEqual(state(left), "")
        self.cancel(job_id)
        self.ends(job_id, "cancelled")
        self.assertEqual(state(left), "")
        self.assertFalse(os.path.exists(group))

    def test_3_groups_of_a_killed_daemon(self):
        job_id, group = self.running()
        left = stray(group)
        self.daemon.kill()
        os.kill(self.pids(job_id, "--keep")[0], signal.SIGKILL)
        leftover, foreign = self.of(job_id, 7), self.of("ftjob-foreign")
        os.mkdir(leftover)
        os.mkdir(foreign)
        self.addCleanup(os.rmdir, foreign)
        lost = stray(leftover)
        self.daemon.start()
        type(self).client = self.daemon.client()
        self.assertFalse(os.path.exists(leftover))
        self.assertEqual(state(lost), "")
        self.assertTrue(os.path.exists(foreign), "another daemon's")
        self.ends(job_id, "failed")
        self.assertEqual(state(left), "")
        self.assertFalse(os.path.exists(group))

    def test_4_host_memory_runs_out(self):
        if "memory" not in read(GROUP, "cgroup.controllers").split():
            self.skipTest("no memory controller below this process's group")
        job_id, group = self.running()
        limit = int(read(group, "memory.max")) - 2 * (4096 << 20)  # beside the margin of two ranks
        self.assertTrue(0 < limit < 1 << 30, limit)
        stat = dict(line.split() for line in read(group, "memory.stat").splitlines())
        least = int(stat["anon"]) + int(stat["shmem"])  # what cannot be written back
        write(group, "memory.max", text=str(least - (8 << 20)))  # too little for both ranks, enough for one
        error = self.ends(job_id, "failed")["error"]
        self.assertEqual(error["code"], "host_oom", error)
        self.assertRegex(error["message"], r"^host out of memory: the kernel killed rank \d in step \d, \w+; its limit of 0\.\d\d GiB "
                                           r"\(memory\.max\) was reached; the job took 0\.\d\d GiB at most")


FREEZER = mounted("cgroup", "freezer")


@unittest.skipUnless(FREEZER and os.access(FREEZER, os.W_OK), "no freezer of version 1 that can be written here")
class Stuck(Scene):
    """No group of version 2 is asked for: the same holds with and without."""

    def test_rank_that_hangs_in_the_kernel(self):
        frozen = os.path.join(FREEZER, f"ithaca-test-{os.getpid()}")
        os.mkdir(frozen)
        self.addCleanup(os.rmdir, frozen)
        job_id, _ = self.running()
        pid = self.pids(job_id)[0]
        write(frozen, "cgroup.procs", text=str(pid))
        write(frozen, "freezer.state", text="FROZEN")
        try:
            e2e.until("it is frozen", 10, lambda: state(pid) == "D")
            asked = time.monotonic()
            self.cancel(job_id)
            self.assertTrue(2 <= time.monotonic() - asked < 10 * e2e.slowdown())  # who cancels need not wait for processes
            said = e2e.until("it is told", 15, lambda: [text for text in self.events(job_id) if "does not end" in text])
            self.assertRegex(said[0], rf"^rank \d \(process {pid}\) does not end: state D, SIGKILL was sent at \d{{4}}-")
            self.assertGreater(time.monotonic() - asked, 3)  # after asking, SIGTERM, SIGKILL and a wait, a second each
            self.assertEqual(self.client.job(job_id)["ithaca"]["state"], "cancelling")
            self.assertEqual([gpu["job_id"] for gpu in self.client.get("/v1/gpus").json()["data"]].count(job_id), 2)
        finally:
            write(frozen, "freezer.state", text="THAWED")
        self.ends(job_id, "cancelled")
        e2e.until("its group is empty", 10, lambda: read(frozen, "cgroup.procs") == "")
        self.assertEqual(len([text for text in self.events(job_id) if "does not end" in text]), 1)


if __name__ == "__main__":
    unittest.main()
