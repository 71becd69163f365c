"""Prometheus text, as far as engines write it: names, labels, numbers."""

from __future__ import annotations

import re
from dataclasses import dataclass

LINE = re.compile(r"(?P<name>[A-Za-z_:][\w:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)(?: \d+)?")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class Metrics:
    """All samples of one scrape: (name, labels, value)."""

    samples: tuple[tuple[str, dict[str, str], float], ...]

    def total(self, name: str) -> float | None:
        """Sum over all labels; None when the server has no such metric."""
        found = [value for at, _, value in self.samples if at == name]
        return sum(found) if found else None

    def labels(self, name: str) -> dict[str, str]:
        """Labels of the first sample of `name`; {} when there is none."""
        return next((labels for at, labels, _ in self.samples if at == name), {})


def parse(text: str) -> Metrics:
    """Samples of Prometheus' text format; comments and what does not parse are left out."""
    found = []
    for line in text.splitlines():
        if (match := LINE.fullmatch(line.strip())) and not line.startswith("#"):
            labels = dict(LABEL.findall(match["labels"] or ""))
            found.append((match["name"], labels, float(match["value"])))
    return Metrics(tuple(found))
