"""Write numbers and ranges as people read them."""

from __future__ import annotations

import math


def digits(value: float | None) -> str:
    """A number as read aloud: three significant digits, at most two places, but two digits of what is under 0.01; a
    count in full; thousands with commas; – for None."""
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
    """`404–413`, or one number when both read the same, or – when nothing was measured."""
    a, b = digits(low), digits(high)
    return a if a == b else f"{a}–{b}"
