"""Compare two experiments from their tables and plans (`servebench compare A B`); nothing is measured.

What may be said of a pair is a claim of kind `pair`, made by `servebench.verdicts`.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from servebench import plan as planning
from servebench import tables
from servebench.claims import Claim
from servebench.faults import Fault
from servebench.marks import Mark
from servebench.plan import Plan, Setting
from servebench.plan.layout import RESULTS, Layout
from servebench.tables import loaded
from servebench.tables.files import Row, rows_of
from servebench.verdicts.across import BEYOND, Matched, across, sizes
from servebench.verdicts.leaders import comparable
from servebench.words.numbers import span

# Measured conditions that must agree, beside the plan's settings, for a difference to be due to what is compared.
MEASURED = ("machine", "fingerprint", "engine_version", "engine_build", "engine_pin", "model_sha256", "protocol")


# Keys of the plan that are not conditions: those compared, names in the configuration, and those MEASURED knows better.
LEFT_OUT = {
    *("name", "run", "users", "engine.key", "engine.environment", "engine.image", "engine.pin"),
    *("model.key", "model.identity"),
}


Range = tuple[float | None, float | None]  # the smaller and the larger of the rounds


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

    `claim` is None where an experiment has no value.
    """

    run: str
    setting: str
    users: int
    figure: str
    ranges: tuple[Range, Range]
    claim: Claim | None
    marks: tuple[Mark, ...]

    @property
    def first(self) -> str:
        """Return the range over the rounds of the first, as text."""
        return span(*self.ranges[0])

    @property
    def second(self) -> str:
        """Return the range over the rounds of the second, as text."""
        return span(*self.ranges[1])

    @property
    def ratio(self) -> float | None:
        """Return the second's geometric mean over the first's; None where they are not compared."""
        return self.claim.values.get("ratio") if self.claim else None


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Hold a condition that differs between the two experiments, and the settings it concerns."""

    what: str
    first: str
    second: str
    settings: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Hold the pairs of figures of two experiments, what they come to, and the conditions in which they differ."""

    first: Experiment
    second: Experiment
    pairs: Sequence[Pair]
    sizes: Sequence[Claim]
    differences: Sequence[Difference]
    only: tuple[int, int]  # settings × users that only the first, only the second has measured

    @property
    def evaluated(self) -> bool:
        """Return whether either experiment evaluated answers, which a comparison leaves out."""
        return any(experiment.plan.evaluations is not None for experiment in (self.first, self.second))


def read(name: str) -> Experiment:
    """Read an experiment by its name or folder, or a folder of `servebench load`.

    Raises NothingToCompare when there is neither, or when the tables are not made yet.
    """
    if loaded.folders(Path(name)):
        plan, made = loaded.read(Path(name))
        return Experiment(folder=Path(name), plan=plan, tables=made)
    folder = next((f for f in (Path(name), RESULTS / name) if Layout(f).plan.exists()), None)
    if folder is None:
        raise NothingToCompare(
            f"{name}: is neither a folder with a plan.json or a summary.json nor an experiment under results/"
        )
    found = tables.read_all(Layout(folder).tables, ("settings", "measurements", "discarded"))
    if not {"settings", "measurements"} <= found.keys():
        raise NothingToCompare(f"{folder}/tables: does not exist yet; run snakemake for this experiment first")
    return Experiment(folder=folder, plan=planning.read(Layout(folder).plan), tables=found)


def compare(first: Experiment, second: Experiment, asked: Collection[str] = ()) -> Comparison:
    """Pair the settings of two experiments at each number of users that both measured.

    Settings are paired by run and name, and those left over by what they are. `asked`: the PARTS of verdicts.across in
    which they may differ and still get a ratio. Raises NothingToCompare when they share none.
    """
    one, other = _measured(first), _measured(second)
    matched = [
        Matched(a, b, users)
        for a, b in _matches(first, second)
        for users in sorted(set(a.users) & set(b.users))
        if (a.run, a.name, users) in one and (b.run, b.name, users) in other
    ]
    if not matched:
        raise NothingToCompare(
            f"{first.folder} and {second.folder}: no setting of the same name, or the same in all but its name, was"
            " measured with the same number of users in both"
        )
    found = list(across(first.tables, second.tables, matched, asked))
    claims = {(claim.run, claim.values["second"], claim.users, claim.figure): claim for claim in found}
    return Comparison(
        first=first,
        second=second,
        pairs=[
            _pair(
                one[m.one.run, m.one.name, m.users],
                other[m.other.run, m.other.name, m.users],
                figure,
                claims.get((m.one.run, m.one.name, m.users, figure)),
            )
            for m in matched
            for figure in comparable(m.one, m.other)
        ],
        sizes=list(sizes(found, matched)),
        differences=list(_differences(first, second, list({(m.one.name, m.other.name): m for m in matched}.values()))),
        only=(len(one) - len(matched), len(other) - len(matched)),
    )


def _matches(first: Experiment, second: Experiment) -> Iterator[tuple[Setting, Setting]]:
    """Yield pairs of settings: those of the same run and name, then those left over that differ in nothing else."""
    ours, theirs = list(first.plan.settings.values()), list(second.plan.settings.values())
    left = {(setting.run, setting.name): setting for setting in theirs}
    rest = []
    for setting in ours:
        if named := left.pop((setting.run, setting.name), None):
            yield setting, named
        else:
            rest.append(setting)
    for setting in rest:
        own = _leaves(json.loads(planning.session_spec(first.plan, setting))["setting"])
        for key, other in left.items():
            if _leaves(json.loads(planning.session_spec(second.plan, other))["setting"]) == own:
                yield setting, left.pop(key)
                break


def _measured(experiment: Experiment) -> dict[tuple[str, str, int], Row]:
    rows = rows_of(experiment.tables, "settings")
    return {(row["run"], row["setting"], row["users"]): row for row in rows if row["rounds"]}


def _pair(one: Row, other: Row, figure: str, claim: Claim | None) -> Pair:
    ends = [row[f"{figure}_{end}"] for row in (one, other) for end in ("min", "max")]
    name = one["setting"] if one["setting"] == other["setting"] else f"{one['setting']} → {other['setting']}"
    return Pair(
        run=one["run"],
        setting=name,
        users=one["users"],
        figure=figure,
        ranges=((ends[0], ends[1]), (ends[2], ends[3])),
        claim=claim,
        marks=tuple(dict.fromkeys([*one["marks"], *other["marks"]])),
    )


def _differences(first: Experiment, second: Experiment, matched: Sequence[Matched]) -> Iterator[Difference]:
    """List each condition in which the experiments differ, once for all settings with the same two values."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for match in matched:
        setting = match.one.name
        one = _conditions(first, match.one.run, setting)
        other = _conditions(second, match.other.run, match.other.name)
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
    """Count the pairs of a figure that can be judged, and those in which the second is higher or lower beyond noise."""
    verdicts = [pair.claim.verdict for pair in comparison.pairs if pair.figure == figure and pair.claim]
    judged = [verdict for verdict in verdicts if verdict in (*BEYOND, "not_beyond_noise")]
    return {"judged": len(judged), "pairs": len(verdicts)} | {verdict: judged.count(verdict) for verdict in BEYOND}
