"""Compute percentiles, means, and the confidence that a share of all requests would pass."""

from __future__ import annotations

from math import exp, lgamma, log

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


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
