"""Define objectives: limits on the figures of a measurement, which a number of users must keep."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil, inf, log
from statistics import NormalDist
from typing import Any

from servebench.faults import Fault
from servebench.load.line import Line

# Figures that may be limited, and whether the limit is the largest value (else the smallest).
LIMITED = {
    **{f"{name}_{share}_s": True for name in ("ttft", "tpot", "e2e", "inter_chunk") for share in ("p50", "p95", "p99")},
    **dict.fromkeys(("user_tok_s", "output_tok_s", "requests_s", "goodput_share"), False),
}
# Marks of a measurement that missed every objective, whatever its figures: they would be others in a longer window.
MISSES = ("backlog_grows", "warmup_failed")
# Reasons of a failed measurement that say nothing of the server under this load: it was not loaded so.
UNTRIED = ("not_tried", "foreign_use_every_time", "not_as_asked", "no_longer_as_asked")
# With so few requests and a median beyond the limit, the 95 % point is beyond it as well: at most 5 % may be, and three
# of five are so by chance in one case of a thousand.
MEDIAN_FROM = 5
# Margins are logs of ratios; one of e^3 (20 times) is as good as any larger one, and that of a failure.
MOST = 3.0


@dataclass(frozen=True)
class Outcome:
    """Hold how one measurement stands to an objective.

    `margin`: log of the ratio by which the tightest limit was kept (above 0) or missed (below 0), between -MOST and
    MOST; None where the requests are too few to judge. `doubt`: by how much the margin may be too large, because a
    percentile of few requests lies below that of many. `missed`: "failures", the limits missed, kinds of MISSES.
    `lacking`: requests missing.
    """

    margin: float | None
    doubt: float = 0.0
    missed: tuple[str, ...] = ()
    lacking: int = 0

    @property
    def kept(self) -> bool | None:
        """Return whether the objective was kept; None where that cannot be judged."""
        return None if self.margin is None else not self.missed


@dataclass(frozen=True)
class Objective:
    """Set limits on figures (LIMITED): all are kept, and at most `failures_share` of the target requests fail."""

    limits: Mapping[str, float]
    failures_share: float = 0.0
    min_targets: int = 20

    def __post_init__(self) -> None:
        for name, limit in self.limits.items():
            if name not in LIMITED:
                raise Fault(f"{name}: is not a figure that can be limited; use {', '.join(LIMITED)}")
            if not 0 < limit < inf:
                raise Fault(f"{name}: {limit} is not positive and finite")

    @classmethod
    def of(cls, line: Line) -> Objective:
        """Return the line as an objective."""
        limits = {"ttft_p95_s": line.ttft_p95_s, "user_tok_s": line.user_tok_s}
        return cls(limits=limits, min_targets=line.min_targets)

    @property
    def requests(self) -> int:
        """Return the number of target requests that a window needs.

        At least one request must be able to lie beyond a percentile: 20 requests for p95, 100 for p99.
        """
        return max([self.min_targets, *(ceil(100 / (100 - share)) for share in map(_percent, self.limits) if share)])

    def outcome(self, figures: Mapping[str, Any]) -> Outcome:
        """Judge a measurement by its figures: a row of the table `measurements`, or those of `measurement_figures`."""
        if figures.get("status", "ok") != "ok":
            untried = any(mark.kind in UNTRIED for mark in figures.get("reason") or ())
            return Outcome(None) if untried else Outcome(-MOST, missed=("failed",))
        requests, failures = figures["target_requests"] or 0, figures["failures"] or 0
        lacking = max(0, self.requests - requests)
        failing = failures > self.failures_share * requests
        missed = ["failures"] if failing else []
        marked = [mark.kind for mark in figures["invalid_reasons"] if mark.kind in MISSES]
        margins, doubts = [-MOST] if failing or marked else [], [0.0]
        for name, limit in self.limits.items():
            value = _value(figures, name, lacking, failing)
            if value is None and (requests < MEDIAN_FROM or failing):
                continue
            margin = -MOST if value is None else _margin(name, limit, value)
            margins.append(margin)
            doubts.append(_doubt(figures, name, requests) if margin > 0 else 0.0)
            if margin < 0:
                missed.append(name)
        missed += marked
        if not missed and (lacking or len(margins) < len(self.limits)):  # a figure without a value keeps no limit
            return Outcome(None, lacking=lacking)
        return Outcome(min(margins), max(doubts), tuple(missed), lacking)


def _percent(name: str) -> int | None:
    """Return the percentile of a figure above the median; None for any other figure."""
    share = name.removesuffix("_s").rpartition("_p")[2]
    return int(share) if share in ("95", "99") else None


def _margin(name: str, limit: float, value: float) -> float:
    """Return the log of the ratio by which a figure keeps its limit, between -MOST and MOST."""
    margin = log(limit / max(value, 1e-9)) if LIMITED[name] else log(max(value, 1e-9) / limit)
    return min(max(margin, -MOST), MOST)


def _value(figures: Mapping[str, Any], name: str, lacking: int, failing: bool) -> float | None:
    """Return a figure's value, of so few requests that a percentile has none its median, of still fewer None.

    In the TTFT p95 a failure is an endless wait (None where the p95 is endless), unless the objective is `failing`:
    missed by its failures anyway.
    """
    if lacking and (figures["target_requests"] or 0) < MEDIAN_FROM:
        return None
    if lacking and (percent := _percent(name)):
        name = name.replace(f"_p{percent}_", "_p50_")
    elif name == "ttft_p95_s" and not failing:
        if figures.get("ttft_p95_all_infinite"):
            return None
        name = "ttft_p95_all_s" if figures.get("ttft_p95_all_s") is not None else name
    value = figures.get(name)
    return None if value is None else float(value)


def _doubt(figures: Mapping[str, Any], name: str, requests: int) -> float:
    """Estimate by how much, as a log, the percentile of so many requests lies below that of many.

    The ⌈p·n⌉-th of n values lies where a share of ⌈p·n⌉ ÷ (n + 1) lies below it; how far p is from there follows from
    the median and a normal distribution of the logs.
    """
    percent = _percent(name)
    middle, high = figures.get(name.replace(f"_p{percent}_", "_p50_")), figures.get(name)
    if percent is None or not middle or not high or requests < 2:
        return 0.0
    normal = NormalDist()
    there = normal.inv_cdf(ceil(percent * requests / 100) / (requests + 1))
    wanted = normal.inv_cdf(percent / 100)
    return max(0.0, log(high / middle) / there * (wanted - there)) if there > 0 else 0.0


def needed(objectives: Mapping[str, Objective]) -> int:
    """Return the target requests that all the objectives need together."""
    return max(objective.requests for objective in objectives.values())


def outcomes(objectives: Mapping[str, Objective], figures: Mapping[str, Any]) -> Iterator[tuple[str, Outcome]]:
    """Judge a measurement by each objective, by its name."""
    for name, objective in objectives.items():
        yield name, objective.outcome(figures)
