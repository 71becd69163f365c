"""Decide which number of users is measured next, and state the answer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt

from servebench.capacity.judging import DRIFT, Evidence, Level, levels
from servebench.load.objective import MOST, Outcome

# The rate of an open loop is searched in steps of the rate it starts from, divided by this.
STEPS = 16


@dataclass(frozen=True, kw_only=True)
class Search:
    """Set how finely and how far to search.

    `resolution`: the answer's ends are no farther apart than this share, where the rounds can tell. `most`: the largest
    number of users tried; `start`: the first. Each number is measured in `rounds` rounds, and in up to `most_rounds`
    while it is not sure on which side of the limit it lies.
    """

    resolution: float = 0.12
    most: int = 256
    start: int = 1
    rounds: int = 2
    most_rounds: int = 2


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Hold where an objective is kept, by the levels measured.

    `kept`, `missed`: numbers of users where that is sure; `open`: the others. `lower`: the largest kept; `upper`: the
    smallest missed above it, or of all where none is kept. The capacity, the largest number of users that the server
    serves within the objective, is in [lower, upper): at least 0 where `lower` is None, without a known end where
    `upper` is None. `gaps`: numbers below `lower` where the objective is missed; `unbroken`: the largest kept below all
    gaps.
    """

    kept: tuple[int, ...]
    missed: tuple[int, ...]
    open: tuple[int, ...]
    lower: int | None
    upper: int | None

    @property
    def gaps(self) -> tuple[int, ...]:
        """Return the numbers of users below `lower` at which the objective is missed."""
        return tuple(users for users in self.missed if self.lower is not None and users < self.lower)

    @property
    def unbroken(self) -> int | None:
        """Return the largest number of users kept with no gap below."""
        below = [users for users in self.kept if not self.gaps or users < self.gaps[0]]
        return max(below, default=None)

    def contains(self, capacity: int) -> bool:
        """Return whether the answer allows this capacity."""
        return (self.lower or 0) <= capacity and (self.upper is None or capacity < self.upper)

    def spans(self) -> list[tuple[int, int]]:
        """Return where the objective is kept, as (first, last) of each run of levels without a missed or open one."""
        found: list[tuple[int, int]] = []
        for users in sorted({*self.kept, *self.missed, *self.open}):
            if users not in self.kept:
                found.append((0, 0))
            elif found and found[-1][1]:
                found[-1] = (found[-1][0], users)
            else:
                found.append((users, users))
        return [span for span in found if span[1]]


def answer(evidence: Evidence, *, paced: bool = False) -> Answer:
    """State what the evidence says of an objective, sure at `judging.CONFIDENCE`.

    `paced`: the load is a rate of requests, sent whatever the server does.
    """
    found = levels(evidence)
    kept = tuple(level.users for level in found if level.kept and not (paced and _saturates(level, found)))
    missed = tuple(level.users for level in found if level.kept is False)
    lower = max(kept, default=None)
    return Answer(
        kept=kept,
        missed=missed,
        open=tuple(level.users for level in found if level.users not in (*kept, *missed)),
        lower=lower,
        upper=min((users for users in missed if users > (lower or 0)), default=None),
    )


def _saturates(level: Level, found: Sequence[Level]) -> bool:
    """Return whether a rate may be more than the server can work off on another day, though its windows keep the limit.

    Just beyond what a server works off, its queue grows without end, but so slowly that a window does not show it. So a
    rate that is kept is sure where one that is DRIFT higher is kept as well, or where no higher one misses.
    """
    above = [other for other in found if other.users > level.users]
    beyond = any(other.side and other.users >= level.users * (1 + DRIFT) for other in above)
    return not beyond and not all(other.side for other in above)


def wanted(evidence: Mapping[str, Evidence], search: Search, round_: int, tied: Collection[int] = ()) -> int | None:
    """Return the number of users that `round_` should measure next, for objectives by name; None when it is done.

    First come the numbers that earlier rounds have measured, as far as they need another round: upwards in odd rounds,
    downwards in even ones, so that neither drift nor warmth always meets the same end. Then come new ones. `tied`:
    numbers that need another round for the sake of something else than their objectives.
    """
    if round_ > search.most_rounds:
        return None
    judged = {name: levels(own) for name, own in evidence.items()}
    again = {
        level.users
        for name, own in judged.items()
        for level in own
        if round_ not in evidence[name][level.users] and (_needs_a_round(level, search) or level.users in tied)
    }
    if again:
        return min(again) if round_ % 2 else max(again)
    new = [users for own in judged.values() if (users := _new(own, search, round_)) is not None]
    return min(new, default=None)


def _needs_a_round(level: Level, search: Search) -> bool:
    return level.rounds < search.rounds or (level.kept is None and level.rounds < search.most_rounds)


def _new(found: Sequence[Level], search: Search, round_: int) -> int | None:
    """Return the next number of users that was never measured, None without one.

    It brackets the answer, narrows the bracket down, or lies beside its ends. A number that cannot get a second round
    is not worth measuring.
    """
    if round_ > 1 and round_ >= search.most_rounds:
        return None
    for step in (_bracketing, _narrowing, _verifying):
        if (users := step(found, search)) is not None:
            return users
    return None


def _bracketing(found: Sequence[Level], search: Search) -> int | None:
    """Double from the start on until a number misses, and halve below the start while it misses.

    Go on in steps half as large to twice the number that misses: a server may serve more users well than it serves
    badly.
    """
    there = [level.users for level in found]
    if search.start not in there:
        return search.start
    if there[0] > 1 and found[0].side is False:
        return max(1, there[0] // 2)
    above = [level for level in found if level.users >= search.start]
    first_missed: int | None = None
    for level, after in zip(above, [*above[1:], None], strict=True):
        first_missed = None if level.side is not False else first_missed or level.users
        end = min(2 * first_missed, search.most) if first_missed else search.most
        if level.users >= end:
            return None
        step = max(level.users + 1, round(level.users * (sqrt(2) if first_missed else 2)))
        if after is None or after.users > step:
            return min(step, end)
    return None


def _narrowing(found: Sequence[Level], search: Search) -> int | None:
    """Return the middle between neighbours of which one keeps and the other misses, the highest such pair first.

    A number on which all its rounds could not agree counts as neither, so that the search goes on around it, never
    into it.
    """
    states = [(level.users, None if _undecided(level, search) else level.side) for level in found]
    for (low, one), (high, other) in reversed(list(pairwise(states))):
        if one != other and high > low + 1 and high > low * (1 + search.resolution):
            return min(max(round(sqrt(low * high)), low + 1), high - 1)
    return None


def _undecided(level: Level, search: Search) -> bool:
    return level.kept is None and level.rounds >= search.most_rounds


def _verifying(found: Sequence[Level], search: Search) -> int | None:
    """Return a number one step below the highest that keeps, or one step above the one beyond it that misses.

    Only where the next measured number is farther away. So should noise move an end of the answer, it moves by no more
    than a step.
    """
    step, there = 1 + search.resolution, [level.users for level in found]
    edges = [(low, high) for low, high in pairwise(found) if low.side and high.side is False]
    if not edges:
        return None
    low, high = edges[-1][0].users, edges[-1][1].users
    below = max((users for users in there if users < low), default=0)
    if low > 1 and below < low / step**2 and (users := min(low - 1, round(low / step))) > below:
        return users
    above = min((users for users in there if users > high), default=high)
    if above > high * step**2 and (users := max(high + 1, round(high * step))) < above:
        return users
    return None


def searched(
    search: Search, measure: Callable[[int, int], Mapping[str, Outcome]], objectives: Sequence[str]
) -> Iterator[tuple[int, int]]:
    """Run a whole search for the objectives, by name, yielding (users, round) after each measurement.

    `measure` is called with users and round, and returns the outcome for each objective.
    """
    evidence: dict[str, dict[int, dict[int, Outcome]]] = {name: {} for name in objectives}
    for round_ in range(1, search.most_rounds + 1):
        while (users := wanted(evidence, search, round_)) is not None:
            for name, outcome in measure(users, round_).items():
                evidence[name].setdefault(users, {})[round_] = outcome
            yield users, round_


def foreseen(search: Search, serves: int) -> list[int]:
    """List the numbers of users that a search measures on a server without noise that serves so many users."""

    def measured(users: int, round_: int) -> dict[str, Outcome]:
        return {"": Outcome(MOST if users <= serves else -MOST)}

    return [users for users, _ in searched(search, measured, [""])]
