#!/usr/bin/python3
"""Walks through the dashboard in Chromium: walk_live.mjs through jobs that run, walk_history.mjs by keys alone through a
long history on GPUs that a file plays. Each has a daemon of its own, for which this file does what a browser cannot: holds
a job at a step, restarts the daemon, writes a history. Skipped (77) where Node 18, `npm ci` in this folder, a Chromium that
starts, or dygraphs is missing.
    tests/browser/test_browser.py [folder for screenshots]"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "e2e"))
import history  # noqa: E402
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


def stop(daemon):
    """So that it starts again at the same address."""
    daemon.args = (*daemon.args, "--port", str(daemon.port))
    daemon.stop()


def answer(daemon, file, word, value=""):
    """What a walk asks for."""
    if word == "hold":
        daemon.hold(None if value == "none" else int(value))
    elif word == "stop":
        stop(daemon)
    elif word == "start":
        daemon.start()
    elif word == "submit":
        daemon.hold(10)
        return daemon.client().submit(file, ithaca={"seq_len": 128, "max_steps": 30})["id"]
    elif word == "reader":
        return daemon.client().post("/v1/tokens", {"name": "reader", "user": "ada", "scope": "read"}).json()["token"]
    return "done"


def make_history(daemon, file):
    """A job of 2,000 steps on two ranks that was cancelled, as far as its points say."""
    job = daemon.client().submit(file, ithaca={"hold": True, "gpus": 2, "seq_len": 128})["id"]
    daemon.client().post(f"/v1/fine_tuning/jobs/{job}/cancel")
    daemon.stop()
    history.write(daemon.data_dir, job, steps=2000, ranks=2)
    daemon.start()
    return job


def play_gpus(path):
    """Two GPUs that nobody uses."""
    gpus = [{"uuid": f"GPU-{i}{i}{i}{i}{i}{i}{i}{i}-1f2e-4c3d", "name": "NVIDIA H200", "bytes": 150754820096, "used_bytes": 0,
             "temperature_c": 41 + 3 * i, "power_mw": 91000, "busy_percent": 0, "links": 18} for i in range(2)]
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"gpus": gpus}, file)


def walk(name, daemon, browser, shots):
    """One walk_<name>.mjs to its end."""
    file = daemon.client().upload(os.path.join(EXAMPLE_DIR, "train.jsonl"))["id"]
    job = make_history(daemon, file) if name == "history" else ""
    node = subprocess.Popen(["node", os.path.join(HERE, f"walk_{name}.mjs"), f"http://127.0.0.1:{daemon.port}", daemon.token,
                             browser, shots, job], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    for line in node.stdout:
        print(f"{name}: {line}", end="", flush=True)
        if line.startswith("ask "):
            node.stdin.write(answer(daemon, file, *line.split()[1:]) + "\n")
            node.stdin.flush()
    assert node.wait() == 0, f"walk_{name}.mjs: the page is not as it should be"


def walk_live(browser, shots):
    with Daemon("--on-stop", "leave") as daemon:
        walk("live", daemon, browser, shots)


def walk_history(browser, shots):
    with tempfile.TemporaryDirectory(prefix="ithaca-browser-") as folder:
        play_gpus(os.path.join(folder, "gpus.json"))
        with Daemon("--gpu-file", os.path.join(folder, "gpus.json")) as daemon:
            walk("history", daemon, browser, shots)


def main():
    shots = sys.argv[1] if len(sys.argv) > 1 else "-"
    browser = find_browser()
    with ThreadPoolExecutor() as pool:  # side by side: each mostly waits
        for done in [pool.submit(one, browser, shots) for one in (walk_live, walk_history)]:
            done.result()


if __name__ == "__main__":
    main()
