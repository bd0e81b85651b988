"""Clients for load.py: each is a class with a `step()` that one thread calls again and again, none of which blocks.

Good ones check what they get; bad ones (slow, vanishing, endless) only try to do harm."""
import http.client
import random
import socket
import struct
import time

LINE = b'{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}\n'
BOUNDARY = "load-boundary"


def connect(port):
    connection = socket.create_connection(("127.0.0.1", port), timeout=30)
    connection.setblocking(False)
    return connection


def vanish(connection):
    """Closes with a reset, as a machine does that is switched off and on."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def take(connection):
    """What has come; None when the server has closed."""
    try:
        return connection.recv(65536) or None
    except BlockingIOError:
        return b""
    except OSError:
        return None


class IdleStream:
    """An event stream that only listens; it must stay open."""

    def __init__(self, daemon, path="/v1/stream"):
        self.connection, self.bytes = connect(daemon.port), 0
        self.connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n"
                                f"Authorization: Bearer {daemon.token}\r\n\r\n".encode())

    def step(self):
        piece = take(self.connection)
        assert piece is not None, "a stream was closed"
        if self.bytes == 0 and piece:
            assert piece.startswith(b"HTTP/1.1 200"), piece
        self.bytes += len(piece)

    def end(self):
        assert self.bytes > 0, "a stream was silent"
        self.connection.close()


class SlowUpload:
    """A file that comes a line at a time; it must arrive whole."""

    def __init__(self, daemon, lines):
        self.connection, self.lines, self.answer = connect(daemon.port), lines, b""
        self.head = (f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nfine-tune\r\n'
                     f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="slow.jsonl"\r\n\r\n').encode()
        tail = f"\r\n--{BOUNDARY}--\r\n".encode()
        length = len(self.head) + lines * len(LINE) + len(tail)
        self.pieces = [self.head, *[LINE] * lines, tail]
        self.connection.sendall((
            f"POST /v1/files HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {daemon.token}\r\n"
            f"Content-Type: multipart/form-data; boundary={BOUNDARY}\r\nContent-Length: {length}\r\n"
            "Connection: close\r\n\r\n").encode())

    def step(self):
        if self.pieces:
            self.connection.sendall(self.pieces.pop(0))
        self.answer += take(self.connection) or b""

    def end(self):
        self.connection.setblocking(True)
        self.connection.settimeout(30)
        for piece in self.pieces:
            self.connection.sendall(piece)
        while piece := self.connection.recv(65536):
            self.answer += piece
        assert self.answer.startswith(b"HTTP/1.1 200"), self.answer[:300]
        assert f'"bytes":{self.lines * len(LINE)},'.encode() in self.answer.replace(b" ", b""), self.answer
        self.connection.close()


class Slowloris:
    """A head that never ends, a byte at a time. Closed by the server, it comes again."""

    def __init__(self, daemon):
        self.daemon, self.connection, self.cut = daemon, None, 0

    def step(self):
        if self.connection is None:
            self.connection = connect(self.daemon.port)
            self.connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: ")
        try:
            self.connection.send(b"x")
        except OSError:
            self.connection.close()
            self.connection, self.cut = None, self.cut + 1

    def end(self):
        if self.connection is not None:
            vanish(self.connection)
        assert self.cut > 0, "a head that never ends was never cut"


class Vanishing:
    """Goes in the middle of everything: of a head, a body, an answer, a stream."""

    def __init__(self, daemon, seed):
        self.daemon, self.random = daemon, random.Random(seed)

    def step(self):
        token = f"Host: localhost\r\nAuthorization: Bearer {self.daemon.token}\r\n"
        request = self.random.choice((
            "GET /v1/fi", f"GET /v1/stream HTTP/1.1\r\n{token}\r\n",
            f"GET /v1/fine_tuning/jobs?limit=100 HTTP/1.1\r\n{token}\r\n",
            f"POST /v1/fine_tuning/jobs HTTP/1.1\r\n{token}Content-Length: 1000\r\n\r\n{{\"model\":",
            f"POST /v1/files HTTP/1.1\r\n{token}Content-Type: multipart/form-data; boundary=xyz\r\nContent-Length: 90000"
            "\r\n\r\n--xyz\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n" + "x" * 5000))
        connection = connect(self.daemon.port)
        connection.sendall(request[:self.random.randint(1, len(request))].encode())
        (vanish if self.random.random() < 0.5 else socket.socket.close)(connection)

    def end(self):
        pass


class NeverReads:
    """Asks for much and reads nothing of it."""

    def __init__(self, daemon, path):
        self.connection = connect(daemon.port)
        self.request = (f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {daemon.token}\r\n\r\n").encode()

    def step(self):
        try:
            self.connection.send(self.request)
        except OSError:
            pass  # closed by the server, or full

    def end(self):
        vanish(self.connection)


class Asker:
    """Asks again and again over one connection, quicker than the client of the other tests."""

    def __init__(self, daemon):
        self.connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=60)
        self.headers = {"Authorization": f"Bearer {daemon.token}"}

    def ask(self, path, method="GET"):
        """The body of an answer that must be 200. Asked a second time, as browsers do, where the connection was idle for so
        long that the server has closed it: on a busy machine clients are late too."""
        if method != "GET":
            self.connection.close()  # it cannot be asked twice: its connection is new, and was never idle
        for last in (False, True):
            try:
                self.connection.request(method, path, headers=self.headers)
                response = self.connection.getresponse()
                break
            except (ConnectionError, http.client.RemoteDisconnected):
                self.connection.close()
                if last or method != "GET":
                    raise
        body = response.read()
        assert response.status == 200, f"{method} {path}: {response.status} {body[:300]}"
        return body

    def end(self):
        self.connection.close()


class Times:
    """How long answers took."""

    def __init__(self, name):
        self.name, self.seconds = name, []

    def take(self, call):
        begun = time.monotonic()
        call()
        self.seconds.append(time.monotonic() - begun)

    def tell(self):
        ordered = sorted(self.seconds)
        return (f"{self.name:13s} p50 {1000 * ordered[len(ordered) // 2]:6.1f} ms, p99 "
                f"{1000 * ordered[len(ordered) * 99 // 100]:6.1f} ms, most {1000 * ordered[-1]:6.1f} ms, {len(ordered)} answers")


def probe(daemon, paths, held, every, pipe):
    """In a process of its own, whose time nobody takes. Asks each path again and again; told "cancel", cancels the held jobs
    too, one a time; told "end", those that are left. Sends the Times."""
    asker, cancels = Asker(daemon), Times("cancel")
    times = [Times(f"GET {path.rsplit('/', 1)[0] if 'ftjob' in path else path}") for path in paths]
    told = ""
    while told != "end" or held:
        if pipe.poll(every):
            told = pipe.recv()
        for one, path in zip(times, paths):
            one.take(lambda: asker.ask(path))  # pylint: disable=cell-var-from-loop
        if told and held:
            job = held.pop()
            cancels.take(lambda: asker.ask(f"/v1/fine_tuning/jobs/{job}/cancel", "POST"))  # pylint: disable=cell-var-from-loop
    pipe.send([*times, cancels])
