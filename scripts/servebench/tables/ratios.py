"""Make the table of ratios between settings that differ in one thing. Pure.

Every ratio stays within one run and round; only `drift` crosses runs, and shows how large the error of such a crossing
can be.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import permutations
from typing import Any

import pyarrow as pa

from servebench import schema
from servebench.plan import Plan, Setting
from servebench.plan.differences import differences
from servebench.tables.catalogue import COMPARED
from servebench.tables.files import Row, table
from servebench.tables.groups import PLACE


def ratios(measurements: pa.Table, settings_table: pa.Table, plan: Plan) -> pa.Table:
    """Compute ratios between settings that differ in one thing, within a round, as their range over the rounds.

    control: every setting of a run that names a control, over the control. engine, slots, quantization: the one
    difference. drift: the same setting in a later run over an earlier one.
    """
    at: dict[tuple[str, str], dict[tuple[int, int], Row]] = defaultdict(dict)
    for row in measurements.to_pylist():
        if row["status"] == "ok":
            at[row["run"], row["setting"]][row["users"], row["round"]] = row
    marks = {tuple(row[name] for name in PLACE): row["marks"] for row in schema.rows(settings_table)}
    rows: list[Row] = []
    for one, base in permutations(plan.settings.values(), 2):
        for kind in _kinds(one, base, plan):
            for row in _ratio_rows(kind, one, base, at[one.run, one.name], at[base.run, base.name]):
                both = [found for s in (one, base) for found in marks[s.run, s.name, row["users"]]]
                rows.append(row | {"marks": list(dict.fromkeys(both))})
    return table("ratios", sorted(rows, key=lambda row: (row["kind"], row["run"])))


def _kinds(one: Setting, base: Setting, plan: Plan) -> Iterator[str]:
    """Yield the kinds of a comparison of `one` over `base`; none when they differ in more than one thing."""
    order = list(plan.settings)
    later = order.index(one.name) > order.index(base.name)
    differ = differences(one, base)
    if one.run != base.run:
        if later and all(name.startswith("workload.") for name in differ):
            yield "drift"
        return
    if plan.runs[one.run].get("control") == base.name:
        yield "control"
    if one.engine.kind != base.engine.kind and one.slots == base.slots and one.model.key == base.model.key and later:
        yield "engine"
    if differ == ["slots"] and one.slots > base.slots:
        yield "slots"
    if differ in (["model"], ["model_file"], ["quantization"]) and later:
        yield "quantization"


def _ratio_rows(kind: str, one: Setting, base: Setting, ours: dict[Any, Row], theirs: dict[Any, Row]) -> Iterator[Row]:
    both = sorted(set(ours) & set(theirs))
    for users in sorted({users for users, _ in both}):
        for figure in COMPARED:
            pairs = [(ours[at][figure], theirs[at][figure]) for at in both if at[0] == users]
            values = [a / b for a, b in pairs if a is not None and b]
            if values:
                yield {
                    "kind": kind,
                    "run": one.run,
                    "setting": one.name,
                    "baseline_run": base.run,
                    "baseline": base.name,
                    "users": users,
                    "figure": figure,
                    "ratio_min": min(values),
                    "ratio_max": max(values),
                    "rounds": len(values),
                }
