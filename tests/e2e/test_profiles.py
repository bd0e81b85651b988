"""Profiles of jobs: asked for with the job and while it runs; the trace by a checker, the summary's figures against the
sums of the trace, the command line; what cannot be is refused by name."""
import json
import os
import signal
import subprocess
import unittest

import ithaca_e2e as e2e
import trace_check

LINE = '{"messages":[{"role":"user","content":"%d?"},{"role":"assistant","content":"the tide was out."}]}\n'
TRAIN = "".join(LINE % i for i in range(24))
SMALL = {"gpus": 2, "seq_len": 64, "batch": {"sequences": 2}, "context_parallel": {"kind": "upipe"}}
TOLERANCE = 1e-9  # of seconds that went through JSON


class Profiles(e2e.DaemonTest):
    env = {"ITHACA_CPU_SLOTS": "4"}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.train = cls.client.upload(TRAIN.encode())["id"]

    def path(self, job, tail):
        return f"/v1/fine_tuning/jobs/{job['id']}/{tail}"

    def check(self, job, first, last, ranks):
        summary = self.client.get(self.path(job, "profile"))
        self.assertEqual(summary.status, 200, summary.text)
        answer = self.client.get(self.path(job, "trace"))
        self.assertEqual(answer.status, 200, answer.text[:200])
        trace, summary = trace_check.Trace(answer.body), summary.json()
        self.assertEqual((summary["first_step"], summary["last_step"], summary["ranks"]), (first, last, ranks))
        self.assertEqual(trace.ranks(), list(range(ranks)))
        self.assertEqual(sorted({event["name"] for event in trace.slices if event["cat"] == "step"}),
                         [f"step {step}" for step in range(first, last + 1)])
        trace_check.check_summary(trace, summary)
        self.assertEqual((summary["dropped_events"], trace.document["otherData"]["dropped_events"]), (0, 0))
        return trace, summary

    def test_with_the_job(self):
        job = self.client.submit(self.train, ithaca={**SMALL, "max_steps": 3, "profile": {"steps": [2, 3]}})
        self.assertEqual(job["ithaca"]["spec"]["profile"], {"steps": [2, 3]})
        job = self.client.wait(job["id"])
        self.assertEqual(job["status"], "succeeded", job["error"])
        trace, summary = self.check(job, 2, 3, 2)
        for step in ("forward", "backward", "optimizer"):
            self.assertGreater(trace.count("phase", step), 0)
        self.assertEqual({event["name"] for event in trace.slices if event["cat"] == "layer"},
                         {"embedding", "head", "layer 0", "layer 1", "layer 2", "layer 3"})
        for cat, name in (("kernel", "attention_bwd"), ("collective", "all_to_all"), ("wait", "exchange_wait_s")):
            self.assertGreater(trace.count(cat, name), 0, name)
        counters = [event["args"]["bytes"] for event in trace.events if event["ph"] == "C"]
        self.assertLessEqual(max(counters), summary["memory"]["peak_device_bytes"])
        self.lives_are_the_plans(trace)
        self.waits_are_the_metrics(job, trace)
        self.suggestions(summary)

    def lives_are_the_plans(self, trace):
        """Every planned buffer with its bytes and its phases; those of phases that a step did not have are not in it."""
        had = {event["name"] for event in trace.slices if event["cat"] == "part"}
        plan = self.client.post("/v1/fine_tuning/estimate", {"model": "tiny-llama", "timeline": True, "ithaca": SMALL}).json()["memory"]
        wanted = {(buffer["name"], buffer["bytes"], buffer["first"], buffer["last"]) for buffer in plan["buffers"]
                  if buffer["bytes"] > 0 and (buffer["first"] in had or buffer["last"] in had)}
        found = {(event["name"].rsplit(" ", 1)[0] if event["name"].rsplit(" ", 1)[-1].isdigit() else event["name"],
                  event["args"]["bytes"], event["args"]["first"], event["args"]["last"])
                 for event in trace.events if event["ph"] == "b"}
        self.assertEqual(wanted - found, set())
        self.assertGreater(len(wanted), 20)

    def test_every_layout(self):
        """Whatever a step does, its profile keeps the rules; evaluations and checkpoints within the window are not in it."""
        layouts = {
            "ring": {"context_parallel": {"kind": "ring"}, "states": "host", "stream_residual": True, "recompute": "input",
                     "offload": "host", "eval": {"every_steps": 1}},
            "both": {"gpus": 4, "context_parallel": {"kind": "ulysses", "ulysses": 2, "ring": 2}, "tile_mlp": 16, "tile_loss": 8,
                     "states": "host_optimizer"},
            "upipe": {"overlap": True, "recompute": "attention", "keep_input_every": 2, "offload": "file", "save": {"every_steps": 1}},
            "adapters": {"context_parallel": {"kind": "none"}, "fsdp": False, "lora": {"r": 4}, "batch": {"sequences": 4, "grad_accum": 2}},
            "rehearsed": {"gpus": 1, "rehearse": {"world": 8, "layers": 2}, "context_parallel": {"kind": "ulysses", "ulysses": 4, "ring": 2}}}
        jobs = {name: self.client.submit(self.train, validation_file=self.train, ithaca={
            **SMALL, "max_steps": 2, "profile": {"steps": [2, 2]}, **more}) for name, more in layouts.items()}
        for name, job in jobs.items():
            job = self.client.wait(job["id"])
            with self.subTest(name):
                self.assertEqual(job["status"], "succeeded", job["error"])
                trace, summary = self.check(job, 2, 2, 1 if name == "rehearsed" else job["ithaca"]["spec"]["gpus"])
                self.assertGreater(trace.count("layer", "layer 3"), 0)
                self.assertGreater(len(summary["memory"]["buffers"]), 0)

    def test_of_a_measurement(self):
        """A job that only measures runs other code around its steps."""
        job = self.client.post("/v1/fine_tuning/jobs", {"model": "tiny-llama", "ithaca": {
            "measure": True, "seq_len": 64, "batch": {"sequences": 1}, "max_steps": 3, "profile": {"steps": [2, 2]}}}).json()
        job = self.client.wait(job["id"])
        self.assertEqual(job["status"], "succeeded", job["error"])
        self.check(job, 2, 2, 1)

    def waits_are_the_metrics(self, job, trace):
        """What a rank waited for is in its metrics, too, and both are one account."""
        series = self.client.get(self.path(job, "metrics?keys=exchange_wait_s,gather_wait_s")).json()["data"]
        self.assertEqual(len(series), 4)
        for one in series:
            wanted = sum(value for step, value, _ in one["points"] if 2 <= step <= 3)
            got = trace.total_ms("wait", one["key"], one["rank"]) / 1000
            self.assertLess(abs(got - wanted), TOLERANCE, one["key"])

    def suggestions(self, summary):
        found = {json.dumps(one["set"]): one for one in summary["suggestions"] if one["set"]}
        overlap = found['{"overlap": true}']
        waited = sum(figure["share"] for figure in summary["waits"] if figure["name"] == "exchange_wait_s")
        self.assertAlmostEqual(overlap["share"], waited)
        self.assertIs(overlap["fits"], True)
        body = {"model": "tiny-llama", "ithaca": SMALL}
        plain = self.client.post("/v1/fine_tuning/estimate", body).json()["memory"]
        body["ithaca"] = {**SMALL, "overlap": True}
        other = self.client.post("/v1/fine_tuning/estimate", body).json()["memory"]
        self.assertEqual(overlap["device_bytes"], other["peak_device_bytes"] - plain["peak_device_bytes"])
        self.assertLessEqual(len(summary["suggestions"]), 5)

    def test_while_it_runs(self):
        """On a running job, by the command line; before and after that it is refused."""
        self.daemon.hold(1)
        job = self.client.submit(self.train, ithaca={**SMALL, "gpus": 1, "context_parallel": {"kind": "none"}, "max_steps": 8})
        self.client.wait(job["id"], states=("running",))
        e2e.until("a step", 30, lambda: self.client.job(job["id"])["ithaca"]["steps_done"] == 1)
        refused = self.client.get(self.path(job, "profile"))
        self.assertEqual((refused.status, "has no profile" in refused.error()["message"]), (404, True))
        out = os.path.join(self.daemon.data_dir, "trace.json.gz")
        asking = subprocess.Popen([e2e.ITHACA, "--data-dir", self.daemon.data_dir, "profile", job["id"], "--steps", "2",
                                   "--output", out], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual(asking.stderr.readline(), "profiling 2 steps ...\n")
        self.daemon.hold(100)
        text, errors = asking.communicate(timeout=60)
        self.assertEqual(asking.returncode, 0, errors)
        self.assertRegex(text, rf"^steps \d+ to \d+ of {job['id']} on 1 ranks \(cpu\)")
        for words in ("attention_bwd", "suggestions", out):
            self.assertIn(words, text)
        follow = [line.split() for line in text.splitlines() if "ithaca resubmit" in line]
        for one in json.loads(self.daemon.ithaca("--json", "profile", job["id"]).stdout)["suggestions"]:
            if one["set"]:
                words = ["--set " + f"{name}={json.dumps(value)}" for name, value in one["set"].items()]
                self.assertIn(f"ithaca resubmit {job['id']} {' '.join(words)}".split(), follow)
        with open(out, "rb") as file:
            self.assertEqual(trace_check.Trace(file.read()).count("step"), 2)
        job = self.client.wait(job["id"])
        shown = json.loads(self.daemon.ithaca("--json", "profile", job["id"]).stdout)
        first = shown["first_step"]  # the word for it may reach the rank after a step has begun
        self.assertIn(first, range(2, 7))
        self.check(job, first, first + 1, 1)
        again = self.client.post(self.path(job, "profile"))
        self.assertEqual((again.status, again.error()["code"]), (400, "invalid_state"))
        self.assertIn("cannot be profiled: it is succeeded", again.error()["message"])
        self.assertIn(f"ithaca resubmit {job['id']} --set profile.steps=[3,5]", again.error()["message"])

    def test_ends_early(self):
        """A pause, the last step and a rank that dies end a profile: what steps there were are in it, or it is not there."""
        jobs = {}
        self.daemon.hold(2)
        for name in ("paused", "short", "killed"):
            jobs[name] = self.client.submit(self.train, ithaca={**SMALL, "gpus": 1, "context_parallel": {"kind": "none"},
                                                                "max_steps": 6, "max_restarts": 0})["id"]
        for job in jobs.values():
            e2e.until("two steps", 30, lambda job=job: self.client.job(job)["ithaca"]["steps_done"] == 2)
        waiting = subprocess.Popen([e2e.ITHACA, "--data-dir", self.daemon.data_dir, "profile", jobs["killed"], "--steps", "2"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual(waiting.stderr.readline(), "profiling 2 steps ...\n")
        for name in ("paused", "short"):
            self.assertEqual(self.client.post(self.path({"id": jobs[name]}, "profile"), {"steps": 50}).status, 200)
        rank = [pid for pid, command in e2e.processes_of(jobs["killed"]) if "--rank" in command]
        os.kill(rank[0], signal.SIGKILL)
        text, errors = waiting.communicate(timeout=60)
        self.assertEqual((waiting.returncode, text), (65, ""))
        self.assertIn("has left no such profile", errors)
        self.assertEqual(self.client.get(self.path({"id": jobs["killed"]}, "profile")).status, 404)
        self.daemon.hold(4)
        e2e.until("two more", 30, lambda: self.client.job(jobs["paused"])["ithaca"]["steps_done"] == 4)
        self.assertEqual(self.client.post(f"/v1/fine_tuning/jobs/{jobs['paused']}/pause").status, 200)
        self.daemon.hold(100)
        for name, states, last in (("paused", ("paused",), 5), ("short", ("succeeded",), 6)):
            job = self.client.wait(jobs[name], states=states)
            shown = self.client.get(self.path(job, "profile")).json()
            self.assertIn(shown["first_step"], (3, 4), name)  # the word for it may reach the rank after a step has begun
            self.assertIn(shown["last_step"], (last - 1, last) if name == "paused" else (last,), name)
            self.check(job, shown["first_step"], shown["last_step"], 1)

    def test_what_cannot_be_is_refused_by_name(self):
        for steps, words in (([0, 2], "is [0,2]; it must be [first, last]"), ([3, 2], "the second not below the first"),
                             ([2], "is [2]"), ("2", "is \"2\""), ([1, 101], "1 to 101 are 101 steps; at most 100"),
                             ([4, 9], "step 9 is beyond ithaca.max_steps 5")):
            answer = self.client.post("/v1/fine_tuning/jobs", {
                "model": "tiny-llama", "training_file": self.train,
                "ithaca": {**SMALL, "max_steps": 5, "profile": {"steps": steps}}})
            self.assertEqual((answer.status, answer.error()["param"]), (400, "ithaca.profile.steps"), answer.text)
            self.assertIn(words, answer.error()["message"])
        for body, param in (({"steps": 0}, "steps"), ({"steps": 101}, "steps"), ({"steps": "3"}, "steps"), ({"step": 3}, "step")):
            answer = self.client.post("/v1/fine_tuning/jobs/ftjob-none/profile", body)
            self.assertEqual((answer.status, answer.error()["param"]), (400, param), answer.text)
        answer = self.client.post("/v1/fine_tuning/jobs/ftjob-none/profile")
        self.assertEqual(answer.status, 404, answer.text)
        for words in ([], ["--steps", "2"]):
            told = self.daemon.ithaca("profile", "ftjob-none", *words)
            self.assertNotEqual(told.returncode, 0)
            self.assertIn("there is no fine-tuning job ftjob-none", told.stderr)


if __name__ == "__main__":
    unittest.main()
