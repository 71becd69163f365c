"""When requests are to be sent: pauses of people, arrival processes, recorded traces."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf, log
from pathlib import Path
from random import Random
from typing import Any


@dataclass(frozen=True, slots=True)
class Pause:
    """The time between a reply and the same user's next request, in seconds.

    `2` (constant), `exp:MEAN`, `uniform:LOW,HIGH`, `lognormal:MEAN,SIGMA` (SIGMA of the logarithm, dimensionless).
    """

    kind: str
    parameters: tuple[float, ...]

    @classmethod
    def parse(cls, text: str) -> Pause:
        """ValueError says what is wrong with `text`."""
        kind, colon, values = text.partition(":")
        if not colon:
            kind, values = "constant", text
        wanted = _PARAMETERS.get(kind)
        try:
            parameters = tuple(float(value) for value in values.split(","))
        except ValueError:
            parameters = ()
        ordered = kind != "uniform" or list(parameters) == sorted(parameters)
        if wanted != len(parameters) or not all(0 <= value < inf for value in parameters) or not ordered:
            forms = "seconds, exp:MEAN, uniform:LOW,HIGH or lognormal:MEAN,SIGMA"
            raise ValueError(f"workload.think: {text!r} is none of {forms}")
        if kind == "lognormal" and parameters[0] == 0:
            raise ValueError(f"workload.think: {text!r}: the mean of a lognormal is more than 0")
        return cls(kind, parameters)

    def draw_s(self, random: Random) -> float:
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
    """The moments (ns, without end) at which one process of several sends, so that all of them make `rate` a second.

    Poisson: independent exponential gaps in each process, whose union is Poisson again. Constant: every
    `processes`-th moment of one even row.
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
    """One request of a trace; `line` is its place in the file, from 1."""

    line: int
    arrival_s: float
    messages: list[dict[str, Any]]
    max_tokens: int | None


def read_trace(path: str) -> list[Entry]:
    """A JSONL file of `{"arrival_s": 0.25, "prompt": "…" | "messages": […], "max_tokens": 100}`, in order of arrival.

    `max_tokens` may be absent (the workload's then). Prompts are sent as they are: what a trace repeats, a cache may
    know. ValueError names file, line and fault.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: cannot be read: {error}; name a JSONL file in UTF-8") from None
    entries = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                entries.append(_entry(number, json.loads(line)))
            except (ValueError, KeyError, TypeError) as error:
                wanted = "give arrival_s, prompt or messages, and max_tokens if wanted"
                raise ValueError(f"{path}:{number}: {type(error).__name__}: {error}; {wanted}") from None
    if not entries:
        raise ValueError(f"{path}: holds no requests; give one JSON object a line")
    return sorted(entries, key=lambda entry: entry.arrival_s)


def _entry(number: int, line: dict[str, Any]) -> Entry:
    arrival_s = float(line["arrival_s"])
    if not 0 <= arrival_s < float("inf"):
        raise ValueError(f"arrival_s {arrival_s} is not a number of seconds from 0 on")
    messages = list(line["messages"]) if "messages" in line else [{"role": "user", "content": str(line["prompt"])}]
    max_tokens = line.get("max_tokens")
    return Entry(number, arrival_s, messages, None if max_tokens is None else int(max_tokens))
