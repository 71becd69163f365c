"""Every reader of what others wrote returns or raises a Fault, for any bytes: no crash, no hang, no other exception.

`make fuzz` gives the same readers to atheris, ten minutes each.
"""

from __future__ import annotations

import asyncio
import json
import struct
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exchanges import exchange
from servebench.cli import kv_cache
from servebench.configuration import ConfigError, reading
from servebench.engines import llama_log, metrics
from servebench.faults import Fault
from servebench.load import stream
from servebench.load.exchange import Exchange
from servebench.load.prompts import load as load_prompts
from servebench.load.reply import ReplyError, completion
from servebench.load.traces import read_trace
from servebench.load.transport import Connection, Timeouts
from servebench.load.workload import Workload
from servebench.plan import read as read_plan
from servebench.store import measurements, replies

EXAMPLES = 40
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)
# Words that the readers look for, so that more than their first check is reached.
WORDS = st.sampled_from(
    [
        *("choices", "delta", "message", "content", "usage", "prompt_tokens", "finish_reason", "error", "arrival_s"),
        *("prompt", "messages", "role", "conversations", "from", "value", "timestamp", "input_length", "hash_ids"),
    ]
)
KEYED = st.recursive(
    st.none() | st.integers() | st.floats() | st.text(max_size=5) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=15,
)
LINES = st.lists(st.one_of(KEYED, JSON), max_size=4).map(lambda values: "\n".join(map(json.dumps, values)).encode())
DATA = st.lists(st.one_of(KEYED, JSON), max_size=4).map(
    lambda values: b"".join(b"data: " + json.dumps(value).encode() + b"\n\n" for value in values)
)
LETTERS = st.characters(exclude_categories=["Cs"])
YAML = st.lists(
    st.sampled_from("ab:-*&[]{}<|>#!?%@'\"\\, \n\t0~") | st.characters(exclude_categories=["Cs"]), max_size=60
).map("".join)
HEADS = st.lists(
    st.sampled_from(
        [
            *(b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 307 Moved\r\n", b"HTTP/1.1 100 Continue\r\n\r\n", b"\r\n"),
            *(b"transfer-encoding: chunked\r\n\r\n", b"content-length: 9\r\n", b"location: /x\r\n", b"5\r\ndata:"),
            *(b"content-encoding: gzip\r\n", b"connection: close\r\n", b"0\r\n\r\n", b"upgrade: h2c\r\n"),
        ]
    ),
    max_size=6,
).map(b"".join)
CSV = st.lists(
    st.sampled_from(["TIMESTAMP,ContextTokens,GeneratedTokens", "Timestamp,Request tokens,Response tokens", "1.5,10,3"])
    | st.lists(st.floats().map(str) | st.text(LETTERS, max_size=5), max_size=4).map(",".join),
    max_size=5,
).map("\n".join)
PAIRS = st.lists(
    st.tuples(st.sampled_from([4, 5, 8, 9, 10, 77]), st.integers(0, 2**64 - 1), st.binary(max_size=40)), max_size=4
)
LOG = st.lists(
    st.sampled_from(["slot launch_slot_: id  0 | task 3 | processing task", "n_ctx_slot = 512", "srv  update_slots:"])
    | st.text(max_size=40),
    max_size=6,
).map("\n".join)


def answering(content: bytes) -> httpx.Client:
    """Return a client of a server that always answers with this body."""
    answer = httpx.MockTransport(lambda request: httpx.Response(200, content=content))
    return httpx.Client(transport=answer, base_url="http://127.0.0.1:9")


def gguf(pairs: list[tuple[int, int, bytes]]) -> bytes:
    body = b"".join(struct.pack("<Q", 1) + b"k" + struct.pack("<IQ", kind, count) + more for kind, count, more in pairs)
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(pairs)) + body


def in_file(name: str, read: Callable[[Path], object]) -> Callable[[bytes], None]:
    """Give the bytes to a reader in a file of this name."""

    def give(content: bytes) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / name
            path.write_bytes(content)
            read(path)

    return give


def parsed(content: bytes) -> None:
    stream.to_tables([exchange(content)], None)


class Nowhere(asyncio.Transport):
    """Take what a connection sends."""

    def write(self, data: object) -> None: ...

    def abort(self) -> None: ...


def received(content: bytes) -> None:
    """Give the bytes to a connection that awaits a response, in pieces as long as the first byte says, then its end."""

    async def receive() -> None:
        told = Exchange(request_id=0, user=0, process=0, prompt_id="p", scheduled_ns=0)
        connection = Connection("http://127.0.0.1:9/")
        connection.connection_made(Nowhere())
        carrying = asyncio.create_task(connection.carry(told, b"POST", Timeouts(1, 60)))
        await asyncio.sleep(0)
        size = max(1, content[0] if content else 1)
        for at in range(1, len(content), size):
            connection.data_received(content[at : at + size])
        connection.connection_lost(None)
        await carrying
        assert told.end_ns is not None
        assert told.complete or told.left_open or told.failure

    asyncio.run(receive())


READERS: dict[str, tuple[Any, Callable[[Any], object]]] = {
    "stream": (st.binary() | DATA | LINES, parsed),
    "http": (
        st.builds(lambda size, head, body: bytes([size]) + head + body, st.integers(0, 255), HEADS, DATA | st.binary()),
        received,
    ),
    "completion": (st.binary() | LINES, lambda content: completion(httpx.Response(200), content)),
    "gguf": (st.binary() | PAIRS.map(gguf), in_file("m.gguf", lambda path: kv_cache.report(str(path), tokens=1))),
    "config.json": (st.binary() | LINES, in_file("config.json", lambda path: kv_cache.report(str(path), tokens=1))),
    "configuration": (
        st.binary() | YAML.map(lambda text: text.encode(errors="replace")),
        in_file("c.yaml", reading.read),
    ),
    "plan": (st.binary() | LINES, in_file("plan.json", read_plan)),
    "trace": (st.binary() | LINES, in_file("t.jsonl", lambda path: read_trace(str(path)))),
    "trace.csv": (CSV.map(str.encode) | st.binary(), in_file("t.csv", lambda path: read_trace(str(path)))),
    "prompts": (st.binary() | LINES, in_file("p.jsonl", lambda path: load_prompts(Workload(prompts=str(path)), 0))),
    "replies": (st.binary() | LINES, in_file("r.jsonl", replies.Answers)),
    "measurement": (st.binary(), in_file("m.parquet", measurements.read)),
    "engine log": (
        LOG.map(lambda text: text.encode(errors="replace")),
        lambda content: (llama_log.start(text := content.decode(errors="replace")), llama_log.served(text, "")),
    ),
    "metrics": (
        LOG.map(lambda text: text.encode(errors="replace")) | st.binary(),
        lambda content: metrics.scrape(answering(content)),
    ),
}


@pytest.mark.parametrize("reader", READERS)
def test_any_input_is_read_or_refused(reader: str) -> None:
    inputs, read = READERS[reader]

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
    @given(inputs)
    def tried(content: Any) -> None:
        with suppress(Fault, ReplyError, ConfigError):
            read(content)

    tried()
