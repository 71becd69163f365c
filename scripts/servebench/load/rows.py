"""Hold the requests and chunks of one measurement as arrays, with what figures and doubts are made from. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from math import sqrt

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from servebench.load.body import token_limit
from servebench.load.measurement import LoadMeta
from servebench.load.modes import MODES
from servebench.load.percentiles import Floats
from servebench.load.records import chunk_rows, hidden_tokens
from servebench.marks import Mark, mark

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

BACKLOG_LIMIT = 0.05
# Blocks that arrive closer together count as one arrival: no server streams 5,000 tokens/s to one user.
SAME_ARRIVAL_NS = 200_000
# A reply shows its speed with at least ENOUGH_ARRIVALS arrivals, or with hardly more tokens than arrivals. Where more
# than UNSEEN_LIMIT of the replies show no speed, the others represent nothing.
ENOUGH_ARRIVALS, UNSEEN_LIMIT = 5, 0.05


class _Timings(msgspec.Struct):
    prompt_ms: float | None = None


class Rows:
    """Hold the columns as arrays: masks and stamps have one entry per request, `*_of_chunk` one per chunk."""

    def __init__(self, requests: pa.Table, chunks: pa.Table, meta: LoadMeta) -> None:
        self.table, self.mode = requests, meta.mode
        self.status = requests["status"].to_numpy()
        self.real: Mask = self.status != "cancelled"
        self.target: Mask = (requests["phase"].to_numpy() == "window") & self.real
        self.ok: Mask = self.target & (self.status == "ok")
        self.sent_ns, self.end_ns = self.stamps("sent_ns"), self.stamps("end_ns")
        self.scheduled_ns = self.stamps("scheduled_ns")
        self.first_ns, self.last_ns = self.stamps("first_token_ns"), self.stamps("last_token_ns")
        self.start_ns = self.scheduled_ns if MODES[self.mode].scheduled else self.sent_ns
        self.tokens = self.stamps("completion_tokens")
        self.streamed = self.tokens - hidden_tokens(requests)
        self.chunks = self.stamps("chunks")
        self.row_of_chunk: Ints = chunk_rows(chunks, requests)
        self.arrival_of_chunk: Ints = chunks["arrival_ns"].to_numpy()
        self.tokens_of_chunk: Ints = chunks["tokens"].to_numpy()
        # [start, end) in ns; in the modes without a warm-up the whole load, including the last request's end.
        self.window: tuple[int, int] = meta.window_start_ns, meta.window_end_ns
        self.window_s = meta.window_s
        # A reply's limit of output tokens; None where each request sets its own.
        asked = meta.workload | (meta.target.extra if meta.target else {})
        self.max_tokens: int | None = token_limit(asked) if self.mode != "trace" else None
        # The tokens that every prompt and reply was to have, or their distribution; None where neither was asked.
        self.prompt_tokens, self.reply_tokens = (meta.workload.get(f"{what}_tokens") for what in ("prompt", "reply"))
        if self.reply_tokens is not None:
            self.max_tokens = self.reply_tokens if isinstance(self.reply_tokens, int) else None

    def stamps(self, column: str) -> Ints:
        """Return an integer column; −1 where it is null (no stamp or count is negative)."""
        values: Ints = pc.fill_null(self.table[column], -1).to_numpy().astype(np.int64)
        return values

    @cached_property
    def left_open(self) -> Mask:
        """Select the replies whose HTTP message did not end after [DONE]."""
        mask: Mask = pc.fill_null(self.table["left_open"], False).to_numpy()
        return mask

    @cached_property
    def warmup_failed(self) -> Mark | None:
        """Mark a warm-up of which half the requests or more failed: what was measured began cold."""
        warmup = self.real & (self.table["phase"].to_numpy() == "warmup")
        failures, requests = int((warmup & (self.status != "ok")).sum()), int(warmup.sum())
        half = 0 < requests <= 2 * failures
        return mark("warmup_failed", failures=failures, requests=requests) if half else None

    def known(self, column: str) -> Floats:
        """Return the known values of the successful targets."""
        values = self.stamps(column)[self.ok]
        return values[values >= 0].astype(np.float64)

    @cached_property
    def told_cached(self) -> Mask:
        """Select successful targets whose count of cached prompt tokens is at most their count of prompt tokens."""
        cached, prompt = self.stamps("cached_tokens"), self.stamps("prompt_tokens")
        return self.ok & (cached >= 0) & ((prompt < 0) | (cached <= prompt))

    def seconds(self, until_ns: Ints, since_ns: Ints) -> Floats:
        """Return until − since, in seconds, of the successful targets."""
        return (until_ns[self.ok] - since_ns[self.ok]) / 1e9

    @cached_property
    def no_reply(self) -> Mark | None:
        """Mark why no speed can be measured: all target requests failed, or the window held no request and no token."""
        targets = int(self.target.sum())
        if targets and not self.ok.any():
            return mark("all_failed", requests=targets, statuses=self.failed_statuses())
        if not targets and not self.tokens_between(*self.window):
            return mark("nothing_sent")
        return None

    def failed_statuses(self) -> dict[str, int]:
        """Count the failed targets by status, the most frequent first."""
        return dict(Counter(self.status[self.target & ~self.ok].tolist()).most_common())

    @cached_property
    def ttft_s(self) -> Floats:
        return self.seconds(self.first_ns, self.start_ns)

    @cached_property
    def arrivals(self) -> Arrivals:
        return arrivals(self.row_of_chunk, self.arrival_of_chunk, self.tokens_of_chunk, len(self.status))

    @cached_property
    def seen(self) -> Mask:
        """Select the successful targets whose stream shows its speed.

        A stream shows none that arrives in one piece, in few pieces for many tokens, or all in one burst.
        """
        found, tokens = self.arrivals, self.streamed
        few = (found.count < ENOUGH_ARRIVALS) & (tokens > 2 * found.count)
        seen: Mask = ((self.last_ns > self.first_ns) & (tokens > found.first_tokens) & ~few & ~found.burst)[self.ok]
        return seen

    @cached_property
    def unseen(self) -> int:
        """Count the successful targets of two tokens or more whose stream does not show its speed."""
        return int((~self.seen & (self.streamed[self.ok] > 1)).sum())

    @cached_property
    def clumped(self) -> bool:
        """Return whether so many replies hide their speed that the others cannot represent them."""
        several = int((self.streamed[self.ok] > 1).sum())
        return self.unseen > UNSEEN_LIMIT * several

    @cached_property
    def speed_tok_s(self) -> Floats:
        """Return each successful target's streamed tokens after the first arrival ÷ (last − first arrival), tokens/s.

        NaN where the stream does not show its speed.
        """
        speed_tok_s: Floats = np.full(len(self.seen), np.nan)
        after_first = (self.streamed - self.arrivals.first_tokens)[self.ok][self.seen]
        speed_tok_s[self.seen] = after_first / self.seconds(self.last_ns, self.first_ns)[self.seen]
        return speed_tok_s

    def tokens_between(self, start_ns: float, end_ns: float) -> int:
        """Count the tokens of all requests, target or not, that arrived in [start, end)."""
        inside = (self.arrival_of_chunk >= start_ns) & (self.arrival_of_chunk < end_ns)
        return int(self.tokens_of_chunk[inside & self.real[self.row_of_chunk]].sum())

    def in_flight_mean(self) -> float:
        """Average the number of requests in flight over the window."""
        ran = self.real & (self.sent_ns >= 0) & (self.end_ns >= 0)
        begin, end = (np.clip(stamps[ran], *self.window) for stamps in (self.sent_ns, self.end_ns))
        return float((end - begin).sum() / 1e9 / self.window_s)

    def ended(self) -> int:
        """Count the successes that make the throughput: targets, or in an open loop those that ended in the window."""
        if MODES[self.mode].ends_itself or not MODES[self.mode].scheduled:
            return int(self.ok.sum())
        start_ns, end_ns = self.window
        return int(((self.status == "ok") & (self.end_ns >= start_ns) & (self.end_ns < end_ns)).sum())

    @cached_property
    def backlog(self) -> tuple[int, int] | None:
        """Count the requests due but unfinished at the window's start and end; None in modes without a schedule."""
        start_ns, end_ns = self.window
        return (self.waiting_at(start_ns), self.waiting_at(end_ns)) if MODES[self.mode].scheduled else None

    @cached_property
    def falls_behind(self) -> bool:
        """Return whether the backlog of an open loop grew (`backlog_grew`); never where the load ends by itself."""
        if self.backlog is None or MODES[self.mode].ends_itself:
            return False
        return backlog_grew(*self.backlog, due=int(self.target.sum()))

    def waiting_at(self, stamp_ns: int) -> int:
        """Count the requests that were due and unfinished at `stamp_ns`."""
        due = self.real & (self.scheduled_ns <= stamp_ns)
        return int((due & ((self.end_ns < 0) | (self.end_ns > stamp_ns))).sum())

    @cached_property
    def prompt_s(self) -> tuple[Floats, Mask]:
        """Read each successful target's prompt time (s) from the server's `timings`, and whether that time is possible.

        NaN where it is missing; possible means not below 0 and not clearly above TTFT.
        """
        decoder = msgspec.json.Decoder(_Timings)
        timings = self.table["timings"].filter(pa.array(self.ok)).to_pylist()
        told = [None if text is None else decoder.decode(text).prompt_ms for text in timings]
        prompt_s = np.array([np.nan if ms is None else ms / 1e3 for ms in told], dtype=np.float64)
        return prompt_s, (prompt_s >= 0) & (prompt_s <= 1.1 * self.ttft_s + 0.01)


def backlog_grew(before: int, after: int, *, due: int) -> bool:
    """Return whether a backlog grew so much in a window with `due` requests that TTFT depends on the window's length.

    It did when it grew by more than `BACKLOG_LIMIT` of the requests due, and by more than chance explains: three times
    the root of the backlog at the window's start.
    """
    return after - before > max(BACKLOG_LIMIT * due, 3 * sqrt(max(before, 1)))


@dataclass(frozen=True)
class Arrivals:
    """Hold how the chunks of each request arrived; shape (requests,) each.

    `count`: arrivals more than SAME_ARRIVAL_NS apart; `first_tokens`: output tokens that the first one brought, at
    least 1; `burst`: whether most of its blocks of bytes came that close behind one another.
    """

    count: Ints
    first_tokens: Ints
    burst: Mask


def arrivals(row_of_chunk: Ints, arrival_ns: Ints, tokens: Ints, requests: int) -> Arrivals:
    """Group chunks by arrival: behind a proxy or server that buffers tokens, many arrive at once.

    `row_of_chunk` is the request of each chunk, 0 to `requests` − 1; the chunks of a request are consecutive, in order.
    """
    same_request = np.concatenate([[False], row_of_chunk[1:] == row_of_chunk[:-1]])[: len(row_of_chunk)]
    gap_ns = np.diff(arrival_ns, prepend=arrival_ns[:1])
    begins = ~same_request | (gap_ns > SAME_ARRIVAL_NS)
    group = np.cumsum(begins)
    first_group = np.zeros(requests, np.int64)
    first_group[row_of_chunk[~same_request]] = group[~same_request]
    first_tokens = np.bincount(row_of_chunk, tokens * (group == first_group[row_of_chunk]), requests).astype(np.int64)
    between_blocks = same_request & (gap_ns > 0)
    close = between_blocks & (gap_ns <= SAME_ARRIVAL_NS)
    gaps, close_gaps = (np.bincount(row_of_chunk[mask], minlength=requests) for mask in (between_blocks, close))
    return Arrivals(
        count=np.bincount(row_of_chunk[begins], minlength=requests),
        first_tokens=np.maximum(first_tokens, 1),
        burst=2 * close_gaps > gaps,
    )
