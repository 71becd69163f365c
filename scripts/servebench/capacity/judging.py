"""Judge at which numbers of users an objective is surely kept or missed, by the rounds measured there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import hypot, sqrt
from statistics import fmean, variance

from servebench.load.objective import Outcome

# Outcomes by number of users, then by round.
Evidence = Mapping[int, Mapping[int, Outcome]]

# One-sided 98 % points of Student's t by degrees of freedom, from 1 on. A search looks at about two levels so near the
# limit that they could be misjudged, so that its answer holds in 95 % of cases (docs/benchmarks.md).
T = (15.895, 4.849, 3.482, 2.999, 2.757, 2.612, 2.517, 2.449, 2.398, 2.359, 2.328, 2.303, 2.282, 2.264, 2.249)
CONFIDENCE = 0.95
# How many levels on either side tell how much the rounds of a level scatter, and their weight, in degrees of freedom.
BESIDE, WEIGHT = 2, 2
# How near the limit nothing is sure, since servers differ between days and GPUs though their rounds agree; no number of
# rounds makes this smaller. Published for two GPUs and days: output of 0.89 to 0.95 at 16 users, 0.87 to 1.14 at 8,
# 0.98 to 0.99 at 128 (config/references/h200-ratios-main.csv); this lies between them.
DRIFT = 0.05


@dataclass(frozen=True)
class Level:
    """Hold what the rounds say of one number of users.

    `mean`: of the margins (`Outcome`), None where no round can be judged. `kept`: True or False where that is sure,
    None where it is not. `rounds`: how many were measured; `lacking`: requests missing in the shortest window.
    """

    users: int
    rounds: int
    mean: float | None
    kept: bool | None
    lacking: int = 0

    @property
    def side(self) -> bool | None:
        """Return whether the rounds so far rather keep the objective than miss it; None where none can be judged."""
        return None if self.mean is None else self.mean >= 0


def levels(evidence: Evidence) -> list[Level]:
    """Judge every number of users with evidence, in ascending order.

    The margins of a level's rounds scatter by its own spread, drawn towards that of the levels beside it. An objective
    is surely kept where the mean margin is above 0 by more than that, and surely missed where it is as far below. One
    round is never sure, however good.
    """
    margins = {users: _margins(rounds) for users, rounds in sorted(evidence.items()) if rounds}
    there = list(margins)
    found = []
    for place, users in enumerate(there):
        own = margins[users]
        beside = [margins[there[n]] for n in range(max(0, place - BESIDE), min(len(there), place + BESIDE + 1))]
        rounds = evidence[users]
        found.append(
            Level(
                users=users,
                rounds=len(rounds),
                mean=fmean(own) if own else None,
                kept=_kept(own, beside, max(outcome.doubt for outcome in rounds.values())),
                lacking=max(outcome.lacking for outcome in rounds.values()),
            )
        )
    return found


def _margins(rounds: Mapping[int, Outcome]) -> list[float]:
    return [outcome.margin for outcome in rounds.values() if outcome.margin is not None]


def _kept(own: list[float], beside: list[list[float]], doubt: float) -> bool | None:
    if len(own) < 2:
        return None
    repeated = [rounds for rounds in beside if len(rounds) > 1]
    freedom = sum(len(rounds) - 1 for rounds in repeated)
    typical = sum(variance(rounds) * (len(rounds) - 1) for rounds in repeated) / freedom
    spread2 = ((len(own) - 1) * variance(own) + WEIGHT * typical) / (len(own) - 1 + WEIGHT)
    reach = T[min(len(own) - 1 + WEIGHT, len(T)) - 1] * sqrt(spread2 / len(own))
    reach, mean = hypot(reach, DRIFT), fmean(own)
    if mean - doubt - reach > 0:
        return True
    return False if mean + reach < 0 else None
