#!/usr/bin/env python3
"""Our training against transformers on the same card: same random weights, same tokens, 20 steps.

    ITHACA_BUILD_DIR=build/ci python3 tests/parity/train_in_transformers.py [--cases A,B] [--seq-len 4096,32768]

Needs torch, transformers and a CUDA GPU. transformers: fp32 master weights under bf16 autocast, sdpa attention, AdamW,
TF32 off. Ours: the worker itself, one rank, bf16 activations over fp32 masters, under each of LAYOUTS. Held: the loss of
every step within LOSS_MAX, the gradient norm (before clipping) within NORM_MAX of theirs; where theirs itself is further
than that from the first step's norm in fp32, ours may be as far from theirs as that. Prints a table, exits 1 when
anything is beyond. The rate is low: above it random weights on random tokens are chaotic, and our own layouts part from
each other as far as from transformers. --dry-run trains ours alone on the CPU, on a small shape: the script's own test.
"""
import argparse
import json
import os
import struct
import subprocess
import sys
import tempfile
import time

STEPS = 20
LOSS_MAX = 2e-3  # absolute
NORM_MAX = 1e-2  # relative
SEED = 7
OPTIMIZER = {"learning_rate": 1e-6, "schedule": "constant", "warmup_steps": 0, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8,
             "weight_decay": 0.0, "clip": 1.0}

COMMON = {"hidden_act": "silu", "torch_dtype": "float32", "tie_word_embeddings": True, "initializer_range": 0.02}
CASES = {
    "llama3.2-1b": dict(COMMON, model_type="llama", architectures=["LlamaForCausalLM"], vocab_size=128256, hidden_size=2048,
                        intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8,
                        head_dim=64, rms_norm_eps=1e-5, rope_theta=500000.0, max_position_embeddings=131072),
    "qwen2.5-0.5b": dict(COMMON, model_type="qwen2", architectures=["Qwen2ForCausalLM"], vocab_size=151936,
                         hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14,
                         num_key_value_heads=2, rms_norm_eps=1e-6, rope_theta=1000000.0, max_position_embeddings=131072),
    "qwen3-0.6b": dict(COMMON, model_type="qwen3", architectures=["Qwen3ForCausalLM"], vocab_size=151936, hidden_size=1024,
                       intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16, num_key_value_heads=8,
                       head_dim=128, rms_norm_eps=1e-6, rope_theta=1000000.0, max_position_embeddings=131072),
    "small": dict(COMMON, model_type="llama", architectures=["LlamaForCausalLM"], vocab_size=264, hidden_size=64,
                  intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
                  rms_norm_eps=1e-5, rope_theta=10000.0, max_position_embeddings=131072),
}
UPIPE = {"kind": "upipe", "ulysses": 1, "heads_per_stage": 1}
LAYOUTS = {
    "plain": {"recompute": "none"},
    "upipe u=1, input": {"recompute": "input", "context_parallel": UPIPE},
    "upipe u=1, attention": {"recompute": "attention", "keep_input_every": 4, "context_parallel": UPIPE},
}


def program(*parts):
    return os.path.join(os.environ["ITHACA_BUILD_DIR"], *parts)


def read_tokens(path):
    """The documents of a token shard (common/dataset.h)."""
    with open(path, "rb") as file:
        data = file.read()
    examples, tokens = struct.unpack_from("<qq", data, 8)
    offsets = struct.unpack_from(f"<{examples + 1}q", data, 64)
    ids = struct.unpack_from(f"<{tokens}i", data, 64 + 8 * (examples + 1))
    return [ids[a:b] for a, b in zip(offsets, offsets[1:])]


class Case:
    """A folder with a model of random weights and the tokens of one step."""

    def __init__(self, folder, name, seq_len, documents):
        self.config, self.seq_len, self.documents = CASES[name], seq_len, documents
        self.base, self.job = os.path.join(folder, "base"), os.path.join(folder, "job")
        self.tokens = os.path.join(self.job, "tokens", "train.tok")
        os.makedirs(os.path.dirname(self.tokens))
        subprocess.run([program("worker", "ithaca-worker"), "--init-model", "tiny-llama", self.base], check=True)
        with open(os.path.join(self.base, "config.json"), "w") as file:
            json.dump(self.config, file)
        subprocess.run([program("tests", "make_tokens"), self.tokens, str(self.config["vocab_size"]), str(seq_len),
                        str(documents), str(SEED)], check=True)

    def ours(self, layout, gpus):
        """[(loss, gradient norm)] of the steps, and seconds of the last steps."""
        attempt = os.path.join(self.job, "attempt-1")
        os.makedirs(attempt, exist_ok=True)
        ithaca = {"gpus": 1, "seq_len": self.seq_len, "optimizer": OPTIMIZER, "max_steps": STEPS,
                  "batch": {"sequences": self.documents, "grad_accum": self.documents},
                  "save": {"every_steps": 1000000}}
        ithaca.update(LAYOUTS[layout])
        spec = {"model": "m", "training_file": "file-a", "seed": SEED, "ithaca": ithaca}
        plan = {"job_id": "parity", "attempt": 1, "purpose": "train", "peak_flops": 0, "world": 1,
                "secret": "00" * 32, "socket": "", "shm_name": "",
                "job_dir": self.job, "model_dir": self.base, "model_name": "m", "heartbeat_limit_ms": 600000,
                "coll_timeout_ms": 600000, "orphan_limit_ms": 60000, "threads": os.cpu_count() // 2 or 1, "gpus": gpus,
                "memory_digest": "", "resume_from": "", "steps_done": 0, "spec": spec}
        with open(os.path.join(attempt, "plan.json"), "w") as file:
            json.dump(plan, file)
        env = {k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"}  # the plan names the GPU
        rank = subprocess.Popen([program("worker", "ithaca-worker"), "--rank", "0", "--attempt-dir", attempt],
                                stdout=subprocess.PIPE, text=True, env=env)
        trace = []
        for line in rank.stdout:
            if line.startswith("metrics ") and " loss=" in line:
                values = dict(pair.split("=") for pair in line.split()[1:])
                trace.append((float(values["loss"]), float(values["grad_norm"]), time.monotonic()))
                if len(trace) == STEPS:  # what it exports is not under test
                    break
        rank.terminate()
        rank.communicate()
        if len(trace) != STEPS:
            sys.exit(f"{layout}: the worker ended after {len(trace)} steps, status {rank.returncode}")
        return [pair[:2] for pair in trace], (trace[-1][2] - trace[4][2]) / (STEPS - 5)


def make_weights(case):
    import torch
    import transformers
    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(SEED)
    config = transformers.AutoConfig.from_pretrained(case.base)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa", dtype=torch.float32)
    with torch.no_grad():
        for name, value in model.named_parameters():  # norms and biases away from their neutral values
            if value.dim() == 1:
                value.add_(torch.randn_like(value) * 0.1)
    model.save_pretrained(case.base, max_shard_size="100GB")
    with open(os.path.join(case.base, "config.json"), "w") as file:
        json.dump(case.config, file)
    return model


def gradients(model, documents, autocast):
    """Of the mean loss over all documents' trained tokens, which is returned, and their norm."""
    import torch
    trained, total = sum(ids.numel() - 1 for ids in documents), 0.0
    for ids in documents:
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=autocast):
            logits = model(input_ids=ids).logits
        loss = torch.nn.functional.cross_entropy(logits[0, :-1].float(), ids[0, 1:], reduction="sum") / trained
        loss.backward()
        total += loss.item()
        del logits, loss
    return total, torch.nn.utils.clip_grad_norm_(model.parameters(), OPTIMIZER["clip"]).item()


def theirs(case, model):
    """[(loss, gradient norm)] of the steps, seconds of the last ones, and the first step's in fp32."""
    import torch
    from transformers.integrations import sdpa_attention
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    model.cuda().train()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.config.use_cache = False
    o = OPTIMIZER
    adamw = torch.optim.AdamW(model.parameters(), lr=o["learning_rate"], betas=(o["beta1"], o["beta2"]), eps=o["eps"],
                              weight_decay=o["weight_decay"], fused=True)
    documents = [torch.tensor(ids, device="cuda")[None] for ids in read_tokens(case.tokens)]
    grouped = sdpa_attention.use_gqa_in_sdpa  # in fp32 only repeated heads avoid a matrix of scores
    sdpa_attention.use_gqa_in_sdpa = lambda *_: False
    exact = gradients(model, documents, autocast=False)
    sdpa_attention.use_gqa_in_sdpa = grouped
    adamw.zero_grad()
    trace, start = [], 0
    for step in range(STEPS):
        if step == 5:
            torch.cuda.synchronize()
            start = time.monotonic()
        trace.append(gradients(model, documents, autocast=True))
        adamw.step()
        adamw.zero_grad()
    torch.cuda.synchronize()
    return trace, (time.monotonic() - start) / (STEPS - 5), exact


def compare(label, got, want, seconds, their_seconds, exact):
    loss = max(abs(g[0] - w[0]) for g, w in zip(got, want))
    norm = max(abs(g[1] / w[1] - 1) for g, w in zip(got, want))
    ours_off, theirs_off = (abs(trace[0][1] / exact[1] - 1) for trace in (got, want))
    good = loss <= LOSS_MAX and norm <= max(NORM_MAX, theirs_off) and ours_off <= NORM_MAX
    print(f"| {label} | {want[0][0]:.4f} to {want[-1][0]:.4f} | {loss:.1e} | {norm:.1e} | {ours_off:.1e} | {theirs_off:.1e} | "
          f"{seconds:.3f} | {their_seconds:.3f} |{'' if good else ' TOO FAR'}", flush=True)
    if not good:
        print("   ours   ", " ".join(f"{a:.4f}/{b:.4f}" for a, b in got))
        print("   theirs ", " ".join(f"{a:.4f}/{b:.4f}" for a, b in want), flush=True)
    return good


def run(name, seq_len, gpu, folder):
    case = Case(folder, name, seq_len, 2 if seq_len <= 8192 else 1)
    model = make_weights(case)
    traces = {layout: case.ours(layout, [gpu]) for layout in LAYOUTS}
    want, their_seconds, exact = theirs(case, model)
    return all([compare(f"{name} | {seq_len} | {layout}", trace, want, seconds, their_seconds, exact)
                for layout, (trace, seconds) in traces.items()])


def dry_run():
    with tempfile.TemporaryDirectory() as folder:
        case = Case(folder, "small", 64, 2)
        sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden"))
        import numpy as np
        import reference
        import test_loss_trace as golden
        weights = golden.random_weights(case.config, np.random.default_rng(SEED))
        reference.write_safetensors(os.path.join(case.base, "model.safetensors"), weights)
        traces = [case.ours(layout, [])[0] for layout in LAYOUTS]
        assert all(compare(f"small | 64 | {layout}", trace, traces[0], 0, 0, traces[0][0]) for layout, trace in zip(LAYOUTS, traces))
        assert traces[0][-1][0] < traces[0][0][0]


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--cases", default="llama3.2-1b,qwen2.5-0.5b,qwen3-0.6b")
    args.add_argument("--seq-len", default="4096,32768")
    args.add_argument("--gpu", help="its number or UUID; else the first of CUDA_VISIBLE_DEVICES, else 0",
                      default=os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0] or "0")
    args.add_argument("--dry-run", action="store_true")
    args = args.parse_args()
    if args.dry_run:
        return dry_run()
    os.environ["CUDA_VISIBLE_DEVICES"] = args.gpu
    print("| model | tokens | layout | loss | loss off | gradient norm off | ours off fp32 | theirs off fp32 | s a step | "
          "theirs |\n" + "| --- " * 10 + "|")
    good = True
    for seq_len in map(int, args.seq_len.split(",")):
        for name in args.cases.split(","):
            with tempfile.TemporaryDirectory() as folder:
                good = run(name, seq_len, args.gpu, folder) and good
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
