"""Housekeeping over HTTP and by the command line: jobs submitted again, what the disk holds, what is removed of it."""
import json
import unittest

from ithaca_e2e import Daemon

LINES = b'{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}]}\n' * 32
SMALL = {"max_steps": 4, "seq_len": 64, "batch": {"sequences": 1}, "save": {"every_steps": 2, "keep": 4}}


class Housekeeping(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon()
        cls.client = cls.daemon.client()
        cls.file_id = cls.client.upload(LINES)["id"]

    @classmethod
    def tearDownClass(cls):
        cls.daemon.__exit__(None, None, None)

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


if __name__ == "__main__":
    unittest.main()
