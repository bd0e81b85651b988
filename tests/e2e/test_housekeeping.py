"""Housekeeping over HTTP and by the command line: jobs submitted again, what the disk holds, what is removed of it."""
import json
import os
import re
import sys
import unittest

from ithaca_e2e import LINE, SOURCE_DIR, Daemon, DaemonTest, until

sys.path.insert(0, os.path.join(SOURCE_DIR, "tests", "bench"))
from job_copies import job_copies  # noqa: E402

LINES = LINE * 32
SMALL = {"max_steps": 4, "seq_len": 64, "batch": {"sequences": 1}, "save": {"every_steps": 2, "keep": 4}}


class Housekeeping(DaemonTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.file_id = cls.client.upload(LINES)["id"]

    def ithaca(self, *words):
        done = self.daemon.ithaca("--json", *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def refused(self, *words):
        done = self.daemon.ithaca("--json", *words)
        self.assertNotEqual(done.returncode, 0)
        return json.loads(done.stderr)["error"]

    def test_resubmit(self):
        old = self.client.submit(self.file_id, suffix="first", seed=7, ithaca={**SMALL, "hold": True, "tags": ["a"]})
        self.ithaca("update", old["id"], "--set", "priority=3")
        new = self.ithaca("resubmit", old["id"], "--set", "max_steps=2", "--set", "batch.sequences=2", "--suffix",
                          "second")
        spec = new["ithaca"]["spec"]
        self.assertNotEqual(new["id"], old["id"])
        self.assertEqual((new["seed"], new["training_file"], spec["priority"], spec["tags"], spec["seq_len"]),
                         (7, self.file_id, 3, ["a"], 64))
        self.assertEqual((spec["max_steps"], spec["batch"]["sequences"], spec["hold"]), (2, 2, True))
        # What was left to the daemon is left to it again: two ranks would not divide what one had.
        asked = self.client.get(f"/v1/fine_tuning/jobs/{old['id']}/request").json()
        self.assertEqual((asked["ithaca"]["batch"]["grad_accum"], asked["ithaca"]["priority"], asked["suffix"]),
                         ("auto", 3, "first"))
        two = self.ithaca("resubmit", old["id"], "--set", "gpus=2", "--set", "batch.sequences=4")
        self.assertEqual((two["ithaca"]["spec"]["gpus"], two["ithaca"]["spec"]["batch"]["grad_accum"]), (2, 2))
        # Epochs asked for then, steps asked for now, and the other way round.
        epochs = self.client.submit(self.file_id, ithaca={"seq_len": 64, "hold": True},
                                    method={"type": "supervised", "supervised": {"hyperparameters": {"n_epochs": 2}}})
        again = self.ithaca("resubmit", epochs["id"], "--set", "max_steps=9")
        self.assertEqual((again["ithaca"]["spec"]["max_steps"], again["hyperparameters"]["n_epochs"]), (9, "auto"))
        # Faults read as those of submit.
        error = self.refused("resubmit", old["id"], "--set", "seq_lem=9")
        self.assertEqual((error["code"], error["param"]), ("unknown_parameter", "ithaca.seq_lem"))
        error = self.refused("resubmit", old["id"], "--set", "save.keep=0")
        self.assertEqual((error["code"], error["param"]), ("invalid_value", "ithaca.save.keep"))
        self.assertEqual(self.refused("resubmit", "ftjob-none")["code"], "not_found")
        self.assertIn("--sett", self.refused("resubmit", "--sett", "a=1", old["id"])["message"])
        for job in (old, new, two, epochs, again):
            self.client.post(f"/v1/fine_tuning/jobs/{job['id']}/cancel")

    # ---- what the disk holds ----

    def token(self, user, scope="submit"):
        return self.client.post("/v1/tokens", {"user": user, "scope": scope}).json()["token"]

    def finished(self, **more):
        """A job that has succeeded, with a checkpoint of its middle."""
        job = self.client.submit(self.file_id, ithaca={**SMALL, **more})["id"]
        self.assertEqual(self.client.wait(job)["ithaca"]["state"], "succeeded")
        return job

    def failed(self):
        """A job that has failed after the checkpoints of steps 2 and 4."""
        job = self.client.submit(self.file_id, ithaca={**SMALL, "max_steps": 100000, "max_restarts": 0,
                                                       "save": {"every_steps": 2, "keep": 2}, "time_limit_s": 1})["id"]
        done = self.client.wait(job)
        self.assertEqual(done["error"]["code"], "time_limit")
        return job

    def steps(self, job):
        answer = self.client.get(f"/v1/fine_tuning/jobs/{job}/checkpoints").json()
        return [checkpoint["step_number"] for checkpoint in answer["data"]]

    def has(self, job, *names):
        return [name for name in names if self.daemon.exists(f"jobs/{job}/{name}")]

    def shards(self):
        """Of the cache."""
        return [name for name in os.listdir(os.path.join(self.daemon.data_dir, "cache")) if name.endswith(".tok")]

    def on_disk(self, below=""):
        """What du counts: blocks of every file and folder, each once."""
        seen, total = set(), 0
        root = os.path.join(self.daemon.data_dir, below)
        for folder, _, names in os.walk(root):
            for path in (folder, *(os.path.join(folder, name) for name in names)):
                try:
                    info = os.lstat(path)
                except FileNotFoundError:  # the daemon has files of its own that come and go
                    continue
                if info.st_ino not in seen:
                    seen.add(info.st_ino)
                    total += info.st_blocks * 512
        return total

    def test_du_is_what_is_on_disk(self):
        jobs = [self.finished() for _ in range(2)]  # the second has the first one's shards
        ben = self.token("ben")
        until("the trash is empty", 20, lambda: not os.listdir(os.path.join(self.daemon.data_dir, "trash"))
              if self.daemon.exists("trash") else True)

        def agree():
            told = self.ithaca("du")
            there = self.on_disk()
            return told if abs(told["bytes"] - there) <= 65536 else None  # the databases' logs grow meanwhile
        storage = until("du says what is there", 10, agree)
        kinds = {row["kind"]: row["bytes"] for row in storage["kinds"]}
        self.assertEqual(sum(kinds.values()), storage["bytes"])
        self.assertEqual(kinds["base_models"], self.on_disk("models") - 4096)
        self.assertEqual(sum(row["bytes"] for row in storage["users"]), storage["bytes"])
        for job in jobs:
            row = next(row for row in storage["jobs"] if row["id"] == job)
            self.assertEqual(row["kinds"]["checkpoints"], self.on_disk(f"jobs/{job}/checkpoints/step-2"))
            self.assertEqual(row["kinds"]["models"], self.on_disk(f"jobs/{job}/model"))
            self.assertEqual(row["kinds"]["logs"], self.on_disk(f"jobs/{job}/attempt-1"))
        shards = os.lstat(os.path.join(self.daemon.data_dir, f"jobs/{jobs[0]}/tokens/train.tok"))
        self.assertEqual(row["kinds"]["shards"], shards.st_blocks * 512 // (shards.st_nlink - 1))
        # Who is no admin sees nothing of all that.
        own = self.client.get("/v1/storage", token=ben).json()
        self.assertEqual((own["bytes"], own["kinds"], own["users"], own["jobs"]), (0, [], [], []))
        lines = self.daemon.ithaca("du", "--by", "job", "--limit", "1").stdout.splitlines()
        self.assertEqual(len(lines), 2, lines)
        self.assertIn("of the disk are free", lines[1])

    # ---- prune ----

    def test_prune_keeps_what_is_needed(self):
        done, failed = self.finished(), self.failed()
        waiting = self.client.submit(self.file_id, ithaca={**SMALL, "hold": True})["id"]
        self.client.wait(waiting, ("queued",))
        spare = self.client.upload(LINES, filename="spare.jsonl")["id"]
        newest = self.steps(failed)
        self.assertEqual(len(newest), 2)
        # Not another user's, not by name either.
        ben = self.token("ben")
        self.assertEqual(self.client.post("/v1/storage/prune", {"dry_run": False}, token=ben).json()["count"], 0)
        answer = self.client.post("/v1/storage/prune", {"job": done}, token=ben)
        self.assertEqual((answer.status, answer.error()["param"]), (404, "job"))
        reader = self.token("ben", "read")
        self.assertEqual(self.client.post("/v1/storage/prune", {}, token=reader).status, 403)
        # A dry run removes nothing and says what would go; nothing is as old as a day.
        dry = self.ithaca("prune", "--dry-run")
        self.assertEqual(self.has(done, "checkpoints/step-2", "attempt-1"), ["checkpoints/step-2", "attempt-1"])
        self.assertIn({"kind": "checkpoints", "id": done, "step": 2,
                       "bytes": self.on_disk(f"jobs/{done}/checkpoints/step-2")}, dry["data"])
        self.assertNotIn(waiting, [row["id"] for row in dry["data"]])
        self.assertNotIn((failed, newest[0]), [(row["id"], row["step"]) for row in dry["data"]])
        self.assertEqual([row for row in self.ithaca("prune", "--older-than", "1d")["data"] if row["id"]], [])
        real = self.ithaca("prune", "--older-than", "0s")
        self.assertEqual((real["freed_bytes"], real["kept_count"]), (dry["freed_bytes"], 0))
        self.assertEqual(self.has(done, "checkpoints/step-2", "attempt-1", "tokens/train.tok", "model/config.json",
                                  "tokens/report.json"), ["model/config.json", "tokens/report.json"])
        self.assertEqual(self.steps(failed), newest[:1])
        self.assertEqual(self.has(failed, "tokens/train.tok", "attempt-1"), ["tokens/train.tok"])
        self.assertEqual(self.has(waiting, "tokens/train.tok"), ["tokens/train.tok"])
        events = self.client.get(f"/v1/fine_tuning/jobs/{done}/events").json()["data"]
        self.assertRegex(events[0]["message"], r"Removed to free [\d.]+ MiB: checkpoints: step 2; .*logs.*shards")
        self.assertEqual(events[0]["data"]["user"], "admin")
        # The model is there to be asked for, and the job that failed goes on from where it was.
        self.assertEqual(self.client.get(f"/v1/fine_tuning/jobs/{done}/model/files").status, 200)
        self.assertEqual(self.client.get(f"/v1/fine_tuning/jobs/{done}/logs").status, 200)
        self.assertEqual(self.client.post(f"/v1/fine_tuning/jobs/{failed}/resume").status, 200)
        again = self.client.wait(failed)
        self.assertEqual((again["error"]["code"], again["ithaca"]["attempt"]), ("time_limit", 2))
        self.assertGreater(self.steps(failed)[0], newest[0])
        # Files by their kind only, and never one that a job waits to read.
        gone = self.ithaca("prune", "--kind", "files", "--older-than", "0s")
        self.assertIn(spare, [row["id"] for row in gone["data"]])
        self.assertNotIn(self.file_id, [row["id"] for row in gone["data"]])
        self.assertEqual(self.client.get(f"/v1/files/{spare}").status, 404)
        # All that a job needs to go on goes when it is named and nothing is to be kept.
        self.ithaca("prune", "--job", failed)
        self.assertEqual(len(self.steps(failed)), 1)
        self.ithaca("prune", "--job", failed, "--keep", "0")
        self.assertEqual((self.steps(failed), self.has(failed, "tokens/train.tok")), ([], []))
        self.assertEqual(self.client.post(f"/v1/fine_tuning/jobs/{failed}/resume").error()["code"], "invalid_state")
        until("the trash is empty", 20, lambda: not os.listdir(os.path.join(self.daemon.data_dir, "trash")))
        for words, what in ((("--kind", "models"), "checkpoints, logs, shards or files"),
                            (("--older-than", "soon"), "30d"), ((), "say what is to go")):
            refusal = self.daemon.ithaca("prune", *words)
            self.assertEqual((refusal.returncode, what in refusal.stderr), (64, True), refusal.stderr)
        for body, field in (({"kinds": ["models"]}, "kinds"), ({"kinds": []}, "kinds"), ({"keep": -1}, "keep"),
                            ({"older_than_s": "1d"}, "older_than_s"), ({"job": "../x"}, "job"), ({"all": 1}, "all"),
                            ({"dry_run": 1}, "dry_run")):
            self.assertEqual(self.client.post("/v1/storage/prune", body).error()["param"], field)
        # The shard that all of them shared goes with the last one's.
        self.client.post(f"/v1/fine_tuning/jobs/{waiting}/cancel")
        shards = self.shards()
        self.ithaca("prune", "--job", waiting)
        self.assertEqual((len(shards), self.shards()), (1, []))


class Retention(unittest.TestCase):
    def test_by_bytes(self):
        """Off unless it is set; then the next start brings the folder down to the budget, and says so."""
        with Daemon() as daemon:
            client = daemon.client()
            job = client.submit(client.upload(LINES)["id"], ithaca=SMALL)["id"]
            client.wait(job)
            path = f"jobs/{job}/checkpoints/step-2"
            daemon.stop()
            daemon.args = ("--retain-logs-days", "1")
            daemon.start()
            daemon.args = ("--retain-checkpoints-bytes", "1")
            self.assertEqual((daemon.exists(path), daemon.exists(f"jobs/{job}/attempt-1")), (True, True))
            daemon.stop()
            daemon.start()
            until("the checkpoint is gone", 20, lambda: not daemon.exists(path))
            self.assertTrue(daemon.exists(f"jobs/{job}/attempt-1"))
            events = until("told", 5, lambda: [event for event in daemon.client().get(
                f"/v1/fine_tuning/jobs/{job}/events").json()["data"] if "Removed" in event["message"]])
            self.assertEqual(events[0]["data"]["user"], "retention")

    def test_prune_of_many(self):
        """Each job has its event, but they do not wait for the disk one by one."""
        with Daemon() as daemon:
            client = daemon.client()
            job = client.submit(client.upload(LINES)["id"], ithaca=SMALL)["id"]
            client.wait(job)
            daemon.stop()
            ids = [f"ftjob-copy{number:020d}" for number in range(200)]
            job_copies(daemon.data_dir, job, ({"id": name, "fine_tuned_model": "", "result_file": ""} for name in ids))
            for name in ids:
                os.makedirs(os.path.join(daemon.data_dir, "jobs", name, "attempt-1", "more"))
            daemon.start()
            client = daemon.client()

            def writes():
                return int(re.search(r'store_write_duration_seconds_count{database="jobs"} (\d+)', client.get("/metrics").text)[1])
            before = writes()
            answer = client.post("/v1/storage/prune", {"kinds": ["logs"]}).json()
            self.assertEqual((answer["count"], answer["kept_count"]), (201, 0))
            self.assertLess(writes() - before, 120)
            for name in ids:
                events = client.get(f"/v1/fine_tuning/jobs/{name}/events").json()["data"]
                self.assertRegex(events[0]["message"], r"^Removed to free [\d.]+ MiB: logs\.$")
                self.assertFalse(os.listdir(os.path.join(daemon.data_dir, "jobs", name)))
            until("the trash is empty", 20, lambda: not os.listdir(os.path.join(daemon.data_dir, "trash")))


if __name__ == "__main__":
    unittest.main()
