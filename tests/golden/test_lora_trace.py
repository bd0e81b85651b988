"""Adapters against the float64 reference: 20 steps of two ranks, with `lora` in the job. The reference knows nothing of
adapters: it gets W + s B A in W's place, and gradients of A and B come from that weight's by the chain rule. Losses,
norms, the adapters and the merged model that come out; and A's first values, drawn here anew.
"""
import json
import os
import tempfile
import unittest

import test_loss_trace as golden  # sets threads: before numpy
import numpy as np
import reference

MODULES = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
CASES = {
    "llama": {"lora": {"r": 4, "alpha": 12}, "recompute": "input", "tile_mlp": 33},
    "qwen3": {"lora": {"r": 8, "alpha": 4, "modules": ["q_proj", "v_proj", "o_proj", "up_proj"]},
              "context_parallel": {"kind": "upipe", "ulysses": 2, "heads_per_stage": 1}, "recompute": "attention",
              "keep_input_every": 2},
}
SEED, STREAM = 5, 6 << 32  # of the job; common/rng.h: RNG_STREAM_LORA


def uniform(stream, count):
    """rng_uniform(SEED, stream, 0 .. count - 1): Philox-4x32-10, 53 bits."""
    low = np.uint64(0xFFFFFFFF)
    c = [np.arange(count, dtype=np.uint64), np.zeros(count, np.uint64),
         np.full(count, stream & 0xFFFFFFFF, np.uint64), np.full(count, stream >> 32, np.uint64)]
    key = [SEED, 0]
    for _ in range(10):
        a, b = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [(b >> np.uint64(32)) ^ c[1] ^ np.uint64(key[0]), b & low,
             (a >> np.uint64(32)) ^ c[3] ^ np.uint64(key[1]), a & low]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return ((c[1] << np.uint64(32) | c[0]) >> np.uint64(11)).astype(np.float64) * 2.0**-53


class Adapters:
    """What reference.AdamW trains: weights and gradients by name."""

    def __init__(self, config, base, spec):
        self.config, self.base = config, base
        self.scale = spec["alpha"] / spec["r"]
        self.w, self.of = {}, {}
        modules = [m for m in MODULES if m in spec.get("modules", MODULES)]
        for layer in range(config["num_hidden_layers"]):
            for module in modules:
                part = "mlp" if module in MODULES[4:] else "self_attn"
                name = f"model.layers.{layer}.{part}.{module}"
                rows, cols = base[name + ".weight"].shape
                a, b = (f"base_model.model.{name}.lora_{letter}.weight" for letter in "AB")
                first = uniform(STREAM + len(self.w), spec["r"] * cols).reshape(spec["r"], cols)
                self.w[a] = ((2 * first - 1) / np.sqrt(cols)).astype(np.float32).astype(np.float64)
                self.w[b] = np.zeros((rows, spec["r"]))
                self.of[name + ".weight"] = a, b
        self.grad = {name: np.zeros_like(value) for name, value in self.w.items()}

    def model(self):
        merged = {name: self.base[name] + self.scale * self.w[b] @ self.w[a] for name, (a, b) in self.of.items()}
        return reference.Model(self.config, {**self.base, **merged})

    def take_gradients(self, model):
        for name, (a, b) in self.of.items():
            self.grad[a] = self.scale * self.w[b].T @ model.grad[name]
            self.grad[b] = self.scale * model.grad[name] @ self.w[a].T


class LoraTrace(unittest.TestCase):
    def run_case(self, name):
        with tempfile.TemporaryDirectory() as folder:
            golden.LAYOUTS = {**golden.LAYOUTS, name: CASES[name]}
            case = golden.Case(folder, name)
            case.prepare()
            examples = reference.read_tokens(case.tokens)
            trace = case.train(golden.packed_sequences([len(ids) for ids, _ in examples], golden.SEQ_LEN))
            self.assertEqual(len(trace), golden.STEPS)
            adapters = Adapters(case.config, case.weights, CASES[name]["lora"])
            self.compare_trace(name, adapters, examples, trace)
            self.compare_results(case, adapters, CASES[name]["lora"])

    def compare_trace(self, name, adapters, examples, trace):
        adam = reference.AdamW(adapters, golden.OPTIMIZER)
        trained = sum(int(flags[1:].sum()) for _, flags in examples)
        worst = 0.0
        for step, got in enumerate(trace, 1):
            model = adapters.model()
            loss = sum(model.document(ids, flags, 1.0 / trained)[0] for ids, flags in examples) / trained
            adapters.take_gradients(model)
            norm = adam.step(adapters, reference.rate(golden.OPTIMIZER, step, golden.STEPS))
            self.assertLess(abs(got["loss"] - loss), golden.LOSS_ERROR_MAX, f"{name}: step {step}")
            self.assertLess(abs(got["grad_norm"] / norm - 1), 1e-4, f"{name}: step {step}")
            worst = max(worst, abs(got["loss"] - loss))
        self.assertLess(trace[-1]["loss"], trace[0]["loss"] - 0.05)
        print(f"{name}: loss {trace[0]['loss']:.4f} to {trace[-1]['loss']:.4f}, largest error {worst:.1e}")

    def compare_results(self, case, adapters, spec):
        model = os.path.join(case.job, "model")
        tuned = reference.read_safetensors(os.path.join(model, "adapter", "adapter_model.safetensors"))
        self.assertEqual(set(tuned), set(adapters.w))
        merged = reference.read_safetensors(os.path.join(model, "model.safetensors"))
        want = adapters.model().w
        self.assertEqual(set(merged), set(want))
        for got, wanted in ((tuned, adapters.w), (merged, want)):
            for tensor, value in wanted.items():
                error = np.linalg.norm(got[tensor] - value) / np.linalg.norm(value)
                self.assertLess(error, 2e-5, tensor)
        with open(os.path.join(model, "adapter", "adapter_config.json"), encoding="utf-8") as file:
            config = json.load(file)
        self.assertEqual((config["r"], config["lora_alpha"]), (spec["r"], spec["alpha"]))


for case_name in CASES:
    setattr(LoraTrace, f"test_{case_name}", lambda self, name=case_name: self.run_case(name))

if __name__ == "__main__":
    unittest.main()
