"""Adapters as a user meets them: the example job with `lora`, paused and gone on with on another number of ranks, its
answers, its results downloaded, a checkpoint of it, and what is refused."""
import json
import os
import struct
import tempfile
import unittest

import ithaca_e2e as e2e

STEPS, HELD_AT = 10, 4
LORA = {"r": 8, "alpha": 16, "dropout": 0.05}
JOB = {"gpus": 2, "seq_len": 128, "max_steps": STEPS, "batch": {"sequences": 2}, "lora": LORA,
       # eps: without one, Adam makes a whole step of a gradient that is rounding alone, and other ranks round otherwise
       "optimizer": {"learning_rate": 1e-2, "schedule": "constant", "eps": 1e-3}, "eval": {"every_steps": STEPS}}
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def tensors(path):
    """Names, shapes and values of a safetensors file of F32."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    header.pop("__metadata__", None)
    found = {}
    for name, entry in header.items():
        first, last = entry["data_offsets"]
        assert entry["dtype"] == "F32"
        found[name] = entry["shape"], struct.unpack(f"<{(last - first) // 4}f", data[first:last])
    return found


class Adapters(e2e.DaemonTest):
    env = {"ITHACA_CPU_SLOTS": "2"}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.train = cls.client.upload(os.path.join(e2e.EXAMPLE_DIR, "train.jsonl"))["id"]
        cls.valid = cls.client.upload(os.path.join(e2e.EXAMPLE_DIR, "valid.jsonl"))["id"]

    @classmethod
    def tearDownClass(cls):
        assert cls.daemon.stop() == 0

    def ithaca(self, *arguments):
        done = self.daemon.ithaca(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def paused_and_resumed(self, ithaca):
        self.daemon.hold(HELD_AT)
        job = self.client.submit(self.train, validation_file=self.valid, ithaca=ithaca)
        e2e.until("steps are done", 60, lambda: self.client.job(job["id"])["ithaca"]["steps_done"] == HELD_AT)
        self.assertEqual(self.client.post(f"/v1/fine_tuning/jobs/{job['id']}/pause").status, 200)
        self.client.wait(job["id"], ("paused",))
        self.daemon.hold(None)
        self.assertEqual(self.client.post(f"/v1/fine_tuning/jobs/{job['id']}/resume").status, 200)
        job = self.client.wait(job["id"])
        self.assertEqual(job["status"], "succeeded", job["error"])
        return job

    def losses(self, job_id):
        found = {}
        for event, _, data in self.client.stream(f"/v1/fine_tuning/jobs/{job_id}/stream"):
            for key in ("loss", "valid_loss") if event == "metrics" else ():
                if key in data["metrics"]:
                    found[key, data["step"]] = data["metrics"][key]
        return found

    def test_from_submit_to_results(self):
        job = self.paused_and_resumed(JOB)
        spec = job["ithaca"]["spec"]["lora"]
        self.assertEqual((spec["r"], spec["alpha"], spec["modules"], spec["export"]), (8, 16, "all", "both"))
        losses = self.losses(job["id"])
        self.assertEqual(len([key for key, _ in losses if key == "loss"]), STEPS)
        self.assertLess(losses["loss", STEPS], losses["loss", 1] - 0.3)
        straight = self.client.wait(self.client.submit(self.train, validation_file=self.valid,
                                                       ithaca={**JOB, "gpus": 1})["id"])
        for at, value in self.losses(straight["id"]).items():  # one rank, never stopped: the same
            self.assertAlmostEqual(losses[at], value, delta=1e-4, msg=at)
        self.check_results(job)
        answer = self.client.post("/v1/chat/completions", {
            "model": job["fine_tuned_model"], "messages": [{"role": "user", "content": "Where?"}], "max_tokens": 4})
        self.assertEqual(answer.status, 200, answer.text)

    def check_results(self, job):
        with tempfile.TemporaryDirectory() as folder:
            to = os.path.join(folder, "model")
            self.ithaca("download", job["id"], "--output", to)
            self.assertTrue({"config.json", "model.safetensors", "adapter"} <= set(os.listdir(to)))
            self.assertEqual(sorted(os.listdir(os.path.join(to, "adapter"))),
                             ["adapter_config.json", "adapter_model.safetensors"])
            with open(os.path.join(to, "adapter", "adapter_config.json"), encoding="utf-8") as file:
                config = json.load(file)
            self.assertEqual((config["peft_type"], config["r"], config["lora_alpha"], config["target_modules"]),
                             ("LORA", 8, 16, ALL))
            self.assertEqual(config["base_model_name_or_path"], "tiny-llama")
            adapters = tensors(os.path.join(to, "adapter", "adapter_model.safetensors"))
            layers = job_layers(adapters)
            self.assertEqual(len(adapters), layers * len(ALL) * 2)
            shape, values = adapters["base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight"]
            self.assertEqual(shape[1], 8)
            self.assertGreater(max(values), 0)
            newest = self.client.get(f"/v1/fine_tuning/jobs/{job['id']}/checkpoints").json()["data"]
            if newest:  # a checkpoint is exported as the job is
                again = os.path.join(folder, "again")
                self.ithaca("download", job["id"], "--checkpoint", newest[0]["id"], "--output", again)
                self.assertEqual(set(os.listdir(again)), set(os.listdir(to)))

    def test_adapters_alone(self):
        job = self.client.submit(self.train, ithaca={**JOB, "max_steps": 2, "lora": {"export": "adapter"}})
        job = self.client.wait(job["id"])
        self.assertEqual(job["status"], "succeeded", job["error"])
        files = self.client.get(f"/v1/fine_tuning/jobs/{job['id']}/model/files").json()["data"]
        names = {file["id"] for file in files}
        self.assertTrue({"adapter_config.json", "adapter_model.safetensors"} <= names, names)
        self.assertFalse({"config.json", "model.safetensors"} & names, names)
        answer = self.client.post("/v1/chat/completions", {
            "model": job["fine_tuned_model"], "messages": [{"role": "user", "content": "Where?"}]})
        self.assertEqual((answer.status, answer.error()["param"]), (400, "model"), answer.text)
        self.assertIn("adapters alone", answer.error()["message"])

    def test_plan_is_smaller(self):
        def peak(*fields):
            options = [word for field in fields for word in ("--set", field)]
            plan = json.loads(self.ithaca("plan", "--model", "llama3-8b", "--seq-len", "131072", "--gpus", "8", "--json",
                                          *options))
            return plan["peak_device_bytes"]
        whole, adapters = peak(), peak("lora.r=16")
        self.assertLess(adapters, whole - 10 * 2**30)  # 8 of 16 bytes a parameter are 14 GiB of 8 ranks

    def test_refused(self):
        answer = self.client.post("/v1/fine_tuning/jobs", {"model": "tiny-llama", "training_file": self.train,
                                                           "ithaca": {"lora": {"modules": ["lm_head"]}}})
        self.assertEqual((answer.status, answer.error()["param"]), (400, "ithaca.lora.modules"), answer.text)


def job_layers(adapters):
    return 1 + max(int(name.split(".layers.")[1].split(".")[0]) for name in adapters)


if __name__ == "__main__":
    unittest.main()
