"""Compare right and wrong answers to the same questions. Pure functions over counts and arrays.

Throughout, `more` and `less` count the two kinds of discordant questions of a pair: those that only the first side
and those that only the second side got right. Differences are shares (0.036 is 3.6 points), `alpha` is two-sided.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import bisect, brentq
from scipy.stats import binom, binomtest, chisquare, norm
from statsmodels.stats.contingency_tables import cochrans_q as _cochrans_q
from statsmodels.stats.multitest import multipletests

ALPHA = 0.05
POWER = 0.8


def sign_test(more: int, less: int) -> float:
    """Return p of the exact two-sided sign test on the discordant pairs (the exact McNemar test); 1 without pairs."""
    return float(binomtest(more, more + less, 0.5).pvalue) if more + less else 1.0


def sign_test_mid_p(more: int, less: int) -> float:
    """Return p of the mid-p sign test, which counts the observed outcome by half.

    The exact test is too conservative; the mid-p test keeps its level in practice (Fagerland, Lydersen and Laake 2013).
    """
    pairs = more + less
    tail = binom.cdf(min(more, less), pairs, 0.5) - binom.pmf(min(more, less), pairs, 0.5) / 2
    return float(min(1.0, 2 * tail)) if pairs else 1.0


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm-adjusted p-values, in the given order."""
    if not p_values:
        return []
    return [float(p) for p in multipletests(p_values, method="holm")[1]]


def can_be_significant(pairs: Sequence[int], p_values: Sequence[float]) -> list[bool]:
    """Return, for each comparison of a family, whether any split of its discordant pairs could be significant.

    Significant means after Holm, with the other comparisons as they are. With four comparisons and no other significant
    one, 8 pairs are needed.
    """
    return [holm([*p_values[:i], sign_test(n, 0), *p_values[i + 1 :]])[i] <= ALPHA for i, n in enumerate(pairs)]


def tango_score(more: int, less: int, n: int, difference: float) -> float:
    """Return the score statistic of "the shares differ by `difference`", standard normal if that is true.

    Tango 1998, Statistics in Medicine 17:891; the nuisance share is its maximum-likelihood value under that
    hypothesis, the root of a quadratic. At difference 0 it is McNemar's statistic. 0 where both the deviation
    and its variance are 0.
    """
    a = 2 * n
    b = -more - less + (2 * n - more + less) * difference
    c = -less * difference * (1 - difference)
    share = (sqrt(max(0.0, b * b - 4 * a * c)) - b) / (2 * a)
    variance = n * (2 * share + difference * (1 - difference))
    deviation = more - less - n * difference
    if variance <= 0:
        return float(np.copysign(np.inf, deviation)) if deviation else 0.0
    return deviation / sqrt(variance)


def tango_interval(more: int, less: int, n: int, alpha: float = ALPHA) -> tuple[float, float]:
    """Return the score interval of (more − less) ÷ n, of confidence 1 − alpha: the differences not rejected.

    `tango_score` rejects; n is the number of questions, > 0.
    """
    if n <= 0 or more + less > n:
        raise ValueError(f"{more} + {less} discordant of {n} questions; n must be positive and at least their sum")
    z, estimate = float(norm.isf(alpha / 2)), (more - less) / n

    def bound(end: float, target: float) -> float:
        if abs(tango_score(more, less, n, end)) <= z or estimate == end:
            return end
        return float(brentq(lambda d: tango_score(more, less, n, d) - target, estimate, end, xtol=1e-12))

    return bound(-1.0, z), bound(1.0, -z)


def is_equivalent(more: int, less: int, n: int, margin: float) -> bool:
    """Return whether the 1 − 2·ALPHA Tango interval lies within ±margin (two one-sided tests)."""
    low, high = tango_interval(more, less, n, 2 * ALPHA)
    return -margin < low and high < margin


def sign_flip_test(differences: NDArray[np.int64]) -> float:
    """Return p of the exact two-sided permutation test in which each question's difference may change its sign.

    differences: per question, right answers of the first side minus right answers of the second, summed over the
    repeats (so −2 … 2 for two): the same test as on the means, in whole numbers. The distribution of the sum is
    computed in full, not sampled. With one repeat it is the sign test.
    """
    sizes = np.abs(differences[differences != 0])
    if not sizes.size:
        return 1.0
    distribution = np.ones(1)
    for size in sizes:  # index k stands for the sum k − Σ sizes so far
        step = np.zeros(2 * size + 1)
        step[0] = step[-1] = 0.5
        distribution = np.convolve(distribution, step)
    sums = np.arange(distribution.size) - sizes.sum()
    return float(min(1.0, distribution[np.abs(sums) >= abs(int(differences.sum()))].sum()))


@lru_cache(maxsize=64)
def _least_rejected(most: int, alpha: float, mid_p: bool) -> NDArray[np.float64]:
    """Find the smallest significant number on the larger side, for 0 to `most` discordant pairs; NaN without one."""
    pairs = np.arange(most + 1)
    least = binom.isf(alpha / 2, pairs, 0.5) + 1
    if mid_p:  # one fewer where half of that outcome's probability still leaves p at most alpha
        fewer = least - 1
        tail = binom.sf(fewer - 1, pairs, 0.5) - binom.pmf(fewer, pairs, 0.5) / 2
        least = np.where((2 * tail <= alpha) & (2 * fewer > pairs), fewer, least)
    return np.where(least <= pairs, least, np.nan)


def power(n: int, discordant: float, difference: float, alpha: float = ALPHA, *, mid_p: bool = False) -> float:
    """Return the probability that the sign test finds a true difference.

    n: questions; discordant: share of them on which the two sides differ (|difference| ≤ discordant).
    """
    pairs, least = np.arange(n + 1), _least_rejected(n, alpha, mid_p)
    weights = binom.pmf(pairs, n, discordant)
    seen = (weights > 1e-12) & ~np.isnan(least)
    pairs, least, share = pairs[seen], least[seen], (discordant + difference) / (2 * discordant)
    tails = binom.sf(least - 1, pairs, share) + binom.cdf(pairs - least, pairs, share)
    return float(weights[seen] @ tails)


def minimum_detectable(
    n: int, discordant: Callable[[float], float], most: float, alpha: float = ALPHA, *, mid_p: bool = False
) -> float | None:
    """Find the smallest true difference that the sign test finds with probability POWER; None without one.

    discordant: the share of questions on which the two sides differ, given the difference; most: the largest possible
    difference. Without one, even that is missed more often.
    """

    def beyond(difference: float) -> float:
        share = discordant(difference)
        return power(n, share, difference, alpha, mid_p=mid_p) - POWER if share else -POWER

    if beyond(most) < 0:
        return None
    return 0.0 if beyond(0.0) >= 0 else float(bisect(beyond, 0.0, most, xtol=1e-6))


def detectable(n: int, right: float, alpha: float = ALPHA) -> float | None:
    """Find the smallest true difference that the sign test finds with probability POWER, before any answer is compared.

    right: share of the questions that the first side gets right; the other side is worse where that is half or more,
    else better. The mistakes of the two sides are taken as unrelated. How often the compared answers differ is not
    used: a lucky sample would seem to exclude more. None without such a difference.
    """

    def discordant(difference: float) -> float:
        other = right - difference if right >= 0.5 else right + difference
        return right * (1 - other) + other * (1 - right)

    return minimum_detectable(n, discordant, max(right, 1 - right), alpha)


def provable_margin(n: int, discordant: float) -> float:
    """Find the narrowest margin at which `is_equivalent` shows equality with probability POWER (large n)."""
    return float((norm.isf(ALPHA) + norm.isf((1 - POWER) / 2)) * sqrt(discordant / n))


def share_interval(count: int, n: int) -> tuple[float, float]:
    """Return the Clopper–Pearson interval of count ÷ n, n > 0, of confidence 1 − ALPHA."""
    interval = binomtest(count, n).proportion_ci(1 - ALPHA, method="exact")
    return float(interval.low), float(interval.high)


@dataclass(frozen=True, slots=True)
class ChiSquare:
    """Hold a statistic that is chi-square distributed under its hypothesis, its degrees of freedom, and p."""

    statistic: float
    df: int
    p: float


def cochrans_q(correct: NDArray[np.bool_]) -> ChiSquare | None:
    """Compute Cochran's Q, which tests whether the targets' shares of right answers differ at all.

    correct: questions × targets. None when no question separates two targets.
    """
    if correct.shape[1] < 2 or not (correct != correct[:, :1]).any():
        return None
    result = _cochrans_q(correct.astype(np.int64))
    return ChiSquare(float(result.statistic), int(result.df), float(result.pvalue))


def position_test(predicted: Sequence[int], gold: Sequence[int]) -> ChiSquare | None:
    """Test, by chi-square, how often each answer position was chosen against how often it is right.

    predicted, gold: counts by position; gold is scaled to the number of answers read. Positions that are
    never right must not occur in gold. None when no answer was read.
    """
    if not sum(predicted):
        return None
    observed, expected = np.asarray(predicted, float), np.asarray(gold, float)
    result = chisquare(observed, expected * observed.sum() / expected.sum())
    return ChiSquare(float(result.statistic), len(observed) - 1, float(result.pvalue))


def first_difference(one: str, other: str) -> int | None:
    """Count the characters that two texts have in common before they differ; None when they are equal."""
    if one == other:
        return None
    for place, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return place
    return min(len(one), len(other))
