"""Read one exchange: the reply's text, when each chunk arrived, and how many tokens it held.

Decisions where tools in the field disagree:

- An event arrives with the block of bytes that holds the last byte of its (last) data line; the line ending
  and the blank line after it may come later and do not count.
- A chunk is an event whose delta has non-empty content, reasoning or tool calls (`servebench.load.reply`). A role-only
or empty delta is not a chunk. A reply sent as one JSON document is one chunk.
- Tokens: the last `usage` gives their number. Without `usage`, a finished text reply is counted with the
tokenizer, if one is configured; any other reply, above all a broken stream, counts its chunks.
- Reasoning tokens that `usage` counts but that were not streamed are credited to no chunk: nobody saw them arrive.
- Success: finish_reason was seen, the HTTP message ended cleanly or was left open after [DONE], and there was output.
"""

import itertools
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from servebench.load.exchange import Exchange
from servebench.load.records import CHUNKS_SCHEMA, REQUESTS_SCHEMA, check_chunks, check_requests
from servebench.load.reply import (
    BROKEN_FINISHES,
    EVIDENCE_CHARS,
    Event,
    Message,
    ReplyError,
    Usage,
    decode,
    decode_all,
    evidence,
)
from servebench.machine.untrusted import redacted, shown

_DATA = b"data: "
_BETWEEN = b"\n\n" + _DATA
_BLANK = (b"\n", b"\r\n", b"\r")
MOST_LINES = 64  # of one event
# A good reply shows output in the first of these bytes and why it finished, without an error, in the last.
_END_BYTES = 4096
_NEAR_BYTES = 512  # where both mostly are: looked at first, since other bytes have left the processor's caches
_OUTPUT = re.compile(rb'"(?:content|reasoning|reasoning_content|thinking)"\s*:\s*"[^"]|"tool_calls"\s*:\s*\[\s*\{')
_FINISH = re.compile(rb'"finish_reason"\s*:\s*"(?!"|null"|None"|abort"|error")')
_ERROR = re.compile(rb'"error"\s*:(?!\s*null)|"object"\s*:\s*"error"|^(?:event:\s*)?error', re.MULTILINE)

Ints = npt.NDArray[np.int64]


class _Timings(msgspec.Struct):
    cache_n: Annotated[int, msgspec.Meta(le=2**31 - 1)] | None = None  # -1: unknown to llama.cpp
    prompt_ms: float | None = None


@dataclass(slots=True)
class Parsed:
    """Hold what one exchange contained. `arrival_ns` and `tokens` have one entry per chunk, in order."""

    status: str
    error: str | None
    arrival_ns: Ints
    tokens: Ints
    first_answer_ns: int | None
    finish_reason: str | None
    prompt_tokens: int | None
    completion_tokens: int | None
    reasoning_tokens: int | None
    cached_tokens: int | None
    tokens_from: str | None
    reasoning_chars: int
    text: str | None
    timings: str | None
    done: bool


@dataclass(slots=True)
class _Reply:
    """Accumulate the events of one body, in order."""

    ends: list[int] = field(default_factory=list)  # offset of each chunk's last byte in the body
    answer: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    first_answer: int | None = None  # index of the chunk
    tool_calls: bool = False
    finish_reason: str | None = None
    usage: Usage | None = None
    timings: bytes | None = None
    error: str | None = None
    done: bool = False

    def take(self, data: bytes, end: int) -> bool:
        """Add an event that ends at offset `end` of the body; return False when `data` is not whole JSON (yet)."""
        try:
            event = decode(data)
        except ReplyError as error:
            if data.strip() == b"[DONE]":
                self.done = True
            else:
                self.fail(str(error))
            return True
        if event is None:
            return False
        if event.failed:
            self.fail(evidence(data))
        self.add(event, end)
        return True

    def add(self, event: Event, end: int) -> None:
        """Add an event that is read and ends at offset `end` of the body."""
        if event.choices:
            for choice in event.choices:
                delta = choice.delta or choice.message
                if delta is not None:
                    self._take_delta(delta, end)
                if choice.finish_reason:
                    self.finish_reason = choice.finished or self.finish_reason
        if event.usage is not None:
            self.usage = event.usage
        if event.timings and _is_llama(event.timings):
            self.timings = bytes(event.timings)

    def _take_delta(self, delta: Message, end: int) -> None:
        (content, reasoning), tools = delta.said(), delta.tool_calls
        if content or tools:
            if self.first_answer is None:
                self.first_answer = len(self.ends)
        elif not reasoning:
            return
        if content:
            self.answer.append(content)
        if reasoning:
            self.reasoning.append(reasoning)
        if tools:
            self.tool_calls = True
        self.ends.append(end)

    def fail(self, why: str) -> None:
        """Record an error unless one is recorded: later errors are consequences of the first."""
        self.error = self.error or why


def parse(exchange: Exchange, count_tokens: Callable[[str], int] | None = None) -> Parsed:
    """Parse one exchange: status with its evidence, chunks with arrival (ns) and credited tokens, usage.

    `count_tokens` counts the tokens of a text; it is used only for a finished reply without usage.
    """
    stamps, parts = zip(*exchange.blocks, strict=True) if exchange.blocks else ((), ())
    body = b"".join(parts)
    failed = exchange.http_status is not None and not 200 <= exchange.http_status < 300
    reply = _Reply() if failed else _read(body)
    chunks = len(reply.ends)
    status, error = _status(exchange, reply, body, failed)
    completion_tokens, tokens_from = _count(reply, count_tokens if status == "ok" else None)
    # The block that holds byte `end` of the body, for each chunk's last byte.
    blocks = np.searchsorted(np.cumsum(list(map(len, parts))), reply.ends, side="right")
    arrival_ns: Ints = np.array(stamps, dtype=np.int64)[blocks]
    usage = reply.usage or Usage()
    reasoning_tokens = usage.reasoning_tokens if tokens_from == "usage" else None
    reasoning_chars = sum(map(len, reply.reasoning))
    visible = completion_tokens or 0
    if not reasoning_chars and reasoning_tokens and reasoning_tokens < visible:
        visible -= reasoning_tokens
    return Parsed(
        status=status,
        error=None if error is None else shown(error),
        arrival_ns=arrival_ns,
        tokens=credit(visible, chunks),
        first_answer_ns=None if reply.first_answer is None else int(arrival_ns[reply.first_answer]),
        finish_reason=None if reply.finish_reason is None else shown(reply.finish_reason[:EVIDENCE_CHARS]),
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=completion_tokens,
        reasoning_tokens=reasoning_tokens,
        cached_tokens=_cached(usage, reply.timings),
        tokens_from=tokens_from,
        reasoning_chars=reasoning_chars,
        text=redacted("".join(reply.answer)) if chunks else None,
        timings=None if reply.timings is None else redacted(reply.timings.decode(errors="replace")),
        done=reply.done,
    )


def failed(exchange: Exchange) -> bool:
    """Return whether an exchange that has ended failed.

    A reply whose beginning and end look good is not parsed, which would take time from the load. So an error in the
    middle of a long reply that then went on is missed here."""
    if exchange.failure is not None or not 200 <= (exchange.http_status or 0) < 300:
        return True
    end = b"".join(reversed(_some(reversed(exchange.blocks), _END_BYTES)))
    good = (
        (_FINISH.search(end[-_NEAR_BYTES:]) or _FINISH.search(end))
        and not (b"error" in end and _ERROR.search(end))
        and any(_OUTPUT.search(b"".join(_some(exchange.blocks, size))) for size in (_NEAR_BYTES, _END_BYTES))
    )
    return not good and parse(exchange).status != "ok"


def _some(blocks: Iterable[tuple[int, bytes]], size: int) -> list[bytes]:
    """Return the bytes of the first blocks that together hold `size` bytes; all when there are fewer."""
    found: list[bytes] = []
    for _, block in blocks:
        found.append(block)
        size -= len(block)
        if size <= 0:
            break
    return found


def credit(tokens: int, chunks: int) -> Ints:
    """Spread T tokens over n chunks, shape (n,): chunk i gets ⌊(i+1)T/n⌋ − ⌊iT/n⌋ (docs/figures.md)."""
    return np.diff(np.arange(chunks + 1, dtype=np.int64) * tokens // max(chunks, 1))


def _read(body: bytes) -> _Reply:
    """Read the reply in a body: Server-Sent Events, or one JSON document from a server that does not stream."""
    reply = _Reply()
    if body.lstrip()[:1] in (b"{", b"["):
        if not reply.take(body, len(body.rstrip()) - 1):
            reply.fail(f"not a chat completion: {evidence(body)}")
        return reply
    if _read_regular(body, reply):
        return reply
    end = 0
    pending = b""  # data lines that are not a whole JSON document yet
    lines = 0  # their number
    error_event = False
    for line in body.splitlines(keepends=True):
        end += len(line)
        if line.startswith(b"data:"):
            data = pending + line[5:] if pending else line[5:]
            if error_event:
                reply.fail(evidence(data))
            elif reply.take(data, end - 1 - len(line) + len(line.rstrip(b"\r\n"))):
                pending, lines = b"", 0
            elif lines < MOST_LINES:
                pending, lines = data, lines + 1
            else:  # each more would be read from the first again
                reply.fail(f"a chat completion chunk of more than {MOST_LINES} lines: {evidence(data)}")
                pending, lines = b"", 0
        elif line in _BLANK:
            if pending.strip():
                reply.fail(f"not a chat completion chunk: {evidence(pending)}")
            pending, lines, error_event = b"", 0, False
        elif line.startswith(b"error:"):  # llama.cpp's older builds
            reply.fail(evidence(line[6:]))
        elif line.startswith(b"event:"):
            error_event = line[6:].strip() == b"error"
    return reply


def _read_regular(body: bytes, reply: _Reply) -> bool:
    """Read a body in which each event is one line `data: JSON`, and none an error, at a third of the cost of the lines.

    Return False, and leave the reply as it is, for any other body.
    """
    if not (body.startswith(_DATA) and body.endswith(b"\n\n")):
        return False
    lines = body[len(_DATA) : -2].split(_BETWEEN)
    if body.count(b"\n") != 2 * len(lines) or b"\r" in body:
        return False
    done = lines[-1] == b"[DONE]"
    ends = itertools.accumulate(lines, lambda end, line: end + len(_BETWEEN) + len(line), initial=-3)
    next(ends)
    events = decode_all(lines[:-1] if done else lines)
    if events is None or any(event.failed for event in events):
        return False
    for event, end in zip(events, ends, strict=False):  # [DONE] ends no chunk
        reply.add(event, end)
    reply.done = done
    return True


def _is_llama(timings: msgspec.Raw) -> bool:
    """Return whether these are llama.cpp's timings: other servers may use the key `timings` for something else."""
    try:
        return msgspec.json.decode(timings, type=_Timings | None) is not None
    except (msgspec.DecodeError, RecursionError):
        return False


def _status(exchange: Exchange, reply: _Reply, body: bytes, failed: bool) -> tuple[str, str | None]:
    so_far = f"after {len(body)} bytes and {len(reply.ends)} chunks"
    if failed:
        said = exchange.error or body.decode(errors="replace")[:EVIDENCE_CHARS]
        return "http_error", ": ".join(filter(None, (exchange.refusal or f"HTTP {exchange.http_status}", said)))
    if reply.error is not None:
        return "in_band_error", f"{reply.error} ({so_far})"
    if exchange.failure is not None:
        if reply.finish_reason is not None and not reply.done:
            so_far += f", finish_reason {reply.finish_reason}, neither [DONE] nor the end of the HTTP message"
        return exchange.failure, f"{exchange.error or exchange.failure} ({so_far})"
    if not exchange.complete and not exchange.left_open:
        return "truncated", f"the HTTP message did not end ({so_far})"
    if reply.finish_reason in BROKEN_FINISHES:
        return "in_band_error", f"finish_reason {reply.finish_reason} ({so_far})"
    if not reply.ends:
        return "empty", f"no output ({so_far}): {body[-EVIDENCE_CHARS:].decode(errors='replace')}"
    if reply.finish_reason is None:
        return "truncated", f"the stream ended without finish_reason ({so_far})"
    return "ok", None


def _count(reply: _Reply, count_tokens: Callable[[str], int] | None) -> tuple[int | None, str | None]:
    """Return (output tokens, source of that number). A usage of 0 beside visible output is not a count."""
    chunks = len(reply.ends)
    told = reply.usage.completion_tokens if reply.usage is not None else None
    if told is not None and (told > 0 or not chunks):
        return told, "usage"
    if not chunks:
        return None, None
    if count_tokens is not None and not reply.tool_calls:  # the text of a tool call differs from the generated tokens
        return count_tokens("".join(reply.reasoning) + "".join(reply.answer)), "tokenizer"
    return chunks, "chunks"


def _cached(usage: Usage, timings: bytes | None) -> int | None:
    if usage.cached_tokens is not None or timings is None:
        return usage.cached_tokens
    cached = msgspec.json.decode(timings, type=_Timings).cache_n
    return cached if cached is not None and cached >= 0 else None


def phase(sent_ns: int, window: tuple[int, int] | None) -> str:
    """Return a request's phase. The window is [start, end); without a window every request is a target."""
    if window is None or window[0] <= sent_ns < window[1]:
        return "window"
    return "warmup" if sent_ns < window[0] else "after"


def to_tables(
    exchanges: Iterable[Exchange],
    window: tuple[int, int] | None,
    *,
    count_tokens: Callable[[str], int] | None = None,
    keep_text: bool = False,
    by_schedule: bool = False,
) -> tuple[pa.Table, pa.Table]:
    """Make the checked tables (requests, chunks) of records.py; one row per exchange, in the order given.

    `window` is (start, end) in ns, None when every request is a target (request-count mode). A request belongs
    to the phase in which it began (Exchange.began_ns). A lazy iterable lets the bytes of each exchange be freed once
    they are parsed.
    """
    rows: list[dict[str, Any]] = []
    arrivals, tokens = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for exchange in exchanges:
        parsed = parse(exchange, count_tokens)
        rows.append(_row(exchange, parsed, phase(exchange.began_ns(by_schedule), window), keep_text))
        arrivals.append(parsed.arrival_ns)
        tokens.append(parsed.tokens)
    requests = pa.Table.from_pylist(rows, schema=REQUESTS_SCHEMA)
    table = pa.table(
        {
            "request_id": np.repeat(requests["request_id"].to_numpy(), requests["chunks"].to_numpy()),
            "arrival_ns": np.concatenate(arrivals),
            "tokens": np.concatenate(tokens).astype(np.int32),
        },
        schema=CHUNKS_SCHEMA,
    )
    return check_requests(requests), check_chunks(table, requests)


def _row(exchange: Exchange, parsed: Parsed, phase: str, keep_text: bool) -> dict[str, Any]:
    arrival_ns, text = parsed.arrival_ns, parsed.text
    return {
        "request_id": exchange.request_id,
        "user": exchange.user,
        "process": exchange.process,
        "prompt_id": exchange.prompt_id,
        "phase": phase,
        "scheduled_ns": exchange.scheduled_ns,
        "sent_ns": exchange.sent_ns,
        "first_byte_ns": exchange.first_byte_ns,
        "first_token_ns": int(arrival_ns[0]) if len(arrival_ns) else None,
        "first_answer_ns": parsed.first_answer_ns,
        "last_token_ns": int(arrival_ns[-1]) if len(arrival_ns) else None,
        "end_ns": exchange.end_ns,
        "status": parsed.status,
        "http_status": exchange.http_status,
        "error": parsed.error,
        "resent": exchange.resent,
        "prompt_tokens": parsed.prompt_tokens,
        "completion_tokens": parsed.completion_tokens,
        "reasoning_tokens": parsed.reasoning_tokens,
        "cached_tokens": parsed.cached_tokens,
        "tokens_from": parsed.tokens_from,
        "chunks": len(arrival_ns),
        "finish_reason": parsed.finish_reason,
        "done": parsed.done,
        "left_open": exchange.left_open,
        "reasoning_chars": parsed.reasoning_chars,
        "text_sha256": None if text is None else sha256(text.encode()).hexdigest(),
        "text": text if keep_text else None,
        "timings": parsed.timings,
    }
