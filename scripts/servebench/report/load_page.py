"""Lay out the page of `servebench load`: the report's first screen, curves, all values and the workload.

One server in one round: nothing is ranked, and what is said is said of this round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from servebench import claims, verdicts
from servebench.claims import Claim
from servebench.plan import Plan, Setting
from servebench.report import content, first, glossary
from servebench.report.page import drawn
from servebench.report.templates import NO_CHARTS, fill
from servebench.tables import loaded
from servebench.tables.files import rows_of
from servebench.verdicts.levels import MET_ONCE, enough_requests, once
from servebench.words import LANGUAGES

CURVES = ("output_by_users", "user_by_users", "ttft_by_users")
TERMS = ("users", "target", "token", "ttft", "output", "window", "round", "warning")


def page(plan: Plan, tables: Mapping[str, pa.Table]) -> str:
    """Render what `loaded.tables_of` returns as text; it needs no other file."""
    (setting,) = plan.settings.values()
    scheduled = setting.scheduled  # requests at times of their own, whatever the server does: users are connections
    found = [claim for claim in verdicts.conclude(tables, plan) if claim.kind in ("coverage", "capacity", "level")]
    tables = {**tables, "verdicts": claims.table(found)}
    levels = [claim for claim in found if claim.kind == "level"]
    several = len(levels) > 1 and not scheduled
    figures, data = drawn(tables, plan, {}, CURVES) if several else ([], NO_CHARTS)
    values = content.values(tables, loaded.RUN)
    valid = {claim.users: claim.values.get("valid") for claim in levels}
    for row in values:
        if row["state"] == MET_ONCE:
            row["state"] = "once" if valid[row["users"]] else "invalid"
    text = fill(
        "load.html",
        dict.fromkeys(LANGUAGES, setting.name),
        "load",
        data,
        rounds=plan.rounds,
        plan=plan,
        claims=found,
        first=first.first(tables, plan, loaded.RUN) | _screen(plan, tables, setting, levels, once(plan, levels)),
        figures=figures,
        columns=("users", "line", *content.COLUMNS, "backlog_end", "failures", "marks"),
        heads={"line": "load.target"}
        | ({"users": "load.connections", "user_tok_s": "values.reply_tok_s"} if scheduled else {}),
        values=values,
        states={row["state"] for row in values},
        workload=content.workload(setting),
        definitions=glossary.definitions(TERMS),
    )
    return glossary.linked(text, TERMS)


def _screen(
    plan: Plan, tables: Mapping[str, pa.Table], setting: Setting, levels: Sequence[Claim], said: Claim
) -> dict[str, Any]:
    """Fill the first screen: the answer, what to try next, and what was measured."""
    tried = said.verdict == "most_tried"
    days = sorted(row["started_at"][:10] for row in rows_of(tables, "measurements") if row["started_at"])
    facts = first.facts(tables, plan, loaded.RUN)
    steps: dict[str, dict[str, Any]] = {"load_again": {}}
    steps |= enough_requests(levels, setting.workload["mode"])
    if tried:
        steps["more_users"] = {"users": said.users}
    question = "asked" if said.verdict == "scheduled" else "many"
    number = {"users": said.values.get("met"), "at_least": tried, "valid": said.values["valid"]}
    at = (row for row in rows_of(tables, "settings", loaded.RUN) if row["users"] == number["users"])
    number["anchor"] = next(map(content.anchor, at), None)
    return {
        "answers": [{"question": question, "claims": [said], "where": "h-line"}],
        "number": number,
        "named": [],
        "next": list(steps.items()),
        "facts": facts | {"engines": [setting.engine.url], "dates": first.span_of_days(days)},
    }
