#!/usr/bin/env python3
"""Tuned models as `ithaca download` gives them, with what they answer, for export_in_transformers.py.

    ITHACA_BUILD_DIR=build/ci /usr/bin/python3 tests/bench/export_cases.py OUT

Each case of the golden loss trace (and a few more: other ties, a long rotary base, a bf16 base, the checkpoints in
tests/fixtures, adapters) is trained for 20 steps by two ranks and exported by the worker: OUT/<case>/model, a Hugging Face folder; OUT/<case>/logits.json, the logits of
our own forward pass after each of 300 random tokens; OUT/<case>/text.json, a text and its token ids; OUT/<case>/base, the
base of adapters.
"""
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden"))
import numpy as np
import test_loss_trace as golden

TOKENS = 300
MORE = {
    "llama_wide_heads": dict(golden.CASES["llama"], head_dim=32, rope_theta=500000.0),
    "qwen2_untied": dict(golden.CASES["qwen2"], tie_word_embeddings=False, rope_theta=1000000.0, rms_norm_eps=1e-6),
    "qwen3_untied": dict(golden.CASES["qwen3"], tie_word_embeddings=False, rope_theta=1000000.0, rms_norm_eps=1e-6),
    "qwen3_bf16": dict(golden.CASES["qwen3"], torch_dtype="bfloat16"),
}
# adapters, beside their base and merged
for name, lora in (("llama_lora", {"r": 4, "alpha": 12}), ("qwen3_lora", {"modules": ["q_proj", "v_proj", "down_proj"]})):
    MORE[name] = golden.CASES[name.split("_")[0]]
    golden.LAYOUTS[name] = {"lora": lora}
FIXTURES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures")
for family in ("llama", "qwen2", "qwen3"):
    MORE["fixture_" + family] = golden.CASES[family]
TEXT = "naïve café — नमस्ते, 12345 tokens\n\n\tI'M it's e\u0301"


def to_bf16(path):
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        data = np.frombuffer(file.read(), "<u4")
    for name, entry in header.items():
        if name != "__metadata__":
            entry["dtype"], entry["data_offsets"] = "BF16", [at // 2 for at in entry["data_offsets"]]
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + (data >> 16).astype("<u2").tobytes())


def make(name, out):
    with tempfile.TemporaryDirectory() as folder:
        case = golden.Case(folder, name)
        if name.startswith("fixture_"):
            os.unlink(os.path.join(case.base, "model.safetensors"))
            shutil.copytree(os.path.join(FIXTURES, name[len("fixture_"):]), case.base, dirs_exist_ok=True,
                            ignore=shutil.ignore_patterns("reference.*", "tokenizer*"))
        elif case.config["torch_dtype"] == "bfloat16":
            to_bf16(os.path.join(case.base, "model.safetensors"))
        case.prepare()
        case.train(batch=4)
        shutil.copytree(os.path.join(case.job, "model"), os.path.join(out, "model"))
        if "lora" in case.spec["ithaca"]:
            shutil.copytree(case.base, os.path.join(out, "base"))
    program = os.path.join(os.environ["ITHACA_BUILD_DIR"], "tests", "export_logits")
    with open(os.path.join(out, "logits.json"), "w") as file:
        subprocess.run([program, os.path.join(out, "model"), str(TOKENS)], stdout=file, check=True)
    with open(os.path.join(out, "text.json"), "w") as file:
        json.dump({"text": TEXT, "ids": list(TEXT.encode())}, file)  # a byte tokenizer


def main():
    golden.CASES.update(MORE)
    for name in golden.CASES:
        golden.LAYOUTS.setdefault(name, {})
        make(name, os.path.join(sys.argv[1], name))
        print(name)


if __name__ == "__main__":
    main()
