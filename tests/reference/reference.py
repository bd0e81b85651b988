"""What the tests of this folder share: a script for node makes files of seeded cases by what others use, a program of
ours compares them with its own.

Needs the packages of package.json beside this file (npm ci); without them the tests are skipped. Every run draws a fresh
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


def compare(script, program, counts):
    """Exit status of a test. counts: so many cases of each name."""
    if not os.path.isdir(os.path.join(HERE, "node_modules")) or not shutil.which("node"):
        print("skipped: no node, or no tests/reference/node_modules (npm ci)")
        return 77
    seed = int(os.environ.get("ITHACA_TEST_SEED") or time.time_ns() % 2**32) % 2**32
    print(f"seed {seed}; repeat with ITHACA_TEST_SEED={seed} python3 {os.path.basename(sys.argv[0])}", flush=True)
    names, failed = list(counts), []
    with tempfile.TemporaryDirectory() as folder:
        for start in range(0, len(names), 2):  # two at once: most of it is one thread of node
            making = {name: subprocess.Popen(["node", os.path.join(HERE, script), name, folder, str(seed), str(counts[name])])
                      for name in names[start:start + 2]}
            for name, process in making.items():
                ours = [os.path.join(BUILD, "tests", program), os.path.join(folder, name)]
                if process.wait() != 0 or subprocess.run(ours, check=False).returncode != 0:
                    failed.append(name)
    if failed:
        print(f"FAILED: {', '.join(failed)}; seed {seed}")
    return 1 if failed else 0
