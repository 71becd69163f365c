"""Lay out the page of `servebench load`: the report's first screen, curves, all values and the workload.

One server in one round: nothing is ranked, and what is said is said of this round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
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
from servebench.words import LANGUAGES, spoken, words
from servebench.words.numbers import digits

CURVES = ("output_by_users", "user_by_users", "ttft_by_users")
TERMS = ("users", "target", "token", "ttft", "output", "window", "round", "warning")
ONCE = "few_rounds"  # the verdict on a level that was met, but in one round only


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
        if row["state"] == ONCE:
            row["state"] = "once" if valid[row["users"]] else "invalid"
    text = fill(
        "load.html",
        dict.fromkeys(LANGUAGES, setting.name),
        "load",
        data,
        rounds=plan.rounds,
        plan=plan,
        claims=found,
        first=first.first(tables, plan, loaded.RUN) | _screen(plan, tables, setting, levels, scheduled=scheduled),
        figures=figures,
        columns=("users", "line", *content.COLUMNS, "backlog_end", "failures", "marks"),
        heads={"line": "load.target"} | ({"users": "load.connections"} if scheduled else {}),
        values=values,
        states={row["state"] for row in values},
        workload=content.workload(setting),
        definitions=glossary.definitions(TERMS),
    )
    return glossary.linked(text, TERMS)


def _screen(
    plan: Plan, tables: Mapping[str, pa.Table], setting: Setting, levels: Sequence[Claim], *, scheduled: bool
) -> dict[str, Any]:
    """Fill the first screen: the answer, what to try next, and what was measured."""
    met = list(takewhile(lambda claim: claim.verdict == ONCE, levels))
    said = _scheduled(setting, levels[0]) if scheduled else _answer(setting.name, met, levels)
    if any(claim.values.get("valid") is False for claim in levels):
        note = words("page.load.not_valid")
        said = {language: text + note[language] for language, text in said.items()}
    number = (
        {"users": met[-1].users, "at_least": met == levels, "valid": all(c.values["valid"] for c in met)}
        if met
        else None
    )
    days = sorted(row["started_at"][:10] for row in rows_of(tables, "measurements") if row["started_at"])
    facts = first.facts(tables, plan, loaded.RUN)
    steps: dict[str, dict[str, Any]] = {"load_again": {}}
    if few := next((claim for claim in levels if claim.verdict == "few_requests"), None):
        steps["load_longer"] = {"wanted": few.values["wanted"]}
    if met == levels and not scheduled:
        steps["more_users"] = {"users": met[-1].users}
    question = "asked" if scheduled else "many"
    return {
        "answers": [{"question": question, "claims": [], "said": [said], "where": "h-line"}],
        "number": None if scheduled else number,
        "named": [],
        "next": list(steps.items()),
        "facts": facts | {"engines": [setting.engine.url], "dates": first.span_of_days(days)},
    }


def _answer(name: str, met: Sequence[Claim], levels: Sequence[Claim]) -> dict[str, str]:
    """Say up to how many users the target was met, with no lower number that missed it."""
    users = digits(met[-1].users) if met else None
    if met == levels:
        return spoken("page.load.met", name=name, users=users)
    failing = levels[len(met)]
    key = "page.load.met_next" if met else "page.load.none"
    return _spoken(key, {"verdict": _verdict(failing)}, name=name, users=users, next=digits(failing.users))


def _scheduled(setting: Setting, level: Claim) -> dict[str, str]:
    """Say whether the target was met at the rate, or with the trace, of the load."""
    rate = setting.workload.get("rate")
    how = spoken("page.load.rate", rate=f"{rate:g}") if rate else words("page.load.trace")
    return _spoken("page.load.sent", {"verdict": _verdict(level), "how": how}, name=setting.name)


def _verdict(level: Claim) -> Mapping[str, str]:
    return words(f"claims.next.{'met' if level.verdict == ONCE else level.verdict}")


def _spoken(key: str, texts: Mapping[str, Mapping[str, str]], **values: Any) -> dict[str, str]:
    """Say the words at `key` with texts of their own in each language."""
    return {
        language: spoken(key, **values, **{name: text[language] for name, text in texts.items()})[language]
        for language in LANGUAGES
    }
