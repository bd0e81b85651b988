#!/usr/bin/python3
"""A training job seen through its streams: every point once, in order, whatever was cut off in between; and the same
points by GET."""
import os
import threading
import unittest

from ithaca_e2e import EXAMPLE_DIR, DaemonTest

STEPS = 3


class Stream(DaemonTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.all = []
        # The stream of all jobs begins at now: open it before the job.
        cls.reader = threading.Thread(target=cls.read_all, daemon=True)
        cls.reader.start()
        file = cls.client.upload(os.path.join(EXAMPLE_DIR, "train.jsonl"))
        cls.job = cls.client.submit(file["id"], ithaca={"gpus": 2, "seq_len": 128, "max_steps": STEPS,
                                                        "batch": {"sequences": 2}})["id"]
        cls.path = f"/v1/fine_tuning/jobs/{cls.job}"
        cls.live = list(cls.client.stream(cls.path + "/stream"))

    @classmethod
    def read_all(cls):
        for message in cls.client.stream("/v1/stream"):
            cls.all.append(message)

    def points(self, messages):
        return [(data["attempt"], data["step"], data["rank"], key, value)
                for event, _, data in messages if event == "metrics" for key, value in data["metrics"].items()]

    def test_live(self):
        self.assertEqual(self.live[-1][0], "end")
        self.assertEqual(self.live[-1][2]["status"], "succeeded", self.live[-1][2])
        states = [data["state"] for event, _, data in self.live if event == "state"]
        self.assertEqual(states, ["validating", "queued", "starting", "running", "succeeded"])
        points = self.points(self.live)
        self.assertEqual(len(points), len({point[:4] for point in points}))
        self.assertEqual(sorted({point[1] for point in points if point[3] == "loss"}), list(range(1, STEPS + 1)))
        self.assertEqual({point[2] for point in points if point[3] == "host_bytes"}, {0, 1})

    def test_replay_from_every_message(self):
        numbered = [message for message in self.live if message[0] in ("event", "metrics")]
        for at, (_, event_id, _) in enumerate(numbered):
            again = [message for message in self.client.stream(self.path + "/stream", last_event_id=event_id)
                     if message[0] in ("event", "metrics")]
            want = numbered[at + 1:]
            self.assertEqual([m[2] for m in again if m[0] == "event"], [m[2] for m in want if m[0] == "event"])
            self.assertEqual(self.points(again), self.points(want))

    def test_all_jobs(self):
        mine = [message for message in self.all if message[2].get("job_id") == self.job]
        self.assertEqual(self.points(mine), self.points(self.live))
        self.assertNotIn("end", [message[0] for message in self.all])

    def test_metrics(self):
        whole = self.client.get(self.path + "/metrics").json()
        got = {(one["attempt"], step, one["rank"], one["key"]): value
               for one in whole["data"] for step, value, _ in one["points"]}
        self.assertEqual(got, {point[:4]: point[4] for point in self.points(self.live)})
        self.assertFalse(whole["has_more"])
        some = self.client.get(self.path + f"/metrics?keys=loss,host_bytes&from_step={STEPS}&rank=1").json()["data"]
        self.assertEqual([(one["key"], [point[0] for point in one["points"]]) for one in some], [("host_bytes", [STEPS])])
        paged, after = 0, 0
        while True:
            page = self.client.get(self.path + f"/metrics?limit=7&after={after}").json()
            paged += sum(len(one["points"]) for one in page["data"])
            if not page["has_more"]:
                break
            self.assertGreater(page["after"], after)
            after = page["after"]
        self.assertEqual(paged, len(got))

    def test_sampled(self):
        whole = self.client.get(self.path + "/metrics").json()["data"]
        sampled = self.client.get(self.path + "/metrics?max_points=10").json()
        self.assertFalse(sampled["has_more"])

        def keyed(data):
            return {(one["key"], one["attempt"], one["rank"]): one["points"] for one in data}
        self.assertEqual(keyed(sampled["data"]), keyed(whole))  # a series no longer than asked for is whole
        some = self.client.get(self.path + "/metrics?max_points=10&keys=loss,host_bytes&rank=1&attempt=1").json()["data"]
        self.assertEqual([(one["key"], one["rank"]) for one in some], [("host_bytes", 1)])
        self.assertEqual(self.client.get(self.path + "/metrics?max_points=10&attempt=2").json()["data"], [])
        self.assertEqual(self.client.get(self.path + "/metrics?max_points=9").error()["param"], "max_points")

    def test_memory(self):
        memory = self.client.get(self.path + "/memory").json()
        planned = memory["planned"]
        self.assertEqual(sum(planned["peak"].values()), planned["peak_device_bytes"], planned["peak"])
        peaks = [point[1] for one in memory["data"] if one["key"] == "arena_peak_bytes" for point in one["points"]]
        self.assertEqual(set(peaks), {planned["peak_device_bytes"]})  # planned and measured, on both ranks
        self.assertEqual({one["rank"] for one in memory["data"] if one["key"] == "host_bytes"}, {0, 1})
        for rank in (0, 1):  # by category too, said once
            taken = {one["key"]: one["points"] for one in memory["data"] if one["rank"] == rank and one["key"].startswith("peak_")}
            self.assertEqual({key: [point[:2] for point in points] for key, points in taken.items()},
                             {f"peak_{name}_bytes": [[1, size]] for name, size in planned["peak"].items()
                              if name not in ("context", "unused")})
        self.assertEqual(self.client.get("/v1/fine_tuning/jobs/ftjob-none/memory").status, 404)

    def test_events_page(self):
        seen, after = [], ""
        while True:
            page = self.client.get(self.path + "/events?limit=2" + after).json()
            seen += [one["id"] for one in page["data"]]
            if not page["has_more"]:
                break
            after = "&after=" + page["last_id"]
        self.assertEqual(seen[::-1], [data["id"] for event, _, data in self.live if event == "event"])

    def test_logs(self):
        for rank in (0, 1):
            log = self.client.get(self.path + f"/logs?rank={rank}").json()
            path = os.path.join(self.daemon.data_dir, "jobs", self.job, "attempt-1", f"rank-{rank}.log")
            size = os.path.getsize(path)
            self.assertEqual((log["start"], log["after"], log["rank"]), (0, size, rank))
            rest = self.client.get(self.path + f"/logs?rank={rank}&after={size + 5}").json()
            self.assertEqual((rest["text"], rest["after"]), ("", size + 5))

    def test_tuned_model(self):
        job = self.client.job(self.job)
        name = job["fine_tuned_model"]
        self.assertIn(name, [one["id"] for one in self.client.get("/v1/models").json()["data"]])
        self.assertEqual(self.client.get("/v1/models/" + name).json()["id"], name)
        for model in (name, self.job):
            answer = self.client.post("/v1/chat/completions", {
                "model": model, "max_tokens": 4, "messages": [{"role": "user", "content": "a"}]})
            self.assertEqual((answer.status, answer.json()["model"]), (200, name), answer.text)


if __name__ == "__main__":
    unittest.main()
