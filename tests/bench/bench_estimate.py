#!/usr/bin/python3
"""How long settings are searched for a node of eight GPUs (a file plays them), and how long others wait meanwhile.

    python3 tests/bench/bench_estimate.py [--asks 5]
"""
import argparse
import json
import os
import statistics
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
from bench_storage import Watch  # noqa: E402
from ithaca_e2e import Daemon  # noqa: E402

GIB = 1 << 30


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--asks", type=int, default=5)
    asks = options.parse_args().asks
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({"gpus": [{"uuid": f"GPU-{i}", "name": "NVIDIA H200", "bytes": 141 * GIB} for i in range(8)]}, file)
        file.flush()
        with Daemon("--gpu-file", file.name) as daemon:
            client = daemon.client()
            with Watch(daemon.client()) as watch:
                time.sleep(2)
            print(f"nothing else: {watch}")
            for model, seq_len in (("llama3-8b", 1 << 20), ("qwen3-32b", 1 << 20), ("llama3-70b", 1 << 22)):
                took = []
                with Watch(daemon.client()) as watch:
                    for _ in range(asks):
                        begun = time.monotonic()
                        answer = client.post("/v1/fine_tuning/estimate", {
                            "model": model, "auto": True, "ithaca": {"gpus": 8, "seq_len": seq_len}})
                        took.append((time.monotonic() - begun) * 1000)
                        assert answer.status == 200, answer.text
                print(f"{model}, {seq_len} tokens: estimate median {statistics.median(took):.0f} ms; {watch}")


if __name__ == "__main__":
    main()
