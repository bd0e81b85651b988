"""Model folders as they are downloaded: of an organisation, in the cache of Hugging Face's tools, sharded, in each element
type; listed, trained, exported, asked. Broken ones are listed with the reason and fail a job before any rank starts.
Field cases R14, R20, R21."""
import json
import os
import shutil
import struct
import tempfile
import unittest
import urllib.parse

from ithaca_e2e import SOURCE_DIR, Daemon

FIXTURES = os.path.join(SOURCE_DIR, "tests", "fixtures")
LINES = b'{"messages":[{"role":"user","content":"question"},{"role":"assistant","content":"an answer"}]}\n' * 8
JOB = {"gpus": 2, "seq_len": 64, "max_steps": 2, "batch": {"sequences": 2}}


def copy_fixture(family, to):
    shutil.copytree(os.path.join(FIXTURES, family), to, ignore=shutil.ignore_patterns("reference.*"))


def into_cache(folder, root, org, name, revision="0123456789abcdef"):
    """As huggingface_hub keeps it: files are links to blobs."""
    place = os.path.join(root, f"models--{org}--{name}")
    snapshot = os.path.join(place, "snapshots", revision)
    for part in ("refs", "blobs", os.path.join("snapshots", revision)):
        os.makedirs(os.path.join(place, part))
    with open(os.path.join(place, "refs", "main"), "w", encoding="utf-8") as file:
        file.write(revision)
    for number, file in enumerate(os.listdir(folder)):
        os.rename(os.path.join(folder, file), os.path.join(place, "blobs", str(number)))
        os.symlink(f"../../blobs/{number}", os.path.join(snapshot, file))
    return snapshot


def header_of(path):
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        return json.loads(file.read(length))


class Models(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.place = tempfile.mkdtemp(prefix="ithaca-models-")
        cls.root = os.path.join(cls.place, "root")
        os.makedirs(cls.root)
        cls.folders = {"org/llama": os.path.join(cls.root, "org", "llama"), "qwen3": os.path.join(cls.root, "qwen3")}
        copy_fixture("llama", cls.folders["org/llama"])
        copy_fixture("qwen3", cls.folders["qwen3"])
        copy_fixture("qwen2", os.path.join(cls.place, "qwen2"))
        cls.folders["Qwen/qwen2-1.5"] = into_cache(os.path.join(cls.place, "qwen2"), cls.root, "Qwen", "qwen2-1.5")
        for name in ("no-shard", "damaged", "other-kind", "no-tokenizer"):
            copy_fixture("llama", os.path.join(cls.root, name))
        os.unlink(os.path.join(cls.root, "no-shard", "model-00002-of-00002.safetensors"))
        damaged = os.path.join(cls.root, "damaged", "model-00002-of-00002.safetensors")
        with open(damaged, "r+b") as file:
            file.truncate(os.path.getsize(damaged) - 1)
        with open(os.path.join(cls.root, "other-kind", "config.json"), "w", encoding="utf-8") as file:
            file.write('{"model_type": "mamba"}')
        os.unlink(os.path.join(cls.root, "no-tokenizer", "tokenizer.json"))
        cls.daemon = Daemon("--model-roots", cls.root, "--device", "cpu")
        cls.client = cls.daemon.client()
        cls.file = cls.client.upload(LINES)["id"]

    @classmethod
    def tearDownClass(cls):
        cls.daemon.__exit__(None, None, None)
        shutil.rmtree(cls.place)

    def test_1_list(self):
        models = {one["id"]: one["ithaca"] for one in self.client.get("/v1/models").json()["data"]}
        self.assertEqual(sorted(models), sorted([*self.folders, "tiny-llama", "no-shard", "damaged", "other-kind",
                                                 "no-tokenizer"]))
        self.assertEqual(models["org/llama"], {
            "ready": True, "reason": None, "family": "llama", "parameters": 35488, "context_length": 131072,
            "ulysses": [1, 2, 4]})
        self.assertTrue(all(models[name]["ready"] for name in [*self.folders, "tiny-llama"]), models)
        self.assertIn("model-00002-of-00002.safetensors", models["no-shard"]["reason"])
        self.assertIn("mamba", models["other-kind"]["reason"])
        self.assertIn("tokenizer.json", models["no-tokenizer"]["reason"])
        self.assertNotIn(self.root, json.dumps(models))
        done = self.daemon.ithaca("models")
        self.assertEqual(done.returncode, 0, done.stderr)
        listed = done.stdout.splitlines()
        self.assertEqual(len(listed), len(models))
        self.assertTrue(any(line.startswith("no-shard: cannot be used: ") for line in listed), listed)
        self.assertIn("org/llama llama 35.5K parameters, context 131072, ulysses 1 2 4",
                      [" ".join(line.split()) for line in listed])
        for name in self.folders:
            for spelled in (name, urllib.parse.quote(name, safe="")):
                self.assertEqual(self.client.get("/v1/models/" + spelled).json()["ithaca"], models[name])

    def check_export(self, base, tuned):
        """The base's layout, types and settings; its index' total."""
        self.assertEqual(sorted(os.listdir(tuned)), sorted(os.listdir(base)))
        total = 0
        for name in os.listdir(base):
            a, b = os.path.join(base, name), os.path.join(tuned, name)
            if name.endswith(".safetensors"):
                was, now = header_of(a), header_of(b)
                was.pop("__metadata__"), now.pop("__metadata__")
                self.assertEqual({k: (v["dtype"], v["shape"]) for k, v in was.items()},
                                 {k: (v["dtype"], v["shape"]) for k, v in now.items()})
                total += sum(v["data_offsets"][1] - v["data_offsets"][0] for v in now.values())
            elif name.endswith(".index.json"):
                with open(a, encoding="utf-8") as one, open(b, encoding="utf-8") as two:
                    was, now = json.load(one), json.load(two)
                self.assertEqual(was["weight_map"], now["weight_map"])
                self.assertEqual(was["metadata"]["total_size"], now["metadata"]["total_size"])
            else:
                with open(a, "rb") as one, open(b, "rb") as two:
                    self.assertEqual(one.read(), two.read(), name)
        return total

    def test_2_train_and_export(self):
        merged = {"lora": {"r": 2, "export": "merged"}}
        cases = [*((name, {}) for name in self.folders), ("org/llama", merged)]
        for name, more in cases:
            base = self.folders[name]
            with self.subTest(name, **more):
                job = self.client.submit(self.file, model=name, ithaca={**JOB, **more})
                job = self.client.wait(job["id"])
                self.assertEqual(job["ithaca"]["state"], "succeeded", job["error"])
                tuned = os.path.join(self.daemon.data_dir, "jobs", job["id"], "model")
                self.assertGreater(self.check_export(base, tuned), 0)
                self.assertEqual(job["fine_tuned_model"].split(":")[1], name.rsplit("/", 1)[-1])
                card = self.client.get("/v1/models/" + job["fine_tuned_model"]).json()["ithaca"]
                self.assertTrue(card["ready"], card)
                answer = self.client.post("/v1/chat/completions", {
                    "model": job["fine_tuned_model"], "max_tokens": 4, "temperature": 0,
                    "messages": [{"role": "user", "content": "question"}]})
                self.assertEqual(answer.status, 200, answer.text)

    def test_3_base_model(self):
        """One without a chat template: the job names one, and the tuned model is asked in its terms."""
        copy_fixture("qwen2", os.path.join(self.root, "base"))
        os.unlink(os.path.join(self.root, "base", "tokenizer_config.json"))
        job = self.client.wait(self.client.submit(self.file, model="base", ithaca=JOB)["id"])
        self.assertIn("name one in data.chat_template", job["error"]["message"])
        job = self.client.submit(self.file, model="base", ithaca={**JOB, "data": {"chat_template": "chatml"}})
        job = self.client.wait(job["id"])
        self.assertEqual(job["status"], "succeeded", job["error"])
        question = {"messages": [{"role": "user", "content": "question"}], "max_tokens": 2}
        for model in (job["id"], job["fine_tuned_model"]):
            answer = self.client.post("/v1/chat/completions", {"model": model, **question})
            self.assertEqual(answer.status, 200, answer.text)
        answer = self.client.post("/v1/chat/completions", {"model": "base", **question})
        self.assertEqual(answer.status, 400, answer.text)
        self.assertIn("there is no \"chat_template\"", answer.error()["message"])

    def test_4_broken(self):
        for name, word in (("no-shard", "model-00002-of-00002.safetensors"),
                           ("damaged", "model-00002-of-00002.safetensors: tensor "),
                           ("no-tokenizer", "no-tokenizer: there is no tokenizer.json; download it too")):
            with self.subTest(name):
                job = self.client.wait(self.client.submit(self.file, model=name, ithaca=JOB)["id"])
                self.assertEqual(job["ithaca"]["state"], "failed")
                self.assertEqual(job["error"]["code"], "invalid_model")
                self.assertIn(word, job["error"]["message"])
                self.assertNotIn(self.root, job["error"]["message"])
                self.assertEqual([one for one in os.listdir(os.path.join(self.daemon.data_dir, "jobs", job["id"]))
                                  if one.startswith("attempt")], [])
        answer = self.client.post("/v1/fine_tuning/jobs", {"model": "other-kind", "training_file": self.file})
        self.assertEqual((answer.status, answer.error()["code"]), (400, "invalid_model"))
        self.assertIn("mamba", answer.error()["message"])


if __name__ == "__main__":
    unittest.main()
