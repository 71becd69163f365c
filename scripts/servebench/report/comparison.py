"""Compare two experiments from their tables and plans (`servebench compare A B`); nothing is measured.

Two ranges are called separated only where both have two rounds or more and, as the page writes them, no common value.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from servebench import plan as planning
from servebench import tables
from servebench.faults import Fault
from servebench.marks import Mark
from servebench.plan import Plan
from servebench.plan.layout import RESULTS, Layout
from servebench.report.ranges import overlap
from servebench.tables.files import Row, rows_of
from servebench.words.numbers import span

FIGURES = ("output_tok_s", "user_tok_s", "ttft_p95_s")


# Measured conditions that must agree, beside the plan's settings, for a difference to be due to what is compared.
MEASURED = ("machine", "fingerprint", "engine_version", "engine_build", "engine_pin", "model_sha256", "protocol")


# Keys of the plan that are not conditions: those compared, names in the configuration, and those MEASURED knows better.
LEFT_OUT = {
    *("name", "run", "users", "engine.key", "engine.environment", "engine.image", "engine.pin"),
    *("model.key", "model.identity"),
}


SAID = {"separated": "separated", "not_separated": "not separated by these rounds", "one_round": "too few rounds"}


class NothingToCompare(Fault):
    """An experiment has no tables, or the two have nothing in common."""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """Hold the plan and tables of one experiment, and their folder."""

    folder: Path
    plan: Plan
    tables: Mapping[str, pa.Table]


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Hold one figure of a setting at a number of users in both experiments.

    `verdict` is a key of SAID, or None where an experiment has no value.
    """

    run: str
    setting: str
    users: int
    figure: str
    first: str
    second: str
    ratio: float | None  # middle of the second's rounds over that of the first's
    verdict: str | None
    marks: tuple[Mark, ...]


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Hold a condition that differs between the two experiments, and the settings it concerns."""

    what: str
    first: str
    second: str
    settings: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Hold the pairs of figures of two experiments, and the conditions in which they differ."""

    first: Experiment
    second: Experiment
    pairs: Sequence[Pair]
    differences: Sequence[Difference]
    only: tuple[int, int]  # settings × users that only the first, only the second has measured

    @property
    def evaluated(self) -> bool:
        """Return whether either experiment evaluated answers, which a comparison leaves out."""
        return any(experiment.plan.evaluations is not None for experiment in (self.first, self.second))


def read(name: str) -> Experiment:
    """Read an experiment by its name or folder; raises NothingToCompare when its tables are not made yet."""
    folder = next((f for f in (Path(name), RESULTS / name) if Layout(f).plan.exists()), None)
    if folder is None:
        raise NothingToCompare(f"{name}: is neither a folder with a plan.json nor an experiment under results/")
    found = tables.read_all(Layout(folder).tables, ("settings", "measurements"))
    if len(found) < 2:
        raise NothingToCompare(f"{folder}/tables: does not exist yet; run snakemake for this experiment first")
    return Experiment(folder=folder, plan=planning.read(Layout(folder).plan), tables=found)


def compare(first: Experiment, second: Experiment) -> Comparison:
    """Pair the settings × users of a run that both measured; raises NothingToCompare when they share none."""
    one, other = _measured(first), _measured(second)
    both = [place for place in one if place in other]
    if not both:
        raise NothingToCompare(
            f"{first.folder} and {second.folder}: no setting of the same name was measured with the same number of "
            "users in both; settings are matched by run and name"
        )
    return Comparison(
        first=first,
        second=second,
        pairs=[_pair(one[place], other[place], figure) for place in both for figure in FIGURES],
        differences=list(_differences(first, second, dict.fromkeys(place[:2] for place in both))),
        only=(len(one) - len(both), len(other) - len(both)),
    )


def _measured(experiment: Experiment) -> dict[tuple[str, str, int], Row]:
    rows = rows_of(experiment.tables, "settings")
    return {(row["run"], row["setting"], row["users"]): row for row in rows if row["rounds"]}


def _pair(one: Row, other: Row, figure: str) -> Pair:
    ends = [row[f"{figure}_{end}"] for row in (one, other) for end in ("min", "max")]
    ratio, verdict = None, None
    if None not in ends:
        ratio = (ends[2] + ends[3]) / (ends[0] + ends[1]) if ends[0] + ends[1] else None
        verdict = "not_separated" if overlap(one, other, figure) else "separated"
        if min(one["rounds"], other["rounds"]) < 2:
            verdict = "one_round"
    return Pair(
        run=one["run"],
        setting=one["setting"],
        users=one["users"],
        figure=figure,
        first=span(*ends[:2]),
        second=span(*ends[2:]),
        ratio=ratio,
        verdict=verdict,
        marks=tuple(dict.fromkeys([*one["marks"], *other["marks"]])),
    )


def _differences(
    first: Experiment, second: Experiment, settings: Mapping[tuple[str, str], None]
) -> Iterator[Difference]:
    """List each condition in which the experiments differ, once for all settings with the same two values."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for run, setting in settings:
        one, other = (_conditions(experiment, run, setting) for experiment in (first, second))
        for what in one | other:
            values = one.get(what, "–"), other.get(what, "–")
            if values[0] != values[1]:
                found.setdefault((what, *values), []).append(setting)
    for (what, value, other_value), names in found.items():
        yield Difference(what=what, first=value, second=other_value, settings=tuple(names))


def _conditions(experiment: Experiment, run: str, setting: str) -> dict[str, str]:
    """Describe the conditions of a setting's measurements, as text; several values where the measurements differ."""
    rows = [row for row in rows_of(experiment.tables, "measurements", run) if row["setting"] == setting]
    seen = {what: {str(row[what]) for row in rows if row[what] is not None} for what in MEASURED}
    conditions = {what: "; ".join(sorted(values)) or "–" for what, values in seen.items()}
    planned = experiment.plan.settings.get(setting)
    if planned is not None:
        conditions |= _leaves(json.loads(planning.session_spec(experiment.plan, planned))["setting"])
    return conditions


def _leaves(content: Mapping[str, Any], place: str = "") -> dict[str, str]:
    """Flatten nested mappings to text by dotted name, without LEFT_OUT and empty values."""
    found: dict[str, str] = {}
    for key, value in content.items():
        name = f"{place}{key}"
        if name in LEFT_OUT:
            continue
        if isinstance(value, Mapping):
            found |= _leaves(value, f"{name}.")
        elif value != []:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            found[name] = shlex.join(value) if name == "args" else text
    return found


def counts(comparison: Comparison, figure: str) -> dict[str, int]:
    """Count the pairs of a figure: all, separated ones, and separated ones in which the second is higher."""
    pairs = [pair for pair in comparison.pairs if pair.figure == figure and pair.verdict]
    apart = [pair for pair in pairs if pair.verdict == "separated"]
    higher = sum(pair.ratio is None or pair.ratio > 1 for pair in apart)  # no ratio: the first is 0 in all rounds
    return {"pairs": len(pairs), "separated": len(apart), "higher": higher, "lower": len(apart) - higher}
