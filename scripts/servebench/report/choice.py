"""Fill the section on which setting to run: the choices as a table, and the levels on which other limits are tried."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from servebench import claims
from servebench.claims import Claim
from servebench.plan import LINE, Plan
from servebench.report.content import SIGNS
from servebench.report.fold import Fold, Text
from servebench.tables.files import Row, rows_of
from servebench.words import COMMA, LANGUAGES, words
from servebench.words.claims import answers, objective
from servebench.words.numbers import digits, span

# Limits that the sliders offer beside those of the line.
TTFT_S = (0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 7, 10, 15, 20, 30, 60)
USER_TOK_S = (1, 2, 3, 5, 7, 10, 15, 20, 25, 30, 40, 50, 70, 100, 150, 200)
# What is missed whatever the limits on TTFT and speed.
_ALWAYS = {"failures", "backlog_grows", "warmup_failed", "no_speed"}


def chosen(tables: Mapping[str, pa.Table], run: str) -> Fold | None:
    """List for each number of users which setting to run, what it gives and what it costs; None without a choice."""
    found = claims.of(tables, run, "choice")
    heads = [words("page.values.users"), words("page.choice.verdict")]
    heads += [words(f"page.choice.{head}") for head in ("setting", "output_tok_s", "gib", "usd", "answers")]
    rows = [
        (digits(claim.users), words(f"page.choice.{claim.verdict}"), *_cells(claim, name))
        for claim in found
        for name in claim.values["choose"]
    ]
    if not rows:
        return None
    return Fold(id=f"choices-{run}", name=words("page.choice.table"), heads=heads, rows=rows, open=len(rows) <= 8)


def _cells(claim: Claim, name: str) -> Iterator[Text]:
    means = claim.values["means"][name]
    yield name
    yield span(*means["output_tok_s"])
    yield digits(means["gib"])
    yield span(*(means["usd"] or (None, None)))
    yield {language: COMMA[language].join(answers(means["answers"], language)) for language in LANGUAGES}


def loops(tables: Mapping[str, pa.Table], plan: Plan) -> Fold | None:
    """Set the answers of closed and open loops side by side; None without an open loop that has one."""
    found = [claim for claim in claims.of(tables, kind="objective") if claim.values.get("loop")]
    if all(claim.values["loop"] == "closed" for claim in found):
        return None
    keys = {name: (s.engine.key, s.model.key, s.slots, s.args) for name, s in plan.settings.items()}
    order = list(dict.fromkeys(keys.values()))
    place = {name: order.index(key) for name, key in keys.items()}
    found.sort(key=lambda claim: (claim.values["objective"], place[claim.subjects[0]], claim.values["loop"]))
    return Fold(
        id="loops",
        name=words("page.line.loops"),
        heads=[words(f"page.line.{head}") for head in ("setting", "loop", "objective", "most", "misses", "requests_s")],
        rows=[
            (
                claim.subjects[0],
                words(f"page.line.{claim.values['loop']}_loop"),
                objective(claim.values["objective"]),
                digits(claim.values["most"]),
                digits(claim.values.get("misses")),
                span(*(claim.values["requests_s"] or (None, None))),
            )
            for claim in found
        ],
        open=True,
    )


def offered(plan: Plan) -> dict[str, list[float]]:
    """Return the limits that the sliders offer, by figure, those of the line among them."""
    line = plan.line
    return {
        "ttft": sorted({*TTFT_S, line.ttft_p95_s}),
        "speed": sorted({*USER_TOK_S, line.user_tok_s}),
        "line": [line.ttft_p95_s, line.user_tok_s],
    }


def levels(tables: Mapping[str, pa.Table], plan: Plan, run: str) -> list[dict[str, Any]]:
    """List each setting that users load with its levels: TTFT p95 and speed of the worst round, and a sign.

    The sign says why limits cannot be tried there (failed, too few requests or rounds, not measured); "" where they
    can, or that of a measurement that is not valid.
    """
    rows = {(row["setting"], row["users"]): row for row in rows_of(tables, "settings", run)}
    schedules = claims.of_schedules(tables, run)
    found: dict[str, list[dict[str, Any]]] = {}
    for claim in claims.of(tables, run, "level"):
        if claim.subjects[0] in schedules:
            continue
        row = rows.get((claim.subjects[0], claim.users or 0))
        level = {"users": claim.users, "ttft": None, "speed": None, "sign": _sign(claim, row, plan)}
        if row:
            level |= {"ttft": row["ttft_p95_s_max"], "speed": row["user_tok_s_min"]}
        found.setdefault(claim.subjects[0], []).append(level)
    return [{"setting": name, "levels": sorted(own, key=lambda one: one["users"])} for name, own in found.items()]


def _sign(claim: Claim, row: Row | None, plan: Plan) -> str:
    if claim.verdict == "failed" or _ALWAYS & set(claim.values.get("limits", ())):
        return SIGNS["failed"]
    if row is None or row["ttft_p95_s_max"] is None or row["user_tok_s_min"] is None:
        return SIGNS["not_measured"]
    if claim.verdict == "few_rounds" or row["rounds"] < 2 or row["target_requests_min"] < plan.judged_by[LINE].requests:
        return SIGNS["few_requests"]
    return "" if claim.values.get("valid", True) else SIGNS["invalid"]
