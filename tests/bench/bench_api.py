#!/usr/bin/python3
"""Requests a second that one daemon answers, each with its token: python3 tests/bench/bench_api.py [seconds]

A client of one process keeps some connections busy: it sends one request on each, then reads the answers. It shares
the machine with the daemon, so the figure is a floor.
"""
import os
import socket
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
from ithaca_e2e import EXAMPLE_DIR, Daemon  # noqa: E402

CONNECTIONS = 16


def read_answer(connection, rest):
    """One answer off a connection; returns the bytes after it."""
    while b"\r\n\r\n" not in rest:
        rest += connection.recv(65536)
    head, _, rest = rest.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    while len(rest) < length:
        rest += connection.recv(65536)
    return rest[length:]


def rate(daemon, path, seconds):
    request = (f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {daemon.token}\r\n\r\n").encode()
    connections = [socket.create_connection(("127.0.0.1", daemon.port)) for _ in range(CONNECTIONS)]
    rests, done, begun = [b""] * CONNECTIONS, 0, time.monotonic()
    while (passed := time.monotonic() - begun) < seconds:
        for connection in connections:
            connection.sendall(request)
        for i, connection in enumerate(connections):
            rests[i] = read_answer(connection, rests[i])
        done += CONNECTIONS
    for connection in connections:
        connection.close()
    return done / passed


def main():
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 3.0
    with Daemon() as daemon:
        client = daemon.client()
        paths = ["/healthz"]
        file = client.upload(os.path.join(EXAMPLE_DIR, "train.jsonl"))
        paths.append(f"/v1/files/{file['id']}")
        models = client.get("/v1/models").json()["data"]
        if models:
            jobs = [client.submit(file["id"], model=models[0]["id"], ithaca={"seq_len": 256})["id"] for _ in range(20)]
            for job in jobs:
                client.post(f"/v1/fine_tuning/jobs/{job}/cancel")
            paths += [f"/v1/fine_tuning/jobs/{jobs[0]}", "/v1/fine_tuning/jobs?limit=20"]
        for path in paths:
            print(f"{rate(daemon, path, seconds):9.0f} requests/s  GET {path}", flush=True)
    print(f"command: python3 tests/bench/bench_api.py {seconds:g}  ({CONNECTIONS} connections, {os.cpu_count()} cores)")


if __name__ == "__main__":
    main()
