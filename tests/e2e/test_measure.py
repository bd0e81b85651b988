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
                               "--gpus", "2", "--steps", "2", "--set", "batch.sequences=2",
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
                           "--gpus", "2", "--set", "batch.sequences=2")["bars"]
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

    def check_waits(self, waits, step_s, kinds):
        """What one step is made of (medians of several need not): these kinds and computing, which add up to it."""
        self.assertEqual(set(waits), {f"{kind}_wait_s" for kind in kinds} | {"compute_s"})
        self.assertTrue(all(seconds >= 0 for seconds in waits.values()), waits)
        self.assertGreater(waits["compute_s"], 0)
        self.assertLess(abs(sum(waits.values()) - step_s), 0.05 * step_s + 0.05)

    def test_waits(self):
        """Each thing that a layout waits for is told, and nothing that it does not have."""
        for fields, kinds in (
                (("context_parallel.kind=ulysses", "offload=host", "recompute=attention"),
                 ("gather", "reduce", "exchange", "sums", "offload_out", "offload_in")),
                (("context_parallel.kind=ring", "states=host"), ("gather", "reduce", "ring", "sums", "states")),
                (("fsdp=false",), ("reduce", "sums"))):
            plan = self.answer("plan", "--run", "--backend", "cpu", "--model", "tiny-llama", "--seq-len", "128", "--steps", "2",
                               "--gpus", "2", *[word for field in (*fields, "batch.sequences=2") for word in ("--set", field)])
            measured = plan["measured"]
            self.assertTrue(measured["run"], measured["why"])
            self.check_waits(measured["waits"], measured["step_s"], kinds)

    def test_rehearsal_as_a_job(self):
        """A job on one slot that ends with a report and without a model; all its steps' times add up."""
        rehearse = {"rehearse": {"world": 4, "layers": 1}, "seq_len": 1024, "batch": {"sequences": 1},
                    "context_parallel": {"kind": "upipe"}, "max_steps": 2}
        line = b'{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}]}\n'
        with Daemon("--cpu-slots", "1") as daemon:
            client = daemon.client()
            file = client.upload(line * 20)["id"]
            answer = client.post("/v1/fine_tuning/jobs", {"model": "tiny-llama", "training_file": file, "ithaca": {
                **rehearse, "max_steps": 101}})
            self.assertEqual((answer.status, answer.error()["param"]), (400, "ithaca.max_steps"))
            job = client.submit(file, ithaca=rehearse)
            self.assertEqual((job["ithaca"]["measured"], job["ithaca"]["spec"]["gpus"]), (None, 4))
            job = client.wait(job["id"], seconds=120)
            self.assertEqual((job["status"], job["fine_tuned_model"]), ("succeeded", None), job["error"])
            report = job["ithaca"]["measured"]
            self.assertEqual((report["rehearsed"], report["world"], report["layers"], report["layers_worked"]), (True, 4, 4, 1))
            self.assertEqual(report["device_bytes"], report["planned_device_bytes"])
            self.assertAlmostEqual(report["whole_step_s"], report["step_s"] + 3 * report["layer_s"])
            self.assertAlmostEqual(report["predicted_step_s"], report["whole_step_s"] + report["network_wait_s"])
            self.assertGreaterEqual(report["network_s"], report["network_wait_s"])
            self.assertGreater(report["network_wait_s"], 0)
            self.check_waits(report["waits"], report["step_s"], ("gather", "reduce", "exchange", "sums"))
            keys = ["step_time_s", "compute_s", "gather_wait_s", "reduce_wait_s", "exchange_wait_s", "sums_wait_s"]
            series = client.get(f"/v1/fine_tuning/jobs/{job['id']}/metrics?keys={','.join(keys)},loss").json()["data"]
            steps = {one["key"]: {point[0]: point[1] for point in one["points"]} for one in series}
            self.assertEqual(set(steps), set(keys))  # no loss: nothing is learnt
            for step in (1, 2):
                parts = sum(steps[key][step] for key in keys[1:])
                self.assertLess(abs(parts - steps["step_time_s"][step]), 0.05 * steps["step_time_s"][step] + 0.05)
            shown = daemon.ithaca("show", job["id"])
            self.assertEqual(shown.returncode, 0, shown.stderr)
            self.assertIn("rehearsed: rank 0 of 4, 1 of 4 layers; ", shown.stdout)
            said = [event["message"] for event in client.get(f"/v1/fine_tuning/jobs/{job['id']}/events").json()["data"]]
            self.assertTrue(any(message.startswith("Rehearsal is over, rank 0 of 4 with 1 of 4 layers") for message in said), said)
            self.assertEqual(os.listdir(os.path.join(daemon.data_dir, "jobs", job["id"], "attempt-1")).count("collectives-0"), 0)

    def test_measurement_as_a_job(self):
        """Two ranks, no file, random tokens: a report, speed among the metrics, no model, no loss."""
        measure = {"measure": True, "gpus": 2, "seq_len": 256, "batch": {"sequences": 1}, "context_parallel": {"kind": "ring"},
                   "max_steps": 2}
        with Daemon("--cpu-slots", "2") as daemon:
            client = daemon.client()
            answer = client.post("/v1/fine_tuning/jobs", {"model": "tiny-llama", "ithaca": {**measure, "measure": False}})
            self.assertEqual((answer.status, answer.error()["param"]), (400, "training_file"))
            answer = client.post("/v1/fine_tuning/jobs", {"model": "no-such-shape", "ithaca": measure})
            self.assertEqual((answer.status, answer.error()["param"]), (404, "model"))
            job = client.wait(client.submit(None, ithaca=measure)["id"])
            self.assertEqual((job["status"], job["fine_tuned_model"], job["training_file"], job["result_files"]),
                             ("succeeded", None, None, []), job["error"])
            report = job["ithaca"]["measured"]
            self.assertEqual((report["rehearsed"], report["world"], report["layers_worked"], report["network_wait_s"]),
                             (False, 2, 4, 0))
            self.assertEqual(report["predicted_step_s"], report["step_s"])
            self.assertAlmostEqual(report["tokens_per_s_gpu"], 256 / report["step_s"] / 2, places=3)
            self.assertEqual(report["device_bytes"], report["planned_device_bytes"])
            series = client.get(f"/v1/fine_tuning/jobs/{job['id']}/metrics?keys=tokens_per_s,loss").json()["data"]
            self.assertEqual([one["key"] for one in series], ["tokens_per_s"])
            self.assertIn("measured: a step ", daemon.ithaca("show", job["id"]).stdout)
            watched = daemon.ithaca("watch", job["id"])
            self.assertRegex(watched.stderr, r"Measurement is over: .*\nsucceeded\n\Z")  # and there is no model to fetch

    def test_shape_is_enough(self):
        """A published model that is not here: ready to run in a job that only measures, and no other."""
        body = {"model": "qwen3-0.6b", "ithaca": {"seq_len": 64, "batch": {"sequences": 1}, "max_steps": 1,
                                                  "rehearse": {"world": 64, "layers": 1}, "hold": True}}
        with Daemon("--cpu-slots", "1") as daemon:
            client = daemon.client()
            job = client.wait(client.submit(None, **body)["id"], ("queued", "failed"))
            self.assertEqual(job["status"], "queued", job["error"])
            body["training_file"] = client.upload(b'{"text": "a"}\n')["id"]
            for own in (body["ithaca"], {"seq_len": 64}):  # it has no tokenizer, nor can anything be trained of it
                answer = client.post("/v1/fine_tuning/jobs", {**body, "ithaca": own})
                self.assertEqual((answer.status, answer.error()["param"]), (404, "model"), answer.text)

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
