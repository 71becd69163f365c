"""The transport against servers that split, stall, lie and die."""

import asyncio
import gc
import os
import resource
import socket
import weakref
from contextlib import suppress
from itertools import pairwise
from time import monotonic_ns

import httpx
import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st
from scripted_server import DONE, END, HEAD, ScriptedServer, finish, framed, refusal, reply, token

from certificate import self_signed
from http_double import CLOSE, RESET
from servebench.load import transport
from servebench.load.exchange import Exchange
from servebench.load.stream import parse
from servebench.load.transport import (
    HEAD_BYTES,
    Channel,
    Connection,
    Origin,
    Timeouts,
    head,
    last_progress_ns,
)
from servebench.machine.infrastructure import InfrastructureError

BODY = token("a") + token("b") + finish(2) + DONE
CHUNKED = HEAD + framed(token("a")) + framed(token("b")) + framed(finish(2) + DONE) + END
SIZED = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY)
UNTIL_CLOSE = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n" + BODY
AFTER_HINTS = b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n" + CHUNKED


class Wire(asyncio.Transport):
    """Stand in for the transport a connection writes to, without a network."""

    def __init__(self):
        super().__init__()
        self.written = b""
        self.aborted = False

    def write(self, data):
        self.written += data

    def abort(self):
        self.aborted = True


def exchange() -> Exchange:
    return Exchange(request_id=0, user=0, process=0, prompt_id="p", scheduled_ns=monotonic_ns())


def fed(pieces: list[bytes], *, eof: bool = False) -> tuple[Exchange, Connection]:
    """Feed a connection `pieces`, one by one, and return the exchange."""

    async def receive():
        connection, told = Connection(), exchange()
        connection.connection_made(Wire())
        carrying = asyncio.create_task(connection.carry(told, b"POST", Timeouts(1, 10)))
        await asyncio.sleep(0)
        for piece in pieces:
            connection.data_received(piece)
        if eof:
            connection.eof_received()
            connection.connection_lost(None)
        await asyncio.wait_for(carrying, 5)
        return told, connection

    return asyncio.run(receive())


def check_whole(told: Exchange) -> None:
    assert b"".join(block for _, block in told.blocks) == BODY
    assert (told.complete, told.left_open, told.failure, told.http_status) == (True, False, None, 200)
    stamps = [told.sent_ns, told.first_byte_ns, *(at for at, _ in told.blocks), told.end_ns]
    assert stamps == sorted(stamps)


@pytest.mark.parametrize("message", [CHUNKED, SIZED, AFTER_HINTS], ids=["chunked", "content-length", "after 1xx"])
def test_split_at_every_byte(message):
    for at in range(len(message) + 1):
        check_whole(fed([message[:at], message[at:]] if 0 < at < len(message) else [message])[0])
    check_whole(fed([bytes([byte]) for byte in message])[0])


@given(st.lists(st.integers(1, len(CHUNKED) - 1), unique=True))
def test_split_at_any_bytes(places):
    edges = [0, *sorted(places), len(CHUNKED)]
    check_whole(fed([CHUNKED[a:b] for a, b in pairwise(edges)])[0])


def test_until_close_ends_well_at_the_end_of_the_connection():
    told, connection = fed([UNTIL_CLOSE[:50], UNTIL_CLOSE[50:]], eof=True)
    check_whole(told)
    assert not connection.alive


@pytest.mark.parametrize("cut", [len(HEAD) - 1, len(HEAD), len(HEAD) + 40, len(CHUNKED) - 1])
def test_an_end_inside_the_message_is_truncated(cut):
    told, _ = fed([CHUNKED[:cut]], eof=True)
    assert (told.failure, told.complete) == ("truncated", False)


def test_a_sized_message_cut_short_is_truncated():
    told, _ = fed([SIZED[:-1]], eof=True)
    assert (told.failure, told.complete) == ("truncated", False)


def test_what_is_not_http_is_truncated_with_evidence():
    told, connection = fed([b"SSH-2.0-OpenSSH_9.6\r\n"])
    assert told.failure == "truncated"
    assert "SSH-2.0" in told.error
    assert not connection.alive


OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    ("headers", "evidence"),
    [
        (b"content-length: 5\r\ncontent-length: 5", "Content-Length"),
        (b"content-length: 5\r\ncontent-length: 6", "Content-Length"),
        (b"content-length: 99999999999999999999999", "Content-Length"),
        (b"content-length: -5", "Content-Length"),
        (b"content-length: five", "Content-Length"),
        (b"content-length: 5\r\ntransfer-encoding: chunked", "Content-Length"),
        (b"transfer-encoding: gzip", "transfer-encoding nobody asked for: b'gzip'"),
        (b"transfer-encoding: gzip, chunked", "transfer-encoding nobody asked for: b'gzip'"),
        (b"content-encoding: gzip", "content-encoding nobody asked for: b'gzip'"),
        (b"Content-Encoding: deflate, br", "content-encoding nobody asked for: b'br, deflate'"),
        (b"transfer-encoding: \xff", r"transfer-encoding nobody asked for: b'\xff'"),
        (b"transfer-encoding:", "Empty Transfer-Encoding"),
        (b"no colon", "header"),
        (b"x-\xff: a", "header"),
        (b"x: a\x00b", "header"),
        (b"x: " + 2 * HEAD_BYTES * b"a", "the head of the response goes on after"),
        (HEAD_BYTES // 4 * b"a: b\r\nc:", "the head of the response goes on after"),
    ],
)
def test_headers_that_frame_nothing_are_truncated_with_evidence(headers, evidence):
    message = OK + headers + b"\r\n\r\n" + BODY
    told, connection = fed([message[at : at + 65_536] for at in range(0, len(message), 65_536)], eof=True)
    assert (told.failure, told.complete) == ("truncated", False)
    assert evidence in told.error
    assert len(told.error) < 1000
    assert not connection.alive
    assert parse(told).status == "truncated"


@pytest.mark.parametrize(
    "headers",
    [
        b"x: \xe6\x9d\xb1\xff",
        b"x:",
        b"transfer-encoding: identity",
        b"content-encoding: identity",
        b"Transfer-Encoding: Chunked",
        b"transfer-encoding: chunked\r\ntransfer-encoding: chunked",
    ],
)
def test_odd_headers_that_change_nothing(headers):
    body = framed(BODY) + END if b"hunked" in headers else BODY
    check_whole(fed([OK + headers + b"\r\n\r\n" + body], eof=True)[0])


def test_a_switch_of_protocols_nobody_asked_for_is_truncated():
    head = b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"
    told, connection = fed([head])
    assert (told.failure, told.complete, connection.alive) == ("truncated", False, False)
    assert "changed to another protocol: b'HTTP/1.1 101" in told.error


def test_an_http_error_with_a_strange_transfer_encoding_stays_one():
    told, _ = fed([b"HTTP/1.1 503 Busy\r\ntransfer-encoding: gzip\r\n\r\nbusy"])
    assert parse(told).status == "http_error"


OPEN = CHUNKED.removesuffix(END)


@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
@pytest.mark.parametrize("after", range(0, 40, 3))
def test_a_message_left_open_after_done_ends_there(after, newline, monkeypatch):
    monkeypatch.setattr(transport, "OPEN_S", 0.005)
    stream = HEAD + framed(token()) + framed(finish(1)) + framed(DONE.replace(b"\n", newline))
    told, connection = fed([stream[:-after], *(bytes([byte]) for byte in stream[-after:])] if after else [stream])
    assert (told.left_open, told.complete, told.failure) == (True, False, None)
    assert told.end_ns == told.blocks[-1][0]
    assert not connection.alive
    assert parse(told).status == "ok"


def test_pings_do_not_keep_a_message_that_is_left_open(monkeypatch):
    monkeypatch.setattr(transport, "OPEN_S", 0.2)

    def script(_):
        yield OPEN
        while True:
            yield framed(b": ping\n\n") + framed(b"\n")
            yield 0.01

    told, server = carried(script, requests=2)
    assert [(one.left_open, parse(one).status) for one in told] == [(True, "ok")] * 2
    assert [one.connection for one in server.received] == [0, 1]


def test_an_end_that_comes_soon_after_done_is_the_end_and_the_connection_is_kept():
    def script(_):
        yield OPEN
        yield 0.05
        yield END

    told, server = carried(script, requests=2)
    assert [(one.complete, one.left_open) for one in told] == [(True, False)] * 2
    assert [one.connection for one in server.received] == [0, 0]


@pytest.mark.parametrize("text", ["data: [DONE]", "\ndata: [DONE]\n\n"])
def test_done_inside_a_reply_is_a_word_like_any_other(text, monkeypatch):
    monkeypatch.setattr(transport, "OPEN_S", 0.05)
    (told,), _ = carried(lambda _: [HEAD + framed(token(text)), 60.0], timeouts=Timeouts(5, 0.3))
    assert (told.failure, told.left_open) == ("timeout", False)


@pytest.mark.parametrize("address", ["https://there.example/v1/chat/completions", None])
def test_the_evidence_of_a_redirect_says_where_to(address):
    location = b"location: " + address.encode() + b"\r\n" if address else b""
    (told,), server = carried(lambda _: [b"HTTP/1.1 307 X\r\ncontent-length: 0\r\n" + location + b"\r\n"])
    place = f" (Location {address})" if address else ""
    assert parse(told).error == f"HTTP 307{place} for POST {server.url}/v1/chat/completions"


def test_the_evidence_of_a_compressed_error_names_the_encoding_and_holds_no_noise():
    told, _ = fed([b"HTTP/1.1 502 X\r\ncontent-encoding: br\r\ncontent-length: 3\r\n\r\n\x1b\x8b\xff"])
    assert parse(told).error == "HTTP 502 for POST : content-encoding nobody asked for: b'br'"


def test_a_connection_for_which_no_file_may_be_opened_is_no_failure_of_the_server():
    async def talk(port):
        channel = Channel(Origin("127.0.0.1", port, None), Timeouts(2, 5))
        taken = []
        with suppress(OSError):
            while True:
                taken.append(os.dup(0))
        try:
            with pytest.raises(InfrastructureError, match=rf"limit is {hard} open files.*prlimit"):
                await channel.open()
            with pytest.raises(InfrastructureError, match="open files"):
                await channel.exchange(exchange(), b"")
        finally:
            for file in taken:
                os.close(file)

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.create_server(("127.0.0.1", 0)) as server:
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
        try:
            uvloop.run(talk(server.getsockname()[1]))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_each_block_has_the_stamp_of_its_arrival():
    async def receive():
        connection, told = Connection(), exchange()
        connection.connection_made(Wire())
        carrying = asyncio.create_task(connection.carry(told, b"POST", Timeouts(1, 10)))
        await asyncio.sleep(0)
        connection.data_received(HEAD)
        between = []
        for text in "ab":
            between.append(monotonic_ns())
            connection.data_received(framed(token(text)))
        between.append(monotonic_ns())
        connection.data_received(END)
        await carrying
        return told, between

    told, between = asyncio.run(receive())
    for (at_ns, _), before, after in zip(told.blocks, between, between[1:], strict=False):
        assert before <= at_ns <= after


def carried(script, *, requests: int = 1, timeouts=None, tls=None) -> tuple[list[Exchange], ScriptedServer]:
    """Carry one user's exchanges, one after the other, with a scripted server."""

    async def talk(server):
        url = httpx.URL(server.url)
        channel = Channel(Origin.of(url.join("/v1/chat/completions")), timeouts or Timeouts(5, 10))
        assert await channel.open() is None
        payload = head(httpx.Request("POST", url.join("/v1/chat/completions")), 2) + b"{}"
        told = []
        for _ in range(requests):
            told.append(exchange())
            await channel.exchange(told[-1], payload)
        channel.close()
        return told

    with ScriptedServer(script, tls=tls) as server:
        return uvloop.run(talk(server)), server


def test_a_connection_is_kept():
    told, server = carried(lambda _: reply(), requests=5)
    assert [one.failure for one in told] == [None] * 5
    assert {one.connection for one in server.received} == {0}


def test_an_announced_close_is_followed_by_a_new_connection():
    def script(_):
        yield b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}"
        yield CLOSE

    told, server = carried(script, requests=3)
    assert [(one.failure, one.resent) for one in told] == [(None, False)] * 3
    assert [one.connection for one in server.received] == [0, 1, 2]


@pytest.mark.parametrize("end", [CLOSE, RESET])
def test_a_stale_connection_is_replaced_once_and_the_first_stamp_stands(end):
    """As llama.cpp does: the connection dies, unannounced, when its third request comes."""

    def script(received):
        if received.nth_on_connection == 2:
            yield 0.1
            yield end
        else:
            yield from reply()

    told, server = carried(script, requests=5)
    assert [one.failure for one in told] == [None] * 5
    assert [one.resent for one in told] == [False, False, True, False, True]
    assert len(server.received) == 5 + 2
    resent = told[2]
    assert resent.first_byte_ns - resent.sent_ns >= 100_000_000
    first_try = server.received[2]
    assert first_try.nth_on_connection == 2
    assert resent.sent_ns <= first_try.at_ns


@pytest.mark.parametrize("end", [CLOSE, RESET])
def test_a_new_connection_that_dies_is_a_failure(end):
    told, server = carried(lambda _: [end], requests=2)
    assert [(one.failure, one.resent) for one in told] == [("reset", False)] * 2
    assert len(server.received) == 2
    assert all(one.error for one in told)


def test_a_second_death_is_a_failure():
    told, server = carried(lambda received: reply() if received.number == 0 else [CLOSE], requests=2)
    assert (told[1].failure, told[1].resent) == ("reset", True)
    assert len(server.received) == 3


def test_a_reused_connection_that_dies_inside_the_reply_is_not_sent_again():
    def script(received):
        if received.number == 0:
            yield from reply()
        else:
            yield HEAD + framed(token())
            yield RESET

    told, server = carried(script, requests=2)
    assert (told[1].failure, told[1].resent, len(server.received)) == ("reset", False, 2)
    assert told[1].blocks


def test_nobody_listens():
    async def talk():
        channel = Channel(Origin("127.0.0.1", 9, None), Timeouts(2, 5))
        told = exchange()
        refused = await channel.open()
        await channel.exchange(told, b"")
        return told, refused

    told, refused = uvloop.run(talk())
    assert (told.failure, told.sent_ns) == ("connect_error", None)
    assert "refused" in told.error.lower()
    assert refused.startswith(told.error)


@pytest.mark.parametrize("host", ["my..host", 70 * "a" + ".example"])
def test_a_name_no_host_can_have_is_a_connect_error(host):
    async def talk():
        told = exchange()
        await Channel(Origin(host, 80, None), Timeouts(2, 5)).exchange(told, b"")
        return told

    told = uvloop.run(talk())
    assert (told.failure, told.sent_ns) == ("connect_error", None)
    assert host in told.error


def test_a_status_and_its_body_are_kept():
    told, _ = carried(lambda _: refusal(503, b'{"error": "busy"}'))
    assert (told[0].http_status, told[0].complete, told[0].failure) == (503, True, None)
    assert told[0].blocks[0][1] == b'{"error": "busy"}'


def test_the_total_timeout_counts_from_sending():
    def script(_):
        yield HEAD
        for _ in range(100):
            yield framed(token())
            yield 0.05

    (told,), _ = carried(script, timeouts=Timeouts(5, 0.5))
    assert told.failure == "timeout"
    assert 0.5e9 <= told.end_ns - told.sent_ns < 3e9


def test_pings_do_not_break_a_silence():
    def script(_):
        yield HEAD + framed(token())
        for _ in range(100):
            yield 0.05
            yield framed(b": ping\n\n")

    (told,), _ = carried(script, timeouts=Timeouts(5, 30, 0.5))
    assert told.failure == "idle_timeout"
    assert len(told.blocks) > 2
    assert told.end_ns - told.sent_ns < 10e9


def test_tokens_break_a_silence():
    (told,), _ = carried(lambda _: reply(tokens=15, gap_s=0.1), timeouts=Timeouts(5, 30, 0.8))
    assert told.failure is None
    assert told.end_ns - told.sent_ns > 1.2e9


def test_progress_is_the_last_byte_that_is_no_comment():
    told = exchange()
    told.sent_ns, told.first_byte_ns = 1, 2
    assert last_progress_ns(told) == 2
    told.blocks = [(3, b"data: x"), (4, b"\n\n: pi"), (5, b"ng\n"), (6, b"\n"), (7, b":\r\n\r\n")]
    assert last_progress_ns(told) == 3
    told.blocks += [(8, b"da"), (9, b": still a comment? no\n")]
    assert last_progress_ns(told) == 9


def test_cancelled_exchanges_say_so():
    async def talk(server):
        channel = Channel(Origin.of(httpx.URL(server.url)), Timeouts(5, 30))
        told = exchange()
        payload = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}"
        task = asyncio.create_task(channel.exchange(told, payload))
        async with asyncio.timeout(10):
            while told.first_byte_ns is None:
                await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return told

    with ScriptedServer(lambda _: [HEAD, 30.0]) as server:
        told = uvloop.run(talk(server))
    assert (told.failure, told.complete) == ("cancelled", False)
    assert told.end_ns is not None


def test_tls(tmp_path, monkeypatch):
    context, certificate = self_signed(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    told, _ = carried(lambda _: reply(), requests=3, tls=context)
    assert [(one.failure, one.complete) for one in told] == [(None, True)] * 3


def test_an_unknown_certificate_is_a_connect_error(tmp_path, monkeypatch):
    async def talk(server):
        channel = Channel(Origin.of(httpx.URL(server.url.replace("http:", "https:"))), Timeouts(2, 5))
        told = exchange()
        await channel.exchange(told, b"")
        return told

    with ScriptedServer(lambda _: reply()) as server:
        assert uvloop.run(talk(server)).failure == "connect_error"


@pytest.mark.parametrize("ticks", range(8))
def test_a_cancel_that_comes_as_the_connection_does_is_not_lost(ticks):
    async def cancelled() -> bool:
        loop, entered, gate = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()

        async def create_connection(*_: object, **__: object) -> tuple[None, None]:
            entered.set()
            await gate.wait()
            return None, None

        loop.create_connection = create_connection  # type: ignore[method-assign]
        connecting = asyncio.create_task(Origin("localhost", 1, None, "127.0.0.1").connect(5))
        await entered.wait()
        gate.set()
        for _ in range(ticks):
            await asyncio.sleep(0)
        if connecting.done():
            return True
        connecting.cancel()
        await asyncio.wait([connecting])
        return connecting.cancelled()

    assert asyncio.run(cancelled())


def test_nothing_is_left_of_a_connection_that_has_ended():
    """A load runs without garbage collection: what refers to itself would stay until its end."""

    def script(request):
        ends = {0: [*refusal(503)], 1: [HEAD + framed(token()), RESET], 2: [HEAD + framed(token()), CLOSE]}
        return ends.get(request.number % 4, [b"not HTTP", CLOSE])

    async def connections(url):
        kept = []
        for number in range(12):
            channel = Channel(Origin.of(httpx.URL(url)), Timeouts(5, 5, None))
            assert await channel.open() is None
            kept.append(weakref.ref(channel.connection))
            sent = Exchange(number, 0, 0, "p", monotonic_ns())
            await channel.exchange(sent, b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n")
            channel.close()
            del channel, sent
        for _ in range(100):
            await asyncio.sleep(0.02)
            if not any(connection() for connection in kept):
                return 0
        return sum(connection() is not None for connection in kept)

    gc.disable()
    try:
        with ScriptedServer(script) as server:
            assert uvloop.run(connections(server.url)) == 0
    finally:
        gc.enable()
