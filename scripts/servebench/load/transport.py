"""Speak HTTP/1.1 on an asyncio protocol that stamps every block of bytes before looking at it.

httpx makes requests, URLs and TLS contexts. Its receive path costs 70-85 µs a chunk, though, and one pool for all
users costs more than the requests, so bytes go through `Connection` (framing by llhttp) and each user has a `Channel`.
Proxies are not used. Under TLS the stamp is taken after decryption.
"""

from __future__ import annotations

import asyncio
import errno
import re
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from time import monotonic_ns
from typing import cast

import httptools
import httpx

from servebench.load import reach
from servebench.load.bounded import MOST_BYTES
from servebench.load.exchange import Exchange
from servebench.load.limits import too_many_open
from servebench.load.reply import refusal

_NS = 1_000_000_000
# Longest time from [DONE] to the end of the HTTP message, which servers send in a packet of its own.
OPEN_S = 1.0
# A block shorter than this may be a piece of the line with [DONE]; a longer one that ends with it holds all of it.
_DONE_BYTES = 24
_DONE = re.compile(rb"(?:^|[\r\n])data:[ \t]*\[DONE\]\s*$")
# Longest head of a response, bytes; other clients stop at 8 to 64 KiB.
HEAD_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Set time-outs: `total_s` from `sent` to the end of the reply; `idle_s` for the longest silence in between."""

    connect_s: float
    total_s: float
    idle_s: float | None = None


class Connection(asyncio.Protocol):
    """Carry one exchange at a time over one connection, and keep its bytes, stamped, in the exchange."""

    def __init__(self, url: str = "") -> None:
        self.url = url
        self.alive = False
        self.used = False
        self.headers: list[tuple[bytes, bytes]] = []
        self._transport: asyncio.Transport
        self._parser: httptools.HttpResponseParser
        self._feed: Callable[[bytes], None]
        self._exchange: Exchange | None = None
        self._blocks: list[tuple[int, bytes]] = []
        self._now_ns = 0
        self._done: asyncio.Future[None]
        self._timer: asyncio.TimerHandle | None = None
        self._until_close = False
        self._in_body = False
        self._said_done = False
        self._head_bytes = self._body_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's do not inherit from it
        self.alive = True

    async def carry(self, exchange: Exchange, payload: bytes, timeouts: Timeouts) -> None:
        """Send `payload` and return when the exchange has ended, however it ended; only cancellation is raised."""
        loop = asyncio.get_running_loop()
        self._exchange, self._blocks = exchange, exchange.blocks
        self._parser = httptools.HttpResponseParser(self)
        self._feed = self._parser.feed_data
        self._done = loop.create_future()
        self.headers = []
        self._until_close = self._in_body = self._said_done = False
        self._head_bytes = self._body_bytes = 0
        if exchange.sent_ns is None:
            exchange.sent_ns = monotonic_ns()
        self._transport.write(payload)
        self._watch(exchange.sent_ns, timeouts)
        try:
            await self._done
        except asyncio.CancelledError:
            self._give_up("cancelled", None)
            raise
        finally:
            self.used = True
            if self._timer is not None:
                self._timer.cancel()

    def close(self) -> None:
        self.alive = False
        self._transport.abort()

    # Callbacks of the event loop. `data_received` is the hot path: the stamp comes first.

    def data_received(self, data: bytes) -> None:
        self._now_ns = monotonic_ns()
        if not self._in_body and not self._in_head(data):
            return
        try:
            self._feed(data)
        except httptools.HttpParserError as error:
            self._give_up("truncated", f"not HTTP/1.1: {error}: {data[:200]!r}")
        except httptools.HttpParserUpgrade:
            self._give_up("truncated", f"the server changed to another protocol: {data[:200]!r}")

    def _in_head(self, data: bytes) -> bool:
        """Return whether bytes that begin outside a body belong to the head of the response; give up when not."""
        exchange = self._exchange
        if exchange is None:  # bytes between requests, such as a server's notice before it closes
            self.close()
            return False
        if exchange.first_byte_ns is None:
            exchange.first_byte_ns = self._now_ns
        self._head_bytes += len(data)
        if self._head_bytes > HEAD_BYTES:
            self._give_up("truncated", f"the head of the response goes on after {self._head_bytes} bytes")
        return self._exchange is not None

    def eof_received(self) -> None:
        self._now_ns = monotonic_ns()
        self.alive = False  # and the event loop closes the transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.alive = False
        # They refer to this object, and nobody collects circles while the load runs.
        self.__dict__.pop("_parser", None)
        self.__dict__.pop("_feed", None)
        exchange = self._exchange
        if exchange is None:
            return
        self._now_ns = monotonic_ns()
        if exc is not None:
            self._end("reset", f"{type(exc).__name__}: {exc}")
        elif self._in_body and self._until_close:
            exchange.complete = True
            self._end(None, None)
        elif exchange.first_byte_ns is None:
            self._end("reset", "the server closed the connection without a response")
        else:
            self._end("truncated", "the server closed the connection inside the response")

    # Callbacks of llhttp, called from within `feed_data`.

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self._exchange is None:
            return
        status = self._parser.get_status_code()
        self._in_body = status >= 200  # 100 and 103 precede the final response
        if self._in_body:
            self._exchange.http_status = status
            if status >= 300:
                places = b", ".join(self._values(b"location")).decode(errors="replace")
                self._exchange.refusal = refusal(status, self.url, places)
            codings = self._codings(b"transfer-encoding")
            for header, known in ((b"transfer-encoding", b"chunked"), (b"content-encoding", b"")):
                if strange := self._codings(header) - {b"", b"identity", known}:
                    why = f"{header.decode()} nobody asked for: {b', '.join(sorted(strange))!r:.200}"
                    self._give_up("truncated", why)
            self._until_close = b"chunked" not in codings and not self._values(b"content-length")
        else:
            self.headers = []

    def _values(self, header: bytes) -> list[bytes]:
        return [value for name, value in self.headers if name.lower() == header]

    def _codings(self, header: bytes) -> set[bytes]:
        return {coding.strip().lower() for value in self._values(header) for coding in value.split(b",")}

    def on_body(self, body: bytes) -> None:
        self._blocks.append((self._now_ns, body))
        self._body_bytes += len(body)
        if self._body_bytes > MOST_BYTES:
            self._give_up("truncated", f"the reply goes on after {self._body_bytes} bytes")
        if not body.endswith(b"}\n\n"):  # which most blocks do, and no piece of a line with [DONE]
            self._look_for_done()

    def _look_for_done(self) -> None:
        """Await the end of the HTTP message for `OPEN_S` and no longer, once the body so far ends with [DONE]."""
        if self._said_done or self._exchange is None:
            return
        tail = b""
        for _, block in reversed(self._blocks):
            tail = block[-_DONE_BYTES:] + tail
            if len(tail) >= _DONE_BYTES:
                break
        if _DONE.search(tail):
            self._said_done = True
            if self._timer is not None:
                self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_later(OPEN_S, self._left_open)

    def _left_open(self) -> None:
        """End an exchange whose reply is whole where its last bytes came, and give up the connection."""
        if self._exchange is not None:
            self._exchange.left_open = True
            self._now_ns = self._blocks[-1][0]
            self._end(None, None)
            self.close()

    def on_message_complete(self) -> None:
        if self._exchange is None or not self._in_body:
            return
        self._exchange.complete = True
        self._end(None, None)
        if not self._parser.should_keep_alive():
            self.close()

    # Ends.

    def _end(self, failure: str | None, error: str | None) -> None:
        exchange = self._exchange
        if exchange is None:
            return
        self._exchange, self._blocks, self._in_body = None, [], False  # later bytes belong to no exchange
        exchange.end_ns, exchange.failure, exchange.error = self._now_ns, failure, error
        if not self._done.done():
            self._done.set_result(None)

    def _give_up(self, failure: str, error: str | None) -> None:
        self._now_ns = monotonic_ns()
        self._end(failure, error)
        self.close()

    def _watch(self, sent_ns: int, timeouts: Timeouts) -> None:
        """Enforce the time-outs with one timer per exchange, set again only when it fires: no cost per chunk."""
        exchange = self._exchange
        if exchange is None:
            return
        now_ns = monotonic_ns()
        due_ns = sent_ns + round(timeouts.total_s * _NS)
        if now_ns >= due_ns:
            return self._give_up("timeout", f"not finished {timeouts.total_s:g} s after it was sent")
        if timeouts.idle_s is not None:
            idle_ns = last_progress_ns(exchange) + round(timeouts.idle_s * _NS)
            if now_ns >= idle_ns:
                return self._give_up("idle_timeout", f"nothing but silence or pings for {timeouts.idle_s:g} s")
            due_ns = min(due_ns, idle_ns)
        delay_s = (due_ns - now_ns) / _NS + 0.001  # uvloop's timers are whole milliseconds, and may be early
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._watch, sent_ns, timeouts)


def last_progress_ns(exchange: Exchange) -> int:
    """Return when the reply last progressed: a byte of the head, or of a line neither empty nor a comment (":")."""
    progress_ns = max(exchange.sent_ns or 0, exchange.first_byte_ns or 0)
    line_start = True
    comment = False
    for arrival_ns, block in exchange.blocks:
        for line in block.splitlines(keepends=True):
            if line_start:
                comment = line.startswith(b":")
            if not comment and line.strip():
                progress_ns = arrival_ns
            line_start = line.endswith((b"\n", b"\r"))
    return progress_ns


@dataclass(slots=True)
class Origin:
    """Say where to connect. The resolver's first answer is kept, so that all users load one address."""

    host: str
    port: int
    tls: ssl.SSLContext | None
    address: str | None = None
    url: str = ""

    @classmethod
    def of(cls, url: httpx.URL) -> Origin:
        tls = reach.tls() if url.scheme == "https" else None
        return cls(url.raw_host.decode(), url.port or (443 if tls else 80), tls, url=str(url.copy_with(query=None)))

    async def connect(self, timeout_s: float) -> Connection:
        """Open a connection.

        Raises OSError (TLS errors included; also when it takes more than `timeout_s`), and InfrastructureError when
        this process may open no more files."""
        connecting = asyncio.get_running_loop().create_connection(
            partial(Connection, self.url),
            self.address or self.host,
            self.port,
            ssl=self.tls,
            server_hostname=self.host if self.tls else None,
        )
        try:
            # Not wait_for: before Python 3.12 it loses a cancellation that comes as the connection does.
            async with asyncio.timeout(timeout_s):
                transport, connection = await connecting
        except TimeoutError:
            raise TimeoutError(f"no connection to {self.host}:{self.port} within {timeout_s:g} s") from None
        except UnicodeError as error:  # an empty or too long part of the name
            raise OSError(f"{self.host} is not a host name: {error}") from None
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise too_many_open(error) from None
            raise
        if self.address is None:
            self.address = transport.get_extra_info("peername")[0]
        return connection


class Channel:
    """Keep one user's connection to the server between requests, and replace it when it has closed."""

    def __init__(self, origin: Origin, timeouts: Timeouts) -> None:
        self._origin = origin
        self._timeouts = timeouts
        self.connection: Connection | None = None

    async def open(self) -> str | None:
        """Connect before the first request; return why connecting failed and what to do, or None."""
        try:
            self.connection = await self._origin.connect(self._timeouts.connect_s)
        except OSError as error:
            told = f"{type(error).__name__}: {error}".removesuffix(": ")
            return f"{told}; {reach.connect_remedy(error, self._origin.url)}"
        return None

    async def exchange(self, exchange: Exchange, payload: bytes) -> None:
        """Carry one exchange to its end.

        A *reused* connection that dies before the first byte of the response is replaced and the request sent once
        more, keeping its first stamp; a new connection that dies like that is a failure.
        """
        connection = self.connection
        if connection is None or not connection.alive:
            connection = await self._connect(exchange)
            if connection is None:
                return
        reused = connection.used
        await connection.carry(exchange, payload, self._timeouts)
        if reused and exchange.failure == "reset" and exchange.first_byte_ns is None:
            exchange.resent = True
            exchange.failure = exchange.error = exchange.end_ns = None
            connection = await self._connect(exchange)
            if connection is not None:
                await connection.carry(exchange, payload, self._timeouts)

    async def _connect(self, exchange: Exchange) -> Connection | None:
        try:
            self.connection = await self._origin.connect(self._timeouts.connect_s)
        except OSError as error:
            exchange.failure, exchange.error = "connect_error", f"{type(error).__name__}: {error}"
            exchange.end_ns = monotonic_ns()
            return None
        except asyncio.CancelledError:
            exchange.failure, exchange.end_ns = "cancelled", monotonic_ns()
            raise
        return self.connection

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()


def head(request: httpx.Request, content_length: int) -> bytes:
    """Return the bytes of an HTTP/1.1 request before its body of `content_length` bytes."""
    lines = [b"%s %s HTTP/1.1" % (request.method.encode(), request.url.raw_path)]
    lines += (b"%s: %s" % header for header in _headers(request.headers.raw))
    lines.append(b"content-length: %d" % content_length)
    return b"\r\n".join(lines) + b"\r\n\r\n"


def _headers(raw: Iterable[tuple[bytes, bytes]]) -> Iterable[tuple[bytes, bytes]]:
    return (pair for pair in raw if pair[0].lower() not in (b"content-length", b"transfer-encoding"))
