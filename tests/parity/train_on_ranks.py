#!/usr/bin/env python3
"""The same training on few ranks and on many: losses and gradient norms of each step, side by side.

    ITHACA_BUILD_DIR=build/ci python3 tests/parity/train_on_ranks.py [--ranks 2,8] [--steps 20] [--seq-len 4096]

tiny-llama, a daemon of its own on a free port, jobs one after the other: the first number of ranks shares its sequences
by Ulysses, each further one by data parallelism, a ring, Ulysses, and Untied Ulysses over half of the ranks in a ring of
two. Held, for every step, against the first job: on GPUs (bf16) the loss within 0.002 and the gradient norm within 1 %,
on the CPU (fp32) both within 2e-5. Prints a table, exits 1 when anything is beyond.
"""
import argparse
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
import ithaca_e2e as e2e  # noqa: E402

WORDS = "the ship left the quay before the tide was out and nobody on the shore saw her go".split()
ROW = '{"text": "%s"}\n'
BOUNDS = {"gpu": {"loss": ("absolute", 2e-3), "grad_norm": ("relative", 1e-2)},
          "cpu": {"loss": ("relative", 2e-5), "grad_norm": ("relative", 2e-5)}}


def rows(seq_len):
    """Documents of many lengths, so that some are packed and some are cut."""
    lengths = [seq_len // 8, seq_len // 3, seq_len, seq_len // 2] * 4
    return "".join(ROW % " ".join(WORDS[(i * i + j * (i + 3)) % len(WORDS)] for j in range(length // 5))
                   for i, length in enumerate(lengths))


def layouts(ranks):
    yield "data parallel", {"kind": "none"}
    yield "ring", {"kind": "ring", "ring": ranks}
    yield "ulysses", {"kind": "ulysses", "ulysses": ranks}
    if ranks >= 4:
        yield "upipe x ring", {"kind": "upipe", "ulysses": ranks // 2, "ring": 2, "heads_per_stage": 1}


def train(client, file, options, ranks, context):
    """{(figure, step): value} of a job; it must succeed."""
    job = client.submit(file, model="tiny-llama", seed=7, ithaca={
        "gpus": ranks, "seq_len": options.seq_len, "max_steps": options.steps, "context_parallel": context,
        "batch": {"sequences": max(options.ranks)}, "optimizer": {"learning_rate": 1e-4}})
    job = client.wait(job["id"], seconds=600)
    if job["status"] != "succeeded":
        raise SystemExit(f"{ranks} ranks, {context}: {job['error']}")
    return {(key, data["step"]): data["metrics"][key]
            for event, _, data in client.stream(f"/v1/fine_tuning/jobs/{job['id']}/stream") if event == "metrics"
            for key in ("loss", "grad_norm") if key in data["metrics"]}


def farthest(points, base, figure, kind):
    return max(abs(points[at] - value) / (abs(value) if kind == "relative" else 1)
               for at, value in base.items() if at[0] == figure)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", default="2,8", help="numbers of ranks; the first is what others are held against")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seq-len", type=int, default=4096)
    options = parser.parse_args()
    options.ranks = [int(ranks) for ranks in options.ranks.split(",")]
    good = True
    with e2e.Daemon(device=e2e.device_for(max(options.ranks)),
                    env={"ITHACA_CPU_SLOTS": str(max(options.ranks))}) as daemon:
        client = daemon.client()
        kind = client.get("/v1/gpus").json()["data"][0]["kind"]
        kind = kind if kind == "gpu" else "cpu"
        file = client.upload(rows(options.seq_len).encode())["id"]
        first = options.ranks[0]
        base = train(client, file, options, first, {"kind": "ulysses", "ulysses": first} if first > 1 else {"kind": "none"})
        print(f"tiny-llama, seq_len {options.seq_len}, {options.steps} steps, on the {kind.upper()}; farthest from "
              f"{first} rank{'s' * (first > 1)}\n\n| ranks | layout | loss | gradient norm |\n| --- | --- | --- | --- |")
        for ranks in options.ranks[1:]:
            for name, context in layouts(ranks):
                points = train(client, file, options, ranks, context)
                assert set(points) == set(base) and len(base) == 2 * options.steps, (len(points), len(base))
                off = {figure: farthest(points, base, figure, how) for figure, (how, _) in BOUNDS[kind].items()}
                within = all(off[figure] <= bound for figure, (_, bound) in BOUNDS[kind].items())
                good = good and within
                print(f"| {ranks} | {name} | {off['loss']:.2g} | {off['grad_norm']:.2g} |{'' if within else ' BEYOND'}",
                      flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
