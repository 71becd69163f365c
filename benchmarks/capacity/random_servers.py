"""Whether the search for a capacity is right, and what it costs, on simulated servers whose capacity is known.

A server has slots, a speed that falls with the number of users, a first token that waits in a queue once they exceed
the slots, sometimes a dip (numbers of users that it serves badly though it serves more of them well), and repeats that
scatter: within a window, from launch to launch, and by drift. Its capacity is the largest number of users within the
line in an endless window without noise. Each search sees only windows.

    python benchmarks/capacity/random_servers.py --servers 1000
    python benchmarks/capacity/random_servers.py --servers 100 --equal 4

The second command searches each server as so many equal settings, and counts the pages on which one setting is said to
serve surely more users than another (the verdict `fewer_users` of docs/verdicts.md).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import numpy as np

from servebench.capacity.search import Answer, Search, answer, searched
from servebench.load.line import Line
from servebench.load.objective import Objective, Outcome
from servebench.load.percentiles import percentile

MOST = 256
NOISES = ("little", "as published", "heavy tails")


@dataclass
class Server:
    """A random server. `within`: spread of one request's TTFT, as a log; `launch`, `drift`: of a whole measurement.
    `widest`: a dip's last number of users over its first, at most."""

    random: np.random.Generator
    noise: str
    widest: float = 2.0
    line: Line = field(init=False)

    def __post_init__(self) -> None:
        draw = self.random
        self.line = Line(ttft_p95_s=float(draw.choice([0.5, 1, 2, 5])), user_tok_s=float(draw.choice([5, 10, 20])))
        self.slots = int(draw.choice([1, 2, 4, 8, 16, 32, 64, 128, 256]))
        self.speed = float(np.exp(draw.uniform(np.log(15), np.log(150))))
        self.half = float(np.exp(draw.uniform(np.log(2), np.log(200))))  # users at which the speed has halved
        self.prefill_s = float(np.exp(draw.uniform(np.log(0.01), np.log(0.5))))
        self.within = float(draw.uniform(0.1, 0.5))
        self.reply_tokens = float(draw.choice([12, 64, 150]))
        spread = 0.02 if self.noise == "little" else float(np.exp(np.log(0.05) + draw.normal() * np.log(4) / 1.2816))
        self.launch = min(spread, 0.5)
        self.drift = float(draw.uniform(0, 0.1))
        self.phase = float(draw.uniform(0, 2 * np.pi))
        first = int(np.exp(draw.uniform(np.log(2), np.log(64))))
        self.dip = range(first, int(first * draw.uniform(1.2, self.widest)) + 1) if draw.random() < 0.3 else range(0)
        self.done = 0

    def typical(self, users: int) -> tuple[float, float]:
        """Median TTFT (s) and speed of one user (tokens/s) in an endless window without noise."""
        speed = self.speed / (1 + min(users, self.slots) / self.half)
        waves = max(0.0, users / self.slots - 1)
        ttft = self.prefill_s * (1 + min(users, self.slots) / 8) + waves * self.reply_tokens / speed
        return (ttft * 8 if users in self.dip else ttft), speed

    def keeps(self, users: int) -> bool:
        """Whether so many users are truly within the line."""
        ttft, speed = self.typical(users)
        return ttft * np.exp(1.6449 * self.within) <= self.line.ttft_p95_s and speed >= self.line.user_tok_s

    @property
    def capacity(self) -> int:
        """The largest number of users, up to MOST, that is truly within the line; 0 where none is."""
        return max((users for users in range(1, MOST + 1) if self.keeps(users)), default=0)

    def measured(self, users: int, round_: int) -> dict[str, Outcome]:
        """Judge a window of 60 s, or of 20 requests, as servebench judges a real one."""
        ttft, speed = self.typical(users)
        self.done += 1
        scatter = self.random.standard_t(3, size=2) / np.sqrt(3) if self.noise == "heavy tails" else None
        scatter = self.random.normal(size=2) if scatter is None else scatter
        drift = self.drift * np.sin(self.phase + self.done / 12)
        slower = np.exp(self.launch * scatter[0] + drift)
        reply_s = ttft + self.reply_tokens / speed
        requests = int(np.clip(60 / reply_s * users, 20, 2000))
        waits = ttft * slower * np.exp(self.within * self.random.normal(size=requests))
        figures = {
            "target_requests": requests,
            "failures": 0,
            "ttft_p50_s": float(np.median(waits)),
            "ttft_p95_s": percentile(waits, 95),
            "user_tok_s": speed / np.exp(self.launch * scatter[1] / 2 + drift / 2),
            "invalid_reasons": [],
        }
        return {"line": Objective.of(self.line).outcome(figures)}


class Measured(Protocol):
    """A server whose capacity is known, in whatever a search varies: users, or steps of a rate."""

    @property
    def capacity(self) -> int: ...

    def keeps(self, level: int, /) -> bool: ...

    def measured(self, level: int, round_: int, /) -> dict[str, Outcome]: ...


Way = Callable[[Measured], tuple[Answer, int]]
Make = Callable[[np.random.Generator, str], Measured]


def by_search(search: Search, *, paced: bool = False) -> Way:
    """Search as servebench does; `paced`: in an open loop."""

    def way(server: Measured) -> tuple[Answer, int]:
        evidence: dict[int, dict[int, Outcome]] = {}

        def measure(users: int, round_: int) -> dict[str, Outcome]:
            found = server.measured(users, round_)
            evidence.setdefault(users, {})[round_] = found["line"]
            return found

        cost = sum(1 for _ in searched(search, measure, ["line"]))
        return answer(evidence, paced=paced), cost

    return way


def grid(resolution: float = 0.12) -> list[int]:
    """Every number of users from 1 to MOST, none more than the resolution above the one before it."""
    found = [1]
    while found[-1] < MOST:
        found.append(min(MOST, max(found[-1] + 1, int(found[-1] * (1 + resolution)))))
    return found


def sweep(users: list[int], rounds: int) -> Way:
    """Measure every number of a list in every round, and trust each: it is kept where every round kept it."""

    def way(server: Measured) -> tuple[Answer, int]:
        sides = [all((server.measured(n, r)["line"].margin or 0) >= 0 for r in range(rounds)) for n in users]
        return _trusted(dict(zip(users, sides, strict=True))), rounds * len(users)

    return way


def bisection(server: Measured) -> tuple[Answer, int]:
    """Double until one misses, then halve the interval to 12 %, one measurement each, trusting every one."""
    sides: dict[int, bool] = {}

    def keeps(users: int) -> bool:
        sides[users] = (server.measured(users, 1)["line"].margin or 0) >= 0
        return sides[users]

    low, high = 0, 1
    while high <= MOST and keeps(high):
        low, high = high, 2 * high
    while high <= MOST and high > low + 1 and high > 1.12 * low:
        middle = (low + high) // 2
        low, high = (middle, high) if keeps(middle) else (low, middle)
    return _trusted(sides), len(sides)


def _trusted(sides: dict[int, bool]) -> Answer:
    kept, missed = (tuple(sorted(n for n, side in sides.items() if side is which)) for which in (True, False))
    lower = max(kept, default=None)
    upper = min((n for n in missed if n > (lower or 0)), default=None)
    return Answer(kept=kept, missed=missed, open=(), lower=lower, upper=upper)


WAYS: dict[str, Way] = {
    "search, 2 rounds": by_search(Search(most=MOST)),
    "search, 2 to 4 rounds": by_search(Search(most=MOST, most_rounds=4)),
    "search, 2 to 8 rounds": by_search(Search(most=MOST, most_rounds=8)),
    "bisection, each measured once": bisection,
    "powers of two, once": sweep([2**n for n in range(9)], 1),
    "ten numbers evenly, once": sweep([round(1 + n * (MOST - 1) / 9) for n in range(10)], 1),
    "every 12 %, once": sweep(grid(), 1),
    "every 12 %, 2 rounds": sweep(grid(), 2),
}


@dataclass(frozen=True)
class Tally:
    """One server and one way: whether the answer holds, its width (upper ÷ lower) and its measurements.

    `levels`: whether every number called kept or missed truly is.
    """

    holds: bool
    levels: bool
    width: float | None
    cost: int


def tallies(way: Way, noise: str, servers: int, make: Make = Server, seed: int = 1) -> Iterator[Tally]:
    """Let `way` find the capacity of so many random servers, the same ones for every way."""
    for number in range(servers):
        server = make(np.random.default_rng([seed, number]), noise)
        found, cost = way(server)
        kept, missed = map(server.keeps, found.kept), map(server.keeps, found.missed)
        width = found.upper / found.lower if found.upper and found.lower else None
        yield Tally(found.contains(server.capacity), all(kept) and not any(missed), width, cost)


def surely_more(noise: str, settings: int, pages: int, seed: int = 1) -> float:
    """Return the share of pages on which, of so many equal settings, one is said to serve more users than another."""
    wrong = 0
    for number in range(pages):
        found = []
        for setting in range(settings):
            server = Server(np.random.default_rng([seed, number]), noise)
            server.random = np.random.default_rng([seed, number, setting])  # the same server, other repeats
            found.append(by_search(Search(most=MOST))(server)[0])
        most = max((one.lower for one in found if one.lower is not None), default=-1)
        wrong += any(one.upper is not None and one.upper <= most for one in found)
    return wrong / pages


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", type=int, default=1000)
    parser.add_argument("--widest-dip", type=float, default=2.0, help="Last number of users of a dip over its first.")
    parser.add_argument("--equal", type=int, help="Search each server as so many equal settings.")
    asked = parser.parse_args()
    if asked.equal:
        for noise in NOISES:
            print(f"| {noise} | {asked.equal} | {surely_more(noise, asked.equal, asked.servers):.3f} |", flush=True)
        return
    report(WAYS, asked.servers, partial(Server, widest=asked.widest_dip))


def report(ways: Mapping[str, Way], servers: int, make: Make) -> None:
    """Print how often the answers of each way hold, how wide they are and what they cost, as a table."""
    print("| noise | way | holds | levels right | upper ÷ lower: median / 90 % | measurements: median / 90 % / most |")
    print("|---|---|---|---|---|---|")
    for noise in NOISES:
        for name, way in ways.items():
            found = list(tallies(way, noise, servers, make))
            holds, right = (np.mean([getattr(one, key) for one in found]) for key in ("holds", "levels"))
            widths = np.quantile([one.width for one in found if one.width], [0.5, 0.9])
            costs = np.quantile([one.cost for one in found], [0.5, 0.9, 1])
            wide, cost = (" / ".join(f"{n:{form}}" for n in of) for of, form in ((widths, ".2f"), (costs, ".0f")))
            print(f"| {noise} | {name} | {holds:.3f} | {right:.3f} | {wide} | {cost} |", flush=True)


if __name__ == "__main__":
    main()
