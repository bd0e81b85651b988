#!/usr/bin/python3
"""What is done to the daemon's files and to the daemon itself while a job runs: files or folder moved away, replaced and put
back, a second daemon, a stop of the whole process, garbage in the name of a rank. Nothing that was answered is lost, and
what is wrong is said."""
import ctypes
import os
import shutil
import signal
import time
import unittest

from ithaca_e2e import LINE, Daemon, check_databases, form, processes_of, refused, until

JOB = {"gpus": 2, "max_steps": 12, "seq_len": 64, "batch": {"sequences": 2}, "max_restarts": 0}


class Surroundings(unittest.TestCase):
    def setUp(self):
        self.daemon = Daemon("--heartbeat-limit-s", "2", "--coll-timeout-s", "1")
        self.addCleanup(self.daemon.__exit__, None, None, None)
        self.folder = self.daemon.data_dir
        self.client = self.daemon.client()
        self.file = self.client.upload(LINE * 64)["id"]
        self.daemon.hold(3)
        self.job = self.client.submit(self.file, ithaca=JOB)["id"]
        until("the third step", 60, lambda: self.steps() >= 3)

    def path(self, name):
        return os.path.join(self.folder, name)

    def steps(self):
        return self.client.job(self.job)["ithaca"]["steps_done"]

    def finish(self):
        """The job succeeds with each of its points, and all is there for a new daemon."""
        self.daemon.hold(None)
        self.client.wait(self.job)
        self.assertEqual(self.daemon.stop(), 0)
        check_databases(self.folder)
        self.daemon.start()
        self.client = self.daemon.client()
        jobs = self.client.get("/v1/fine_tuning/jobs").json()["data"]
        self.assertEqual([(job["id"], job["status"], job["error"]) for job in jobs], [(self.job, "succeeded", None)])
        series = self.client.get(f"/v1/fine_tuning/jobs/{self.job}/metrics?keys=loss").json()["data"]
        self.assertEqual([point[0] for point in series[0]["points"]], list(range(1, 13)))

    def refuses(self, said):
        """Whatever would be stored; what is asked for is answered."""
        body, kind = form([("purpose", None, b"fine-tune"), ("file", "a.jsonl", LINE)])
        for answer in (self.client.post("/v1/fine_tuning/jobs", {"model": "tiny-llama", "training_file": self.file}),
                       self.client.post("/v1/files", body, headers={"Content-Type": kind}),
                       self.client.post(f"/v1/fine_tuning/jobs/{self.job}/cancel"), self.client.get("/readyz")):
            self.assertEqual((answer.status, answer.error()["code"]), (503, "unavailable"), answer.text)
            self.assertIn(said, answer.error()["message"])
            self.assertNotIn(self.folder, answer.text)
        self.assertEqual(self.client.get("/healthz").status, 200)
        self.assertEqual(self.client.job(self.job)["ithaca"]["state"], "running")

    def test_files_moved_away_and_a_second_daemon(self):
        self.second_daemon()
        self.data_folder_moved_away()
        self.databases_moved_away()
        self.finish()

    def databases_moved_away(self):
        """A job that trains, and ends, meanwhile."""
        for name, last in (("metrics.db-wal", 6), ("jobs.db", None)):
            os.rename(self.path(name), self.path("away"))
            self.refuses(f"{name} was moved or deleted")
            shutil.copy(self.path("away"), self.path(name))
            self.refuses(f"{name} was replaced")
            self.daemon.hold(last)
            time.sleep(0.5)  # steps are done and told meanwhile
            os.rename(self.path("away"), self.path(name))
            until("what waited is stored", 30, lambda: self.steps() >= (last or 12))

    def data_folder_moved_away(self):
        os.rename(self.folder, self.folder + ".away")
        try:
            self.refuses("jobs.db was moved or deleted")
        finally:
            os.rename(self.folder + ".away", self.folder)

    def second_daemon(self):
        """Whatever was removed of the folder, and by whatever name it is called."""
        for name in os.listdir(self.folder):
            if name.startswith("lock"):
                os.unlink(self.path(name))
        os.symlink(self.folder, self.folder + ".link")
        self.addCleanup(os.unlink, self.folder + ".link")
        status, told = refused(data_dir=self.folder + ".link")
        self.assertEqual(status, 75)
        self.assertIn("is in use by another daemon", told)

    def test_daemon_stopped_for_longer_than_ranks_may_be_silent(self):
        os.kill(self.daemon.process.pid, signal.SIGSTOP)
        self.daemon.hold(9)
        time.sleep(2.5)  # the limit is two
        os.kill(self.daemon.process.pid, signal.SIGCONT)
        until("steps of meanwhile are there", 30, lambda: self.steps() >= 9)
        self.assertEqual(self.client.job(self.job)["ithaca"]["state"], "running")
        self.finish()

    def test_garbage_over_the_channel_of_a_rank(self):
        """The connection ends; the rank comes back and sends again what was not acknowledged."""
        for number, garbage in enumerate((bytes(100000), b"GET / HTTP/1.1\r\n\r\n")):
            rank = until("a rank", 10, lambda: [pid for pid, command in processes_of(self.job) if "--rank 1" in command])[0]
            write_as(rank, garbage)
            until("it is told", 10, lambda: self.daemon.log().count("connection of rank 1 ends: not a frame") > number)  # pylint: disable=W0640
            self.daemon.hold(5 + 2 * number)
            until("it is back", 30, lambda: self.steps() >= 5 + 2 * number)  # pylint: disable=W0640
        self.finish()


def write_as(pid, data):
    """Writes to the socket of a process, in its place."""
    process = os.pidfd_open(pid)
    number = next(int(name) for name in os.listdir(f"/proc/{pid}/fd") if "socket" in os.readlink(f"/proc/{pid}/fd/{name}"))
    taken = ctypes.CDLL(None, use_errno=True).syscall(438, process, number, 0)  # pidfd_getfd
    os.close(process)
    if taken < 0:
        raise unittest.SkipTest(f"pidfd_getfd: {os.strerror(ctypes.get_errno())}")
    try:
        os.write(taken, data)
    finally:
        os.close(taken)


if __name__ == "__main__":
    unittest.main()
