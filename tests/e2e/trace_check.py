"""A checker of Chrome traces: what Perfetto and chrome://tracing need, and what ours promise. Standard library only.

    trace = Trace(bytes_of_the_gz)         raises AssertionError where a rule is broken
    trace.total_ms(cat="kernel")           sums of slices, by category and name

Rules: valid JSON with a list of events; each has a known phase, a process and a thread; times are finite and not below
0; slices of a thread come in the order of time and lie in each other or apart; asynchronous slices begin once and end
once, not before; counters have numbers; every process and thread that has slices has a name; phases cover the steps, and
all else lies in them.

Run alone: python3 tests/e2e/trace_check.py FILE.json.gz
"""
import gzip
import json
import math
import sys

SLICE_ROUNDING_US = 0.0005  # times are whole nanoseconds, printed as microseconds with three places


class Trace:
    def __init__(self, packed):
        self.text = gzip.decompress(packed).decode()
        self.document = json.loads(self.text)
        self.events = self.document["traceEvents"]
        assert isinstance(self.events, list) and self.events, "no events"
        for event in self.events:
            self.check_event(event)
        self.slices = [event for event in self.events if event["ph"] == "X"]
        self.check_threads()
        self.check_cover()
        self.check_lives()
        self.check_names()

    @staticmethod
    def check_event(event):
        assert event.get("ph") in ("X", "M", "C", "b", "e"), event
        assert isinstance(event.get("pid"), int) and isinstance(event.get("tid"), int), event
        assert isinstance(event.get("name"), str) and event["name"], event
        for key in {"X": ("ts", "dur"), "M": ()}.get(event["ph"], ("ts",)):
            assert isinstance(event[key], (int, float)) and math.isfinite(event[key]) and event[key] >= 0, event
        if event["ph"] == "C":
            assert event["args"] and all(isinstance(value, (int, float)) for value in event["args"].values()), event
        if event["ph"] in "be":
            assert "cat" in event and "id" in event, event

    def check_threads(self):
        """Slices of a thread: in order, each in the one that is open or behind it."""
        open_slices, last = {}, {}
        for event in self.slices:
            thread = event["pid"], event["tid"]
            begin, end = event["ts"], event["ts"] + event["dur"]
            assert begin >= last.get(thread, 0), f"not in order: {event}"
            last[thread] = begin
            stack = open_slices.setdefault(thread, [])
            while stack and stack[-1] <= begin + SLICE_ROUNDING_US:
                stack.pop()
            assert not stack or end <= stack[-1] + SLICE_ROUNDING_US, f"neither in nor behind the one before: {event}"
            stack.append(end)

    def check_cover(self):
        """Phases of a step cover it, layers and waits lie in the steps, and so does all that a device did."""
        if self.document["otherData"]["dropped_events"] > 0:
            return
        for pid in self.ranks():
            of = {cat: [(event["ts"], event["ts"] + event["dur"]) for event in self.slices
                        if event["pid"] == pid and event["cat"] == cat]
                  for cat in ("step", "phase", "part", "layer", "wait", "kernel", "copy", "collective")}
            left = length(of["step"]) - length(of["phase"])  # a few microseconds, unless this process has to wait for its turn
            assert left <= max(0.05 * length(of["step"]), 10_000), f"no phase for {left} us of the steps of rank {pid}"
            for cat, slices in of.items():
                outside = length(slices + of["step"]) - length(of["step"])
                assert outside <= SLICE_ROUNDING_US * 2 * (len(slices) + 1), f"{cat} of rank {pid} outside of steps: {outside} us"

    def check_lives(self):
        begun = {}
        for event in self.events:
            if event["ph"] not in "be":
                continue
            key = event["pid"], event["cat"], event["id"]
            if event["ph"] == "b":
                assert key not in begun, f"begun twice: {event}"
                begun[key] = event
            else:
                begin = begun.pop(key)
                assert begin["ts"] <= event["ts"] and begin["name"] == event["name"], event
        assert not begun, f"never ended: {begun}"

    def check_names(self):
        named = {(event["pid"], event["tid"], event["name"]) for event in self.events if event["ph"] == "M"}
        for event in self.slices:
            assert (event["pid"], 0, "process_name") in named, event
            assert (event["pid"], event["tid"], "thread_name") in named, event

    def ranks(self):
        return sorted({event["pid"] for event in self.slices})

    def total_ms(self, cat, name=None, pid=None):
        return sum(event["dur"] for event in self.slices
                   if event["cat"] == cat and name in (None, event["name"]) and pid in (None, event["pid"])) / 1000

    def count(self, cat, name=None):
        return sum(event["cat"] == cat and name in (None, event["name"]) for event in self.slices)


def union(intervals):
    """Intervals as a list of those apart, in order."""
    merged = []
    for begin, end in sorted(intervals):
        if merged and begin <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([begin, end])
    return merged


def length(intervals):
    return sum(end - begin for begin, end in union(intervals))


def check_summary(trace, summary):
    """The figures of a summary are the sums of the trace."""
    def near(got, want, what):
        assert abs(got - want) <= 1e-6 * abs(want) + 1e-4, f"{what}: {got} in the summary, {want} in the trace"

    for key, cat in (("phases", "phase"), ("parts", "part"), ("kernels", "kernel"), ("waits", "wait"),
                     ("collectives", "collective"), ("copies", "copy")):
        for figure in summary[key]:
            near(figure["total_ms"], trace.total_ms(cat, figure["name"]), f"{key} {figure['name']}")
            assert figure["count"] == trace.count(cat, figure["name"]), figure
        near(sum(figure["total_ms"] for figure in summary[key]), trace.total_ms(cat), key)
    steps = trace.total_ms("step")
    near(summary["step_ms"], steps / trace.count("step"), "step_ms")
    for figure in summary["kernels"]:
        near(figure["share"], figure["total_ms"] / steps, figure["name"])
    busy = {cat: {pid: [] for pid in trace.ranks()} for cat in ("step", "kernel", "wait", "collective", "copy")}
    for event in trace.slices:
        if event["cat"] in busy:
            busy[event["cat"]][event["pid"]].append((event["ts"], event["ts"] + event["dur"]))
    idle = hidden = calls = 0
    for pid in trace.ranks():
        kernels, collectives = busy["kernel"][pid], busy["collective"][pid]
        worked = kernels + collectives + busy["copy"][pid] + busy["wait"][pid]
        idle += length(busy["step"][pid]) - length(worked)
        calls += length(collectives)
        hidden += length(kernels) + length(collectives) - length(kernels + collectives)
    near(summary["idle"]["total_ms"], idle / 1000, "idle")
    near(summary["overlap"]["collectives_ms"], calls / 1000, "collectives")
    if calls > 0:
        near(summary["overlap"]["collectives_hidden"], hidden / calls, "hidden")


if __name__ == "__main__":
    with open(sys.argv[1], "rb") as file:
        checked = Trace(file.read())
    print(f"{len(checked.events)} events, {len(checked.slices)} slices of ranks {checked.ranks()}")
