#!/usr/bin/env python3
"""Do exported folders load in transformers, and do they answer there what they answer here?

    python3 tests/bench/export_in_transformers.py FOLDER        FOLDER: made by export_cases.py

Needs torch and transformers. Every FOLDER/<case>/model is loaded as AutoModelForCausalLM in fp32 on the CPU; no tensor may
be missing or left over, and logits of all positions are held against logits.json: the largest difference over the
largest logit must stay below 1e-4. The tokenizer must give the ids of text.json, and the chat template must render.
Where there are adapters, FOLDER/<case>/base with them, loaded by peft or, where that is not installed, added by hand to
its weights under PEFT's names, must answer the same.
"""
import json
import os
import sys

import torch
import transformers
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

BOUND = 1e-4


def read(path):
    with open(path) as file:
        return json.load(file)


def load(path):
    model, info = AutoModelForCausalLM.from_pretrained(
        path, torch_dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    for what in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not info[what], f"{path}: {what}: {info[what]}"
    return model


def add_by_hand(model, folder):
    config = read(os.path.join(folder, "adapter_config.json"))
    tensors = load_file(os.path.join(folder, "adapter_model.safetensors"))
    weights, scale, added = model.state_dict(), config["lora_alpha"] / config["r"], 0
    for name, a in tensors.items():
        if ".lora_A." not in name:
            continue
        of = name.removeprefix("base_model.model.").replace(".lora_A.weight", ".weight")
        assert of.split(".")[-2] in config["target_modules"], of
        weights[of] += scale * tensors[name.replace(".lora_A.", ".lora_B.")] @ a
        added += 1
    assert 2 * added == len(tensors) and added > 0
    return model


def with_adapters(folder):
    base, adapter = load(os.path.join(folder, "base")), os.path.join(folder, "model", "adapter")
    try:
        import peft
    except ImportError:
        return "by hand", add_by_hand(base, adapter)
    return f"peft {peft.__version__}", peft.PeftModel.from_pretrained(base, adapter)


def compare_logits(folder, model):
    ours = read(os.path.join(folder, "logits.json"))
    want = torch.tensor(ours["logits"], dtype=torch.float64)
    with torch.no_grad():
        got = model.eval()(torch.tensor([ours["ids"]])).logits[0].double()
    assert got.shape == want.shape, (got.shape, want.shape)
    worst = (got - want).abs().max().item()
    agree = (got.argmax(-1) == want.argmax(-1)).double().mean().item()
    return type(model).__name__, worst, worst / want.abs().max().item(), agree


def compare_tokenizer(folder):
    # AutoTokenizer of transformers 5 puts the normaliser of the real Qwen2 over the folder's own for that model type.
    tokenizer = PreTrainedTokenizerFast.from_pretrained(os.path.join(folder, "model"))
    ours = read(os.path.join(folder, "text.json"))
    got = tokenizer.encode(ours["text"], add_special_tokens=False)
    messages = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "yes"}]
    chat = tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False)
    wanted = [256, 257, *b"hello", 260, 258, *b"yes", 260]
    return got == ours["ids"] and tokenizer.decode(got) == ours["text"] and list(chat) == wanted


def main():
    print(f"transformers {transformers.__version__}, torch {torch.__version__}")
    print(f"{'case':18} {'class':18} {'max abs':>9} {'relative':>9} {'argmax':>7}  tokenizer")
    failed = False
    for case in sorted(os.listdir(sys.argv[1])):
        folder = os.path.join(sys.argv[1], case)
        if not os.path.isdir(os.path.join(folder, "model")):
            continue
        name, worst, relative, agree = compare_logits(folder, load(os.path.join(folder, "model")))
        if os.path.isdir(os.path.join(folder, "base")):
            how, model = with_adapters(folder)
            _, apart, apart_relative, apart_agree = compare_logits(folder, model)
            failed = failed or not apart_relative < BOUND
            print(f"{case + ', apart':18} {how:18} {apart:9.2e} {apart_relative:9.2e} {apart_agree:7.2%}")
        text = compare_tokenizer(folder)
        failed = failed or not relative < BOUND or not text
        print(f"{case:18} {name:18} {worst:9.2e} {relative:9.2e} {agree:7.2%}  {'same' if text else 'DIFFERS'}")
    print("FAILED" if failed else "ok")
    sys.exit(failed)


if __name__ == "__main__":
    main()
