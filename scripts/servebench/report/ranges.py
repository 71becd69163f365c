"""Compare the ranges of two sets of rounds."""

from __future__ import annotations

from servebench.tables.files import Row
from servebench.words.numbers import digits

ENDS = ("min", "max")


def overlap(one: Row, other: Row, figure: str) -> bool:
    """Return whether the ranges of the rounds, as the page writes them, have a common value."""
    (low, high), (other_low, other_high) = (
        [_as_written(row[f"{figure}_{end}"]) for end in ENDS] for row in (one, other)
    )
    return low <= other_high and other_low <= high


def _as_written(value: float) -> float:
    return float(digits(value).replace(",", ""))
