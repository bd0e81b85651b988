"""The worker's loss trace against the float64 reference: same weights, same tokens, 20 steps; then a
greedy answer of the tuned model.

Each case makes a small model folder, prepares a chat file with the worker, trains it with two
ranks, and replays the same steps here: loss and gradient norm of every step, and the tuned weights.
The order of sequences is not under test, so each step's batch is the whole file.
"""
import json
import os
import subprocess
import tempfile
import unittest

# Small matrices: more threads, here and in the ranks, would only stand in each other's way.
os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"
import numpy as np

import reference

WORKER = os.path.join(os.environ["ITHACA_BUILD_DIR"], "worker", "ithaca-worker")
STEPS = 20
SEQ_LEN = 160
LOSS_ERROR_MAX = 1e-5

BASE = {
    "vocab_size": 264, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "max_position_embeddings": 512, "hidden_act": "silu", "torch_dtype": "float32",
    "tie_word_embeddings": True,
}
CASES = {
    "llama": dict(BASE, model_type="llama", architectures=["LlamaForCausalLM"]),
    "llama_untied": dict(BASE, model_type="llama", architectures=["LlamaForCausalLM"],
                         tie_word_embeddings=False, num_key_value_heads=4),
    "qwen2": dict(BASE, model_type="qwen2", architectures=["Qwen2ForCausalLM"]),
    "qwen3": dict(BASE, model_type="qwen3", architectures=["Qwen3ForCausalLM"], head_dim=32),
}
# One way of computing a case: the result may not depend on it.
LAYOUTS = {
    "llama": {"recompute": "none"},
    "llama_untied": {"recompute": "input", "tile_mlp": 33, "tile_loss": 17},
    "qwen2": {"recompute": "none", "tile_mlp": 50, "tile_loss": 1000},
    "qwen3": {"recompute": "input"},
}
OPTIMIZER = {"learning_rate": 3e-3, "schedule": "cosine", "warmup_steps": 3, "eps": 1e-4,
             "weight_decay": 0.1, "clip": 1.0}


def random_weights(config, rng):
    """Larger than an initialisation, so that every part of the model matters."""
    h, f, v = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    d = config.get("head_dim", h // config["num_attention_heads"])
    q, kv = config["num_attention_heads"] * d, config["num_key_value_heads"] * d
    shapes = {"model.embed_tokens.weight": (v, h)}
    for i in range(config["num_hidden_layers"]):
        p = f"model.layers.{i}."
        a = p + "self_attn."
        shapes.update({p + "input_layernorm.weight": (h,), p + "post_attention_layernorm.weight": (h,),
                       a + "q_proj.weight": (q, h), a + "k_proj.weight": (kv, h), a + "v_proj.weight": (kv, h),
                       a + "o_proj.weight": (h, q), p + "mlp.gate_proj.weight": (f, h),
                       p + "mlp.up_proj.weight": (f, h), p + "mlp.down_proj.weight": (h, f)})
        if config["model_type"] == "qwen2":
            shapes.update({a + "q_proj.bias": (q,), a + "k_proj.bias": (kv,), a + "v_proj.bias": (kv,)})
        if config["model_type"] == "qwen3":
            shapes.update({a + "q_norm.weight": (d,), a + "k_norm.weight": (d,)})
    shapes["model.norm.weight"] = (h,)
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (v, h)
    weights = {}
    for name, shape in shapes.items():
        if "norm" in name:
            value = 1.0 + 0.2 * rng.standard_normal(shape)
        else:
            value = rng.standard_normal(shape) * (0.5 if len(shape) == 1 else shape[1] ** -0.5)
        weights[name] = value.astype(np.float32).astype(np.float64)
    return weights


class Case:
    """A folder with a model, tokens and a plan."""

    def __init__(self, folder, name):
        self.folder, self.config = folder, CASES[name]
        self.base, self.job = os.path.join(folder, "base"), os.path.join(folder, "job")
        self.attempt = os.path.join(self.job, "attempt-1")
        self.world = 2
        subprocess.run([WORKER, "--init-model", "tiny-llama", self.base], check=True)  # its tokenizer
        with open(os.path.join(self.base, "config.json"), "w") as file:
            json.dump(self.config, file)
        rng = np.random.default_rng(sum(name.encode()))
        self.weights = random_weights(self.config, rng)
        reference.write_safetensors(os.path.join(self.base, "model.safetensors"), self.weights)
        os.makedirs(os.path.join(self.job, "tokens"))
        os.makedirs(self.attempt)
        self.write_data(rng)
        ithaca = {"gpus": self.world, "seq_len": SEQ_LEN, "optimizer": OPTIMIZER, "max_steps": STEPS}
        ithaca.update(LAYOUTS[name])
        self.spec = {"model": "m", "training_file": "file-a", "seed": 5, "ithaca": ithaca}

    def write_data(self, rng):
        self.data = os.path.join(self.folder, "train.jsonl")
        with open(self.data, "w") as file:
            for _ in range(9):  # unequal lengths: packing leaves rests, one rank gets more
                words = ["".join(map(chr, rng.integers(97, 123, rng.integers(1, 30)))) for _ in range(4)]
                messages = [{"role": role, "content": word} for role, word in
                            zip(("user", "assistant", "user", "assistant"), words)]
                file.write(json.dumps({"messages": messages}) + "\n")

    def prepare(self):
        self.tokens = os.path.join(self.job, "tokens", "train.tok")
        request = {"model_dir": self.base, "spec": self.spec, "error_path": self.folder + "/error.json",
                   "progress_path": self.folder + "/progress.json", "cache_dir": self.folder + "/cache",
                   "files": [{"path": self.data, "name": "train.jsonl", "out_path": self.tokens,
                              "report_path": self.folder + "/report.json"}]}
        path = os.path.join(self.folder, "request.json")
        with open(path, "w") as file:
            json.dump(request, file)
        subprocess.run([WORKER, "--prepare", path], check=True, stdout=subprocess.DEVNULL)

    def train(self, batch):
        self.spec["ithaca"]["batch"] = {"sequences": batch, "grad_accum": -(-batch // self.world)}
        plan = {"job_id": "golden", "attempt": 1, "world": self.world, "secret": "00" * 32, "socket": "",
                "shm_name": f"/ithaca-golden-{os.getpid()}", "job_dir": self.job, "model_dir": self.base,
                "model_name": "m", "heartbeat_limit_ms": 60000, "coll_timeout_ms": 30000,
                "orphan_limit_ms": 60000, "threads": 1, "gpus": [], "memory_digest": "", "purpose": "train", "peak_flops": 0,
                "resume_from": "", "steps_done": 0, "spec": self.spec}
        with open(os.path.join(self.attempt, "plan.json"), "w") as file:
            json.dump(plan, file)
        ranks = [subprocess.Popen([WORKER, "--rank", str(r), "--attempt-dir", self.attempt],
                                  stdout=subprocess.PIPE, text=True) for r in range(self.world)]
        output = [rank.communicate(timeout=60)[0] for rank in ranks]
        assert all(rank.returncode == 0 for rank in ranks), output
        trace = []
        for line in output[0].splitlines():
            if line.startswith("metrics ") and " loss=" in line:
                trace.append({k: float(v) for k, v in (x.split("=") for x in line.split()[1:])})
        return trace


def packed_sequences(lengths, room):
    """Best fit decreasing, counted only: the worker's packing gives as many sequences."""
    rooms = []
    for length in sorted(lengths, reverse=True):
        fits = [i for i, r in enumerate(rooms) if r >= length]
        if fits:
            best = min(fits, key=lambda i: rooms[i])
            rooms[best] -= length
        else:
            rooms.append(room - length)
    return len(rooms)


class LossTrace(unittest.TestCase):
    def run_case(self, name):
        with tempfile.TemporaryDirectory() as folder:
            case = Case(folder, name)
            case.prepare()
            examples = reference.read_tokens(case.tokens)
            trace = case.train(packed_sequences([len(ids) for ids, _ in examples], SEQ_LEN))
            tuned = reference.read_safetensors(os.path.join(case.job, "model", "model.safetensors"))
            self.assertEqual(len(trace), STEPS)
            self.compare(name, case, examples, trace, tuned)
            self.compare_answer(case, tuned)

    def compare_answer(self, case, tuned):
        """A greedy answer of the tuned model, token by token."""
        model = reference.Model(case.config, tuned)
        request = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 12}
        got = json.loads(subprocess.run([WORKER, "--sample", os.path.join(case.job, "model")], check=True,
                                        input=json.dumps(request), capture_output=True, text=True).stdout)
        begin, user, assistant, end = 256, 257, 258, 260
        ids = [begin, user, *b"hello", end, assistant]
        prompt = len(ids)
        while len(ids) < prompt + 12:
            token = int(model.forward(np.array(ids))[0][-1].argmax())
            if token == end:
                break
            ids.append(token)
        answer = bytes(t for t in ids[prompt:] if t < 256)
        self.assertEqual(got["prompt_tokens"], prompt)
        self.assertEqual(got["completion_tokens"], len(ids) - prompt)
        self.assertEqual(got["finish_reason"], "length" if len(ids) == prompt + 12 else "stop")
        self.assertEqual(got["text"], answer.decode("ascii", "replace").replace("\ufffd", "?"))

    def compare(self, name, case, examples, trace, tuned):
        model = reference.Model(case.config, case.weights)
        adam = reference.AdamW(model, OPTIMIZER)
        trained = sum(int(flags[1:].sum()) for _, flags in examples)
        worst = 0.0
        for step, got in enumerate(trace, 1):
            results = [model.document(ids, flags, 1.0 / trained) for ids, flags in examples]
            loss = sum(r[0] for r in results) / trained
            lr = reference.rate(OPTIMIZER, step, STEPS)
            norm = adam.step(model, lr)
            self.assertEqual(got["trained_tokens"], trained)
            self.assertEqual(got["tokens"], sum(len(ids) for ids, _ in examples))
            self.assertLess(abs(got["loss"] - loss), LOSS_ERROR_MAX, f"{name}: step {step}")
            self.assertLess(abs(got["grad_norm"] / norm - 1), 1e-4, f"{name}: step {step}")
            self.assertAlmostEqual(got["learning_rate"], lr, delta=1e-9)
            self.assertAlmostEqual(got["accuracy"], sum(r[1] for r in results) / trained, delta=1e-3)
            worst = max(worst, abs(got["loss"] - loss))
        for tensor, value in model.w.items():
            error = np.linalg.norm(tuned[tensor] - value) / np.linalg.norm(value)
            self.assertLess(error, 1e-5, f"{name}: {tensor}")
        print(f"{name}: loss {trace[0]['loss']:.4f} to {trace[-1]['loss']:.4f}, largest error {worst:.1e}")


for case_name in CASES:
    setattr(LossTrace, f"test_{case_name}", lambda self, name=case_name: self.run_case(name))

if __name__ == "__main__":
    unittest.main()
