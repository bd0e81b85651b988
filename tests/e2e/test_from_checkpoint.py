#!/usr/bin/python3
"""Jobs that start from another job's checkpoint: from its very weights, for whoever may see it, also after the other job is
gone; and what is refused."""
import hashlib
import os
import tempfile
import unittest

from ithaca_e2e import LINE, DaemonTest

SHORT = {"gpus": 1, "seq_len": 64, "max_steps": 6, "batch": {"sequences": 2}, "save": {"every_steps": 2, "keep": 3}}


def digest(*path):
    with open(os.path.join(*path), "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


class FromCheckpoint(DaemonTest):
    arguments = ("--device", "cpu", "--cpu-slots", "2")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.file = cls.client.upload(LINE * 40)["id"]
        place = tempfile.TemporaryDirectory()
        cls.addClassCleanup(place.cleanup)
        cls.place = place.name
        cls.source = cls.succeeds()

    @classmethod
    def succeeds(cls, **ithaca):
        job = cls.client.wait(cls.client.submit(cls.file, ithaca={**SHORT, **ithaca})["id"])
        assert job["status"] == "succeeded", job["error"]
        return job["id"]

    def checkpoints(self, job):
        return [one["id"] for one in self.client.get(f"/v1/fine_tuning/jobs/{job}/checkpoints").json()["data"]]

    def resubmit(self, job, *words):
        done = self.daemon.ithaca("resubmit", job, *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        new = self.client.wait(done.stdout.strip())
        self.assertEqual(new["status"], "succeeded", new["error"])
        return new

    def first_loss(self, job):
        return self.client.get(f"/v1/fine_tuning/jobs/{job}/metrics?keys=loss").json()["data"][0]["points"][0][1]

    def weights(self, job, checkpoint):
        """The digest of what `ithaca download` gives of a checkpoint."""
        folder = os.path.join(tempfile.mkdtemp(dir=self.place), "model")
        done = self.daemon.ithaca("download", job, "--checkpoint", checkpoint, "--output", folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        return digest(folder, "model.safetensors")

    def base(self, job):
        return digest(self.daemon.data_dir, "jobs", job, "base", "model.safetensors")

    def test_3_weights_are_the_checkpoint_s(self):
        source = self.source
        newest, older = self.checkpoints(source)[:2]
        self.assertNotEqual(self.weights(source, newest), self.weights(source, older))
        new = self.resubmit(source, "--from-checkpoint", "newest")
        self.assertEqual(new["model"], newest)
        self.assertEqual(self.base(new["id"]), self.weights(source, newest))
        self.assertLess(self.first_loss(new["id"]), self.first_loss(source))
        again = self.resubmit(source, "--from-checkpoint", older)
        self.assertEqual(self.base(again["id"]), self.weights(source, older))
        listed = self.client.get(f"/v1/fine_tuning/jobs/{source}/checkpoints").json()["data"]
        body = {"training_file": self.file, "ithaca": {**SHORT, "max_steps": 1}}
        named = self.client.post("/v1/fine_tuning/jobs", {**body, "model": listed[1]["fine_tuned_model_checkpoint"]})
        self.assertEqual(named.json()["model"], older, named.text)
        self.assertEqual(self.client.wait(named.json()["id"])["status"], "succeeded")
        wrong = listed[1]["fine_tuned_model_checkpoint"].replace("ckpt-step-2", "ckpt-step-3")
        self.assertEqual(self.client.post("/v1/fine_tuning/jobs", {**body, "model": wrong}).error()["param"], "model")
        # All that it needs is its own: the other job may go, and its tuned model is like any.
        self.assertEqual(self.client.delete(f"/v1/fine_tuning/jobs/{source}").status, 200)
        tail = self.checkpoints(new["id"])[0]
        self.weights(new["id"], tail)
        third = self.resubmit(new["id"], "--from-checkpoint", tail)
        self.assertEqual(self.base(third["id"]), self.weights(new["id"], tail))
        used = {kind["kind"] for kind in self.client.get("/v1/storage").json()["kinds"]}
        self.assertIn("base_models", used)
        done = self.daemon.ithaca("resubmit", new["id"])  # as it was asked for
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(f'there is no checkpoint "{newest}" (any more)', done.stderr)

    def test_1_adapters(self):
        merged = self.succeeds(lora={"r": 2, "export": "merged"})
        checkpoint = self.checkpoints(merged)[0]
        new = self.resubmit(merged, "--from-checkpoint", checkpoint, "--set", "lora=null")
        self.assertEqual(self.base(new["id"]), self.weights(merged, checkpoint))
        alone = self.succeeds(lora={"r": 2, "export": "adapter"})
        done = self.daemon.ithaca("resubmit", alone, "--from-checkpoint", "newest")
        self.assertIn("is adapters alone", done.stderr)

    def test_2_refused(self):
        source = self.source
        body = {"training_file": self.file, "ithaca": SHORT}
        checkpoint = self.checkpoints(source)[0]
        for model in (checkpoint + "0", "ftckpt_x_1", "ftckpt_"):
            answer = self.client.post("/v1/fine_tuning/jobs", {**body, "model": model})
            self.assertEqual((answer.status, answer.error()["param"]), (404, "model"), answer.text)
        ann = self.client.user("ann")
        mine = ann.upload(LINE * 40)["id"]
        answer = ann.post("/v1/fine_tuning/jobs", {"training_file": mine, "ithaca": SHORT, "model": checkpoint})
        self.assertEqual((answer.status, answer.error()["param"]), (404, "model"), answer.text)
        answer = self.client.post("/v1/chat/completions", {"model": checkpoint, "messages": [
            {"role": "user", "content": "Where?"}]})  # a model that a job starts from is not what it learnt
        self.assertEqual(answer.status, 404, answer.text)
        done = self.daemon.ithaca("resubmit", source, "--model", "tiny-llama", "--from-checkpoint", "newest")
        self.assertEqual(done.returncode, 64, done.stderr)


if __name__ == "__main__":
    unittest.main()
