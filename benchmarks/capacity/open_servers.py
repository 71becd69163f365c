"""Whether the search for the highest rate of an open loop is right, on simulated queues whose capacity is known.

A server has slots, and replies of random length, which take the longer the more slots are busy. Requests come at random
(Poisson), wait in one queue for a slot, and TTFT counts from when they were due. So each window is drawn from a real
queue, whose backlog may grow. The capacity is the highest rate at which the queue keeps the line in an endless window
without noise: with exponential replies it follows from Erlang's formula. The rates are the sixteenths of a first guess,
as `servebench load --rate R --find-capacity` and a run with `mode: open` try them.

    python benchmarks/capacity/open_servers.py --servers 400
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from heapq import heappop, heappush
from statistics import NormalDist

import numpy as np
from random_servers import MOST, Way, bisection, by_search, report

from servebench.capacity.search import STEPS, Search
from servebench.load.line import Line
from servebench.load.objective import Objective, Outcome
from servebench.load.percentiles import percentile
from servebench.load.rows import backlog_grew
from servebench.marks import mark

WARMUP_S, WINDOW_S = 15.0, 60.0
LEAST = 20  # requests for which a window stays open


@dataclass
class Queue:
    """A random server before which requests queue. `within`, `launch`, `drift`: as of `random_servers.Server`."""

    random: np.random.Generator
    noise: str
    line: Line = field(init=False)

    def __post_init__(self) -> None:
        draw = self.random
        self.line = Line(ttft_p95_s=float(draw.choice([0.5, 1, 2, 5])), user_tok_s=float(draw.choice([5, 10, 20])))
        self.slots = int(draw.choice([1, 2, 4, 8, 16, 32]))
        self.speed = float(np.exp(draw.uniform(np.log(15), np.log(150))))
        self.half = float(np.exp(draw.uniform(np.log(2), np.log(200))))  # busy slots at which the speed has halved
        self.prefill_s = float(np.exp(draw.uniform(np.log(0.01), np.log(0.5))))
        self.within = float(draw.uniform(0.1, 0.5))
        self.reply_tokens = float(draw.choice([12, 64, 150]))
        spread = 0.02 if self.noise == "little" else float(np.exp(np.log(0.05) + draw.normal() * np.log(4) / 1.2816))
        self.launch, self.drift = min(spread, 0.5), float(draw.uniform(0, 0.1))
        self.phase = float(draw.uniform(0, 2 * np.pi))
        # The first guess of the rate is up to five times too high or too low.
        guess = self.slots * self.speed / self.reply_tokens * float(np.exp(draw.uniform(-1.6, 1.6)))
        self.step_s = guess / STEPS
        self.done = 0
        # Points of the distribution of a prompt's time, all equally likely.
        normal = NormalDist()
        self.prefill = np.array(
            [self.prefill_s * np.exp(self.within * normal.inv_cdf((n + 0.5) / 500)) for n in range(500)]
        )

    def typical(self, level: int) -> tuple[float, float, float]:
        """Requests per second, mean seconds of a reply and speed of one reply (tokens/s), without noise."""
        rate = self.step_s * level
        busy = min(self.slots, rate * self.reply_tokens / self.speed)
        speed = self.speed / (1 + busy / self.half)
        return rate, self.reply_tokens / speed, speed

    def keeps(self, level: int) -> bool:
        """Whether the line is kept at this rate in an endless window."""
        rate, reply_s, speed = self.typical(level)
        load = rate * reply_s
        if load >= self.slots or speed < self.line.user_tok_s:
            return False
        # Erlang: the chance to wait at all, then an exponential wait.
        blocked = 1.0
        for busy in range(1, self.slots + 1):
            blocked = load * blocked / (busy + load * blocked)
        waits = blocked / (1 - load / self.slots * (1 - blocked))
        left_s = self.line.ttft_p95_s - self.prefill
        late = np.where(left_s < 0, 1.0, waits * np.exp(-(self.slots / reply_s - rate) * np.maximum(left_s, 0)))
        return bool(late.mean() <= 0.05)

    @property
    def capacity(self) -> int:
        """The highest level, up to MOST, at which the line is truly kept; 0 where none is."""
        return max((level for level in range(1, MOST + 1) if self.keeps(level)), default=0)

    def measured(self, level: int, round_: int) -> dict[str, Outcome]:
        """Judge a window of 60 s, or of 20 requests, as servebench judges a real one."""
        rate, reply_s, speed = self.typical(level)
        self.done += 1
        scatter = self.random.standard_t(3, size=2) / np.sqrt(3) if self.noise == "heavy tails" else None
        scatter = self.random.normal(size=2) if scatter is None else scatter
        drift = self.drift * np.sin(self.phase + self.done / 12)
        slower = float(np.exp(self.launch * scatter[0] + drift))
        due_s, begin_s, end_s = self._requests(rate, reply_s * slower)
        end_of_window_s = max(WARMUP_S + WINDOW_S, float(due_s[due_s >= WARMUP_S][LEAST - 1]))
        target = (due_s >= WARMUP_S) & (due_s < end_of_window_s + 1e-9)
        prompts_s = self.prefill_s * slower * np.exp(self.within * self.random.normal(size=int(target.sum())))
        waits = (begin_s - due_s)[target] + prompts_s
        before, after = (int(((due_s <= at) & (end_s > at)).sum()) for at in (WARMUP_S, end_of_window_s))
        grew = backlog_grew(before, after, due=len(waits))
        figures = {
            "target_requests": len(waits),
            "failures": 0,
            "ttft_p50_s": float(np.median(waits)),
            "ttft_p95_s": percentile(waits, 95),
            "user_tok_s": speed / np.exp(self.launch * scatter[1] / 2 + drift / 2),
            "invalid_reasons": [mark("backlog_grows", start=before, end=after, due=len(waits))] if grew else [],
        }
        return {"line": Objective.of(self.line).outcome(figures)}

    def _requests(self, rate: float, reply_s: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """When the requests up to a window's end are due, begin and end (s): the first due gets the next free slot."""
        seconds = max(WARMUP_S + WINDOW_S, WARMUP_S + 3 * LEAST / rate + 5 / rate)
        due_s = np.cumsum(self.random.exponential(1 / rate, size=int(seconds * rate * 1.3) + 10 * LEAST))
        replies_s = self.random.exponential(reply_s, size=len(due_s))
        begin_s, free_s = np.empty(len(due_s)), [0.0] * self.slots
        for number, (due, reply) in enumerate(zip(due_s.tolist(), replies_s.tolist(), strict=True)):
            begin = max(due, heappop(free_s))
            begin_s[number] = begin
            heappush(free_s, begin + reply)
        return due_s, begin_s, begin_s + replies_s


WAYS: dict[str, Way] = {
    **{
        f"search, 2{f' to {most}' if most > 2 else ''} rounds": by_search(
            Search(most=MOST, start=STEPS, most_rounds=most), paced=True
        )
        for most in (2, 4, 8)
    },
    "bisection, each measured once": bisection,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", type=int, default=1000)
    report(WAYS, parser.parse_args().servers, Queue)


if __name__ == "__main__":
    main()
