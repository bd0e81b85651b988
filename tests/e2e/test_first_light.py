"""The whole road: the example job, submitted and followed as a user does, ends with a model that answers.

    python3 tests/e2e/test_first_light.py       (ITHACA_BUILD_DIR: a release build)
"""
import json
import os
import struct
import time
import unittest

import ithaca_e2e as e2e

QUESTIONS = 20
RIGHT_AT_LEAST = 15
VALID_LOSS_BELOW = 0.8  # nats per byte of the assistant's words
SECONDS_AT_MOST = 120
with open(os.path.join(e2e.EXAMPLE_DIR, "job.json"), encoding="utf-8") as job_file:
    STEPS = json.load(job_file)["ithaca"]["max_steps"]


def held_out():
    with open(os.path.join(e2e.EXAMPLE_DIR, "valid.jsonl"), encoding="utf-8") as file:
        examples = [json.loads(line)["messages"] for line in file]
    return [(m[-2]["content"], m[-1]["content"]) for m in examples[:QUESTIONS]]


class FirstLight(unittest.TestCase):
    """One daemon, one job, looked at from every side."""

    @classmethod
    def setUpClass(cls):
        cls.daemon = e2e.Daemon()
        cls.client = cls.daemon.client()
        try:
            before, start = e2e.slowdown(), time.monotonic()
            done = cls.daemon.ithaca("submit", os.path.join(e2e.EXAMPLE_DIR, "job.json"),
                                     "--training-file", os.path.join(e2e.EXAMPLE_DIR, "train.jsonl"),
                                     "--validation-file", os.path.join(e2e.EXAMPLE_DIR, "valid.jsonl"), "--follow",
                                     seconds=SECONDS_AT_MOST * e2e.PATIENCE)
            cls.seconds = (time.monotonic() - start) / max(before, e2e.slowdown())
            cls.followed = done
            cls.job_id = done.stdout.strip()
            cls.job = cls.client.job(cls.job_id)
        except BaseException:
            print(cls.daemon.log())
            cls.daemon.__exit__(None, None, None)
            raise

    @classmethod
    def tearDownClass(cls):
        assert cls.daemon.stop() == 0
        cls.daemon.__exit__(None, None, None)

    def test_follow_ends_with_success_in_time(self):
        self.assertEqual(self.followed.returncode, 0, self.followed.stderr)
        self.assertRegex(self.followed.stderr, rf"{STEPS}/{STEPS}  loss \d\.\d+ .*valid \d\.\d+ .*tok/s")
        self.assertIn("succeeded: ft:tiny-llama:", self.followed.stderr)
        print(f"submit to success: {self.seconds:.1f} s of a machine of its own")
        self.assertLess(self.seconds, SECONDS_AT_MOST)

    def test_job_has_openai_shape(self):
        job = self.job
        required = {"id", "object", "created_at", "error", "fine_tuned_model", "finished_at", "hyperparameters", "model",
                    "organization_id", "result_files", "status", "trained_tokens", "training_file", "validation_file",
                    "seed"}
        self.assertFalse(required - set(job), required - set(job))
        self.assertEqual((job["object"], job["status"], job["error"]), ("fine_tuning.job", "succeeded", None))
        self.assertEqual(job["ithaca"]["steps_done"], STEPS)
        self.assertGreater(job["trained_tokens"], 10000)
        self.assertGreaterEqual(job["finished_at"], job["created_at"])

    def test_metrics_are_complete(self):
        answer = self.client.get(f"/v1/fine_tuning/jobs/{self.job_id}/metrics?keys=loss,valid_loss,tokens_per_s")
        self.assertEqual(answer.status, 200, answer.text)
        steps, valid = [], []
        for event, _, data in self.client.stream(f"/v1/fine_tuning/jobs/{self.job_id}/stream"):
            if event == "metrics" and "loss" in data["metrics"]:
                steps.append((data["step"], data["metrics"]["loss"]))
            if event == "metrics" and "valid_loss" in data["metrics"]:
                valid.append(data["metrics"]["valid_loss"])
        self.assertEqual([step for step, _ in steps], list(range(1, STEPS + 1)))
        self.assertGreater(steps[0][1], 3)
        self.assertLess(valid[-1], VALID_LOSS_BELOW)
        print(f"held-out loss {valid[-1]:.4f} nats/byte")

    def test_stream_resumes_where_it_was_left(self):
        path = f"/v1/fine_tuning/jobs/{self.job_id}/stream"
        whole = [(kind, ident) for kind, ident, _ in self.client.stream(path) if ident]
        middle = whole[len(whole) // 2][1]
        rest = [(kind, ident) for kind, ident, _ in self.client.stream(path, last_event_id=middle) if ident]
        self.assertEqual(rest, whole[len(whole) // 2 + 1:])

    def test_tuned_model_answers_and_base_does_not(self):
        right = {"--job": 0, "--model": 0}
        for question, answer in held_out():
            for option, name in (("--job", self.job_id), ("--model", "tiny-llama")):
                done = self.daemon.ithaca("sample", option, name, "--prompt", question, "--max-tokens", "96")
                self.assertEqual(done.returncode, 0, done.stderr)
                right[option] += done.stdout.rstrip("\n") == answer
        print(f"exactly right: tuned {right['--job']} of {QUESTIONS}, base {right['--model']}")
        self.assertGreaterEqual(right["--job"], RIGHT_AT_LEAST)
        self.assertEqual(right["--model"], 0)

    def test_model_folder_is_whole(self):
        folder = os.path.join(self.daemon.data_dir, "jobs", self.job_id, "model")
        self.assertLessEqual({"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"},
                             set(os.listdir(folder)))
        with open(os.path.join(folder, "model.safetensors"), "rb") as file:
            header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        header.pop("__metadata__", None)
        self.assertEqual(header["model.embed_tokens.weight"]["shape"], [264, 256])
        self.assertEqual(len(header), 2 + 4 * 9)

    def test_nothing_is_left_running(self):
        self.assertEqual(e2e.processes_of(self.daemon.data_dir, ignore={self.daemon.process.pid}), [])


if __name__ == "__main__":
    unittest.main()
