"""What an experiment costs the daemon: planning its points while the request waits, answering, drawing.

    python3 tests/bench/bench_experiments.py

Nothing runs: the queue is drained. Times are of the daemon's processor (other load hardly moves it) and of the clock."""
import os
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
from ithaca_e2e import Daemon, cpu_seconds, until  # noqa: E402

PATH = "/v1/experiments"
UPIPE = {"kind": "upipe"}
CASES = {
    "8B on 8 ranks, rehearsed": {"base": {"model": "llama3-8b", "ithaca": {"gpus": 8, "context_parallel": UPIPE, "offload": "host", "recompute": "input"}},
                                 "grid": {"keep_input_every": list(range(1, 9)), "seq_len": [65536 * i for i in range(1, 33)]}},
    "tiny, all become jobs": {"base": {"model": "tiny-llama", "ithaca": {"gpus": 2, "context_parallel": UPIPE}},
                              "grid": {"seq_len": list(range(64, 320))}},
    "longest, 8B": {"kind": "find_max_seq_len", "base": {"model": "llama3-8b", "ithaca": {
        "gpus": 8, "context_parallel": UPIPE, "offload": "host", "recompute": "attention"}}, "grid": {"keep_input_every": list(range(1, 17))}},
}


def one(daemon, client, body):
    """Milliseconds of the processor and the clock for: making it, reading it, its chart."""
    figures, made = [], None
    for ask in (lambda: client.post(PATH, body), lambda: client.get(f"{PATH}/{made['id']}"),
                lambda: client.get(f"{PATH}/{made['id']}/results?format=svg")):
        used, start = cpu_seconds(daemon.process.pid), time.monotonic()
        answer = ask()
        assert answer.status == 200, answer.text
        figures += [(cpu_seconds(daemon.process.pid) - used) * 1000, (time.monotonic() - start) * 1000]
        made = made or answer.json()
    client.post(f"{PATH}/{made['id']}/cancel")
    until("its end", 60, lambda: client.get(f"{PATH}/{made['id']}").json()["finished_at"])
    return len(made["results"]), figures


def main():
    with Daemon("--cpu-slots", "2") as daemon:
        client = daemon.client()
        client.post("/v1/admin/drain")
        print("| experiment | points | made, processor ms | clock | read | clock | chart | clock |\n|---|---|---|---|---|---|---|---|")
        for name, body in CASES.items():
            runs = [one(daemon, client, body) for _ in range(5)]
            medians = [statistics.median(run[1][i] for run in runs) for i in range(6)]
            print(f"| {name} | {runs[0][0]} | " + " | ".join(f"{figure:.0f}" for figure in medians) + " |")


if __name__ == "__main__":
    main()
