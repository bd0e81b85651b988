#!/usr/bin/env python3
"""What a profile costs the steps that are profiled: the example job of bench_train.py, with a profile of its steps and
without, in turns; each pair gives the ratio of the median step times, and of the processor time of the whole run, start and
the writing of the profile included, which other load on the machine disturbs less. The medians of these are printed.

    /usr/bin/python3 tests/bench/bench_profile.py [--build build/ci] [--pairs 9] [--steps 24] [--set '{"overlap":true}']

With --other DIR both runs are without a profile, and the second is of that build: what the code costs steps that are not
profiled, against a build from before it.
"""
import argparse
import copy
import json
import os
import pathlib
import resource
import statistics
import tempfile

import bench_train

FIRST = 5  # steps before it touch memory for the first time


def measure(options):
    """Seconds of rank 0's median step from FIRST on, and of processors that all of it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as folder:
        log = bench_train.run(options, pathlib.Path(folder))
    times = [float(line.split(" step_time_s=")[1].split()[0]) for line in log.splitlines()
             if line.startswith("metrics ") and " step_time_s=" in line]
    assert len(times) == options.steps, log
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return statistics.median(times[FIRST - 1:]), used


def spread(ratios):
    return f"{statistics.median(ratios) * 100:+.2f} % ({min(ratios) * 100:+.2f} to {max(ratios) * 100:+.2f})"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build/ci")
    parser.add_argument("--other")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--set", default="{}", help="fields of the job's ithaca object, JSON")
    plain = parser.parse_args()
    second = copy.copy(plain)
    if plain.other is not None:
        second.build = plain.other
    else:
        second.set = json.dumps({**json.loads(plain.set), "profile": {"steps": [FIRST, plain.steps]}})
    steps, used, bases = [], [], []
    for pair in range(plain.pairs):
        runs = (plain, second) if pair % 2 == 0 else (second, plain)
        results = [measure(run) for run in runs]
        base, other = results if pair % 2 == 0 else reversed(results)
        bases.append(base[0])
        steps.append(other[0] / base[0] - 1)
        used.append(other[1] / base[1] - 1)
    name = "the other build" if plain.other else "profiled"
    print(f"{plain.ranks} ranks, {plain.set}: {statistics.median(bases) * 1e3:.1f} ms a step; {name}: step time {spread(steps)}, "
          f"processor time {spread(used)}; {plain.pairs} pairs; load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
