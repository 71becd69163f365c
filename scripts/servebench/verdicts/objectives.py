"""State for how many users, or at which rate, a setting keeps an objective, by its measurements. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from servebench.capacity import judging
from servebench.capacity.search import answer
from servebench.claims import KINDS, Claim
from servebench.load.objective import Objective, Outcome
from servebench.marks import mark
from servebench.plan import LINE, Plan, Setting
from servebench.tables.derived import MIXED
from servebench.tables.files import Row, rows_of
from servebench.verdicts.levels import (
    Cell,
    caveats,
    cells,
    discards,
    is_unlike,
    is_valid,
    load_of,
    over_rounds,
    settings_rows,
    weighing,
)


def objectives(tables: Mapping[str, pa.Table], plan: Plan) -> Iterator[Claim]:
    """Yield a claim for each setting with users and named objective, and for the line where they were searched for."""
    measured: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows_of(tables, "measurements"):
        measured[row["run"], row["setting"]].append(row)
    marked = settings_rows(tables)
    for setting in plan.settings.values():
        rows = measured[setting.run, setting.name]
        for name, objective in plan.judged_by.items():
            if rows and not setting.scheduled and (name != LINE or setting.name in plan.searched):
                thrown = discards(tables, plan, setting.run, setting.name)
                yield stated(setting, name, objective, rows, thrown, marked)


def schedules(tables: Mapping[str, pa.Table], plan: Plan) -> Iterator[Claim]:
    """Yield a claim for each named objective and each level of a setting that a rate or a trace loads."""
    measured = cells(tables)
    marked = settings_rows(tables)
    for setting in plan.settings.values():
        own = {place[2]: rows for place, rows in measured.items() if place[:2] == (setting.run, setting.name)}
        if not setting.scheduled:
            continue
        thrown = discards(tables, plan, setting.run, setting.name)
        for name, objective in plan.objectives.items():
            evidence = {users: {row["round"]: objective.outcome(row) for row in rows} for users, rows in own.items()}
            for level in judging.levels(evidence):
                rows, place = own[level.users], (setting.run, setting.name, level.users)
                good = [row for row in rows if row["status"] == "ok"]
                marks = caveats(good, marked.get(place))
                values = {"objective": name, "measurements": level.rounds, "valid": is_valid(good, marks)}
                verdict = "open" if level.kept is None else "kept" if level.kept else "missed"
                yield Claim(
                    kind="schedule",
                    verdict=verdict,
                    run=setting.run,
                    subjects=[setting.name],
                    users=level.users,
                    values=values | {"discarded": thrown} | load_of(setting),
                    rounds=level.rounds,
                    confidence=None if verdict == "open" else judging.CONFIDENCE,
                    caveats=weighing(marks),
                    rows=["/".join(map(str, place))],
                )


def stated(
    setting: Setting,
    name: str,
    objective: Objective,
    rows: Sequence[Row],
    discarded: Sequence[Sequence[Any]],
    marked: Mapping[Cell, Row] | None = None,
) -> Claim:
    """State the answer for one setting and objective, by its rows of `measurements`.

    discarded: as `levels.discards`; marked: the rows of `settings`.
    """
    evidence: dict[int, dict[int, Outcome]] = defaultdict(dict)
    for row in rows:
        evidence[row["users"]][row["round"]] = objective.outcome(row)
    found = answer(evidence, paced=setting.paced)
    # What the answer rests on: its ends, or all where it has none. A failed row is a fact whatever else it shows.
    ends = [row for row in rows if row["users"] in (found.lower, found.upper)] or list(rows)
    ends = [row for row in ends if row["status"] == "ok"]
    kept = [row for row in ends if row["users"] == found.lower]
    levels = {users: [row for row in ends if row["users"] == users] for users in {row["users"] for row in ends}}
    places = {users: (setting.run, setting.name, users) for users in levels}
    marks = {users: caveats(own, (marked or {}).get(places[users])) for users, own in levels.items()}
    unlike = [mark(kind, found=told) for column, kind in MIXED.items() if len(told := _told(ends, column)) > 1]
    alike = not unlike and not any(is_unlike(noted) for own in marks.values() for noted in own)
    values: dict[str, Any] = {
        "objective": name,
        "valid": alike and all(row["valid"] for row in ends),
        "spans": [list(span) for span in found.spans()],
        "gaps": list(found.gaps),
        "open": list(found.open),
        "measurements": sum(map(len, evidence.values())),
        "discarded": discarded,
    }
    if found.lower is None:
        verdict = "unsure" if found.upper is None else "none"
    else:
        verdict = "at_least" if found.upper is None else "bracketed"
        values |= {"most": found.lower, "unbroken": found.unbroken, **_requests(setting, kept, found.lower)}
    if found.upper is not None:
        values["misses"] = found.upper
    return Claim(
        kind="objective",
        verdict=verdict,
        run=setting.run,
        subjects=[setting.name],
        users=found.lower,
        values=values,
        rounds=max(map(len, evidence.values())),
        confidence=None if verdict == "unsure" else judging.CONFIDENCE,
        caveats=list(dict.fromkeys([*weighing(marks.get(found.lower or 0, [])), *unlike])),
        rows=[f"{setting.run}/{setting.name}/{users}" for users in sorted(evidence)],
    )


def _told(rows: Sequence[Row], column: str) -> list[str]:
    """List the values of a column, each once, without those that are not known."""
    return list(dict.fromkeys(row[column] for row in rows if row[column] is not None))


def _requests(setting: Setting, kept: Sequence[Row], users: int) -> dict[str, Any]:
    """Return the requests per second with so many users: what is due in an open loop, else what was replied to."""
    if rate := setting.workload.get("user_rate"):
        return {"loop": "open", "requests_s": [rate * users] * 2}
    return {"loop": "closed", "requests_s": over_rounds(kept, "requests_s")}


def at_rates(claim: Claim, requests_s: Callable[[int], float]) -> Claim:
    """Say of requests per second what a claim of kind `objective` says of levels, of which each is such a rate."""
    values = dict(claim.values)
    values = {name: values[name] for name in KINDS["rate"][claim.verdict]}
    values |= {name: list(map(requests_s, values[name])) for name in ("gaps", "open")}
    values |= {name: requests_s(values[name]) for name in ("most", "misses") if name in values}
    values["spans"] = [[requests_s(first), requests_s(last)] for first, last in values["spans"]]
    return msgspec.structs.replace(claim, kind="rate", users=None, values=values, rows=[])
