"""Format numbers and ranges for people."""

from __future__ import annotations

import math

_PLACES = 15  # decimal places that a double can have


def digits(value: float | None, limit: float | None = None) -> str:
    """Format a number: three significant digits and at most two decimal places, – for None.

    Two significant digits below 0.01, counts in full, commas between thousands. A number other than `limit` gets as
    many decimal places as it takes to read otherwise.
    """
    if value is None or math.isnan(value):
        return "–"
    if isinstance(value, int):
        return f"{value:,}"
    if value == 0:
        return "0"
    shown = float(f"{value:.{2 if abs(value) >= 0.01 else 1}e}")  # 9.999 reads as 10.0 does
    size = math.floor(math.log10(abs(shown)))
    places = min(max(0, 2 - size), 2) if size >= -2 else 1 - size
    while value != limit and places < _PLACES and round(value, places) == limit:
        places += 1
    return f"{value:,.{places}f}"


def span(low: float | None, high: float | None, limit: float | None = None) -> str:
    """Format a range as `404–413`, as one number when both ends read the same, as – when nothing was measured.

    `limit` as in `digits`.
    """
    a, b = digits(low, limit), digits(high, limit)
    return a if a == b else f"{a}–{b}"
