"""Jobs that do not go well: bad requests and files, cancelled jobs, ranks that die or hang. Whatever happens, the answer
says why, no process is left, and the next job runs."""
import json
import os
import signal
import subprocess
import tempfile
import time
import unittest
import unittest.mock

import ithaca_e2e as e2e

LINE = '{"messages":[{"role":"user","content":"Where?"},{"role":"assistant","content":"By the quay."}]}\n'
LONG = {"gpus": 2, "seq_len": 256, "max_steps": 100000, "batch": {"sequences": 2}}
SHORT = {"gpus": 2, "seq_len": 64, "max_steps": 3, "batch": {"sequences": 4}}
SETTINGS = {"ITHACA_HEARTBEAT_LIMIT_S": "4"}


class Jobs(e2e.DaemonTest):
    """Every test has the daemon to itself and leaves it able to run a job."""

    env = SETTINGS

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.file = cls.client.upload((LINE * 40).encode())["id"]

    def tearDown(self):
        self.assertEqual(self.left(), [], "processes of a job are left")
        job = self.client.wait(self.client.submit(self.file, ithaca=SHORT)["id"])
        self.assertEqual(job["status"], "succeeded", job["error"])
        self.assertEqual(self.left(), [])

    def left(self):
        return e2e.processes_of(self.daemon.data_dir, ignore={self.daemon.process.pid})

    def ranks(self, job_id):
        """Pids of the job's ranks by number."""
        found = {}
        for pid, command in e2e.processes_of(job_id):
            words = command.split()
            if "--rank" in words:
                found[int(words[words.index("--rank") + 1])] = pid
        return found

    def running(self, ithaca=None):
        job = self.client.submit(self.file, ithaca=ithaca or LONG)
        self.client.wait(job["id"], ("running",))
        e2e.until("a step is done", 30, lambda: self.client.job(job["id"])["ithaca"]["steps_done"] > 0)
        return job["id"]

    def events(self, job_id):
        return self.client.get(f"/v1/fine_tuning/jobs/{job_id}/events").json()["data"]

    # ---- refused at the door

    def refused(self, body, status=400):
        answer = self.client.post("/v1/fine_tuning/jobs", body)
        self.assertEqual(answer.status, status, answer.text)
        return answer.error()

    def test_bad_json_names_line_and_column(self):
        answer = self.client.request("POST", "/v1/fine_tuning/jobs", body=b'{"model": "tiny-llama",\n "seed": }',
                                     headers={"Content-Type": "application/json"})
        self.assertEqual(answer.status, 400)
        error = answer.error()
        self.assertEqual(error["code"], "invalid_json")
        self.assertIn("line 2", error["message"])

    def test_fields_are_named(self):
        base = {"model": "tiny-llama", "training_file": self.file}
        for extra, param, word in (  # a model that is not there is 404, all else 400
                ({"ithaca": {"seq_length": 4}}, "ithaca.seq_length", "seq_len"),
                ({"ithaca": {"seq_len": 1}}, "ithaca.seq_len", "2"),
                ({"ithaca": {"gpus": 64}}, "ithaca.gpus", "64"),
                ({"ithaca": {"recompute": "all"}}, "ithaca.recompute", "none"),
                ({"ithaca": {"launcher": "slurm"}}, "ithaca.launcher", "slurm"),
                ({"ithaca": {"optimizer": {"learning_rate": "high"}}}, "ithaca.optimizer.learning_rate", "number"),
                ({"model": "no-such-model"}, "model", "no-such-model"),
                ({"training_file": "file-nosuch"}, "training_file", "file-nosuch"),
                ({"integrations": [{"type": "wandb"}]}, "integrations", "integrations")):
            error = self.refused({**base, **extra}, 404 if param == "model" else 400)
            self.assertEqual(error["param"], param, error)
            self.assertIn(word, error["message"])
        self.assertEqual(self.refused({"model": "tiny-llama"})["param"], "training_file")

    # ---- refused by the file

    def test_bad_lines_are_listed_and_no_rank_starts(self):
        lines = [LINE] * 100
        lines[56] = '{"messages": [{"role": "user", content: "b"}]}\n'
        lines[79] = '{"messages":[{"role":"user","content":"a "quoted" word"}]}\n'
        lines[89] = LINE.rstrip()[:-1] + ",}\n"
        file_id = self.client.upload("".join(lines).encode())["id"]
        job = self.client.wait(self.client.submit(file_id, ithaca=SHORT)["id"])
        self.assertEqual(job["status"], "failed")
        self.assertEqual(job["error"]["code"], "invalid_data")
        self.assertEqual(job["ithaca"]["attempt"], 0)
        for number in (57, 80, 90):
            self.assertIn(f"line {number}", job["error"]["message"])
        self.assertFalse(os.path.exists(os.path.join(self.daemon.data_dir, "jobs", job["id"], "attempt-1")))

    def test_each_rule_has_its_reason(self):
        cases = {
            '{"prompt":"a"}': "completion",
            '{"text":"a","messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}': "both",
            '{"messages":[{"role":"robot","content":"a"},{"role":"assistant","content":"b"}]}': "robot",
            '{"messages":[{"role":"user","content":"a"}]}': "assistant",
            '[{"messages":[]}]': "line 2",
        }
        for bad, word in cases.items():
            file_id = self.client.upload((LINE + bad + "\n").encode())["id"]
            job = self.client.wait(self.client.submit(file_id, ithaca=SHORT)["id"])
            self.assertEqual(job["status"], "failed", bad)
            self.assertIn("line 2", job["error"]["message"], bad)
            self.assertIn(word, job["error"]["message"], bad)

    def test_dropped_lines_are_counted_and_an_empty_file_fails(self):
        dropped = '{"messages":[]}\n\n{"messages":null}\n'
        file_id = self.client.upload(dropped.encode())["id"]
        job = self.client.wait(self.client.submit(file_id, ithaca=SHORT)["id"])
        self.assertEqual((job["status"], job["error"]["code"]), ("failed", "invalid_data"))
        for number in (1, 2, 3):
            self.assertIn(f"line {number}", job["error"]["message"])
        file_id = self.client.upload((dropped + LINE).encode())["id"]
        job = self.client.wait(self.client.submit(file_id, ithaca=SHORT)["id"])
        self.assertEqual(job["status"], "succeeded", job["error"])
        self.assertTrue(any("3 lines dropped" in event["message"] for event in self.events(job["id"])))

    # ---- cancelled

    def test_cancel_while_running(self):
        job_id = self.running()
        self.client.cancel(job_id)
        self.assertEqual(self.left(), [])
        again = self.client.post(f"/v1/fine_tuning/jobs/{job_id}/cancel")
        self.assertEqual(again.status, 200 if again.json().get("status") == "cancelled" else 400, again.text)

    def test_cancel_while_starting(self):
        """R44: at any moment between the answer to submit and the first step."""
        for delay in (0, 0.05, 0.1, 0.2, 0.3):
            job_id = self.client.submit(self.file, ithaca=LONG)["id"]
            time.sleep(delay)
            self.client.cancel(job_id)
            self.assertEqual(self.left(), [])

    def test_cancel_while_queued_and_order(self):
        first = self.running()
        second = self.client.submit(self.file, ithaca=SHORT)["id"]
        third = self.client.submit(self.file, ithaca=SHORT)["id"]
        queued = self.client.wait(third, ("queued",))
        self.assertTrue(queued["ithaca"]["pending_reason"])
        cancelled = self.client.post(f"/v1/fine_tuning/jobs/{second}/cancel").json()
        self.assertEqual(cancelled["ithaca"]["state"], "cancelled")
        self.client.post(f"/v1/fine_tuning/jobs/{first}/cancel")
        self.assertEqual(self.client.wait(third)["status"], "succeeded")

    def test_cancel_of_a_finished_job_is_refused(self):
        job = self.client.wait(self.client.submit(self.file, ithaca=SHORT)["id"])
        answer = self.client.post(f"/v1/fine_tuning/jobs/{job['id']}/cancel")
        self.assertEqual(answer.status, 400)
        self.assertEqual(answer.error()["code"], "invalid_state")

    # ---- ranks that fail

    def test_killed_rank_fails_the_job_and_is_named(self):
        for number in (1, 0):
            job_id = self.running({**LONG, "max_restarts": 0})
            os.kill(self.ranks(job_id)[number], signal.SIGKILL)
            job = self.client.wait(job_id, seconds=30)
            self.assertEqual(job["status"], "failed")
            self.assertEqual(job["error"]["code"], "rank_died")
            self.assertIn(f"rank {number}", job["error"]["message"])
            self.assertRegex(job["error"]["message"], rf"SIGKILL.*; collective \d+ \(.+\): (rank {number} had not|all its ranks had) come")
            self.assertEqual(self.left(), [])
            for rank in (0, 1):
                log = self.client.get(f"/v1/fine_tuning/jobs/{job_id}/logs?rank={rank}").json()["text"]
                self.assertRegex(log, rf"\[last collectives of rank {rank},")
                self.assertRegex(log, r"\[\d+ \w+ of \d+ \w+, step \d+ \w+, asked .* done [\d.]+\]")

    def test_stopped_rank_is_hung_and_named(self):
        job_id = self.running({**LONG, "max_restarts": 0})
        os.kill(self.ranks(job_id)[1], signal.SIGSTOP)
        start = time.monotonic()
        job = self.client.wait(job_id, seconds=40)
        self.assertEqual(job["status"], "failed")
        self.assertEqual(job["error"]["code"], "rank_hung", job["error"])
        self.assertRegex(job["error"]["message"], r"^rank 1 .*; collective \d+ \(.+, step \d+, \w+\): (rank 1 had not come; its last was \d+|all its ranks had come)")
        self.assertEqual(self.left(), [])
        self.assertLess(time.monotonic() - start, 30 * e2e.slowdown())

    def test_killed_keeper_takes_its_ranks_along(self):
        job_id = self.running({**LONG, "max_restarts": 0})
        keepers = [pid for pid, command in e2e.processes_of(job_id) if "--keep" in command.split()]
        self.assertEqual(len(keepers), 1)
        os.kill(keepers[0], signal.SIGKILL)
        job = self.client.wait(job_id, seconds=30)
        self.assertEqual(job["status"], "failed")
        self.assertEqual(self.left(), [])

    def test_diverging_job_stops_with_its_reason_in_strict_json(self):
        """A decay of lr * weight_decay = 100 a step multiplies the weights by -99 until they overflow."""
        job_id = self.client.submit(self.file, ithaca={**SHORT, "max_steps": 60, "optimizer": {
            "learning_rate": 10, "weight_decay": 10, "schedule": "constant", "clip": 0}})["id"]
        job = self.client.wait(job_id)
        self.assertEqual((job["status"], job["error"]["code"]), ("failed", "nonfinite"), job["error"])
        self.assertRegex(job["error"]["message"], r"step \d+")
        self.check_strict_json(job_id)

    def test_diverging_job_that_skips_goes_on(self):
        """R57: what is not finite is null; what else the step has is there; the policy is in the job."""
        job_id = self.client.submit(self.file, ithaca={**SHORT, "max_steps": 16, "on_nonfinite": "skip", "optimizer": {
            "learning_rate": 10, "weight_decay": 10, "schedule": "constant", "clip": 0}})["id"]
        job = self.client.wait(job_id)
        self.assertEqual(job["status"], "succeeded", job["error"])
        self.assertEqual(job["ithaca"]["spec"]["on_nonfinite"], "skip")
        self.assertTrue(any("the update is skipped" in event["message"] for event in self.events(job_id)))
        self.check_strict_json(job_id)
        series = {one["key"]: {point[0]: point[1] for point in one["points"]} for one in self.client.get(
            f"/v1/fine_tuning/jobs/{job_id}/metrics?keys=loss,grad_norm,tokens,learning_rate").json()["data"]}
        self.assertIsNotNone(series["grad_norm"][1])
        self.assertIsNone(series["grad_norm"][16])
        for key in ("loss", "tokens", "learning_rate"):
            self.assertEqual(sorted(series[key]), list(range(1, 17)))
            self.assertNotIn(None, series[key].values())

    def check_strict_json(self, job_id):
        for path in ("", "/metrics", "/events"):
            text = self.client.get(f"/v1/fine_tuning/jobs/{job_id}{path}").text
            json.loads(text, parse_constant=lambda word: self.fail(f"{word} in JSON"))
        streamed = self.client.get(f"/v1/fine_tuning/jobs/{job_id}/stream", headers={"Last-Event-ID": "0-0"}).text
        lines = [line[6:] for line in streamed.splitlines() if line.startswith("data: ")]
        self.assertGreater(len(lines), 3)
        for line in lines:
            json.loads(line, parse_constant=lambda word: self.fail(f"{word} in JSON"))


class SmallSharedMemory(unittest.TestCase):
    WITHIN = """#!/bin/sh
exec unshare --mount sh -c 'mount -t tmpfs -o size=6m none /dev/shm && exec "$0" "$@"' {ithacad} "$@"
"""

    def test_job_says_what_is_needed_and_others_run(self):
        """R42: /dev/shm of a container: room for one rank, not for two."""
        if subprocess.run(["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/dev/shm"], capture_output=True,
                          check=False).returncode != 0:
            self.skipTest("no right to mount")
        with tempfile.TemporaryDirectory() as folder:
            program = os.path.join(folder, "ithacad")
            with open(program, "w", encoding="utf-8") as file:
                file.write(self.WITHIN.format(ithacad=e2e.ITHACAD))
            os.chmod(program, 0o700)
            with unittest.mock.patch.object(e2e, "ITHACAD", program), e2e.Daemon() as daemon:
                client = daemon.client()
                file_id = client.upload((LINE * 8).encode())["id"]
                job = client.wait(client.submit(file_id, ithaca={**SHORT, "max_restarts": 0})["id"])
                self.assertEqual((job["status"], job["error"]["code"]), ("failed", "no_space"), job["error"])
                self.assertRegex(job["error"]["message"], r"/dev/shm is too small: .* \d+ bytes .* \d+ of 6291456 are free")
                job = client.wait(client.submit(file_id, ithaca={**SHORT, "gpus": 1})["id"])
                self.assertEqual(job["status"], "succeeded", job["error"])


class SmallDisk(unittest.TestCase):
    def test_refused_at_submit(self):
        """R54: no job starts that cannot save."""
        folder = tempfile.mkdtemp(prefix="ithaca-e2e-")
        try:
            if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "none", folder], capture_output=True,
                              check=False).returncode != 0:
                self.skipTest("no right to mount a small disk")
            with e2e.Daemon(data_dir=folder) as daemon:
                client = daemon.client()
                file_id = client.upload(LINE.encode())["id"]
                answer = client.post("/v1/fine_tuning/jobs", {"model": "tiny-llama", "training_file": file_id})
                self.assertEqual((answer.status, answer.error()["code"]), (507, "no_space"))
                self.assertRegex(answer.error()["message"], r"needs \d+\.\d MiB of disk .* has \d+\.\d MiB free")
                self.assertEqual(client.get("/v1/fine_tuning/jobs").json()["data"], [])
        finally:
            subprocess.run(["umount", folder], capture_output=True, check=False)
            os.rmdir(folder)


if __name__ == "__main__":
    unittest.main()
