"""This machine measured by the command line: calibration, steps of a plan, the ladder's bars. No daemon is asked."""
import json
import os
import subprocess
import tempfile
import unittest

from ithaca_e2e import ITHACA, WORKER, Daemon


class Measure(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.runs = tempfile.TemporaryDirectory()

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()
        cls.runs.cleanup()

    def ithaca(self, *arguments, worker=WORKER):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ITHACA_")}
        environment.update(ITHACA_URL="http://127.0.0.1:9", ITHACA_WORKER=worker, TMPDIR=self.runs.name)
        return subprocess.run([ITHACA, "--data-dir", self.folder.name, "--json", *arguments], capture_output=True,
                              timeout=150, check=False, env=environment, encoding="utf-8")

    def answer(self, *arguments):
        done = self.ithaca(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(os.listdir(self.runs.name), [])  # nothing is left behind
        return json.loads(done.stdout)

    def test_calibration(self):
        """What is calibrated in a second predicts a step of other sizes within a factor of two."""
        calibration = self.answer("calibrate", "--backend", "cpu", "--ranks", "2", "--seconds", "1")
        [measured] = calibration["sets"]
        self.assertEqual((measured["backend"], measured["ranks"]), ("cpu", 2))
        self.assertGreater(measured["peak_flops"], 0)
        for rates in measured["rates"].values():
            self.assertTrue(all(point[2] > 0 for point in rates))
        for extra in (["context_parallel.kind=ulysses"], ["recompute=input", "context_parallel.kind=ring"]):
            plan = self.answer("plan", "--run", "--backend", "cpu", "--model", "tiny-llama", "--seq-len", "1K",
                               "--gpus", "2", "--set", "batch.sequences=2",
                               *[word for field in extra for word in ("--set", field)])
            self.assertTrue(plan["time"]["calibrated"])
            self.assertIsNotNone(plan["time"]["mfu_causal"])
            own = sum(phase[part] for phase in plan["time"]["phases"] for part in ("attention", "products", "passes"))
            # Ranks of one thread: the processor's time is that of work, whatever else runs here.
            if measured["threads"] == 1:
                self.assertLess(0.5, own / plan["measured"]["processor_s"], (extra, plan))
                self.assertLess(own / plan["measured"]["processor_s"], 2, (extra, plan))
        with Daemon() as daemon:
            with open(os.path.join(self.folder.name, "calibration.json"), "rb") as file:
                text = file.read()
            with open(os.path.join(daemon.data_dir, "calibration.json"), "wb") as file:
                file.write(text)
            body = {"model": "tiny-llama", "ithaca": {"gpus": 2, "seq_len": 512}}
            client = daemon.client()
            answer = client.post("/v1/fine_tuning/estimate", body).json()
            self.assertTrue(answer["time"]["calibrated"])
            line = b'{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}]}\n'
            job = client.submit(client.upload(line * 20)["id"], ithaca={"gpus": 2, "seq_len": 64, "max_steps": 2})
            self.assertEqual(client.wait(job["id"], seconds=120)["status"], "succeeded")
            series = client.get(f"/v1/fine_tuning/jobs/{job['id']}/metrics?keys=mfu_causal,mfu_full").json()["data"]
            self.assertEqual({one["key"] for one in series}, {"mfu_causal", "mfu_full"})

    def test_ladder(self):
        """Each bar's memory is the plan's, by category; a step of each is timed."""
        bars = self.answer("ladder", "--run", "--backend", "cpu", "--model", "tiny-llama", "--seq-len", "128", "--steps", "2",
                           "--gpus", "2")["bars"]
        self.assertEqual(len(bars), 8)
        for bar in bars:
            plan, measured = bar["plan"], bar["measured"]
            self.assertTrue(measured["run"], (bar["name"], measured["why"]))
            self.assertEqual(measured["device_bytes"], plan["peak_device_bytes"])
            self.assertGreater(measured["step_s"], 0)
            planned = {name: bytes for name, bytes in plan["peak"].items() if name != "unused"}
            self.assertEqual(measured["peak"], planned, bar["name"])

    def test_rehearsal(self):
        """One process holds what a rank of four holds, and works as much; some layers are left out."""
        plan = self.answer("plan", "--run", "--backend", "cpu", "--model", "tiny-llama", "--seq-len", "1K", "--steps", "2",
                           *[word for field in ("rehearse.world=4", "rehearse.layers=1", "context_parallel.kind=upipe",
                                                "recompute=attention", "keep_input_every=2", "batch.sequences=1")
                             for word in ("--set", field)])
        measured = plan["measured"]
        self.assertTrue(measured["run"], measured["why"])
        self.assertEqual((plan["gpus"], plan["ithaca"]["context_parallel"]["ulysses"]), (4, 4))
        self.assertEqual(measured["device_bytes"], plan["peak_device_bytes"])
        self.assertEqual(measured["layers"], 2)  # a whole segment
        self.assertLess(2 * measured["layer_s"], measured["step_s"])

    def test_what_cannot_be_measured(self):
        done = self.ithaca("plan", "--run", "--model", "tiny-llama", worker="/nonexistent")
        self.assertEqual(done.returncode, 70)
        self.assertIn("/nonexistent", done.stderr)
        plan = self.answer("plan", "--run", "--backend", "cpu", "--model", "llama3-70b")
        self.assertFalse(plan["measured"]["run"])
        self.assertEqual(plan["measured"]["why"], "it does not fit")
        done = self.ithaca("plan", "--run", "--model", "tiny-llama", "--steps", "101")
        self.assertEqual(done.returncode, 64)
        self.assertIn("at most 100", done.stderr)
        for arguments in (["--seconds", "0"], ["--ranks", "65"], ["--backend", "tpu"], ["more"]):
            self.assertEqual(self.ithaca("calibrate", *arguments).returncode, 64, arguments)


if __name__ == "__main__":
    unittest.main()
