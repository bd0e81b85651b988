#!/usr/bin/python3
"""Runs dashboard.mjs against a daemon of its own, and does for it what a browser cannot: holds a job at a step, restarts
the daemon. Needs Node 18 or newer, Chromium, and `npm ci` in this folder.
    tests/browser/run.py [folder for screenshots]"""
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "e2e"))
from ithaca_e2e import EXAMPLE_DIR, Daemon  # noqa: E402


def answer(daemon, client, file, word, value=""):
    """What the page's test asks for."""
    if word == "hold":
        daemon.hold(None if value == "none" else int(value))
    elif word == "restart":
        port = daemon.port
        daemon.stop()
        daemon.args = (*daemon.args, "--port", str(port))
        daemon.start()
    elif word == "submit":
        daemon.hold(10)
        return client.submit(file, ithaca={"seq_len": 128, "max_steps": 30})["id"]
    return "done"


def main():
    shots = sys.argv[1] if len(sys.argv) > 1 else "-"
    with Daemon("--on-stop", "leave") as daemon:
        client = daemon.client()
        file = client.upload(os.path.join(EXAMPLE_DIR, "train.jsonl"))["id"]
        node = subprocess.Popen(["node", os.path.join(HERE, "dashboard.mjs"), f"http://127.0.0.1:{daemon.port}", daemon.token, shots],
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for line in node.stdout:
            print(line, end="", flush=True)
            if line.startswith("ask "):
                node.stdin.write(answer(daemon, client, file, *line.split()[1:]) + "\n")
                node.stdin.flush()
        assert node.wait() == 0, "the page is not as it should be"


if __name__ == "__main__":
    main()
