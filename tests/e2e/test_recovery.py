"""Jobs that are interrupted: paused, killed, left alone. Whatever ends, the job goes on from where it was, its model is
bit by bit that of an uninterrupted run, and no metric is lost or doubled."""
import hashlib
import json
import os
import signal
import threading
import time
import unittest

import ithaca_e2e as e2e

LINE = '{"messages":[{"role":"user","content":"Where does ship %d anchor?"},{"role":"assistant","content":"At quay %d."}]}\n'
DATA = "".join(LINE % (number, 7 * number % 10) for number in range(40)).encode()
STEPS = 30
JOB = {"gpus": 2, "seq_len": 64, "max_steps": STEPS, "batch": {"sequences": 4}, "save": {"every_steps": 10, "keep": 3}}
LONG = {**JOB, "max_steps": 100000, "save": {"every_steps": 1}}


class Scene(e2e.DaemonTest):
    """A daemon for all tests of a class. A test leaves no process behind."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.file = cls.client.upload(DATA)["id"]

    def setUp(self):
        self.addCleanup(self.check_nothing_left)
        self.addCleanup(self.daemon.hold, None)

    def check_nothing_left(self):
        self.assertEqual(self.left(), [], "processes of a job are left")

    def left(self):
        return e2e.processes_of(self.daemon.data_dir, ignore={self.daemon.process.pid})

    def start_again(self):
        self.daemon.start()
        type(self).client = self.daemon.client()

    def submit(self, ithaca=None, **more):
        return self.client.submit(self.file, seed=7, ithaca={**(ithaca or JOB), **more})["id"]

    def path(self, job_id, *names):
        return os.path.join(self.daemon.data_dir, "jobs", job_id, *names)

    def ithaca(self, job_id):
        return self.client.job(job_id)["ithaca"]

    def submit_held(self, last_step, **more):
        """A job that has done so many steps and waits before the next one (until self.daemon.hold() says otherwise)."""
        self.daemon.hold(last_step)
        job_id = self.submit(**more)
        self.steps(job_id, last_step)
        return job_id

    def steps(self, job_id, count):
        """Waits until so many steps are done."""
        e2e.until(f"{count} steps", 60, lambda: self.ithaca(job_id)["steps_done"] >= count, every=0.02)

    def post(self, job_id, what, body=None, status=200):
        answer = self.client.post(f"/v1/fine_tuning/jobs/{job_id}/{what}", body)
        self.assertEqual(answer.status, status, answer.text)
        return answer.json()

    def checkpoints(self, job_id):
        """Steps of the listed ones; each is whole on disk."""
        found = self.client.get(f"/v1/fine_tuning/jobs/{job_id}/checkpoints?limit=100").json()["data"]
        for checkpoint in found:
            folder = self.path(job_id, "checkpoints", f"step-{checkpoint['step_number']}")
            with open(os.path.join(folder, "manifest.json"), encoding="utf-8") as file:
                manifest = json.load(file)
            self.assertEqual(manifest["step"], checkpoint["step_number"])
            for part in manifest["files"]:
                self.assertEqual(os.path.getsize(os.path.join(folder, part["name"])), part["bytes"])
        return [checkpoint["step_number"] for checkpoint in found]

    def points(self, job_id, attempt=None):
        """Every (attempt, step) of the loss."""
        query = f"keys=loss{f'&attempt={attempt}' if attempt else ''}"
        series = self.client.get(f"/v1/fine_tuning/jobs/{job_id}/metrics?{query}").json()["data"]
        return [(one["attempt"], point[0]) for one in series for point in one["points"]]

    def keeper(self, job_id):
        return [pid for pid, command in e2e.processes_of(job_id) if "--keep" in command.split()]

    def ranks(self, job_id):
        return [pid for pid, command in e2e.processes_of(job_id) if "--rank" in command.split()]

    def run_cli(self, *words):
        """What `ithaca` prints; it must succeed."""
        done = self.daemon.ithaca(*words)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def digest(self, job_id):
        with open(self.path(job_id, "model", "model.safetensors"), "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()

    reference = None

    def check_succeeds(self, job_id, attempts, redone=False):
        """The end: success, the model of an uninterrupted run, one loss a step, each event once."""
        job = self.client.wait(job_id)
        self.assertEqual(job["status"], "succeeded", job["error"])
        self.assertEqual(job["ithaca"]["attempt"], attempts)
        self.assertEqual(job["ithaca"]["steps_done"], STEPS)
        self.assertEqual(sorted(step for _, step in self.points(job_id)), list(range(1, STEPS + 1)))
        if Scene.reference is None:
            plain = self.client.wait(self.submit())
            self.assertEqual(plain["ithaca"]["attempt"], 1)
            Scene.reference = (self.digest(plain["id"]), plain["trained_tokens"])
        self.assertEqual((self.digest(job_id), job["trained_tokens"]), Scene.reference)
        events = self.client.get(f"/v1/fine_tuning/jobs/{job_id}/events?limit=100").json()["data"]
        once = [event["message"] for event in events if event["message"].startswith(("Step ", "Job succeeded"))]
        self.assertTrue(redone or len(once) == len(set(once)), once)


class Recovery(Scene):

    # ---- pause and resume

    def test_paused_and_resumed(self):
        job_id = self.submit_held(4)
        for step, following in ((4, 8), (8, None)):
            self.steps(job_id, step)
            job = self.post(job_id, "pause")
            self.assertEqual((job["status"], job["ithaca"]["state"]), ("paused", "paused"))
            self.assertEqual(self.left(), [])
            self.assertEqual((self.checkpoints(job_id)[0], job["ithaca"]["steps_done"]), (step, step))
            self.assertEqual(self.post(job_id, "pause")["status"], "paused")
            self.daemon.hold(following)
            self.assertEqual(self.post(job_id, "resume")["status"], "queued")
        self.check_succeeds(job_id, attempts=3)
        for what in ("pause", "resume", "cancel"):
            self.post(job_id, what, status=400)

    def test_paused_with_states_on_the_host(self):
        """The model is that of a job with its states on the device; what ranks hold is what was planned."""
        job_id = self.submit_held(4, states="host")
        self.post(job_id, "pause")
        self.daemon.hold(None)
        self.post(job_id, "resume")
        self.check_succeeds(job_id, attempts=2)
        self.assertEqual(self.ithaca(job_id)["spec"]["states"], "host")
        series = self.client.get(f"/v1/fine_tuning/jobs/{job_id}/metrics?keys=arena_bytes,host_arena_bytes").json()["data"]
        held = {(one["key"], one["rank"]): {point[1] for point in one["points"]} for one in series}
        self.assertEqual(len(held), 2 * JOB["gpus"])
        self.assertTrue(all(len(values) == 1 and min(values) > 0 for values in held.values()), held)
        plan = self.client.post("/v1/fine_tuning/estimate", {"model": "tiny-llama", "ithaca": {**JOB, "states": "host"}})
        self.assertEqual(sum(map(min, held.values())), plan.json()["memory"]["host_bytes"])

    def test_paused_with_tensors_off_the_device(self):
        """The model is that of a job that keeps all on its device; what copies cost is told; no file is left."""
        for ithaca in ({"offload": "file", "offload_layers": 3, "file_layers": 1},  # two of four layers on the host
                       {"offload": "host", "stream_residual": True, "recompute": "attention"}):
            with self.subTest(ithaca=ithaca):
                job_id = self.submit_held(4, **ithaca)
                self.post(job_id, "pause")
                self.daemon.hold(None)
                self.post(job_id, "resume")
                self.check_succeeds(job_id, attempts=2)
                series = self.client.get(f"/v1/fine_tuning/jobs/{job_id}/metrics?keys=offload_bytes,offload_wait_s")
                for one in series.json()["data"]:
                    self.assertTrue(all(point[1] > 0 for point in one["points"]), one)
                told = {(one["key"], one["rank"]) for one in series.json()["data"]}
                self.assertEqual(len(told), 2 * JOB["gpus"])
                files = os.listdir(os.path.join(self.daemon.data_dir, "jobs", job_id))
                self.assertFalse([name for name in files if name.startswith("kept")], files)

    def test_resumed_from_an_earlier_checkpoint(self):
        job_id = self.submit_held(22)
        self.post(job_id, "pause")
        self.daemon.hold(None)
        self.assertEqual(self.checkpoints(job_id), [22, 20, 10])
        page = self.client.get(f"/v1/fine_tuning/jobs/{job_id}/checkpoints?limit=1").json()
        self.assertTrue(page["has_more"])
        page = self.client.get(f"/v1/fine_tuning/jobs/{job_id}/checkpoints?after={page['last_id']}").json()
        chosen = page["data"][-1]
        self.assertEqual((len(page["data"]), chosen["step_number"]), (2, 10))
        self.assertTrue(chosen["fine_tuned_model_checkpoint"].endswith(":ckpt-step-10"))
        self.assertEqual(self.post(job_id, "resume", {"checkpoint": "ftckpt_none_10"}, status=404)["error"]["param"],
                         "checkpoint")
        self.post(job_id, "resume", {"step": 10}, status=400)
        self.post(job_id, "resume", {"checkpoint": chosen["id"]})
        self.assertEqual(self.checkpoints(job_id), [10])
        self.assertEqual(self.ithaca(job_id)["steps_done"], 10)
        self.steps(job_id, 11)
        self.assertEqual(self.ithaca(job_id)["resumed_from"], chosen["id"])
        self.check_succeeds(job_id, attempts=2, redone=True)
        first = self.points(job_id, attempt=1)  # what was done twice is there under both
        self.assertEqual([step for _, step in first], list(range(1, 23)))

    def test_paused_while_others_run(self):
        """By the command line."""
        running, waiting = self.submit(LONG), self.submit()
        self.client.wait(waiting, ("queued",))
        self.assertEqual(self.run_cli("pause", waiting), f"{waiting} is paused\n")
        self.client.cancel(running)
        self.assertEqual(self.ithaca(waiting)["state"], "paused")
        self.assertIn("paused until it is resumed", self.run_cli("show", waiting))
        self.assertEqual(self.run_cli("resume", waiting), f"{waiting} is queued\n")
        self.check_succeeds(waiting, attempts=1)
        lines = self.run_cli("checkpoints", waiting).splitlines()
        self.assertEqual([line.split()[3] for line in lines], ["20", "10"])

    def test_pause_that_cannot_save(self):
        """Told with the file's name below the job, not with the server's folders."""
        job_id = self.submit_held(3)
        os.symlink("nowhere", self.path(job_id, "checkpoints"))
        job = self.post(job_id, "pause")
        self.assertEqual(job["status"], "failed")
        told = self.client.get(f"/v1/fine_tuning/jobs/{job_id}/events?limit=100").text
        self.assertIn(": checkpoints: ", job["error"]["message"])
        self.assertIn(": checkpoints: ", told)
        self.assertNotIn(self.daemon.data_dir, told + json.dumps(job))

    # ---- cancel

    def test_cancelled_while_saving(self):
        """R44, R51: at some point of a save; what is listed afterwards is whole."""
        for _ in range(3):
            job_id = self.submit(LONG)
            folder = self.path(job_id, "checkpoints")
            e2e.until("a checkpoint is being written", 60, lambda: os.path.isdir(folder) and any(
                name.endswith(".tmp") for name in os.listdir(folder)), every=0.001)
            self.client.cancel(job_id)
            self.assertEqual(self.left(), [])
            self.checkpoints(job_id)
            self.post(job_id, "resume", status=400)

    def test_cancelled_while_pausing(self):
        job_id = self.submit(LONG)
        self.steps(job_id, 2)
        pausing = threading.Thread(target=self.client.post, args=(f"/v1/fine_tuning/jobs/{job_id}/pause",))
        pausing.start()
        self.client.wait(job_id, ("pausing", "paused"))
        self.client.cancel(job_id)
        pausing.join()
        self.checkpoints(job_id)

    # ---- the daemon is killed

    def test_daemon_killed_while_running(self):
        """R45: ranks train on; the next daemon takes them over."""
        job_id = self.submit_held(3)
        for step in (3, 12):
            self.daemon.hold(12)
            self.steps(job_id, step)
            ranks = self.ranks(job_id)
            self.daemon.kill()
            time.sleep(0.5)
            self.assertEqual(self.ranks(job_id), ranks)
            self.start_again()
            self.assertEqual(self.ithaca(job_id)["state"], "running")
            self.assertEqual(self.ranks(job_id), ranks)
        self.daemon.hold(None)
        self.check_succeeds(job_id, attempts=1)
        self.daemon.kill()  # what has ended is not run again
        self.start_again()
        self.assertEqual(self.ithaca(job_id)["state"], "succeeded")

    def test_daemon_killed_at_any_stage(self):
        """A running, a queued and a validating job: each runs once."""
        self.daemon.hold(1)
        jobs = [self.submit(), self.submit(), self.submit()]
        self.daemon.kill()
        self.start_again()
        self.client.wait(jobs[0], ("starting", "running"))
        self.daemon.kill()
        self.start_again()
        self.client.wait(jobs[0], ("running",))
        self.client.wait(jobs[1], ("queued",))
        self.daemon.kill()
        self.start_again()
        self.daemon.hold(None)
        for job_id in jobs:
            self.check_succeeds(job_id, attempts=1)

    def test_job_ends_while_no_daemon_is_there(self):
        job_id = self.submit_held(STEPS - 8)
        self.daemon.kill()
        self.daemon.hold(None)
        e2e.until("the model is there", 60, lambda: os.path.isdir(self.path(job_id, "model")))
        self.start_again()
        self.check_succeeds(job_id, attempts=1)

    def test_daemon_and_keeper_killed(self):
        """As when the machine goes down: run again from the last checkpoint, once."""
        job_id = self.submit_held(12)
        keeper = self.keeper(job_id)
        self.daemon.kill()
        os.kill(keeper[0], signal.SIGKILL)
        self.daemon.hold(None)
        e2e.until("its ranks are gone", 10, lambda: not self.left())
        self.start_again()
        self.check_succeeds(job_id, attempts=2)
        self.assertEqual(self.ithaca(job_id)["restarts"], 1)

    # ---- faults

    def test_killed_rank_is_restarted(self):
        """R43, with a checkpoint to go on from."""
        job_id = self.submit_held(15, max_restarts=1)
        os.kill(self.ranks(job_id)[0], signal.SIGKILL)
        self.daemon.hold(None)
        self.check_succeeds(job_id, attempts=2)
        self.assertEqual(self.ithaca(job_id)["restarts"], 1)
        self.assertEqual(self.ithaca(job_id)["resumed_from"].rsplit("_", 1)[1], "10")
        messages = [event["message"] for event in
                    self.client.get(f"/v1/fine_tuning/jobs/{job_id}/events?limit=100").json()["data"]]
        self.assertTrue(any("SIGKILL" in message and "Restart 1 of 1: step 10 is saved" in message
                            for message in messages), messages)

    def test_time_limit(self):
        job_id = self.submit(LONG, time_limit_s=3, max_restarts=0)
        job = self.client.wait(job_id, seconds=40)
        self.assertEqual((job["status"], job["error"]["code"]), ("failed", "time_limit"), job["error"])
        saved = self.checkpoints(job_id)
        self.assertEqual(saved[0], job["ithaca"]["steps_done"])
        self.assertIn(f"step {saved[0]} is saved", job["error"]["message"])
        self.assertEqual(self.post(job_id, "resume")["status"], "queued")
        self.steps(job_id, saved[0] + 1)
        self.assertEqual(self.ithaca(job_id)["attempt"], 2)
        self.client.cancel(job_id)

    # ---- the daemon is stopped

    def test_stopped_daemon_pauses(self):
        job_id = self.submit_held(5)
        self.assertEqual(self.daemon.stop(), 0)
        self.assertEqual(e2e.processes_of(self.daemon.data_dir), [])
        self.daemon.hold(None)
        self.start_again()
        self.check_succeeds(job_id, attempts=2)
        self.assertEqual(self.ithaca(job_id)["restarts"], 0)

    # ---- download

    def test_download(self):
        job_id = self.submit()
        self.check_succeeds(job_id, attempts=1)
        output = os.path.join(self.daemon.data_dir, "fetched")
        for extra in ([], ["--checkpoint", self.client.get(
                f"/v1/fine_tuning/jobs/{job_id}/checkpoints").json()["data"][0]["id"]]):
            to = output + str(len(extra))
            printed = self.run_cli("download", job_id, "--output", to, *extra)
            self.assertIn(f'from_pretrained("{to}")', printed)
            self.assertIn("model.safetensors", os.listdir(to))
            self.assertFalse(os.path.exists(to + ".part"))
        with open(os.path.join(output + "0", "model.safetensors"), "rb") as file:
            self.assertEqual(hashlib.sha256(file.read()).hexdigest(), self.digest(job_id))
        for query in ("file=..%2f..%2fadmin.token", "file=.", "file=nosuch", "file=config.json&checkpoint=ftckpt_x_1"):
            answer = self.client.get(f"/v1/fine_tuning/jobs/{job_id}/model/content?{query}")
            self.assertEqual(answer.status, 404, answer.text)


class Orphans(Scene):
    env = {"ITHACA_ORPHAN_LIMIT_S": "1", "ITHACA_ON_STOP": "leave"}

    def test_ranks_save_and_end(self):
        """R45: nobody comes back in time; the next daemon goes on from what they saved."""
        job_id = self.submit_held(3)
        self.daemon.kill()
        e2e.until("the ranks have ended", 20, lambda: not self.left())
        self.daemon.hold(None)
        self.start_again()
        self.check_succeeds(job_id, attempts=2)
        self.assertEqual(self.ithaca(job_id)["restarts"], 0)

    def test_left_running(self):
        job_id = self.submit_held(3)
        ranks = self.ranks(job_id)
        self.assertEqual(self.daemon.stop(), 0)
        self.assertEqual(self.ranks(job_id), ranks)
        self.daemon.hold(None)
        self.start_again()
        self.check_succeeds(job_id, attempts=1)


if __name__ == "__main__":
    unittest.main()
