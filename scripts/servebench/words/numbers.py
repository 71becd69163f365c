"""Write numbers and ranges as people read them."""

from __future__ import annotations

import math


def digits(value: float | None) -> str:
    """Write a number as people read it: three significant digits and at most two decimal places, two significant digits
    below 0.01, counts in full, commas between thousands, – for None."""
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
    """Write a range as `404–413`, as one number when both ends read the same, as – when nothing was measured."""
    a, b = digits(low), digits(high)
    return a if a == b else f"{a}–{b}"
