"""Provide an HTTP server on 127.0.0.1 for tests; each double only defines its answers, byte by byte if necessary."""

from __future__ import annotations

import json
import socket
import socketserver
import ssl
import struct
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from time import monotonic_ns
from typing import Any, Self

RESET = "reset"  # RST, as a crashed process leaves a connection
CLOSE = "close"  # FIN
Step = bytes | float | str


@dataclass
class Request:
    """Hold a received request. `number` counts all requests from 0, `connection` all connections."""

    number: int
    connection: int
    nth_on_connection: int
    head: bytes
    content: bytes
    at_ns: int = field(default_factory=monotonic_ns)

    @property
    def method(self) -> str:
        return self.head.split(b" ", 1)[0].decode()

    @property
    def path(self) -> str:
        return self.head.split(b" ", 2)[1].decode()

    @cached_property
    def headers(self) -> dict[str, str]:
        """Return the headers' values by lower-case name."""
        lines = (line.partition(":") for line in self.head.decode("latin-1").splitlines()[1:-1])
        return {name.lower(): value.strip() for name, _, value in lines}

    @property
    def start(self) -> int:
        """Return the first byte of the requested range."""
        return int(self.headers.get("range", "bytes=0-").removeprefix("bytes=").split("-")[0])

    @cached_property
    def body(self) -> Any:
        """Parse the content as JSON."""
        return json.loads(self.content or b"{}")

    def response(self, content: Any = b"", status: int = 200, headers: dict[str, str] | None = None) -> bytes:
        """Make a response with this content, as JSON unless it is bytes; a HEAD gets the head only."""
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        lines = {"content-type": "application/json", "content-length": str(len(data)), **(headers or {})}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        return f"HTTP/1.1 {status} X\r\n{head}\r\n".encode() + (b"" if self.method == "HEAD" else data)

    def part(self, content: bytes, headers: dict[str, str]) -> bytes:
        """Make a response with a file from the first byte of the range on."""
        start, size = self.start, len(content)
        if start >= size > 0:
            return self.response(b"", 416)
        of = {"content-range": f"bytes {start}-{size - 1}/{size}"} if start else {}
        return self.response(content[start:], 206 if start else 200, {**headers, **of})


class HttpDouble:
    """Serve inside a `with` block. `respond` gives the steps of each answer: bytes, seconds to wait, RESET or CLOSE."""

    port = 0  # 0: one that is free
    share_port = False  # SO_REUSEPORT
    tls: ssl.SSLContext | None = None
    url = ""
    received: list[Request]

    def respond(self, request: Request) -> Iterable[Step]:
        raise NotImplementedError

    def __enter__(self) -> Self:
        self.received, self._ended = [], threading.Event()
        self._server = _Server(self)
        self.port = self._server.server_address[1]
        self.url = f"https://localhost:{self.port}" if self.tls else f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def connected(self) -> int:
        """Count the open connections; everything sent on a closed connection has been received."""
        with self._server.lock:
            return len(self._server.open)

    def stop(self) -> None:
        """Close the port and every connection."""
        self._ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._server.disconnect()


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, double: HttpDouble) -> None:
        self.double, self.lock = double, threading.Lock()
        self.open: set[socket.socket] = set()
        self.connections = 0
        self.allow_reuse_port = double.share_port
        super().__init__(("127.0.0.1", double.port), _Connection)

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        if self.double.tls:  # the handshake is made where it blocks only its own connection
            connection = self.double.tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        return connection, address

    def disconnect(self) -> None:
        with self.lock:
            for connection in self.open:
                with suppress(OSError):  # closed by the client already
                    connection.shutdown(socket.SHUT_RDWR)


class _Connection(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True
    server: _Server

    def handle(self) -> None:
        with self.server.lock:
            connection = self.server.connections
            self.server.connections += 1
            self.server.open.add(self.connection)
        try:
            nth = 0
            while (message := self._message()) and self._answer(self._kept(connection, nth, *message)):
                nth += 1
        except OSError:  # the client has gone
            pass
        finally:
            with self.server.lock:
                self.server.open.discard(self.connection)

    def _message(self) -> tuple[bytes, bytes] | None:
        """Read head and content of the next request; None at the connection's end."""
        head = b""
        while line := self.rfile.readline():
            head += line
            if line == b"\r\n":
                return head, self._content(head.lower())
        return None

    def _content(self, head: bytes) -> bytes:
        if b"\r\ntransfer-encoding: chunked\r\n" not in head:
            return self.rfile.read(int(head.partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0] or 0))
        content = b""
        while size := int(self.rfile.readline(), 16):
            content += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return content

    def _kept(self, connection: int, nth: int, head: bytes, content: bytes) -> Request:
        with self.server.lock:
            received = self.server.double.received
            request = Request(len(received), connection, nth, head, content)
            received.append(request)
        return request

    def _answer(self, request: Request) -> bool:
        """Carry out the steps of one answer; return whether the connection is kept."""
        double = self.server.double
        for step in double.respond(request):
            if isinstance(step, bytes):
                self.connection.sendall(step)
            elif step == RESET:
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close()
                return False
            elif step == CLOSE or double._ended.wait(float(step)):
                return False
        return True
