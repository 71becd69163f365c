"""Serve chat replies by the clock: each chunk is sent at a time fixed in advance and carries that time.

It answers any POST with `max_tokens` tokens (or `tokens`): the first `ttft_ms` after the request arrived, the others
`itl_ms` apart, on an absolute schedule. Each chunk carries CLOCK_MONOTONIC stamps of this process: when the request
was received, when the chunk was due, and when it was handed to the kernel. So a client's error is known for each
chunk, and the server's own lateness is separate from it. Run as its own process (`running`).

One thread over a selector rather than asyncio: the stamp must be taken just before the write, and asyncio's
transports write later. One request at a time on each connection, kept alive.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from pathlib import Path
from time import monotonic_ns

from servebench.load.limits import raise_nofile
from servebench.machine.lifeline import follow_parent

_HEAD = (
    b"HTTP/1.1 200 OK\r\nserver: servebench-clock\r\ncontent-type: text/event-stream\r\n"
    b"cache-control: no-store\r\ntransfer-encoding: chunked\r\n\r\n"
)
# Stamps are strings of fixed width, so that a chunk's length is known before it is written.
_EVENT = (
    b'data: {"id":"chatcmpl-clock","object":"chat.completion.chunk","created":1,"model":"clock","choices":[{"index":0,'
    b'"delta":{"content":"%s"},"finish_reason":null}],'
    b'"clock":{"received_ns":"%020d","due_ns":"%020d","sent_ns":"%020d"}}\n\n'
)
_CLOCK = re.compile(rb'"clock":\{"received_ns":"(\d+)","due_ns":"(\d+)","sent_ns":"(\d+)"')
_LAST = (
    b'data: {"id":"chatcmpl-clock","object":"chat.completion.chunk","created":1,"model":"clock","choices":[{"index":0,'
    b'"delta":{},"finish_reason":"length"}]}\n\n'
    b'data: {"id":"chatcmpl-clock","object":"chat.completion.chunk","created":1,"model":"clock","choices":[],'
    b'"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}}\n\ndata: [DONE]\n\n'
)
_LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)
_MAX_TOKENS = re.compile(rb'"max_tokens":\s*(\d+)')


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Fix when tokens are sent.

    `lockstep` puts the chunks of all streams on one grid of `itl_ms × tokens_per_chunk`, like a server that decodes all
    its streams in one batch.
    """

    ttft_ms: float = 50.0
    itl_ms: float = 20.0
    tokens: int = 128
    tokens_per_chunk: int = 1
    lockstep: bool = False

    @property
    def step_ns(self) -> int:
        return round(self.itl_ms * self.tokens_per_chunk * 1e6)

    @property
    def answer_s(self) -> float:
        """Return the seconds from a request's arrival to its last token if nothing is late: a closed loop's period."""
        chunks = -(-self.tokens // self.tokens_per_chunk)
        first_ns = round(self.ttft_ms * 1e6)
        if self.lockstep:  # a request sent right after a step waits for the first step at least ttft_ms away
            first_ns = (first_ns // self.step_ns + 1) * self.step_ns
        return (first_ns + (chunks - 1) * self.step_ns) / 1e9

    def first_ns(self, received_ns: int) -> int:
        due_ns = received_ns + round(self.ttft_ms * 1e6)
        return -(-due_ns // self.step_ns) * self.step_ns if self.lockstep else due_ns


@dataclass(slots=True)
class _Stream:
    """Hold one connection and the answer it is sending."""

    socket: socket.socket
    inbox: bytearray = field(default_factory=bytearray)
    received_ns: int = 0
    due_ns: int = 0
    first_ns: int = 0
    left: int = 0
    tokens: int = 0
    prompt_tokens: int = 0


class ClockServer:
    """Serve until standard input ends."""

    def __init__(self, schedule: Schedule, port: int = 0) -> None:
        self._schedule = schedule
        self._listener = socket.create_server(("127.0.0.1", port), backlog=4096)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        self._due: list[tuple[int, int, _Stream]] = []  # (due ns, tie-break, stream)
        self._ties = count()
        self.answers: list[tuple[int, int, int, int]] = []  # received, first, last sent (ns), tokens
        content = b" token" * schedule.tokens_per_chunk
        size = len(_EVENT % (content, 0, 0, 0))
        self._event = b"%x\r\n" % size + _EVENT.replace(b"%s", content) + b"\r\n"

    def serve(self) -> None:
        self._selector.register(sys.stdin, selectors.EVENT_READ, None)
        serving = True
        while serving:
            wait_s = max(0.0, (self._due[0][0] - monotonic_ns()) / 1e9) if self._due else None
            serving = self._read(wait_s) and self._write_due()

    def _read(self, timeout_s: float | None) -> bool:
        for key, _ in self._selector.select(timeout_s):
            if key.data is not None:
                self._receive(key.data)
            elif key.fileobj is self._listener:
                connection, _ = self._listener.accept()
                connection.setblocking(False)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._selector.register(connection, selectors.EVENT_READ, _Stream(connection))
            else:
                return False
        return True

    def _receive(self, stream: _Stream) -> None:
        received_ns = monotonic_ns()
        try:
            data = stream.socket.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop(stream)
            return
        stream.inbox += data
        head, gap, body = bytes(stream.inbox).partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        wanted = int(length[1]) if length else 0
        if not gap or len(body) < wanted:
            return
        stream.inbox.clear()
        asked = _MAX_TOKENS.search(body)
        stream.tokens = stream.left = int(asked[1]) if asked else self._schedule.tokens
        stream.prompt_tokens = len(body) // 4
        stream.received_ns = received_ns
        stream.due_ns = self._schedule.first_ns(received_ns)
        self._send(stream, _HEAD)
        self._plan(stream)

    def _plan(self, stream: _Stream) -> None:
        heappush(self._due, (stream.due_ns, next(self._ties), stream))

    def _write_due(self) -> bool:
        """Write all chunks that are due; return False when standard input has ended.

        Requests are read between the writes of a long batch too, because their arrival is stamped.
        """
        now_ns = monotonic_ns()
        written = 0
        while self._due and self._due[0][0] <= now_ns:
            _, _, stream = heappop(self._due)
            if stream.socket.fileno() == -1:
                continue  # the connection was dropped meanwhile
            sent_ns = monotonic_ns()
            if stream.left == stream.tokens:
                stream.first_ns = sent_ns
            stream.left -= self._schedule.tokens_per_chunk
            event = self._event % (stream.received_ns, stream.due_ns, sent_ns)
            if stream.left > 0:
                self._send(stream, event)
                stream.due_ns += self._schedule.step_ns
                self._plan(stream)
            else:
                last = _LAST % (stream.prompt_tokens, stream.tokens, stream.prompt_tokens + stream.tokens)
                end = b"%x\r\n%s\r\n0\r\n\r\n" % (len(last), last)
                self._send(stream, event + end)
                self.answers.append((stream.received_ns, stream.first_ns, sent_ns, stream.tokens))
            written += 1
            if written % 16 == 0 and not self._read(0):
                return False
        return True

    def _send(self, stream: _Stream, data: bytes) -> None:
        try:
            whole = stream.socket.send(data) == len(data)
        except OSError:
            whole = False
        if not whole:  # the client is gone, or so far behind that the kernel's buffer is full
            self._drop(stream)

    def _drop(self, stream: _Stream) -> None:
        if stream.socket.fileno() != -1:
            self._selector.unregister(stream.socket)
            stream.socket.close()


def read_clock(body: bytes) -> list[tuple[int, int, int]]:
    """Return (received_ns, due_ns, sent_ns) of every chunk in a body, in order."""
    return [(int(m[1]), int(m[2]), int(m[3])) for m in _CLOCK.finditer(body)]


@contextmanager
def running(schedule: Schedule) -> Iterator[tuple[str, int]]:
    """Run a clock server in its own process; yield its URL and process id."""
    command = [
        sys.executable,
        "-m",
        "servebench.load.clock_server",
        json.dumps(vars(schedule)),
        "--parent",
        str(os.getpid()),
    ]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, process_group=0
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            line = process.stdout.readline()
            if not line:
                raise RuntimeError(f"the clock server ended with exit code {process.wait()} before it served")
            yield f"http://127.0.0.1:{int(line)}", process.pid
        finally:
            process.stdin.close()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("schedule", type=json.loads, help="JSON: ttft_ms, itl_ms, tokens, tokens_per_chunk, lockstep")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument(
        "--log", type=Path, help="JSON of all answers, written at the end: [received, first, last, tokens]"
    )
    parser.add_argument("--parent", type=int, help="end with this process (default: the one that started it)")
    arguments = parser.parse_args()
    follow_parent(arguments.parent, signal.SIGKILL)
    raise_nofile()
    server = ClockServer(Schedule(**arguments.schedule), arguments.port)
    print(server.port, flush=True)
    gc.freeze()
    gc.disable()
    server.serve()
    if arguments.log is not None:
        arguments.log.write_text(json.dumps(server.answers), encoding="utf-8")


if __name__ == "__main__":
    main()
