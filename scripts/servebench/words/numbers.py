"""Format numbers and ranges for people."""

from __future__ import annotations

import math


def digits(value: float | None) -> str:
    """Format a number: three significant digits and at most two decimal places, – for None.

    Two significant digits below 0.01, counts in full, commas between thousands.
    """
    if value is None or math.isnan(value):
        return "–"
    if isinstance(value, int):
        return f"{value:,}"
    if value == 0:
        return "0"
    size = math.floor(math.log10(abs(value)))
    places = min(max(0, 2 - size), 2) if size >= -2 else 1 - size
    return f"{value:,.{places}f}"


def span(low: float | None, high: float | None) -> str:
    """Format a range as `404–413`, as one number when both ends read the same, as – when nothing was measured."""
    a, b = digits(low), digits(high)
    return a if a == b else f"{a}–{b}"
