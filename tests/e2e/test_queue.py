#!/usr/bin/python3
"""The queue of a machine of two slots: why jobs wait, holds, dependencies, changes, room made for others, drain, and what
users see of each other."""
import re
import unittest

from ithaca_e2e import DaemonTest, until

LINE = b'{"messages":[{"role":"user","content":"Where?"},{"role":"assistant","content":"By the quay."}]}\n'
SMALL = {"gpus": 1, "seq_len": 64, "max_steps": 4, "batch": {"sequences": 2}}
WIDE = {**SMALL, "gpus": 2}


class Queue(DaemonTest):
    arguments = ("--device", "cpu", "--cpu-slots", "2", "--preempt-after-s", "1")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.file = cls.client.upload(LINE * 40)["id"]

    def tearDown(self):
        self.daemon.hold(None)

    def submit(self, ithaca, state="queued"):
        job = self.client.submit(self.file, ithaca=ithaca)["id"]
        self.client.wait(job, (state,))
        return job

    def change(self, job, **fields):
        answer = self.client.request("PATCH", f"/v1/fine_tuning/jobs/{job}", {"ithaca": fields})
        self.assertEqual(answer.status, 200, answer.text)
        return answer.json()["ithaca"]

    def queue(self):
        answer = self.client.get("/v1/queue")
        self.assertEqual(answer.status, 200, answer.text)
        return answer.json()

    def ithaca(self, *args):
        done = self.daemon.ithaca(*args)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def succeeds(self, *jobs):
        for job in jobs:
            ended = self.client.wait(job)
            self.assertEqual(ended["status"], "succeeded", ended["error"])

    def test_1_room_is_made_and_given_back(self):
        self.daemon.hold(2)
        low = self.submit({**WIDE, "preemptible": True, "priority": -1}, "running")
        until("two steps are done", 30, lambda: self.client.job(low)["ithaca"]["steps_done"] == 2)
        first = self.submit({**SMALL, "hold": True, "tags": ["night"], "time_limit_s": 600})
        second = self.submit({**SMALL, "depends_on": [first]})
        queue = self.queue()
        self.assertEqual([entry["id"] for entry in queue["running"]], [low])
        self.assertEqual([(entry["id"], entry["queue_position"], entry["pending_reason"]) for entry in queue["waiting"]],
                         [(first, 1, "held until it is released (hold: false)"),
                          (second, 2, f"waits for {first} to succeed, which is queued")])
        self.ithaca("hold", first)
        self.ithaca("release", first)
        self.client.wait(first, ("running",))
        waiting = self.client.job(low)
        self.assertEqual((waiting["status"], waiting["ithaca"]["state"]), ("queued", "queued"))
        self.assertEqual(waiting["ithaca"]["pending_reason"], "needs 2 of 2 slots, 1 free")
        self.assertIsNotNone(waiting["ithaca"]["estimated_start"])  # at the latest when the other's time is up
        self.daemon.hold(None)
        self.succeeds(first, second, low)
        low = self.client.job(low)["ithaca"]
        self.assertEqual((low["attempt"], low["restarts"]), (2, 0))
        self.assertIsNotNone(low["resumed_from"])
        self.assertEqual(self.client.job(first)["ithaca"]["spec"]["tags"], ["night"])

    def test_2_changes(self):
        self.daemon.hold(1)
        running = self.submit(WIDE, "running")
        first, second = self.submit(WIDE), self.submit(WIDE)
        changed = self.change(second, priority=5, tags=["a", "b"], max_restarts=0)
        self.assertEqual((changed["queue_position"], changed["spec"]["priority"]), (1, 5))
        told = self.client.get(f"/v1/fine_tuning/jobs/{second}/events?limit=1").json()["data"][0]
        self.assertEqual((told["message"].split(": ")[0], told["data"]["user"]), ("Job is changed by admin", "admin"))
        self.assertRegex(told["data"]["request_id"], "^req_")
        self.assertEqual(self.client.job(first)["ithaca"]["pending_reason"], "waits behind 1 other job")
        self.ithaca("update", first, "--set", "priority=6")
        self.assertEqual(self.client.job(second)["ithaca"]["queue_position"], 2)
        path = f"/v1/fine_tuning/jobs/{running}"
        for body, status, param in (({"ithaca": {"seq_len": 128}}, 400, "ithaca.seq_len"),
                                    ({"ithaca": {"priority": "high"}}, 400, "ithaca.priority"),
                                    ({"ithaca": {"depends_on": [running]}}, 400, "ithaca.depends_on"),
                                    ({"model": "x"}, 400, "model"), ({}, 400, "ithaca")):
            answer = self.client.request("PATCH", path, body)
            self.assertEqual((answer.status, answer.error()["param"]), (status, param), answer.text)
        self.change(running, time_limit_s=1)  # of a job that runs: its time is up
        self.assertEqual(self.client.wait(running)["error"]["code"], "time_limit")
        self.assertEqual(self.client.request("PATCH", path, {"ithaca": {"priority": 1}}).error()["code"], "invalid_state")
        self.daemon.hold(None)
        self.succeeds(first, second)

    def test_2_how_to_pass_is_told(self):
        """A long job behind one that waits for the whole machine: what it is told to do starts it."""
        self.daemon.hold(1)
        endless = {**SMALL, "max_steps": 10 ** 7}
        running = self.submit({**endless, "time_limit_s": 600}, "running")
        wide, long = self.submit(WIDE), self.submit(endless)
        self.assertIsNotNone(self.client.job(wide)["ithaca"]["estimated_start"])
        reason = self.client.job(long)["ithaca"]["pending_reason"]
        told = re.fullmatch(r"waits behind 1 other job; with a time_limit_s of (\d+) or less it could start now", reason)
        self.assertTrue(told and 500 < int(told[1]) <= 600, reason)
        self.change(long, time_limit_s=int(told[1]) - 60)  # the one that runs comes nearer to its end meanwhile
        self.client.wait(long, ("running",))
        for job in (running, wide, long):
            self.client.cancel(job)

    def test_3_a_dependency_that_fails(self):
        first = self.submit({**SMALL, "hold": True})
        second = self.submit({**SMALL, "depends_on": [first]})
        self.client.post(f"/v1/fine_tuning/jobs/{first}/cancel")
        error = self.client.wait(second)["error"]
        self.assertEqual(error["code"], "dependency_failed")
        self.assertIn(f"it depends on {first}, which is cancelled", error["message"])
        answer = self.client.post("/v1/fine_tuning/jobs", {
            "model": "tiny-llama", "training_file": self.file, "ithaca": {"depends_on": ["ftjob-none"]}})
        self.assertEqual((answer.status, answer.error()["param"]), (400, "ithaca.depends_on"))

    def test_4_drain(self):
        self.assertIn("drained", self.ithaca("queue", "drain"))
        job = self.submit(SMALL)
        self.assertEqual(self.client.job(job)["ithaca"]["pending_reason"], "nothing starts: the queue is drained")
        used = {user["user"]: user["total_s"] for user in self.queue()["users"]}["admin"]
        self.assertGreater(used, 0)
        self.daemon.stop()
        self.daemon.start()
        type(self).client = self.daemon.client()
        self.assertEqual(self.client.job(job)["ithaca"]["state"], "queued")
        queue = self.queue()
        self.assertTrue(queue["drained"])
        self.assertEqual({user["user"]: user["total_s"] for user in queue["users"]}["admin"], used)
        self.assertIn(job, self.ithaca("queue"))
        self.ithaca("queue", "undrain")
        self.succeeds(job)

    def test_5_what_users_see_of_each_other(self):
        bob = self.client.user("bob")
        mine = self.submit({**SMALL, "hold": True})
        seen = bob.get("/v1/queue").json()
        self.assertEqual([(entry["id"], entry["owner"]) for entry in seen["waiting"]], [(None, None)])
        self.assertEqual([user["user"] for user in seen["users"]], [])
        patch = bob.request("PATCH", f"/v1/fine_tuning/jobs/{mine}", {"ithaca": {"hold": False}})
        self.assertEqual(patch.status, 404)
        self.assertEqual(bob.post("/v1/admin/drain").status, 403)
        self.client.post(f"/v1/fine_tuning/jobs/{mine}/cancel")
        refused = bob.post("/v1/fine_tuning/jobs", {"model": "tiny-llama", "training_file": bob.upload(LINE * 40)["id"],
                                                    "ithaca": {**SMALL, "priority": 1}})
        self.assertEqual((refused.status, refused.error()["param"]), (403, "ithaca.priority"))
        his = bob.submit(bob.upload(LINE * 40)["id"], ithaca={**SMALL, "hold": True, "priority": -1})["id"]
        path = f"/v1/fine_tuning/jobs/{his}"
        self.assertEqual(bob.request("PATCH", path, {"ithaca": {"priority": 1}}).status, 403)
        self.assertEqual(bob.request("PATCH", path, {"ithaca": {"priority": 0}}).status, 200)
        self.assertEqual(self.change(his, priority=7)["owner"], "bob")  # an admin may
        bob.post(f"{path}/cancel")


if __name__ == "__main__":
    unittest.main()
