#!/usr/bin/python3
"""The databases on a bad day: a disk that fills while a job runs and is freed again, a disk that is read-only, files
that are damaged or of a newer daemon. Nothing that was answered is lost; what is wrong is told with what to do."""
import os
import sqlite3
import subprocess
import tempfile
import unittest

from ithaca_e2e import ITHACAD, LINE, Daemon, check_databases, refused, until


class Disk:
    """A folder that is a filesystem of its own; None where that is not allowed."""

    def __init__(self, mebibytes):
        self.path = tempfile.mkdtemp(prefix="ithaca-e2e-")
        self.mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "none", self.path],
                                      capture_output=True, check=False).returncode == 0

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if self.mounted:
            subprocess.run(["umount", "--lazy", self.path], capture_output=True, check=False)
        os.rmdir(self.path)

    def fill(self):
        """Takes every byte that is free; returns the file that has them."""
        path = os.path.join(self.path, "filler")
        with open(path, "wb", buffering=0) as file:
            size = 1 << 20
            while size >= 512:
                try:
                    file.write(b"\0" * size)
                except OSError:
                    size //= 2
        return path


class Storage(unittest.TestCase):
    def test_disk_full_while_a_job_runs(self):
        """R54: the job trains on, its points wait in memory, requests that would write say why they cannot."""
        with Disk(300) as disk:
            if not disk.mounted:
                self.skipTest("no right to mount a small disk")
            # The gate's file must change while the disk is full.
            gate = tempfile.mkdtemp(prefix="ithaca-e2e-")
            with Daemon(data_dir=disk.path, env={"ITHACA_WORKER_STEP_GATE": os.path.join(gate, "step.gate")}) as daemon:
                daemon.gate_path = os.path.join(gate, "step.gate")
                client = daemon.client()
                file_id = client.upload(LINE * 64)["id"]
                daemon.hold(3)
                job = client.submit(file_id, ithaca={"max_steps": 12, "seq_len": 64, "max_restarts": 0})["id"]

                def steps():
                    return client.job(job)["ithaca"]["steps_done"]
                until("the third step", 60, lambda: steps() >= 3)
                filler = disk.fill()
                daemon.hold(8)
                until("refused for want of space", 30, lambda: client.post(
                    "/v1/fine_tuning/jobs", {"model": "tiny-llama", "training_file": file_id}).status == 507)
                until("the log tells", 30, lambda: "metrics wait in memory" in daemon.log())
                self.assertEqual(client.get("/healthz").status, 200)
                seen = client.job(job)
                self.assertEqual((seen["ithaca"]["state"], len(client.get("/v1/fine_tuning/jobs").json()["data"])),
                                 ("running", 1))
                self.assertEqual(client.get(f"/v1/files/{file_id}/content").body, LINE * 64)
                os.unlink(filler)
                until("what waited is stored", 30, lambda: steps() >= 8)
                daemon.hold(None)
                done = client.wait(job)
                self.assertEqual(done["ithaca"]["state"], "succeeded", done["error"])
                series = client.get(f"/v1/fine_tuning/jobs/{job}/metrics?keys=loss").json()["data"]
                self.assertEqual([point[0] for point in series[0]["points"]], list(range(1, 13)))
            os.rmdir(gate)

    def test_read_only_disk(self):
        with Disk(300) as disk:
            if not disk.mounted:
                self.skipTest("no right to mount a small disk")
            with Daemon(data_dir=disk.path) as daemon:
                self.assertEqual(daemon.client().upload(LINE)["bytes"], len(LINE))
            subprocess.run(["mount", "-o", "remount,ro", disk.path], check=True)
            result = subprocess.run([ITHACAD, "run", "--data-dir", disk.path, "--port", "0"],
                                    capture_output=True, text=True, timeout=30, check=False)
            self.assertNotEqual(result.returncode, 0)
            self.assertRegex(result.stderr, rf"ithacad: {disk.path}/.*: Read-only file system")

    def test_temporary_folder_is_full(self):
        """What SQLite sorts, here for a migration, needs room on the data folder's disk alone."""
        with Disk(1) as disk:
            if not disk.mounted:
                self.skipTest("no right to mount a small disk")
            filler = disk.fill()
            with Daemon(env={"TMPDIR": disk.path}) as daemon:
                daemon.stop()
                database = sqlite3.connect(os.path.join(daemon.data_dir, "metrics.db"))
                with database:
                    database.execute("DROP INDEX points_key")
                    database.execute("PRAGMA user_version = 1")
                    database.executemany("INSERT INTO points (job, attempt, step, rank, metric, value, wall_s) "
                                         "VALUES (1, 1, ?, 0, 0, 1.0, 1.0)", ((step,) for step in range(150000)))
                database.close()
                daemon.start()
                self.assertEqual(daemon.client().get("/readyz").status, 200)
                self.assertEqual(daemon.stop(), 0)
                check_databases(daemon.data_dir)
            os.unlink(filler)

    def test_damaged_and_newer_files(self):
        with tempfile.TemporaryDirectory(prefix="ithaca-e2e-") as folder:
            with Daemon(data_dir=folder) as daemon:
                client = daemon.client()
                client.upload(LINE)
                daemon.kill()  # unclean: the next start checks all pages
                path = os.path.join(folder, "jobs.db")
                with open(path, "rb") as file:
                    good = file.read()
                with open(path + "-wal", "rb") as file:
                    log = file.read()
            with open(path, "wb") as file:
                file.write(b"not a database, though it was one before " * 200)
            os.unlink(path + "-wal")
            status, told = refused(data_dir=folder)
            self.assertEqual(status, 70)
            self.assertRegex(told, r"jobs\.db is damaged \(.*\): put a backup of it in its place")
            with open(path, "wb") as file:
                file.write(good)
            with open(path + "-wal", "wb") as file:
                file.write(log)
            with Daemon(data_dir=folder) as daemon:
                self.assertEqual(len(daemon.client().get("/v1/files").json()["data"]), 1)
            with sqlite3.connect(path) as database:
                database.execute("PRAGMA user_version = 999")
            database.close()
            status, told = refused(data_dir=folder)
            self.assertEqual(status, 70)
            self.assertRegex(told, r"has version 999, this daemon knows up to \d+: start a newer ithacad")


if __name__ == "__main__":
    unittest.main()
