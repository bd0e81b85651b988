#!/usr/bin/env python3
"""Predicted against measured step time on the CPU: calibrates this machine, then runs steps of several settings.

    /usr/bin/python3 tests/bench/bench_time.py [--build build/ci] [--seconds 40] [--steps 5] [--rounds 1]
                                               [--data-dir DIR] [--match WORDS]

`ithaca calibrate`, then `ithaca plan --run` for each setting: the median of its steps after the first. With --data-dir
the calibration there is used. Other load on the machine slows steps more than calibration, which counts its fast rounds;
the time that rank 0's process had a processor is shown beside (of several threads it is their sum).
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parents[2]
ULYSSES = ["context_parallel.kind=ulysses"]
UPIPE = ["context_parallel.kind=upipe", "context_parallel.heads_per_stage=1"]
SETTINGS = [
    ("2 x 512 tokens, data-parallel", 2, 512, ["batch.sequences=2"]),
    ("8 x 256 tokens, data-parallel", 2, 256, ["batch.sequences=8"]),
    ("2048 tokens, Ulysses", 2, 2048, ["batch.sequences=1", *ULYSSES]),
    ("4096 tokens, Ulysses, recompute input", 2, 4096, ["batch.sequences=1", "recompute=input", *ULYSSES]),
    ("4096 tokens, Untied Ulysses, O kept, tiles", 2, 4096,
     ["batch.sequences=1", "recompute=attention", "keep_input_every=2", "tile_mlp=512", "tile_loss=256", *UPIPE]),
    ("2048 tokens, Ulysses, kept tensors and states on the host", 2, 2048,
     ["batch.sequences=1", "recompute=input_and_attention", "offload=host", "states=host", *ULYSSES]),
    ("2048 tokens, Untied Ulysses, residual streamed", 2, 2048,
     ["batch.sequences=1", "recompute=attention", "stream_residual=true", "tile_mlp=512", "tile_loss=256", *UPIPE]),
    ("4096 tokens, ring", 2, 4096, ["batch.sequences=1", "context_parallel.kind=ring"]),
    ("2048 tokens, one rank", 1, 2048, ["batch.sequences=1"]),
    ("4096 tokens, one rank, recompute both", 1, 4096, ["batch.sequences=1", "recompute=input_and_attention"]),
]


def run(options, data_dir, *arguments):
    ithaca = str((SOURCE / options.build / "clients" / "ithaca").resolve())
    return subprocess.run([ithaca, "--data-dir", data_dir, *arguments], check=True, capture_output=True,
                          encoding="utf-8").stdout


def measure(options, data_dir, ranks, tokens, fields):
    ratios = []
    for _ in range(options.rounds):
        words = [word for field in fields for word in ("--set", field)]
        plan = json.loads(run(options, data_dir, "--json", "plan", "--run", "--steps", str(options.steps + 1),
                              "--backend", "cpu", "--model", "tiny-llama", "--gpus", str(ranks), "--seq-len",
                              str(tokens), *words))
        if not plan["measured"]["run"]:
            raise SystemExit(plan["measured"]["why"])
        ratios.append((plan["measured"]["step_s"], plan["measured"]["processor_s"]))
    return (plan["time"]["predicted_step_s"], statistics.median(step for step, _ in ratios),
            statistics.median(processor for _, processor in ratios))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build/ci")
    parser.add_argument("--seconds", type=int, default=40)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--data-dir")
    parser.add_argument("--match", default="", help="only settings with these words in their names")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data_dir = options.data_dir or folder
        if options.data_dir is None:
            print(run(options, data_dir, "calibrate", "--backend", "cpu", "--seconds", str(options.seconds)), end="")
        print(f"{'tiny-llama':58} predicted s measured s   ratio processor s   ratio")
        for name, ranks, tokens, fields in [row for row in SETTINGS if options.match in row[0]]:
            predicted, measured, processor = measure(options, data_dir, ranks, tokens, fields)
            print(f"{name:58} {predicted:11.4f} {measured:10.4f} {predicted / measured:7.3f} {processor:11.4f} "
                  f"{predicted / processor:7.3f}", flush=True)
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
