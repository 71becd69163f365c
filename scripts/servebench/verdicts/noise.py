"""Judge differences against the noise that an experiment's own repeats show. Pure.

Ranges of two rounds that do not overlap are no evidence: two equal settings are "separated" so in a third of cases. Nor
is one common spread: some cells repeat within 2 %, others within 20 %. So each cell (setting × users) has a variance of
its own, drawn towards that of all cells as far as these agree (the moderated t statistic of Smyth, 2004), and what is
claimed of the best of k settings is compared with what the best of k equal settings shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Rounds = Sequence[float]  # one figure of one cell, a value above 0 for each round

LEVEL = 0.05  # accepted share of pages with a false claim, for each kind of claim
FEW_CELLS, ROUNDS_WITH_FEW = 24, 4  # two rounds of fewer cells say too little
_FEW_VARIANCES = 20  # of fewer cells, how much their variances differ is hardly known
DRAWS = 4_000
SEED = 20_261_130  # the null is drawn the same way every time: equal tables give equal claims
# The most degrees of freedom of the typical variance: where all cells seem to repeat alike, single rounds may still lie
# far off (Student's t with 3 degrees of freedom), and a normal law makes too many claims of them.
_MOST_WEIGHT = 20.0


@dataclass(frozen=True)
class Noise:
    """Hold the repeat noise of one figure in one experiment: variances of the logs of rounds.

    `prior`: the typical variance; `weight`: its degrees of freedom, 20 where all cells repeat alike, small where some
    repeat far worse than others. `cells`: how many cells have repeats; `rounds`: the fewest rounds of these.
    """

    prior: float
    weight: float
    cells: int
    rounds: int

    @property
    def known(self) -> bool:
        """Return whether the repeats suffice to judge by: 24 cells, or two cells of four rounds each."""
        return self.cells >= FEW_CELLS or (self.cells >= 2 and self.rounds >= ROUNDS_WITH_FEW)

    @property
    def spread(self) -> float:
        """Return the typical standard deviation of one round, as a share (0.02: 2 %)."""
        return float(np.sqrt(self.prior))

    def variance(self, rounds: Rounds) -> float:
        """Return the variance of a cell's round: its own and the typical one, weighted by their degrees of freedom."""
        own, freedom = (float(np.var(np.log(rounds), ddof=1)), len(rounds) - 1) if len(rounds) > 1 else (0.0, 0)
        return (self.weight * self.prior + freedom * own) / (self.weight + freedom)


def noise(cells: Sequence[Rounds]) -> Noise:
    """Estimate the repeat noise from the rounds of each cell; cells of one round say nothing of it.

    `weight` is the lower end of what the cells allow (one standard error; four where they are few), so that what is
    known badly makes no claim too ready.
    """
    from scipy.special import digamma, polygamma  # half a second that not every verdict needs

    repeated = [np.log(np.asarray(rounds, dtype=np.float64)) for rounds in cells if len(rounds) > 1]
    long = [own for own in repeated if len(own) >= ROUNDS_WITH_FEW]
    if len(repeated) < FEW_CELLS and len(long) > 1:
        repeated = long  # a search measures most cells in two rounds, and in more only those that matter
    if len(repeated) < 2:
        return Noise(prior=float("nan"), weight=0.0, cells=len(repeated), rounds=min(map(len, repeated), default=0))
    freedom = np.array([len(own) - 1.0 for own in repeated])
    variances = np.array([own.var(ddof=1) for own in repeated])
    floor = 1e-4 * variances.mean() if variances.any() else 1e-12  # two rounds may be equal to the digit
    centred = np.log(np.maximum(variances, floor)) - digamma(freedom / 2) + np.log(freedom / 2)
    seen = float(centred.var(ddof=1))
    errors = 1 if len(centred) >= _FEW_VARIANCES else 4
    beyond_chance = (
        seen - float(polygamma(1, freedom / 2).mean()) + errors * seen * float(np.sqrt(2 / (len(centred) - 1)))
    )
    weight = 2 * _inverse_trigamma(max(beyond_chance, float(polygamma(1, _MOST_WEIGHT / 2))))
    weight = min(weight, float(freedom.sum() - freedom.max()))
    prior = float(np.exp(centred.mean() + digamma(weight / 2) - np.log(weight / 2)))
    return Noise(prior=prior, weight=weight, cells=len(repeated), rounds=int(freedom.min()) + 1)


def _inverse_trigamma(value: float) -> float:
    from scipy.optimize import brentq
    from scipy.special import polygamma

    return float(brentq(lambda y: float(polygamma(1, y)) - value, 1e-3, _MOST_WEIGHT))


@lru_cache(maxsize=256)
def _null(settings: int, rounds: int, weight: float) -> Floats:
    """Draw the gap between the first and the second of equal settings, in standard errors, DRAWS times.

    Each setting has a variance of its own. Sorted, shape (DRAWS,).
    """
    random = np.random.default_rng([SEED, settings, rounds])
    own = weight / random.chisquare(weight, size=(DRAWS, settings, 1))
    drawn = random.normal(size=(DRAWS, settings, rounds)) * np.sqrt(own)
    means = drawn.mean(axis=2)
    variances = (weight + (rounds - 1) * drawn.var(axis=2, ddof=1)) / (weight + rounds - 1)
    first, second = np.argsort(means, axis=1)[:, [-1, -2]].T
    row = np.arange(DRAWS)
    errors = np.sqrt((variances[row, first] + variances[row, second]) / rounds)
    gaps: Floats = np.sort((means[row, first] - means[row, second]) / errors)
    return gaps


def _chance(size: float, null: Floats) -> float:
    """Return the share of the null that is at least `size`; never 0, because the null is a sample."""
    return float((1 + len(null) - np.searchsorted(null, size)) / (len(null) + 1))


@dataclass(frozen=True)
class Gap:
    """Hold how far one setting is ahead of the next at one level.

    `ratio`: of their means over the rounds. `every_round`: no round of the first is as low as one of any other. `p`:
    the chance that the first of equal settings is as far ahead; None where the repeats do not suffice to tell.
    """

    first: str
    second: str
    ratio: float
    every_round: bool
    p: float | None


def gap(rows: Mapping[str, Rounds], known: Noise) -> Gap:
    """Compare the first and the second of the settings at one level (higher is better).

    Raises ValueError for fewer than two settings.
    """
    if len(rows) < 2:
        raise ValueError(f"{len(rows)} settings: a gap needs two")
    means = {name: float(np.mean(np.log(rounds))) for name, rounds in rows.items()}
    first, second = sorted(means, key=lambda name: -means[name])[:2]
    size = means[first] - means[second]
    rounds = min(map(len, rows.values()))
    p = None
    if known.known and rounds > 1:
        error = np.sqrt(sum(known.variance(rows[name]) / len(rows[name]) for name in (first, second)))
        p = _chance(size / error, _null(len(rows), rounds, known.weight))
    others = max(max(own) for name, own in rows.items() if name != first)
    return Gap(first=first, second=second, ratio=float(np.exp(size)), every_round=min(rows[first]) > others, p=p)


@dataclass(frozen=True)
class Ratio:
    """Hold one setting over another at one level: the ratio of their means over the rounds, with its 95 % interval.

    `p`: the two-sided chance of such a ratio between equal settings; None where the repeats do not suffice to tell."""

    ratio: float
    low: float | None = None
    high: float | None = None
    p: float | None = None


def ratio(one: Rounds, other: Rounds, known: Noise) -> Ratio:
    """Compare a figure of two settings, by the rounds of each.

    Student's t with the degrees of freedom of the setting that has fewer: never too ready, and it has a tail for a
    family of any size.
    """
    from scipy.special import stdtr, stdtrit

    size = float(np.mean(np.log(one)) - np.mean(np.log(other)))
    rounds = min(len(one), len(other))
    if not known.known or rounds < 2:
        return Ratio(ratio=float(np.exp(size)))
    error = float(np.sqrt(known.variance(one) / len(one) + known.variance(other) / len(other)))
    freedom = known.weight + rounds - 1
    reach = error * float(stdtrit(freedom, 1 - LEVEL / 2))
    p = 2 * float(stdtr(freedom, -abs(size) / error))
    return Ratio(float(np.exp(size)), low=float(np.exp(size - reach)), high=float(np.exp(size + reach)), p=p)


def rejected(chances: Sequence[float | None]) -> list[bool]:
    """Say which p-values of a family show a difference: Holm's procedure at LEVEL; an unknown one never does."""
    order = sorted((p, place) for place, p in enumerate(chances) if p is not None)
    found = [False] * len(chances)
    for tested, (p, place) in enumerate(order):
        if p > LEVEL / (len(order) - tested):
            break
        found[place] = True
    return found
