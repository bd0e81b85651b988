#!/usr/bin/python3
"""Runs walk.mjs, which walks through the dashboard in Chromium, against a daemon of its own, and does for it what a
browser cannot: holds a job at a step, restarts the daemon. Skipped (77) where Node 18, `npm ci` in this folder, a
Chromium that starts, or dygraphs is missing.
    tests/browser/test_browser.py [folder for screenshots]"""
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "e2e"))
from ithaca_e2e import EXAMPLE_DIR, Daemon  # noqa: E402

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
DYGRAPHS = "/usr/share/javascript/dygraphs/dygraph.min.js"


def works(program, *words):
    """Whether it starts: Ubuntu's chromium-browser only says that there is a snap."""
    try:
        return subprocess.run([program, *words], capture_output=True, timeout=30, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def find_browser():
    """The browser's path; skips the test where something that it needs is not there."""
    browser = next((shutil.which(name) for name in BROWSERS if works(name, "--version")), None)
    missing = None
    if not os.path.exists(os.path.join(HERE, "node_modules", "playwright-core", "package.json")):
        missing = "npm ci in tests/browser"
    elif not works("node", "-e", "process.exit(parseInt(process.versions.node) >= 18 ? 0 : 1)"):
        missing = "Node 18 or newer"
    elif browser is None:
        missing = "a Chromium that starts (the package chromium; Ubuntu has it as a snap only)"
    elif not os.path.exists(DYGRAPHS):
        missing = "the package libjs-dygraphs"
    if missing:
        print(f"skipped: needs {missing}")
        sys.exit(77)
    return browser


def answer(daemon, client, file, word, value=""):
    """What the walk asks for."""
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
    browser = find_browser()
    with Daemon("--on-stop", "leave") as daemon:
        client = daemon.client()
        file = client.upload(os.path.join(EXAMPLE_DIR, "train.jsonl"))["id"]
        node = subprocess.Popen(["node", os.path.join(HERE, "walk.mjs"), f"http://127.0.0.1:{daemon.port}", daemon.token,
                                 browser, shots], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for line in node.stdout:
            print(line, end="", flush=True)
            if line.startswith("ask "):
                node.stdin.write(answer(daemon, client, file, *line.split()[1:]) + "\n")
                node.stdin.flush()
        assert node.wait() == 0, "the page is not as it should be"


if __name__ == "__main__":
    main()
