#!/usr/bin/env python3
"""A training file far larger than the memory anyone may take for it: uploaded as it is written, read back, trained on.

    tests/fault/large_input.py [--mebibytes N] [--one-line]      1024 by default; the suite has a short form

The file is made while it is sent; with --one-line nearly all of it is its second line of three (field case R02). The
daemon's memory must not grow with it, what is read back must be what was sent, a job of one step on it must succeed, and
the daemon must answer within a second meanwhile."""
import argparse
import hashlib
import http.client
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
import ithaca_e2e as e2e  # noqa: E402

LINE = ('{"messages":[{"role":"user","content":"Where is ship %09d?"},{"role":"assistant","content":"At quay %d, behind '
        + "the long mole, " * 100 + 'as ever."}]}\n')
BLOCK_LINES = 512
GROWTH_MAX = 32 << 20  # bytes of the daemon's memory, at any size of the file
BOUNDARY = "ithaca-large-input"


def blocks(size):
    """The file, in blocks of whole lines, each line once; at least `size` bytes of it."""
    sent = number = 0
    while sent < size:
        block = "".join(LINE % (number + i, (number + i) % 10) for i in range(BLOCK_LINES)).encode()
        number += BLOCK_LINES
        sent += len(block)
        yield block


def one_line(size):
    """A short row, one of `size` bytes and a little, a short row."""
    yield (LINE % (1, 1) + '{"messages":[{"role":"assistant","content":"').encode()
    words = b"Nothing is as long as this. " * 4096
    for _ in range(-(-size // len(words))):
        yield words
    yield ('"}]}\n' + LINE % (2, 2)).encode()


def upload(client, pieces):
    """The file object, and the digest of what was sent."""
    digest = hashlib.sha256()
    head = (f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nfine-tune\r\n--{BOUNDARY}\r\n'
            'Content-Disposition: form-data; name="file"; filename="large.jsonl"\r\n\r\n').encode()

    def body():
        yield head
        for block in pieces:
            digest.update(block)
            yield block
        yield f"\r\n--{BOUNDARY}--\r\n".encode()

    answer = client.post("/v1/files", body(), headers={"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"})
    assert answer.status == 200, answer.text
    return answer.json(), digest.hexdigest()


def read_back(daemon, file_id):
    digest = hashlib.sha256()
    connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=60)
    connection.request("GET", f"/v1/files/{file_id}/content", headers={"Authorization": f"Bearer {daemon.token}"})
    response = connection.getresponse()
    assert response.status == 200, response.read()
    while piece := response.read(1 << 20):
        digest.update(piece)
    connection.close()
    return digest.hexdigest()


def peak_bytes(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))


def wait(client, job_id):
    """The job when it has ended, and the longest time that one answer took."""
    slowest = 0.0

    def ended():
        nonlocal slowest
        asked = time.monotonic()
        job = client.job(job_id)
        slowest = max(slowest, time.monotonic() - asked)
        return job if job["ithaca"]["state"] in e2e.END_STATES else None
    return e2e.until(f"{job_id} has ended", 1800, ended), slowest


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mebibytes", type=int, default=1024)
    parser.add_argument("--one-line", action="store_true")
    options = parser.parse_args()
    with e2e.Daemon() as daemon:
        client = daemon.client(timeout=600)
        before, begun = peak_bytes(daemon.process.pid), time.monotonic()
        file, sent = upload(client, (one_line if options.one_line else blocks)(options.mebibytes << 20))
        uploaded = time.monotonic()
        assert file["bytes"] >= options.mebibytes << 20, file
        assert read_back(daemon, file["id"]) == sent, "other bytes came back"
        read = time.monotonic()
        job = client.submit(file["id"], seed=1, ithaca={"gpus": 1, "seq_len": 2048, "max_steps": 1,
                                                        "batch": {"sequences": 1}})
        job, slowest = wait(client, job["id"])
        assert job["status"] == "succeeded", job["error"]
        assert slowest < 1, f"an answer took {slowest:.1f} s"
        growth = peak_bytes(daemon.process.pid) - before
        assert growth <= GROWTH_MAX, f"the daemon's memory grew by {growth} bytes"
        print(f"{file['bytes'] >> 20} MiB: upload {uploaded - begun:.1f} s, read back {read - uploaded:.1f} s, checked, "
              f"tokenised and one step {time.monotonic() - read:.1f} s; the daemon's memory grew by {growth >> 10} KiB; "
              f"the slowest answer took {1000 * slowest:.0f} ms")


if __name__ == "__main__":
    main()
