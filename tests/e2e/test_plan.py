"""Memory before anything runs: `ithaca plan` and `ithaca ladder` without a daemon, /v1/fine_tuning/estimate, and jobs
that do not fit, refused at submit."""
import json
import os
import subprocess
import unittest

from ithaca_e2e import ITHACA, SOURCE_DIR, DaemonTest

EXPERIMENTS = os.path.join(SOURCE_DIR, "deploy", "experiments")
GIB = 1 << 30
STACK = ["--gpus", "8", "--set", "context_parallel.kind=upipe", "--set", "context_parallel.heads_per_stage=1",
         "--set", "recompute=attention", "--set", "keep_input_every=8", "--set", "offload=host"]


def run(*arguments):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ITHACA_")}
    environment["ITHACA_URL"] = "http://127.0.0.1:9"  # nobody is asked
    return subprocess.run([ITHACA, *arguments], capture_output=True, timeout=60, check=False, env=environment,
                          encoding="utf-8")


class Plan(unittest.TestCase):
    def plan(self, *arguments):
        done = run("--json", "plan", *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_published_shape(self):
        plan = self.plan("--model", "llama3-8b", "--seq-len", "3M", "--memory", "80GB", *STACK)
        self.assertEqual(plan["seq_len"], 3 << 20)
        self.assertTrue(plan["fits"])
        self.assertTrue(plan["served"])
        self.assertLessEqual(plan["peak_device_bytes"], 42 * GIB)
        self.assertEqual(sum(plan["peak"].values()), plan["peak_device_bytes"])
        self.assertEqual(plan["peak_phase"], "backward: attention")
        self.assertNotIn("buffers", plan)
        time = plan["time"]
        self.assertLess(time["mfu_causal"], time["mfu_full"])
        self.assertLess(time["mfu_full"], 1)
        self.assertGreater(time["tokens_per_s_gpu"], 100)
        packed = self.plan("--model", "llama3-8b", "--seq-len", "3M", "--memory", "80GB", "--document-tokens", "64K",
                           *STACK)["time"]
        self.assertGreater(packed["tokens_per_s"], 5 * time["tokens_per_s"])

    def test_auto(self):
        """The fastest that fits, as options; 10M tokens of the 8B model, too."""
        ask = ["--model", "llama3-8b", "--seq-len", "10M", "--gpus", "8", "--memory", "80GB"]
        found = self.plan("--auto", *ask)
        self.assertTrue(found["fits"])
        text = run("plan", "--auto", *ask).stdout
        options = [line for line in text.splitlines() if line.startswith("--set ")]
        self.assertIn("--set context_parallel.kind=\"upipe\"", options)
        again = self.plan(*ask, *[word for line in options for word in line.split(" ", 1)])
        self.assertEqual(again["digest"], found["digest"])
        refused = run("plan", "--auto", "--set", "recompute=none", "--set", "offload=none", *ask)
        self.assertEqual(refused.returncode, 65)

    def test_longest(self):
        plan = self.plan("--model", "llama3-8b", "--memory", "80GB", "--max-seq-len", *STACK)
        again = self.plan("--model", "llama3-8b", "--memory", "80GB", "--seq-len", str(plan["seq_len"]), *STACK)
        self.assertGreater(plan["seq_len"], 5 << 20)
        self.assertTrue(plan["fits"])
        self.assertEqual(plan["digest"], again["digest"])
        more = self.plan("--model", "llama3-8b", "--memory", "80GB", "--seq-len", str(plan["seq_len"] + 1024), *STACK)
        self.assertFalse(more["fits"])

    def test_experiment(self):
        """The shipped files on the node that they are for: what fits is what was published to fit, and nothing is no job."""
        for name in sorted(os.listdir(EXPERIMENTS)):
            done = run("--json", "experiment", "plan", os.path.join(EXPERIMENTS, name), "--memory", "80GB", "--gpus", "8",
                       "--host-memory", "2000")
            self.assertEqual(done.returncode, 0, (name, done.stderr))
            plan = json.loads(done.stdout)
            fitting = [row for row in plan["data"] if row["status"] == "waiting"]
            self.assertGreaterEqual(len(fitting), 4, name)
            self.assertTrue(all(row["planned_device_bytes"] > 0 for row in plan["data"]), name)
            self.assertTrue(all((row["note"] is None) == (row["status"] == "waiting") for row in plan["data"]), name)
            if name == "llama3-8b.json":
                longest = {row["label"]: row["seq_len"] >> 20 for row in fitting}  # rows are in the order of lengths
                self.assertEqual((longest["Ulysses"], longest["Untied Ulysses, 1 head"]), (3, 5))

    def test_experiment_files(self):
        """Several at once: a table under each file's name, figures as people write them, every --set for each of them."""
        files = sorted(os.path.join(EXPERIMENTS, name) for name in os.listdir(EXPERIMENTS))
        done = run("experiment", "plan", *files, "--memory", "80GB", "--gpus", "8", "--set", "steps=1")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        parts = done.stdout.split("\n\n")
        self.assertEqual([part.splitlines()[0] for part in parts], files)
        for part in parts:
            lines = part.splitlines()
            self.assertEqual(lines[1].split()[:3], ["#", "CONTEXT", "POINT"])
            self.assertIn("points fit; ", lines[-1])
            self.assertNotRegex(part, r"\de[+-]\d", "an exponent")
        alone = run("experiment", "plan", files[0], "--memory", "80GB", "--gpus", "8", "--set", "steps=1").stdout
        self.assertEqual(alone.splitlines(), parts[0].splitlines()[1:])
        done = run("experiment", "plan", files[0], os.path.join(SOURCE_DIR, "api", "job.schema.json"), "--gpus", "8")
        self.assertEqual(done.returncode, 65)
        self.assertIn("job.schema.json: ", done.stderr)

    def test_experiment_set(self):
        """Any field of the file by --set; the layers that are rehearsed are what takes time."""
        words = ["experiment", "plan", os.path.join(EXPERIMENTS, "llama3-8b.json"), "--memory", "141GB", "--gpus", "1",
                 "--set", "grid.seq_len=[131072]"]
        one = json.loads(run("--json", *words, "--set", "steps=1").stdout)["data"]
        two = json.loads(run("--json", *words, "--set", "rehearse_layers=8", "--set", "base.ithaca.gpus=4").stdout)["data"]
        self.assertEqual([(row["gpus"], row["rehearsed"], row["seq_len"]) for row in one], [(8, True, 131072)] * len(one))
        self.assertEqual({row["gpus"] for row in two}, {4})
        for less, more in zip(one, two):
            self.assertGreater(more["planned_run_s"], 2 * less["planned_run_s"])
        text = run(*words).stdout.splitlines()
        self.assertEqual(len(text), 2 + len(one))
        self.assertRegex(text[-1], rf"^{len(one)} of {len(one)} points fit; their steps take \d+s, ")
        for machine in (["--gpus", "64"], ["--memory", "80GB"], ["--host-memory", "100"], ["--backend", "cpu"]):
            self.assertEqual(run(*words[:3], *machine).returncode, 0, machine)  # any of them, and no daemon is asked
        for more, status, said in ((["--set", "grid"], 64, "FIELD=VALUE"),
                                   (["--set", "base.model=none"], 66, "no shape is known"),
                                   (["--set", "stepz=1"], 65, "stepz is not a field")):
            done = run(*words, *more)
            self.assertEqual((done.returncode, said in done.stderr), (status, True), done.stderr)

    def test_text_and_refusal(self):
        done = run("plan", "--model", "llama3-8b", "--seq-len", "64K", "--gpus", "8", "--memory", "80GB")
        self.assertEqual(done.returncode, 65)
        self.assertIn("it does not fit", done.stdout)
        self.assertIn("heads_per_stage 1 gives", done.stderr)
        done = run("plan", "--model", "llama3-8b", "--seq-len", "8K", "--gpus", "8", "--memory", "80GB")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("it fits", done.stdout)

    def test_buffers(self):
        plan = self.plan("--model", "tiny-llama", "--seq-len", "512", "--backend", "cpu", "--buffers")
        for one in plan["buffers"]:
            self.assertLessEqual(one["offset"] + one["bytes"], plan["peak_device_bytes"])
        self.assertIn("dx", [one["name"] for one in plan["buffers"]])

    def test_mistakes(self):
        for arguments, status, says in (
                (["plan"], 64, "--model"),
                (["plan", "--model", "llama9"], 66, "llama3-8b"),
                (["plan", "--model", "llama3-8b", "--seq-len", "3G"], 64, "--seq-len 3G"),
                (["plan", "--model", "llama3-8b", "--memory", "80gb"], 65, "80GB"),
                (["plan", "--model", "llama3-8b", "--backend", "gpu"], 64, "cpu, cuda"),
                (["plan", "--model", "llama3-8b", "--set", "recompute=all"], 65, "ithaca.recompute"),
                (["plan", "--model", "llama3-8b", "--gpus", "8", "--set", "context_parallel.ulysses=5"], 65, "ulysses"),
                (["ladder", "--model", "llama3-8b", "--bars"], 64, "--bars")):
            done = run(*arguments)
            self.assertEqual(done.returncode, status, (arguments, done.stderr))
            self.assertIn(says, done.stderr)
            self.assertEqual(done.stdout, "")

    def test_ladder(self):
        arguments = ["ladder", "--model", "llama3-8b", "--seq-len", "3M", "--gpus", "8", "--memory", "80GB"]
        done = run("--json", *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        plans = [bar["plan"] for bar in json.loads(done.stdout)["bars"]]
        # but for the page table of pinned memory, which the last bar takes more of
        peaks = [plan["peak_device_bytes"] - plan["host_bytes"] // 8 // 512 for plan in plans]
        self.assertEqual(len(peaks), 8)
        self.assertEqual(peaks, sorted(peaks, reverse=True))
        self.assertGreater(peaks[0], 100 * peaks[-1])
        text = run(*arguments).stdout
        self.assertEqual(len(text.splitlines()), 9)
        self.assertIn("+ Untied Ulysses", text)


class Admission(DaemonTest):

    def estimate(self, **ithaca):
        answer = self.client.post("/v1/fine_tuning/estimate", {"model": "tiny-llama", "ithaca": ithaca})
        self.assertEqual(answer.status, 200, answer.text)
        return answer.json()

    def test_estimate(self):
        small = self.estimate(seq_len=512)
        self.assertEqual(small["object"], "fine_tuning.estimate")
        self.assertTrue(small["memory"]["fits"] and small["memory"]["served"])
        self.assertIsNone(small["message"])
        time = small["time"]
        self.assertFalse(time["calibrated"])
        self.assertIn("ithaca calibrate", time["rates"])
        self.assertAlmostEqual(sum(phase["seconds"] for phase in time["phases"]), time["predicted_step_s"])
        self.assertAlmostEqual(time["tokens_per_s"] * time["predicted_step_s"], 8 * 512)
        self.assertEqual(small["ithaca"]["tile_mlp"], 512)  # resolved
        large = self.estimate(seq_len=1 << 20, memory_limit_gib=1, recompute="none")
        self.assertFalse(large["memory"]["fits"])
        self.assertIn("there are 1 (most in", large["message"])
        planned = self.estimate(seq_len=512, offload="host", launcher="slurm")
        self.assertFalse(planned["memory"]["served"])
        self.assertGreater(planned["memory"]["host_bytes"], 0)
        answer = self.client.post("/v1/fine_tuning/estimate", {"model": "tiny-llama", "ithaca": {"gpus": 65}})
        self.assertEqual((answer.status, answer.error()["param"]), (400, "ithaca.gpus"))
        answer = self.client.post("/v1/fine_tuning/estimate", {"model": "no-such"})
        self.assertEqual((answer.status, answer.error()["param"]), (404, "model"))

    def test_what_does_not_fit_is_refused(self):
        line = b'{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}]}\n'
        body = {"model": "tiny-llama", "training_file": self.client.upload(line * 20)["id"],
                "ithaca": {"seq_len": 1 << 20, "memory_limit_gib": 12, "recompute": "none", "offload": "none",
                           "stream_residual": False, "states": "device", "overlap": False, "tile_mlp": 16384,
                           "tile_loss": 1024, "context_parallel": {"kind": "none"}}}
        answer = self.client.post("/v1/fine_tuning/jobs", body)
        error = answer.error()
        self.assertEqual((answer.status, error["code"], error["param"]), (400, "does_not_fit", "ithaca.seq_len"))
        self.assertIn("GiB of device memory a rank, there are 12", error["message"])
        self.assertIn("gives", error["message"])
        self.assertEqual(self.client.get("/v1/fine_tuning/jobs").json()["data"], [])
        # What it names would be taken.
        longest = int(error["message"].split("seq_len ")[-1].split()[0])
        fixed = {name: value for name, value in body["ithaca"].items() if name != "seq_len"}
        self.assertTrue(self.estimate(seq_len=longest, **fixed)["memory"]["fits"])
        self.assertFalse(self.estimate(seq_len=longest + 1024, **fixed)["memory"]["fits"])

    def test_auto(self):
        """What the plain settings do not fit is searched for others, at submit too; what is given stays."""
        plain = self.estimate(seq_len=1 << 14)
        self.assertEqual((plain["ithaca"]["recompute"], plain["memory"]["fits"]), ("none", True))
        limit = {"seq_len": 1 << 20, "memory_limit_gib": 12}
        found = self.estimate(**limit)
        self.assertTrue(found["memory"]["fits"] and found["memory"]["served"])
        self.assertNotEqual(found["ithaca"]["recompute"], "none")
        kept = self.estimate(recompute="input", **limit)
        self.assertEqual((kept["ithaca"]["recompute"], kept["memory"]["fits"]), ("input", True))
        self.assertLessEqual(found["time"]["predicted_step_s"], kept["time"]["predicted_step_s"])
        answer = self.client.post("/v1/fine_tuning/estimate", {"model": "tiny-llama", "auto": True,
                                                                "ithaca": {"seq_len": 1 << 14, "gpus": 2}})
        fastest = answer.json()["time"]["predicted_step_s"]
        plain = self.estimate(seq_len=1 << 14, gpus=2)["time"]["predicted_step_s"]
        self.assertLessEqual(fastest, plain * 1.005)
        answer = self.client.post("/v1/fine_tuning/estimate", {"model": "tiny-llama", "auto": 1})
        self.assertEqual((answer.status, answer.error()["param"]), (400, "auto"))


if __name__ == "__main__":
    unittest.main()
