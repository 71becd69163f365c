"""Decide when to send requests: users' pauses, arrival processes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import log
from random import Random

from servebench.faults import Fault
from servebench.load.workload import MOST


@dataclass(frozen=True, slots=True)
class Pause:
    """Hold the time between a reply and the same user's next request, in seconds.

    `2` (constant), `exp:MEAN`, `uniform:LOW,HIGH`, `lognormal:MEAN,SIGMA` (SIGMA of the logarithm, dimensionless).
    """

    kind: str
    parameters: tuple[float, ...]

    @classmethod
    def parse(cls, text: str) -> Pause:
        """Parse a pause such as "exp:5". Raises Fault."""
        kind, colon, values = text.partition(":")
        if not colon:
            kind, values = "constant", text
        wanted = _PARAMETERS.get(kind)
        try:
            parameters = tuple(float(value) for value in values.split(","))
        except ValueError:
            parameters = ()
        ordered = kind != "uniform" or list(parameters) == sorted(parameters)
        if wanted != len(parameters) or not all(0 <= value <= MOST for value in parameters) or not ordered:
            forms = f"seconds, exp:MEAN, uniform:LOW,HIGH or lognormal:MEAN,SIGMA, each number at most {MOST:g}"
            raise Fault(f"workload.think: {text!r} is not a pause; write {forms}")
        if kind == "lognormal" and parameters[0] == 0:
            raise Fault(f"workload.think: {text!r}: the mean of a lognormal must be greater than 0")
        return cls(kind, parameters)

    @property
    def mean(self) -> float:
        """Return the mean of what is drawn."""
        return sum(self.parameters) / 2 if self.kind == "uniform" else self.parameters[0]

    def draw_s(self, random: Random) -> float:
        """Draw the length of one pause, in seconds."""
        first = self.parameters[0]
        if self.kind == "exp":
            return random.expovariate(1 / first) if first else 0.0
        if self.kind == "uniform":
            return random.uniform(first, self.parameters[1])
        if self.kind == "lognormal":
            sigma = self.parameters[1]
            return random.lognormvariate(log(first) - sigma**2 / 2, sigma)
        return first


_PARAMETERS = {"constant": 1, "exp": 1, "uniform": 2, "lognormal": 2}


def schedule_ns(
    rate: float, arrivals: str, start_ns: int, process: int, processes: int, random: Random
) -> Iterator[int]:
    """Yield, without end, the send times (ns) of one of several processes that together send `rate` requests a second.

    Poisson: independent exponential gaps in each process, whose union is Poisson again. Constant: every
    `processes`-th moment of one evenly spaced sequence.
    """
    if arrivals == "constant":
        step_ns = 1e9 / rate
        n = process
        while True:
            yield start_ns + round(n * step_ns)
            n += processes
    after_ns = 0.0  # apart from the start, whose size would decide how sums are rounded
    while True:
        after_ns += random.expovariate(rate / processes) * 1e9
        yield start_ns + round(after_ns)
