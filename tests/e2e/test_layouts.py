"""Layouts of ranks and heads, asked for over HTTP: what cannot be is refused with what can; what can trains to the same
losses as one rank does."""
import unittest

import ithaca_e2e as e2e

WORDS = "the ship left the quay before the tide was out and nobody on the shore saw her go".split()
LINE = '{"messages":[{"role":"user","content":"%s?"},{"role":"assistant","content":"%s."}]}\n'
TRAIN = "".join(LINE % (WORDS[i % len(WORDS)], " ".join(WORDS[i % 7:i % 7 + 1 + i % 10])) for i in range(40))
PLAIN = {"gpus": 1, "seq_len": 150, "max_steps": 3, "batch": {"sequences": 3}, "optimizer": {"learning_rate": 1e-3}}
TOLERANCE = 2e-5  # relative; sums run in another order (seen: 1.2e-6)


def resolved(job):
    context = job["ithaca"]["spec"]["context_parallel"]
    return context["kind"], context["ulysses"], context["ring"], context["heads_per_stage"]


class Layouts(e2e.DaemonTest):
    """tiny-llama has 8 heads, 4 key/value heads and 4 layers."""

    env = {"ITHACA_CPU_SLOTS": "4"}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.train = cls.client.upload(TRAIN.encode())["id"]
        cls.valid = cls.client.upload(TRAIN[:1000].rpartition("\n")[0].encode())["id"]

    def refused(self, ithaca, param, *words):
        answer = self.client.post("/v1/fine_tuning/jobs",
                                  {"model": "tiny-llama", "training_file": self.train, "ithaca": ithaca})
        self.assertEqual(answer.status, 400, answer.text)
        error = answer.error()
        self.assertEqual((error["code"], error["param"]), ("invalid_value", "ithaca." + param), error)
        for word in words:
            self.assertIn(word, error["message"])

    def test_what_cannot_be_is_refused_with_what_can(self):
        for gpus, context, param, words in (
                (3, {"kind": "ulysses", "ulysses": 3}, "ulysses", ("is 3; it must be 1:", "8 heads", "4 key/value heads")),
                (4, {"ulysses": 8}, "ulysses", ("is 8; it must be 1, 2 or 4", "gpus / ring (4)")),
                (4, {"kind": "upipe", "ulysses": 4, "ring": 2}, "ulysses", ("it must be 1 or 2",)),
                (4, {"kind": "ring", "ring": 3}, "ring", ("is 3; it must be 1, 2 or 4", "gpus")),
                (4, {"kind": "ring", "ulysses": 2}, "ulysses", ("must be 1 unless", "ulysses or upipe")),
                (4, {"kind": "none", "ring": 2}, "ring", ("it must be 1 with context_parallel.kind none",)),
                (2, {"kind": "upipe", "heads_per_stage": 3}, "heads_per_stage", ("it must be 1, 2 or 4", "ulysses 2")),
                (2, {"kind": "ulysses", "heads_per_stage": 2}, "heads_per_stage", ("it must be 4", "upipe"))):
            self.refused({"gpus": gpus, "context_parallel": context}, "context_parallel." + param, *words)
        self.refused({"recompute": "attention", "keep_input_every": 5}, "keep_input_every", "from 1 to 4")
        self.refused({"gpus": 2, "overlap": True, "context_parallel": {"kind": "ulysses"}}, "overlap", "no next stage")
        self.refused({"recompute": "input", "keep_input_every": 2}, "keep_input_every", "recompute is attention")

    def losses(self, **ithaca):
        job = self.client.submit(self.train, validation_file=self.valid, ithaca={**PLAIN, **ithaca})
        job = self.client.wait(job["id"])
        self.assertEqual(job["status"], "succeeded", job["error"])
        points = {}
        for event, _, data in self.client.stream(f"/v1/fine_tuning/jobs/{job['id']}/stream"):
            for key in ("loss", "grad_norm", "valid_loss") if event == "metrics" else ():
                if key in data["metrics"]:
                    points[key, data["step"]] = data["metrics"][key]
        return job, points

    def test_every_kind_trains_to_the_same_losses(self):
        job, plain = self.losses()
        self.assertEqual(resolved(job), ("none", 1, 1, 8))
        self.assertEqual(len([key for key, _ in plain if key == "loss"]), 3)
        self.assertIn("valid_loss", [key for key, _ in plain])
        for ithaca, layout in (
                ({"gpus": 2, "context_parallel": {"kind": "ring"}, "fsdp": False}, ("ring", 1, 2, 8)),
                ({"gpus": 2, "context_parallel": {"ulysses": 2}, "tile_mlp": 16, "tile_loss": 7}, ("ulysses", 2, 1, 4)),
                ({"gpus": 4, "context_parallel": {"kind": "upipe", "ulysses": 2}, "recompute": "input",
                  "overlap": True}, ("upipe", 2, 1, 1)),  # and two data-parallel ranks
                ({"gpus": 4, "context_parallel": {"kind": "upipe", "ring": 2, "heads_per_stage": 2},
                  "recompute": "attention"}, ("upipe", 2, 2, 2))):
            with self.subTest(layout=layout):
                other, points = self.losses(**ithaca)
                self.assertEqual(resolved(other), layout)
                self.assertEqual(other["trained_tokens"], job["trained_tokens"])
                self.assertEqual(set(points), set(plain))
                for at, value in plain.items():
                    self.assertAlmostEqual(points[at], value, delta=TOLERANCE * max(1, value), msg=at)


if __name__ == "__main__":
    unittest.main()
