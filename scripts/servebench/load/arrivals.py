"""Decide when to send requests: users' pauses, arrival processes, recorded traces."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import log
from pathlib import Path
from random import Random
from typing import Any

from servebench.faults import Fault
from servebench.load import jsonl
from servebench.load.prompts import chat
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
    at_ns = float(start_ns)
    while True:
        at_ns += random.expovariate(rate / processes) * 1e9
        yield round(at_ns)


@dataclass(frozen=True, slots=True)
class Entry:
    """Hold one request of a trace; `line` is its line in the file, from 1."""

    line: int
    arrival_s: float
    messages: list[dict[str, Any]]
    max_tokens: int | None


def read_trace(path: str) -> list[Entry]:
    """Read a JSONL file of `{"arrival_s": 0.25, "prompt": "…" | "messages": […], "max_tokens": 100}`, by arrival.

    An entry without `max_tokens` takes the workload's. Prompts are sent unchanged, so a prompt cache may serve prompts
    that the trace repeats. Raises Fault.
    """
    entries: list[Entry] = []
    for where, number, item in jsonl.lines(Path(path)):
        entry = _entry(where, number, item)
        if entries and entry.arrival_s < entries[-1].arrival_s:
            before = f"{entries[-1].arrival_s} of line {entries[-1].line}"
            raise Fault(f"{where}: arrival_s: {entry.arrival_s} is before the {before}; sort the lines by arrival_s")
        entries.append(entry)
    if not entries:
        raise Fault(f"{path}: holds no requests; give one JSON object a line")
    return entries


def _entry(where: str, number: int, item: dict[str, Any]) -> Entry:
    arrival_s: Any = item.get("arrival_s")
    max_tokens = item.get("max_tokens")
    if type(arrival_s) not in (int, float) or not 0 <= arrival_s <= MOST:
        raise Fault(f"{where}: arrival_s: {arrival_s!r:.60} is not a number of seconds from 0 to {MOST:g}; give one")
    if max_tokens is not None and (type(max_tokens) is not int or not 1 <= max_tokens <= MOST):
        raise Fault(f"{where}: max_tokens: {max_tokens!r:.60} is not a positive integer; give one or leave it out")
    if "messages" in item:
        messages = chat(where, item)
    else:
        messages = [{"role": "user", "content": jsonl.text(where, item, "prompt")}]
    return Entry(number, float(arrival_s), messages, max_tokens)
