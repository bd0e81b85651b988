#!/usr/bin/python3
"""Our chat templates against the models' own, run by the reference Jinja renderer, on seeded conversations.

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
TEMPLATES = ("llama3", "llama3.1", "llama3.2", "qwen2.5", "qwen3", "qwen3-second")
CONVERSATIONS = 200


def main():
    if not os.path.isdir(os.path.join(HERE, "node_modules")) or not shutil.which("node"):
        print("skipped: no node, or no tests/reference/node_modules (npm ci)")
        return 77
    seed = int(os.environ.get("ITHACA_TEST_SEED") or time.time_ns() % 2**32) % 2**32
    print(f"seed {seed}; repeat with ITHACA_TEST_SEED={seed} python3 {os.path.basename(__file__)}", flush=True)
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        for start in range(0, len(TEMPLATES), 2):  # two at once: most of it is one thread of node
            pair = TEMPLATES[start:start + 2]
            rendering = [subprocess.Popen(["node", os.path.join(HERE, "render.mjs"), name, folder, str(seed),
                                           str(CONVERSATIONS)]) for name in pair]
            for name, process in zip(pair, rendering):
                rendered = process.wait()
                compared = subprocess.run([os.path.join(BUILD, "tests", "compare_chats"), os.path.join(folder, name)],
                                          check=False)
                if rendered != 0 or compared.returncode != 0:
                    failed.append(name)
    if failed:
        print(f"FAILED: {', '.join(failed)}; seed {seed}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
