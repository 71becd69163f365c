"""Every reader of what others wrote returns or raises a Fault, for any bytes: no crash, no hang, no other exception.

FUZZ_EXAMPLES sets how many inputs each reader gets (`make fuzz`: 20,000).
"""

from __future__ import annotations

import json
import os
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
from servebench.engines import llama_log
from servebench.faults import Fault
from servebench.load import stream
from servebench.load.prompts import load as load_prompts
from servebench.load.reply import ReplyError, completion
from servebench.load.traces import read_trace
from servebench.load.workload import Workload
from servebench.plan import read as read_plan
from servebench.store import measurements, replies

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "40"))
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
PAIRS = st.lists(
    st.tuples(st.sampled_from([4, 5, 8, 9, 10, 77]), st.integers(0, 2**64 - 1), st.binary(max_size=40)), max_size=4
)
LOG = st.lists(
    st.sampled_from(["slot launch_slot_: id  0 | task 3 | processing task", "n_ctx_slot = 512", "srv  update_slots:"])
    | st.text(max_size=40),
    max_size=6,
).map("\n".join)


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


READERS: dict[str, tuple[Any, Callable[[Any], object]]] = {
    "stream": (st.binary() | DATA | LINES, parsed),
    "completion": (st.binary() | LINES, lambda content: completion(httpx.Response(200), content)),
    "gguf": (st.binary() | PAIRS.map(gguf), in_file("m.gguf", lambda path: kv_cache.report(str(path), tokens=1))),
    "config.json": (st.binary() | LINES, in_file("config.json", lambda path: kv_cache.report(str(path), tokens=1))),
    "configuration": (
        st.binary() | YAML.map(lambda text: text.encode(errors="replace")),
        in_file("c.yaml", reading.read),
    ),
    "plan": (st.binary() | LINES, in_file("plan.json", read_plan)),
    "trace": (st.binary() | LINES, in_file("t.jsonl", lambda path: read_trace(str(path)))),
    "prompts": (st.binary() | LINES, in_file("p.jsonl", lambda path: load_prompts(Workload(prompts=str(path)), 0))),
    "replies": (st.binary() | LINES, in_file("r.jsonl", replies.Answers)),
    "measurement": (st.binary(), in_file("m.parquet", measurements.read)),
    "engine log": (LOG, lambda text: (llama_log.start(text), llama_log.served(text, ""))),
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
