"""State for how many users a setting keeps an objective, by its measurements. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from servebench.capacity.judging import CONFIDENCE, Evidence
from servebench.capacity.search import answer
from servebench.claims import Claim
from servebench.load.objective import Outcome
from servebench.plan import LINE, Plan, Setting
from servebench.tables.files import rows_of


def objectives(tables: Mapping[str, pa.Table], plan: Plan) -> Iterator[Claim]:
    """Yield a claim for each setting and named objective, and for the line where its users were searched for."""
    measured: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in rows_of(tables, "measurements"):
        measured[row["run"], row["setting"]].append(row)
    for setting in plan.settings.values():
        for name, objective in plan.judged_by.items():
            evidence: dict[int, dict[int, Outcome]] = defaultdict(dict)
            for row in measured[setting.run, setting.name]:
                evidence[row["users"]][row["round"]] = objective.outcome(row)
            if evidence and (name != LINE or setting.name in plan.searched):
                yield stated(setting, name, evidence)


def stated(setting: Setting, objective: str, evidence: Evidence) -> Claim:
    """State the answer for one setting and objective."""
    found = answer(evidence)
    values: dict[str, Any] = {
        "objective": objective,
        "spans": [list(span) for span in found.spans()],
        "gaps": list(found.gaps),
        "open": list(found.open),
        "measurements": sum(map(len, evidence.values())),
    }
    if found.lower is None:
        verdict = "unsure" if found.upper is None else "none"
    else:
        verdict = "at_least" if found.upper is None else "bracketed"
        values |= {"most": found.lower, "unbroken": found.unbroken}
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
        confidence=None if verdict == "unsure" else CONFIDENCE,
        rows=[f"{setting.run}/{setting.name}/{users}" for users in sorted(evidence)],
    )
