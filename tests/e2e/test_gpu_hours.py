#!/usr/bin/python3
"""GPU-hours: of two users' jobs, one of them restarted after a rank was killed, one deleted; by API, command line, CSV and
for Prometheus, over a restart of the daemon."""
import csv
import io
import os
import signal
import time
import unittest

from ithaca_e2e import LINE, DaemonTest, processes_of, until

SMALL = {"gpus": 2, "seq_len": 64, "max_steps": 6, "batch": {"sequences": 2}}


class Usage(DaemonTest):
    arguments = ("--device", "cpu", "--cpu-slots", "2")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.ann, cls.bob = cls.client.user("ann"), cls.client.user("bob")

    def usage(self, client=None, **query):
        words = "&".join(f"{key}={value}" for key, value in query.items())
        answer = (client or self.client).get(f"/v1/usage?{words}")
        self.assertEqual(answer.status, 200, answer.text)
        return answer.json()

    def sums(self, client=None, **query):
        return {row["key"]: row for row in self.usage(client, **query)["data"]}

    def test_1_a_job_that_is_restarted(self):
        file = self.ann.upload(LINE * 40)["id"]
        self.daemon.hold(4)
        job = self.ann.submit(file, ithaca={**SMALL, "max_restarts": 1, "save": {"every_steps": 2}})["id"]
        until("four steps are done", 30, lambda: self.ann.job(job)["ithaca"]["steps_done"] == 4)
        first = self.sums(self.ann)["ann"]
        self.assertGreater(first["cpu_slot_hours"], 0)
        time.sleep(1.2)
        running = self.sums(self.ann)["ann"]
        slot_s = (running["cpu_slot_hours"] - first["cpu_slot_hours"]) * 3600
        self.assertTrue(2 < slot_s < 20, f"{slot_s} slot-seconds in some 1.2 s")
        self.assertEqual((running["jobs"], running["attempts"]), (1, 1))
        ranks = [pid for pid, command in processes_of(self.daemon.data_dir) if "--rank 1 " in command + " "]
        self.assertEqual(len(ranks), 1)
        os.kill(ranks[0], signal.SIGKILL)
        self.daemon.hold(None)
        self.assertEqual(self.ann.wait(job)["status"], "succeeded")
        usage = self.usage(self.ann, by="job")
        row = usage["data"][0]
        self.assertEqual((row["key"], row["user"], row["model"], row["attempts"]), (job, "ann", "tiny-llama", 2))
        self.assertEqual(usage["total"]["cpu_slot_hours"], row["cpu_slot_hours"])
        every = self.tokens(job)
        self.assertEqual(row["tokens"], sum(every))
        self.assertEqual(row["repeated_steps"], len(every) - SMALL["max_steps"])
        self.assertEqual(row["lost_cpu_slot_hours"] > 0, row["repeated_steps"] > 0)
        self.assertLess(row["lost_cpu_slot_hours"], row["cpu_slot_hours"])

    def tokens(self, job):
        """The tokens of each step of each attempt."""
        tokens = []
        for attempt in (1, 2):
            answer = self.client.get(f"/v1/fine_tuning/jobs/{job}/metrics?keys=tokens&attempt={attempt}").json()
            tokens += [point[1] for series in answer["data"] for point in series["points"]]
        return tokens

    def test_2_users_see_their_own_and_what_was_deleted_stays(self):
        file = self.bob.upload(LINE * 40)["id"]
        job = self.bob.submit(file, ithaca=SMALL)["id"]
        self.assertEqual(self.bob.wait(job)["status"], "succeeded")
        before = self.usage(by="user")
        self.assertEqual(set(self.sums()), {"ann", "bob"})
        self.assertEqual(set(self.sums(self.bob)), {"bob"})
        self.assertEqual(before["total"]["jobs"], 2)
        self.assertEqual(before["total"]["gpu_hours"], 0)
        self.assertEqual(set(self.sums(by="state")), {"succeeded"})
        self.assertEqual(set(self.sums(by="model")), {"tiny-llama"})
        self.assertEqual(self.bob.delete(f"/v1/fine_tuning/jobs/{job}").status, 200)
        self.daemon.stop()
        self.daemon.start()
        for client in (self.client, self.ann, self.bob):
            client.port = self.daemon.port
        after = self.usage(by="user")
        self.assertEqual(before["data"], after["data"])
        self.assertEqual(before["total"], after["total"])
        self.assertEqual(self.sums(self.bob, by="job")[job]["user"], "bob")
        now = int(time.time())
        self.assertEqual(self.usage(after=now + 10)["data"], [])
        self.assertEqual(self.usage(before=now - 3600)["data"], [])
        days = self.usage(by="day")
        self.assertAlmostEqual(sum(row["cpu_slot_hours"] for row in days["data"]), days["total"]["cpu_slot_hours"], 4)

    def test_3_command_line_csv_and_prometheus(self):
        done = self.daemon.ithaca("usage", "--since", "7d")
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = [line.split() for line in done.stdout.splitlines()]
        self.assertEqual(lines[0][:4], ["USER", "JOBS", "ATTEMPTS", "SLOT-HOURS"])
        self.assertEqual({line[0] for line in lines[1:]}, {"ann", "bob", "all"})
        done = self.daemon.ithaca("usage", "--csv", "--by", "job")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = list(csv.DictReader(io.StringIO(done.stdout)))
        wanted = self.usage(by="job")["data"]
        self.assertEqual([row["key"] for row in rows], [row["key"] for row in wanted])
        for row, other in zip(rows, wanted):
            self.assertAlmostEqual(float(row["cpu_slot_hours"]), other["cpu_slot_hours"], 5)
            self.assertEqual(int(row["tokens"]), other["tokens"])
        done = self.daemon.ithaca("usage", "--after", "soon")
        self.assertEqual(done.returncode, 64, done.stderr)
        answer = self.client.get("/v1/usage?format=csv")
        self.assertEqual(answer.headers["content-type"], "text/csv; charset=utf-8")
        self.assertEqual(answer.body.decode().splitlines()[0].split(",")[0], "key")
        file = self.ann.upload(LINE * 40)["id"]
        self.assertEqual(self.ann.wait(self.ann.submit(file, ithaca=SMALL)["id"])["status"], "succeeded")
        counted = [line for line in self.client.get("/metrics").text.splitlines()
                   if line.startswith('ithaca_user_cpu_slot_seconds_total{user="ann"}')]
        self.assertEqual(len(counted), 1)
        self.assertGreater(float(counted[0].split()[1]), 0)
        self.assertNotIn('user="bob"', self.ann.get("/metrics").text)


if __name__ == "__main__":
    unittest.main()
