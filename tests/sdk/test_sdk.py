#!/usr/bin/python3
"""OpenAI's official npm client, unchanged, against the real daemon; and the OpenAPI document by a public validator.

Needs the packages of package.json beside this file (npm ci); without them the test is skipped.
"""
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "e2e"))
from ithaca_e2e import EXAMPLE_DIR, SOURCE_DIR, Daemon  # noqa: E402


def node(script, *arguments):
    return subprocess.run(["node", os.path.join(HERE, script), *arguments], check=False, timeout=150).returncode


def main():
    if not os.path.isdir(os.path.join(HERE, "node_modules")) or not shutil.which("node"):
        print("skipped: no node, or no tests/sdk/node_modules (npm ci)")
        return 77
    if node("openapi.mjs", os.path.join(SOURCE_DIR, "api", "openapi.json")) != 0:
        return 1
    with Daemon() as daemon:
        status = node("sdk.mjs", f"http://127.0.0.1:{daemon.port}", daemon.token, daemon.gate_path,
                      os.path.join(EXAMPLE_DIR, "train.jsonl"))
        if status != 0:
            print(daemon.log())
    return 1 if status != 0 else 0


if __name__ == "__main__":
    sys.exit(main())
