"""Define and check a measurement's two raw tables: one row per request, one row per chunk.

Times are CLOCK_MONOTONIC nanoseconds of the load generator's machine. Null always means "nothing was
measured", never zero. Both tables are checked against these schemas when they are written and when they
are read (`check_requests`, `check_chunks`), so that the figures can rely on them.
"""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

PHASES = ("warmup", "window", "after")
TOKEN_SOURCES = ("usage", "tokenizer", "chunks")
STATUSES = (
    "ok",
    "http_error",
    "connect_error",
    "timeout",
    "idle_timeout",
    "reset",
    "truncated",
    "in_band_error",
    "empty",
    "cancelled",
)


def _column(name: str, kind: pa.DataType, null: bool, meaning: str) -> pa.Field:
    return pa.field(name, kind, nullable=null, metadata={"meaning": meaning})


REQUESTS_SCHEMA = pa.schema(
    [
        _column("request_id", pa.int64(), False, "unique within the measurement"),
        _column("user", pa.int32(), False, "the simulated person, from 0"),
        _column("process", pa.int32(), False, "the worker process, from 0"),
        _column("prompt_id", pa.string(), False, "which document or prompt"),
        _column("phase", pa.string(), False, "warmup, window (a target) or after, by the time of sending"),
        _column("scheduled_ns", pa.int64(), False, "when the way of loading wanted it sent"),
        _column("sent_ns", pa.int64(), True, "just before its first byte is written, the first time"),
        _column("first_byte_ns", pa.int64(), True, "first byte of the HTTP response"),
        _column("first_token_ns", pa.int64(), True, "first chunk with content, reasoning or a tool call"),
        _column("first_answer_ns", pa.int64(), True, "first chunk with content or a tool call"),
        _column("last_token_ns", pa.int64(), True, "last chunk with content, reasoning or a tool call"),
        _column("end_ns", pa.int64(), True, "the response was over, or was given up"),
        _column("status", pa.string(), False, "ok or the class of the failure"),
        _column("http_status", pa.int32(), True, "HTTP status code"),
        _column("error", pa.string(), True, "evidence of the failure; null when ok"),
        _column("resent", pa.bool_(), False, "sent again because a reused connection was dead"),
        _column("prompt_tokens", pa.int64(), True, "usage.prompt_tokens"),
        _column("completion_tokens", pa.int64(), True, "output tokens, counted as tokens_from says"),
        _column("reasoning_tokens", pa.int64(), True, "of completion_tokens, as usage says; null when it does not"),
        _column("cached_tokens", pa.int64(), True, "prompt tokens the server took from its cache"),
        _column("tokens_from", pa.string(), True, "usage, tokenizer or chunks; null without output"),
        _column("chunks", pa.int32(), False, "chunks with content, reasoning or a tool call"),
        _column("finish_reason", pa.string(), True, "as the server gave it"),
        _column("done", pa.bool_(), False, "the stream said [DONE]"),
        _column("left_open", pa.bool_(), True, "the HTTP message did not end after [DONE]"),
        _column("reasoning_chars", pa.int32(), False, "characters of reasoning text"),
        _column("text_sha256", pa.string(), True, "of the answer's UTF-8 bytes; null without any output"),
        _column("text", pa.string(), True, "the answer, kept only when asked for"),
        _column("timings", pa.string(), True, "llama.cpp's timings object, JSON"),
    ]
)

# Columns that earlier versions did not write, in the order of the schema; null in tables of those versions.
_LATER = ("reasoning_tokens", "left_open")

CHUNKS_SCHEMA = pa.schema(
    [
        _column("request_id", pa.int64(), False, "the request it belongs to"),
        _column("arrival_ns", pa.int64(), False, "the block of bytes that completed it arrived"),
        _column("tokens", pa.int32(), False, "output tokens credited to it; may be 0"),
    ]
)


class RecordError(ValueError):
    """Report that a table does not match its schema; the message names table, column and value."""


def check_requests(table: pa.Table) -> pa.Table:
    """Check a requests table and return it, with nulls in columns that earlier versions did not write.

    Raises RecordError when columns, types or nulls differ from REQUESTS_SCHEMA, a word is not one of the column's
    values, a request_id occurs twice, or the stamps of a request are not in chronological order.
    """
    for name in (name for name in _LATER if name not in table.schema.names):
        field = REQUESTS_SCHEMA.field(name)
        column = pa.nulls(table.num_rows, field.type)
        table = table.add_column(REQUESTS_SCHEMA.get_field_index(name), field, column)
    _check_schema("requests", table, REQUESTS_SCHEMA)
    _check_words(table, "phase", PHASES)
    _check_words(table, "status", STATUSES)
    _check_words(table, "tokens_from", TOKEN_SOURCES)
    if pc.count_distinct(table["request_id"]).as_py() != table.num_rows:
        raise RecordError("requests.request_id: a number occurs twice")
    stamps = ("sent_ns", "first_byte_ns", "first_token_ns", "last_token_ns", "end_ns")
    for earlier, later in pairwise(stamps):
        if pc.any(pc.greater(table[earlier], table[later])).as_py():
            raise RecordError(f"requests.{later}: is earlier than {earlier} in a row")
    return table


def check_chunks(table: pa.Table, requests: pa.Table) -> pa.Table:
    """Check a chunks table against its schema and the requests it belongs to, and return it.

    Raises RecordError when columns, types or nulls differ from CHUNKS_SCHEMA, when the chunks of a
    request are not consecutive rows in order of arrival, or when their number or the sum of their tokens disagrees
    with the requests table: all output tokens except those of reasoning that was not streamed.
    """
    _check_schema("chunks", table, CHUNKS_SCHEMA)
    rows = chunk_rows(table, requests)
    arrivals = table["arrival_ns"].to_numpy()
    same = rows[1:] == rows[:-1]
    counts = np.bincount(rows, minlength=requests.num_rows)
    if len(rows) and 1 + np.count_nonzero(~same) != np.count_nonzero(counts):
        raise RecordError("chunks.request_id: the chunks of a request are not consecutive rows")
    _check_sums(requests, "chunks", counts)
    tokens = np.bincount(rows, table["tokens"].to_numpy(), requests.num_rows)
    _check_sums(requests, "completion_tokens", tokens + hidden_tokens(requests))
    if np.any(same & (arrivals[1:] < arrivals[:-1])):
        raise RecordError("chunks.arrival_ns: is earlier than that of the request's previous chunk")
    return table


def hidden_tokens(requests: pa.Table) -> npt.NDArray[np.int64]:
    """Return, for each request, how many reasoning tokens the server counted but did not stream."""
    tokens, reasoning = (pc.fill_null(requests[f"{kind}_tokens"], 0).to_numpy() for kind in ("completion", "reasoning"))
    unseen = (requests["reasoning_chars"].to_numpy() == 0) & (reasoning < tokens)
    hidden: npt.NDArray[np.int64] = np.where(unseen, reasoning, 0)
    return hidden


def chunk_rows(chunks: pa.Table, requests: pa.Table) -> npt.NDArray[np.int64]:
    """Return, for each chunk, the row of its request in the requests table. Raises RecordError without that row."""
    ids, wanted = requests["request_id"].to_numpy(), chunks["request_id"].to_numpy()
    if not len(wanted):
        return np.empty(0, np.int64)
    order = np.argsort(ids)
    places = np.searchsorted(ids, wanted, sorter=order).clip(max=len(ids) - 1)
    rows: npt.NDArray[np.int64] = order[places] if len(ids) else places
    if not len(ids) or np.any(ids[rows] != wanted):
        raise RecordError("chunks.request_id: a chunk belongs to no request")
    return rows


def write_measurement(folder: Path, requests: pa.Table, chunks: pa.Table, summary: dict[str, Any]) -> None:
    """Write requests.parquet, chunks.parquet and summary.json into `folder`, which is created if necessary.

    Raises RecordError for tables that do not match their schemas, and ValueError for a figure that is NaN or infinite:
    what was not measured is null.
    """
    import pyarrow.parquet as pq  # no load process needs it

    text = json.dumps(msgspec.to_builtins(summary), ensure_ascii=False, allow_nan=False, indent=2)
    check_chunks(chunks, check_requests(requests))
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(requests, folder / "requests.parquet")
    pq.write_table(chunks, folder / "chunks.parquet")
    (folder / "summary.json").write_text(text + "\n", encoding="utf-8")


def write_arrow(descriptor: int, table: pa.Table) -> None:
    """Write a table into an open file as uncompressed Arrow, the fastest to write and to read."""
    with open(descriptor, "wb", closefd=False) as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


def read_arrow(descriptor: int) -> pa.Table:
    """Read the table that `write_arrow`, in this process or another, has written into an open file."""
    with open(descriptor, "rb", closefd=False) as file:
        return pa.ipc.open_file(file).read_all()


def _check_sums(requests: pa.Table, column: str, found: npt.NDArray[Any]) -> None:
    """Raise RecordError unless every request with output has the value of `found` in `column`."""
    told = pc.fill_null(requests[column], -1).to_numpy()
    wrong = np.flatnonzero((requests["chunks"].to_numpy() > 0) & (told != found))
    if len(wrong):
        request_id = requests["request_id"][int(wrong[0])].as_py()
        raise RecordError(f"chunks: request {request_id} has {found[wrong[0]]:g}, not {told[wrong[0]]} {column}")


def _check_schema(name: str, table: pa.Table, schema: pa.Schema) -> None:
    if table.schema.names != schema.names:
        raise RecordError(f"{name}: columns are {table.schema.names}, not {schema.names}")
    for field in schema:
        column = table[field.name]
        if column.type != field.type:
            raise RecordError(f"{name}.{field.name}: is {column.type}, not {field.type}")
        if not field.nullable and column.null_count:
            raise RecordError(f"{name}.{field.name}: has {column.null_count} nulls and may have none")


def _check_words(table: pa.Table, column: str, words: tuple[str, ...]) -> None:
    strange = set(pc.unique(table[column]).to_pylist()) - {*words, None}
    if strange:
        raise RecordError(f"requests.{column}: {sorted(strange)[0]!r} is not one of {', '.join(words)}")
