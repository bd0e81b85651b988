#!/usr/bin/python3
"""Answers of a model: the shape, one at a time and many at once, and no process left when the client leaves."""
import json
import os
import socket
import threading
import unittest

from ithaca_e2e import Daemon, DaemonTest, processes_of, until

QUESTION = {"model": "tiny-llama", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 8}
CHAT_AT_ONCE = 10  # CHAT_RUNNING + CHAT_WAITING of daemon/chat.h


def samplers(daemon):
    """Processes that answer for this daemon."""
    return [pid for pid, command in processes_of(daemon.data_dir) if "--sample" in command]


class Chat(DaemonTest):

    def ask(self, **fields):
        return self.client.post("/v1/chat/completions", {**QUESTION, **fields})

    def send(self, question, daemon=None):
        """A socket on which the question was asked."""
        daemon = daemon or self.daemon
        body = json.dumps(question).encode()
        connection = socket.create_connection(("127.0.0.1", daemon.port), timeout=10)
        connection.sendall(f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "
                           f"{daemon.token}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        return connection

    def test_shape(self):
        answer = self.ask()
        self.assertEqual(answer.status, 200, answer.text)
        chat = answer.json()
        self.assertEqual((chat["object"], chat["model"]), ("chat.completion", "tiny-llama"))
        self.assertRegex(chat["id"], r"^chatcmpl-[A-Za-z0-9]{24}$")
        choice = chat["choices"][0]
        self.assertEqual((choice["index"], choice["message"]["role"]), (0, "assistant"))
        self.assertIn(choice["finish_reason"], ("stop", "length"))
        self.assertIsInstance(choice["message"]["content"], str)
        usage = chat["usage"]
        self.assertEqual(usage["total_tokens"], usage["prompt_tokens"] + usage["completion_tokens"])
        self.assertEqual(self.ask(temperature=0, max_completion_tokens=8, stream=False, n=1).json()["choices"],
                         chat["choices"])  # greedy: the same answer
        until("nothing is left of it", 5, lambda: not os.listdir(os.path.join(self.daemon.data_dir, "chat")))

    def test_what_the_model_refuses(self):
        answer = self.ask(messages=[{"role": "user", "content": "x" * 100000}])
        self.assertEqual(answer.status, 400)
        self.assertIn("context", answer.error()["message"])
        self.assertEqual(self.ask(messages=[{"role": "boss", "content": "x"}]).status, 400)

    def test_many_at_once(self):
        seen = []
        threads = [threading.Thread(target=lambda: seen.append(self.ask().status)) for _ in range(CHAT_AT_ONCE + 6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(set(seen) - {200, 429}, set())
        self.assertGreaterEqual(seen.count(200), CHAT_AT_ONCE)

    def test_sampler_keeps_to_its_share(self):
        """Of the CPU slots, not the cores; and it sees the BLAS settings of the daemon, not its secrets."""
        given = {"OPENBLAS_CORETYPE": "Haswell", "OMP_NUM_THREADS": "64", "SOME_TOKEN": "secret"}
        with Daemon("--cpu-slots", "2", env=given) as daemon:
            self.assertEqual(daemon.client().post("/v1/chat/completions", QUESTION).status, 200)
            connection = self.send({**QUESTION, "max_tokens": 4096}, daemon)
            until("the sampler runs", 10, lambda: samplers(daemon))
            pid = samplers(daemon)[0]
            with open(f"/proc/{pid}/environ", encoding="utf-8") as file:
                seen = dict(entry.split("=", 1) for entry in file.read().split("\0") if "=" in entry)

            def busy():
                with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
                    return int(file.read().rsplit(")", 1)[1].split()[11]) > 20  # ticks: it computes

            until("the sampler computes", 20, busy)
            threads = len(os.listdir(f"/proc/{pid}/task"))
            connection.close()
        self.assertEqual(threads, 1)
        self.assertEqual(seen.get("OPENBLAS_CORETYPE"), "Haswell")
        self.assertEqual(seen.get("OMP_NUM_THREADS"), "1")
        self.assertNotIn("SOME_TOKEN", seen)

    def test_client_leaves(self):
        connection = self.send({**QUESTION, "max_tokens": 4096})
        until("the sampler runs", 10, lambda: samplers(self.daemon))
        connection.close()
        until("the sampler is gone", 5, lambda: not samplers(self.daemon))
        self.assertEqual(self.ask().status, 200)

    def test_daemon_stops(self):
        with Daemon() as daemon:
            before, self.daemon = self.daemon, daemon
            try:
                connections = [self.send({**QUESTION, "max_tokens": 4096}) for _ in range(4)]
                until("samplers run", 10, lambda: samplers(daemon))
                self.assertEqual(daemon.stop(), 0, daemon.log())
                self.assertEqual(samplers(daemon), [])
                for connection in connections:
                    self.assertTrue(connection.recv(65536).startswith(b"HTTP/1.1 503"))
                    connection.close()
            finally:
                self.daemon = before


if __name__ == "__main__":
    unittest.main()
