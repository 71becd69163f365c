"""A client's errors from what it kept of the clock server's replies (definitions: servebench.load.calibrate)."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from servebench.load.clock_server import read_clock


def of_raw(arrivals: Iterable[tuple[Any, int, bytes]], window_ns: tuple[int, int]) -> dict[str, Any]:
    """`arrivals` are (user, arrival_ns, bytes) with `user.sent_ns`, the sendings in order; one reply per sending."""
    start_ns, end_ns = window_ns
    arrival_s, ttft_s, chunks, tokens = [], [], 0, 0
    replies: dict[Any, list[int]] = {}
    for user, at_ns, block in arrivals:
        for received_ns, _, sent_ns in read_clock(block):
            chunks += 1
            inside = start_ns <= at_ns < end_ns
            tokens += inside
            if inside:
                arrival_s.append((at_ns - sent_ns) / 1e9)
            seen = replies.setdefault(user, [])
            if not seen or seen[-1] != received_ns:
                asked_ns = user.sent_ns[len(seen)]
                seen.append(received_ns)
                if start_ns <= asked_ns < end_ns:
                    ttft_s.append((at_ns - asked_ns - (sent_ns - received_ns)) / 1e9)
    return {"chunks": chunks, "window_chunks": tokens, "requests": len(ttft_s)} | spread(ttft_s, arrival_s)


def spread(ttft_s: Sequence[float], arrival_s: Sequence[float]) -> dict[str, float]:
    found = {}
    for name, values in (("ttft_error", ttft_s), ("arrival_error", arrival_s)):
        for percent in (50, 99):
            found[f"{name}_p{percent}_s"] = float(np.percentile(values, percent, method="inverted_cdf"))
    return found
