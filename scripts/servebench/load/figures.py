"""Compute the figures of one measurement from its raw tables, as docs/figures.md defines them. Pure, no IO.

Every figure is None where nothing was measured: never NaN, never a zero that stands for "unknown". Times are
seconds, rates per second. Cancelled requests enter no figure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from servebench.load.doubts import doubts
from servebench.load.line import Line
from servebench.load.measurement import LoadMeta
from servebench.load.objective import Objective
from servebench.load.percentiles import Floats, line_confidence, mean, median, percentile
from servebench.load.records import STATUSES, TOKEN_SOURCES
from servebench.load.rows import Rows
from servebench.marks import Mark

Figure = float | int | bool | None
FAILURES = tuple(status for status in STATUSES if status not in ("ok", "cancelled"))


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
    largest number of users that this machine's client was shown to load accurately; `seen` are marks that do not come
    from the requests (foreign use of the GPU, a throttled clock).
    `ttft_p95_all_s` counts failures as +∞; when it is infinite it is None and `ttft_p95_all_infinite` true.
    `invalid_reasons` is a list of `Mark`, every other value a `Figure`; `valid` is true when that list is empty.
    """
    rows = Rows(requests, chunks, meta)
    figures: dict[str, Figure] = {"users": meta.users, "window_s": rows.window_s}
    figures |= _throughput(rows)
    figures |= _latency(rows)
    figures |= _counts(rows)
    figures |= _tokens(rows)
    figures |= _server(rows)
    figures |= _client(meta, rows)
    reasons = [*doubts(rows, figures, line, calibrated_users), *seen]
    figures |= _line(rows, {**figures, "invalid_reasons": reasons}, line)
    return {**figures, "valid": not reasons, "invalid_reasons": reasons}


def _throughput(rows: Rows) -> dict[str, Figure]:
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


def _latency(rows: Rows) -> dict[str, Figure]:
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


def _counts(rows: Rows) -> dict[str, Figure]:
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


def _tokens(rows: Rows) -> dict[str, Figure]:
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
    fresh = (prompt - np.where(rows.told_cached, cached, 0))[rows.ok]
    read = (prompt[rows.ok] > 0) & (rows.ttft_s > 0)
    figures["prompt_tok_s"] = median((fresh[read] / rows.ttft_s[read]).astype(np.float64))
    figures["cached_tokens_mean"] = mean(cached[rows.told_cached].astype(np.float64))
    figures["cached_share"] = int(cached[both].sum()) / int(prompt[both].sum()) if both.any() else None
    return figures


def _server(rows: Rows) -> dict[str, Figure]:
    """Split TTFT by llama.cpp's timings: the prompt's own time, and the rest as queue wait."""
    prompt_s, shown = rows.prompt_s
    wait_s = np.maximum(rows.ttft_s[shown] - prompt_s[shown], 0.0)
    return {
        "prefill_p50_s": median(prompt_s[shown]),
        "prefill_p95_s": percentile(prompt_s[shown], 95),
        "queue_wait_p50_s": median(wait_s),
        "queue_wait_p95_s": percentile(wait_s, 95),
    }


def _client(meta: LoadMeta, rows: Rows) -> dict[str, Figure]:
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


def _line(rows: Rows, figures: Mapping[str, Any], line: Line) -> dict[str, Figure]:
    """Judge the line, its confidence and the goodput: the rate of requests that each met the line."""
    targets = int(rows.target.sum())
    in_time = rows.ttft_s <= line.ttft_p95_s
    fast = (rows.speed_tok_s >= line.user_tok_s) | (rows.streamed[rows.ok] <= 1)  # one token has no speed to miss
    good = int((in_time & fast).sum())
    objective = Objective.of(line)
    return {
        "meets_line": objective.outcome(figures).kept is True,
        "in_time_requests": int(in_time.sum()),
        "line_confidence": line_confidence(int(in_time.sum()), targets),
        "reference_only": targets < objective.requests,
        "goodput_requests_s": good / rows.window_s if rows.ok.any() and not rows.clumped else None,
        "goodput_share": good / targets if targets and not rows.clumped else None,
    }
