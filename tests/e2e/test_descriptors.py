#!/usr/bin/python3
"""No descriptor is left: clients alone cannot bring that about, however many there are; and where it comes about, the
daemon waits without spinning, running jobs are unharmed, no job is lost, and afterwards all is as before."""
import json
import resource
import socket
import time
import unittest

from ithaca_e2e import LINE, Daemon, cpu_seconds, until

JOB = {"max_steps": 12, "seq_len": 64, "max_restarts": 0, "save": {"every_steps": 4}}


class Descriptors(unittest.TestCase):
    def running(self, daemon):
        """A client, a file, and a job that runs and waits after its third step."""
        client = daemon.client()
        file_id = client.upload(LINE * 64)["id"]
        daemon.hold(3)
        job = client.submit(file_id, ithaca=JOB)["id"]
        until("the third step", 60, lambda: client.job(job)["ithaca"]["steps_done"] >= 3)
        return client, file_id, job

    def finish(self, daemon, client, job):
        daemon.hold(None)
        done = client.wait(job)
        self.assertEqual(done["ithaca"]["state"], "succeeded", done["error"])
        series = client.get(f"/v1/fine_tuning/jobs/{job}/metrics?keys=loss").json()["data"]
        self.assertEqual([point[0] for point in series[0]["points"]], list(range(1, 13)))

    @staticmethod
    def ask(connection, token, what, body):
        """Status and text of an answer over a connection that is there already."""
        body = json.dumps(body)
        connection.sendall(f"{what} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
                           f"Content-Length: {len(body)}\r\n\r\n{body}".encode())
        text = connection.recv(65536).decode()
        return int(text.split(" ", 2)[1]), text

    def test_clients_cannot_take_them_all(self):
        with Daemon(before=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))) as daemon:
            client, file_id, job = self.running(daemon)
            self.assertIn("connections_max is 25, not 512", daemon.log())
            self.assertEqual(client.get("/v1/fine_tuning/limits").json()["requests"]["connections"], 25)
            crowd = []
            for _ in range(150):  # those that are not taken wait in the kernel
                crowd.append(socket.create_connection(("127.0.0.1", daemon.port)))
                crowd[-1].sendall(b"GET /healthz HTTP/1.1\r\n")
            daemon.hold(8)
            used = cpu_seconds(daemon.process.pid)
            time.sleep(1.5)
            self.assertLess(cpu_seconds(daemon.process.pid) - used, 0.75, "the daemon spins")
            for connection in crowd:
                connection.close()
            self.assertEqual(client.upload(LINE)["bytes"], len(LINE))
            other = client.submit(file_id, ithaca=JOB)["id"]
            self.finish(daemon, client, job)
            self.finish(daemon, client, other)
            self.assertNotIn("Too many open files", daemon.log())

    def test_none_is_left_for_a_while(self):
        with Daemon() as daemon:
            client, file_id, job = self.running(daemon)
            pid = daemon.process.pid
            before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
            waiting = client.submit(file_id, ithaca={**JOB, "hold": True})["id"]
            client.wait(waiting, states=("queued",))
            self.addCleanup(lambda: [one.close() for one in connections])
            connections = [socket.create_connection(("127.0.0.1", daemon.port)) for _ in range(2)]
            time.sleep(0.3)  # the daemon has taken them
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, before[1]))  # no number below is free
            asked = [self.ask(connections[0], daemon.token, "POST /v1/fine_tuning/jobs", {
                "model": "tiny-llama", "training_file": file_id, "ithaca": {"max_steps": 1, "seq_len": 64}}),
                self.ask(connections[1], daemon.token, f"PATCH /v1/fine_tuning/jobs/{waiting}", {"ithaca": {"hold": False}})]
            for status, text in asked:  # taken, or refused with the reason
                self.assertTrue(status == 200 or "Too many open files" in text, text)
            late = [socket.create_connection(("127.0.0.1", daemon.port)) for _ in range(20)]
            used = cpu_seconds(pid)
            daemon.hold(8)
            time.sleep(2)
            used = cpu_seconds(pid) - used
            resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
            self.assertLess(used, 1.0, "the daemon spins")
            for connection in (*connections, *late):
                connection.close()
            self.assertEqual(client.upload(LINE)["bytes"], len(LINE))
            self.finish(daemon, client, job)
            if asked[1][0] != 200:
                self.assertEqual(client.request("PATCH", f"/v1/fine_tuning/jobs/{waiting}",
                                                {"ithaca": {"hold": False}}).status, 200)
            self.finish(daemon, client, waiting)
            listed = client.get("/v1/fine_tuning/jobs").json()["data"]
            self.assertEqual(len(listed), 3 if asked[0][0] == 200 else 2, asked)
            for one in listed:
                self.assertEqual(client.wait(one["id"])["ithaca"]["state"], "succeeded", one["error"])


if __name__ == "__main__":
    unittest.main()
