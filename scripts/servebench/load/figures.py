"""Compute the figures of one measurement from its raw tables, as docs/figures.md defines them. Pure, no IO.

Every figure is None where nothing was measured: never NaN, never a zero that stands for "unknown". Times are
seconds, rates per second. Cancelled requests enter no figure.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import exp, lgamma, log, sqrt
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from servebench.load.body import token_limit
from servebench.load.line import Line
from servebench.load.measurement import LoadMeta
from servebench.load.modes import MODES
from servebench.load.records import STATUSES, TOKEN_SOURCES, chunk_rows, hidden_tokens
from servebench.marks import Mark, mark

Figure = float | int | bool | None


Ints = npt.NDArray[np.int64]


Floats = npt.NDArray[np.float64]


Mask = npt.NDArray[np.bool_]


# A client busier than CLIENT_CPU_LIMIT cannot be punctual; a window whose halves differ by STEADY_LIMIT has no rate.
CLIENT_CPU_LIMIT = 0.7


STEADY_LIMIT = 1.25
BACKLOG_LIMIT = 0.05
# Blocks that arrive closer together count as one arrival: no server streams 5,000 tokens/s to one user.
SAME_ARRIVAL_NS = 200_000
# A reply shows its speed with at least ENOUGH_ARRIVALS arrivals, or with hardly more tokens than arrivals. Where more
# than UNSEEN_LIMIT of the replies show no speed, the others represent nothing.
ENOUGH_ARRIVALS, UNSEEN_LIMIT = 5, 0.05


# Engines send one token a chunk, speculative decoding a few. Beyond this limit a chunk's arrival says little about when
# its tokens were made.
TOKENS_PER_CHUNK_LIMIT = 8


FAILURES = tuple(status for status in STATUSES if status not in ("ok", "cancelled"))


def percentile(values: Floats, percent: int) -> float | None:
    """Return the ⌈percent·n/100⌉-th smallest value (nearest rank); None without values.

    `percent` is an integer in 1–100, so that the rank is exact: 95 % of 20 must be 19, whatever the floating point.
    """
    if not len(values):
        return None
    rank = -(-percent * len(values) // 100)
    return float(np.partition(values, rank - 1)[rank - 1])


def median(values: Floats) -> float | None:
    """Return the middle value, or the mean of the middle two; None without values."""
    return float(np.median(values)) if len(values) else None


def mean(values: Floats) -> float | None:
    """Return the arithmetic mean; None without values."""
    return float(np.mean(values)) if len(values) else None


def line_confidence(passes: int, requests: int, share: float = 0.95) -> float | None:
    """Return the confidence that at least `share` of all requests would pass, from `passes` of `requests`.

    One-sided exact binomial (Clopper–Pearson): 1 − P(at most the observed misses | share). 28 of 28 give 0.762,
    59 of 59 give 0.951. None without requests.
    """
    if not requests:
        return None
    chance = 0.0
    for misses in range(requests - passes + 1):
        ways = lgamma(requests + 1) - lgamma(misses + 1) - lgamma(requests - misses + 1)
        chance += exp(ways + misses * log(1 - share) + (requests - misses) * log(share))
    return max(0.0, 1.0 - chance)


def measurement_figures(
    requests: pa.Table,
    chunks: pa.Table,
    meta: LoadMeta,
    line: Line,
    *,
    calibrated_users: int | None = None,
    seen: Sequence[Mark] = (),
) -> dict[str, Any]:
    """Compute all figures of one measurement, by name.

    `requests` and `chunks` as in load/records.py, `meta` as in load/measurement.py. `calibrated_users` is the
    largest number of users that this machine's client was shown to load truthfully; `seen` are marks that do not come
    from the requests (foreign use of the GPU, a throttled clock).
    `ttft_p95_all_s` counts failures as +∞; when it is infinite it is None and `ttft_p95_all_infinite` true.
    `invalid_reasons` is a list of `Mark`, every other value a `Figure`; `valid` is true when that list is empty.
    """
    rows = _Rows(requests, chunks, meta)
    figures: dict[str, Figure] = {"users": meta.users, "window_s": rows.window_s}
    figures |= _throughput(rows)
    figures |= _latency(rows)
    figures |= _counts(rows)
    figures |= _tokens(rows)
    figures |= _server(rows)
    figures |= _client(meta, rows)
    figures |= _line(rows, figures, line)
    reasons = [*_doubts(rows, figures, line, calibrated_users), *seen]
    return {**figures, "valid": not reasons, "invalid_reasons": reasons}


class _Rows:
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

    def stamps(self, column: str) -> Ints:
        """Return an integer column; −1 where it is null (no stamp or count is negative)."""
        values: Ints = pc.fill_null(self.table[column], -1).to_numpy().astype(np.int64)
        return values

    @cached_property
    def left_open(self) -> Mask:
        """The replies whose HTTP message did not end after [DONE]."""
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
        """Return whether an open loop's backlog grew so much that TTFT depends on the length of the window.

        It did when it grew by more than `BACKLOG_LIMIT` of the requests due, and by more than chance explains: three
        times the root of the backlog at the window's start.
        """
        if self.backlog is None or MODES[self.mode].ends_itself:
            return False
        before, after = self.backlog
        return after - before > max(BACKLOG_LIMIT * int(self.target.sum()), 3 * sqrt(max(before, 1)))

    def waiting_at(self, stamp_ns: int) -> int:
        """Count the requests that were due and unfinished at `stamp_ns`."""
        due = self.real & (self.scheduled_ns <= stamp_ns)
        return int((due & ((self.end_ns < 0) | (self.end_ns > stamp_ns))).sum())


@dataclass(frozen=True)
class Arrivals:
    """How the chunks of each request arrived; shape (requests,) each.

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


def _throughput(rows: _Rows) -> dict[str, Figure]:
    if rows.no_reply:
        names = ("output_tok_s", "requests_s", "steadiness", "in_flight_mean", "backlog_start", "backlog_end")
        return dict.fromkeys(names)
    (start, end), window_s = rows.window, rows.window_s
    middle = (start + end) / 2
    first, second = rows.tokens_between(start, middle), rows.tokens_between(middle, end)
    output = first + second
    backlog_start, backlog_end = rows.backlog or (None, None)
    return {
        "output_tok_s": output / window_s if output else None,
        "requests_s": rows.ended() / window_s if rows.ok.any() else None,
        # Output of the window's second half ÷ its first half.
        "steadiness": second / first if first else None,
        "in_flight_mean": rows.in_flight_mean(),
        "backlog_start": backlog_start,
        "backlog_end": backlog_end,
    }


def _latency(rows: _Rows) -> dict[str, Figure]:
    ttft = rows.ttft_s
    speeds = rows.speed_tok_s[np.isfinite(rows.speed_tok_s) & (not rows.clumped)]
    answer = rows.stamps("first_answer_ns")
    answered = answer[rows.ok] >= 0
    failures = int(rows.target.sum() - rows.ok.sum())
    p95_all = percentile(np.append(ttft, np.full(failures, np.inf)), 95)
    infinite = p95_all == np.inf
    same_request = rows.row_of_chunk[1:] == rows.row_of_chunk[:-1]
    gaps = np.diff(rows.arrival_of_chunk)[same_request & rows.ok[rows.row_of_chunk[1:]]] / 1e9
    return {
        "ttft_mean_s": mean(ttft),
        "ttft_p50_s": median(ttft),
        "ttft_p95_s": percentile(ttft, 95),
        "ttft_p99_s": percentile(ttft, 99),
        "ttft_max_s": percentile(ttft, 100),
        "ttft_p95_all_s": None if infinite else p95_all,
        "ttft_p95_all_infinite": infinite,
        "ttft_answer_p50_s": median(rows.seconds(answer, rows.start_ns)[answered]),
        "ttft_answer_p95_s": percentile(rows.seconds(answer, rows.start_ns)[answered], 95),
        "user_tok_s": median(speeds),
        "one_chunk_requests": int((~np.isfinite(rows.speed_tok_s)).sum()),
        **_spread("tpot", 1 / speeds),
        **_spread("inter_chunk", gaps),
        **_spread("e2e", rows.seconds(rows.end_ns, rows.start_ns)),
        "e2e_mean_s": mean(rows.seconds(rows.end_ns, rows.start_ns)),
    }


def _spread(name: str, values_s: Floats) -> dict[str, Figure]:
    return {
        f"{name}_p50_s": median(values_s),
        f"{name}_p95_s": percentile(values_s, 95),
        f"{name}_p99_s": percentile(values_s, 99),
    }


def _counts(rows: _Rows) -> dict[str, Figure]:
    failed = rows.real & (rows.status != "ok")
    reasoning = rows.real & ((rows.stamps("reasoning_chars") > 0) | (rows.stamps("reasoning_tokens") > 0))
    return {
        "target_requests": int(rows.target.sum()),
        "failures": int((failed & rows.target).sum()),
        "other_failures": int((failed & ~rows.target).sum()),
        **{f"failures_{name}": int((rows.target & (rows.status == name)).sum()) for name in FAILURES},
        "reasoning_replies": int(reasoning.sum()),
        "resent": int((rows.real & rows.table["resent"].to_numpy()).sum()),
        "finished_by_length": int((rows.ok & (rows.table["finish_reason"].to_numpy() == "length")).sum()),
        "without_done": int((rows.ok & ~rows.table["done"].to_numpy()).sum()),
        "left_open": int((rows.real & rows.left_open).sum()),
    }


def _tokens(rows: _Rows) -> dict[str, Figure]:
    figures: dict[str, Figure] = {}
    for name, column in (("prompt_tokens", "prompt_tokens"), ("output_tokens", "completion_tokens")):
        values = rows.known(column)
        figures |= {
            f"{name}_mean": mean(values),
            f"{name}_p50": median(values),
            f"{name}_min": float(values.min()) if len(values) else None,
            f"{name}_max": float(values.max()) if len(values) else None,
        }
    chunks = int(rows.chunks[rows.ok].sum())
    figures["tokens_per_chunk"] = int(rows.streamed[rows.ok].sum()) / chunks if chunks else None
    sources = rows.table["tokens_from"].to_numpy()
    for source in TOKEN_SOURCES:
        figures[f"tokens_from_{source}"] = int((rows.real & (sources == source)).sum())
    cached, prompt = rows.stamps("cached_tokens"), rows.stamps("prompt_tokens")
    both = rows.told_cached & (prompt > 0)
    figures["cached_tokens_mean"] = mean(cached[rows.told_cached].astype(np.float64))
    figures["cached_share"] = int(cached[both].sum()) / int(prompt[both].sum()) if both.any() else None
    return figures


class _Timings(msgspec.Struct):
    prompt_ms: float | None = None


def _prompt_s(rows: _Rows) -> tuple[Floats, Mask]:
    """Read each successful target's prompt time (s) from the server's `timings`, and whether that time is possible.

    NaN where it is missing; possible means not below 0 and not clearly above TTFT.
    """
    decoder = msgspec.json.Decoder(_Timings)
    timings = rows.table["timings"].filter(pa.array(rows.ok)).to_pylist()
    told = [None if text is None else decoder.decode(text).prompt_ms for text in timings]
    prompt_s = np.array([np.nan if ms is None else ms / 1e3 for ms in told], dtype=np.float64)
    return prompt_s, (prompt_s >= 0) & (prompt_s <= 1.1 * rows.ttft_s + 0.01)


def _server(rows: _Rows) -> dict[str, Figure]:
    """Split TTFT by llama.cpp's timings: the prompt's own time, and the rest as queue wait."""
    prompt_s, shown = _prompt_s(rows)
    wait_s = np.maximum(rows.ttft_s[shown] - prompt_s[shown], 0.0)
    return {
        "prefill_p50_s": median(prompt_s[shown]),
        "prefill_p95_s": percentile(prompt_s[shown], 95),
        "queue_wait_p50_s": median(wait_s),
        "queue_wait_p95_s": percentile(wait_s, 95),
    }


def _client(meta: LoadMeta, rows: _Rows) -> dict[str, Figure]:
    """Describe the load generator by its worst process."""

    def worst(values: Iterable[float | None]) -> float | None:
        return max((value for value in values if value is not None), default=None)

    processes = meta.client.processes
    late_s = (rows.sent_ns - rows.scheduled_ns)[rows.target & (rows.sent_ns >= 0)] / 1e9
    return {
        "client_cpu_ratio": meta.client.cpu_ratio,
        "client_loop_lag_p99_s": worst(process.loop_lag_p99_s for process in processes),
        "client_loop_lag_max_s": worst(process.loop_lag_max_s for process in processes),
        "send_delay_p50_s": median(late_s),
        "send_delay_p99_s": percentile(late_s, 99),
    }


def _line(rows: _Rows, figures: dict[str, Figure], line: Line) -> dict[str, Figure]:
    """Judge the line, its confidence and the goodput: the rate of requests that each met the line."""
    targets = int(rows.target.sum())
    in_time = rows.ttft_s <= line.ttft_p95_s
    fast = (rows.speed_tok_s >= line.user_tok_s) | (rows.streamed[rows.ok] <= 1)  # one token has no speed to miss
    good = int((in_time & fast).sum())
    p95, speed = figures["ttft_p95_all_s"], figures["user_tok_s"]
    met = (
        p95 is not None
        and float(p95) <= line.ttft_p95_s
        and speed is not None
        and float(speed) >= line.user_tok_s
        and figures["failures"] == 0
        and targets >= line.min_targets
        and not rows.falls_behind
        and not rows.warmup_failed
    )
    return {
        "meets_line": met,
        "in_time_requests": int(in_time.sum()),
        "line_confidence": line_confidence(int(in_time.sum()), targets),
        "reference_only": targets < line.min_targets,
        "goodput_requests_s": good / rows.window_s if rows.ok.any() and not rows.clumped else None,
        "goodput_share": good / targets if targets and not rows.clumped else None,
    }


def _steady(rows: _Rows) -> bool:
    """Return whether the window's halves delivered about the same number of tokens.

    They did when neither has `STEADY_LIMIT` times the other's tokens, or when they differ by no more than three
    standard errors of the window's tenths: users who wait and stream together deliver tokens in waves, and one half may
    hold a wave more than the other though nothing has changed.
    """
    edges = np.linspace(*rows.window, 11)
    tenths = np.array([rows.tokens_between(*edge) for edge in itertools.pairwise(edges)])
    first, second = tenths[:5], tenths[5:]
    less, more = sorted((first.sum(), second.sum()))
    if less == 0 or more < STEADY_LIMIT * less:
        return bool(less)
    error = sqrt((first.var(ddof=1) + second.var(ddof=1)) / 5)
    return bool((more - less) / 5 <= 3 * error)


def _failures(rows: _Rows, figures: Mapping[str, Figure]) -> Iterator[Mark]:
    """Yield what failed, and what was left open, beside good replies; where there are none, `no_reply` says it."""
    if rows.no_reply:
        return
    if failures := figures["failures"]:
        targets = figures["target_requests"]
        yield mark("requests_failed", failures=failures, requests=targets, statuses=rows.failed_statuses())
    if rows.warmup_failed:
        yield rows.warmup_failed
    if replies := figures["left_open"]:
        yield mark("left_open", replies=replies)


def _doubts(rows: _Rows, figures: Mapping[str, Figure], line: Line, calibrated_users: int | None) -> Iterator[Mark]:
    """Yield a mark for each reason why the measurement is invalid; too few targets make it only `reference_only`."""
    users, cpu, steadiness = figures["users"], figures["client_cpu_ratio"], figures["steadiness"]
    if calibrated_users is not None and users is not None and users > calibrated_users:
        yield mark("beyond_calibration", users=users, calibrated_users=calibrated_users)
    if cpu is not None and cpu > CLIENT_CPU_LIMIT:
        yield mark("client_busy", cpu_ratio=cpu, limit=CLIENT_CPU_LIMIT)
    enough = int(rows.target.sum()) >= line.min_targets
    if rows.no_reply:
        yield rows.no_reply
    elif figures["output_tok_s"] is None:
        yield mark("no_output")
    elif enough and not MODES[rows.mode].ends_itself and not _steady(rows):
        yield mark("silent_first_half") if steadiness is None else mark("unsteady_window", ratio=steadiness)
    if rows.backlog is not None and rows.falls_behind:
        yield mark("backlog_grows", start=rows.backlog[0], end=rows.backlog[1], due=int(rows.target.sum()))
    yield from _failures(rows, figures)
    if replies := figures["reasoning_replies"]:
        yield mark("reasoning_seen", replies=replies)
    several = rows.ok & (rows.chunks > 1)
    if several.any() and (each := rows.streamed[several].sum() / rows.chunks[several].sum()) > TOKENS_PER_CHUNK_LIMIT:
        yield mark("many_tokens_a_chunk", tokens=float(each))
    if rows.clumped:
        yield mark("clumped_stream", replies=rows.unseen, requests=int(rows.ok.sum()))
    if counted := int((rows.real & (rows.status == "ok") & (rows.table["tokens_from"].to_numpy() == "chunks")).sum()):
        yield mark("tokens_are_chunks", replies=counted)
    if beyond := int((rows.ok & (rows.stamps("cached_tokens") >= 0) & ~rows.told_cached).sum()):
        yield mark("cached_beyond_prompt", replies=beyond)
    if rows.max_tokens is not None and (longer := int((rows.real & (rows.tokens > rows.max_tokens)).sum())):
        yield mark("output_beyond_limit", replies=longer, max_tokens=rows.max_tokens)
    prompt_s, possible = _prompt_s(rows)
    if wrong := int((np.isfinite(prompt_s) & ~possible).sum()):
        yield mark("impossible_timings", replies=wrong)
    if cancelled := int(((rows.table["phase"].to_numpy() == "window") & ~rows.real).sum()):
        yield mark("stopped_early", requests=cancelled)
