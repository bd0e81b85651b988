#!/usr/bin/python3
"""Cases that users of other systems have met and that belong to no one part: ports that are taken (R47), files that take
longer to tokenise than a collective may (R48)."""
import os
import signal
import socket
import time
import unittest

from ithaca_e2e import DaemonTest, processes_of, until

LINE = b'{"messages":[{"role":"user","content":"Where is the ship?"},{"role":"assistant","content":"At quay %d."}]}\n'
JOB = {"gpus": 2, "seq_len": 32, "max_steps": 2, "batch": {"sequences": 2}, "max_restarts": 0}


class FieldCases(DaemonTest):
    arguments = ("--coll-timeout-s", "1", "--heartbeat-limit-s", "5", "--cpu-slots", "4")

    def succeeds(self, job_id):
        job = self.client.wait(job_id, seconds=60)
        self.assertEqual(job["ithaca"]["state"], "succeeded", job["error"])

    def test_ports_of_others_are_taken(self):
        """R47: the rendezvous of PyTorch, NCCL's health port, and two jobs at once."""
        for port in (29500, 28028):
            try:
                taken = socket.create_server(("127.0.0.1", port))
            except OSError:
                continue  # somebody has it, which is as good
            self.addCleanup(taken.close)
        file_id = self.client.upload(LINE * 16)["id"]
        for job_id in [self.client.submit(file_id, ithaca=JOB)["id"] for _ in range(2)]:
            self.succeeds(job_id)

    def test_tokenising_takes_longer_than_a_collective_may(self):
        """R48: it is over before there are ranks that could wait for it."""
        file_id = self.client.upload(LINE * 60000)["id"]
        job_id = self.client.submit(file_id, ithaca=JOB)["id"]
        child = until("the check of its files", 30, lambda: [
            pid for pid, command in processes_of(self.daemon.data_dir) if "--prepare" in command.split()], every=0.005)[0]
        os.kill(child, signal.SIGSTOP)
        time.sleep(2.5)  # of a collective that may take one second
        self.assertEqual(self.client.job(job_id)["ithaca"]["state"], "validating")
        os.kill(child, signal.SIGCONT)
        self.succeeds(job_id)


if __name__ == "__main__":
    unittest.main()
