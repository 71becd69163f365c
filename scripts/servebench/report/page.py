"""Build the report page from the tables."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
from altair.utils.schemapi import debug_mode

from servebench import charts, claims, verdicts
from servebench import plan as planning
from servebench.charts.style import Style
from servebench.claims import Claim
from servebench.plan import Plan
from servebench.plan.layout import Layout
from servebench.report import choice, content, evaluated, first, glossary, published
from servebench.report.drawing import Drawing
from servebench.report.spoken import under_load_note
from servebench.report.templates import fill
from servebench.tables import SCHEMAS, read_all
from servebench.tables import published as published_json
from servebench.tables.files import Row, rows_of
from servebench.words import LANGUAGES, words
from servebench.words.claims import said as claim_said
from servebench.words.numbers import digits

ANSWERS = ("score", "equivalence")  # kinds of claims about evaluated answers
OTHERS = (
    "people",
    "queue",
    "slow",
    "memory",
    "predicted",
    "cost",
    "energy",
    "under_load",
)  # kinds that are told one below the other


def build(style: Mapping[str, Any], results: Path) -> Path:
    """Write `<results>/report/index.html` from an experiment's tables, claims and plan.json; returns the path.

    `style` is the configuration's `charts` section.
    """
    layout = Layout(results)
    plan = planning.read(layout.plan)
    tables = read_all(layout.tables) | {"verdicts": pq.read_table(layout.table("verdicts"))}
    path = layout.page
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(page(tables, plan, style), encoding="utf-8")
    part.replace(path)
    return path


def page(tables: Mapping[str, pa.Table], plan: Plan, style: Mapping[str, Any] | None = None) -> str:
    """Render the page as text. A table that is absent from `tables` is reported as missing."""
    figures, data = drawn(tables, plan, style or {}, charts.CHARTS)
    data["limits"] = choice.offered(plan) | {"runs": {run: choice.levels(tables, plan, run) for run in plan.runs}}
    shown = {figure["name"] for figure in figures}
    runs = list(plan.runs)
    found = claims.of(tables)
    schedules = {setting.name for setting in plan.settings.values() if setting.scheduled}
    text = fill(
        "page.html",
        plan.title if isinstance(plan.title, dict) else dict.fromkeys(LANGUAGES, plan.title),
        plan.experiment,
        data,
        rounds=plan.rounds,
        print_all=True,
        under_load_note=under_load_note,
        schedules=schedules,
        users=len(schedules) < len(plan.settings),
        heads=_heads(plan, schedules),
        plan=plan,
        runs=[_run(tables, plan, run, [f for f in figures if f["run"] == run]) for run in runs],
        claims=found,
        first=first.first(tables, plan, runs[0]),
        states=content.states(found),
        scores=[said for said in found if said.kind in ANSWERS],
        answers_drawn=[figure for figure in figures if charts.CHARTS[figure["name"]].place is charts.ANSWERS],
        loops=choice.loops(tables, plan),
        others=[(kind, own) for kind in OTHERS if (own := [said for said in found if said.kind == kind])],
        covered=covered(plan),
        undrawn=_undrawn([name for name in charts.CHARTS if name not in shown]),
        gaps=content.missing(tables, plan),
        discarded=rows_of(tables, "discarded"),
        servers=content.servers(tables, plan),
        notes=content.notes(plan),
        unverified=content.unverified(plan),
        round_trips=content.round_trips(tables, plan),
        targets=evaluated.targets(tables, plan),
        compared=evaluated.comparisons(tables),
        proofread=evaluated.proofreading(tables),
        positions=evaluated.positions(tables),
        replies=evaluated.replies(tables),
        under_load=evaluated.under_load(tables),
        agreement=evaluated.agreement(tables),
        starts=content.cold_starts(tables),
        published=published.figures(tables),
        published_cells=published.cells(tables),
        expected=published.expected(tables),
        machines=content.machines(tables),
        fingerprints=len({row["fingerprint"] for row in rows_of(tables, "sessions") if row["fingerprint"]}),
        client=_client(tables),
        workloads=_workloads(plan),
        files=_files(tables),
        beside=[*published_json.files(plan), *(f"{name}.parquet" for name in SCHEMAS if name in tables)],
        given=plan.given,
        definitions=glossary.definitions(),
    )
    return glossary.linked(text)


def _heads(plan: Plan, schedules: Collection[str]) -> dict[str, str]:
    """Name the columns of all values that count something else where requests come by a schedule."""
    if not schedules:
        return {}
    load = "load.connections" if len(schedules) == len(plan.settings) else "values.load"
    return {"users": load, "user_tok_s": "values.reply_tok_s", "before": "values.load_before"}


def _undrawn(names: Sequence[str]) -> dict[str, str] | None:
    """Say which charts have no data; None where all have some."""
    titles = [_chart_name(name) for name in names]
    joined = {code: {"en": "; ", "ja": "、"}[code].join(title[code] for title in titles) for code in LANGUAGES}
    return {code: words("page.charts.none")[code].format(names=joined[code]) for code in LANGUAGES} if names else None


def _chart_name(name: str) -> dict[str, str]:
    """Return the title of a chart without data, with … for the values it would name."""
    return {code: re.sub(r"{[^}]*}", "…", text) for code, text in words(f"charts.{name}.title").items()}


def _run(tables: Mapping[str, pa.Table], plan: Plan, run: str, figures: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "name": run,
        "heatmap": content.heatmap(tables, plan, run),
        "objectives": [c for kind in ("objective", "schedule") for c in claims.of(tables, run, kind)],
        "chosen": choice.chosen(tables, run),
        "outdone": claims.of(tables, run, "outdone"),
        "settings": [row["setting"] for row in choice.levels(tables, plan, run)],
        "leaders": claims.of(tables, run, "leader"),
        "pairs": content.pairs(tables, run),
        "groups": _groups(figures),
        "table": content.values(tables, run),
    }


def _groups(figures: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Group a run's charts by their place, in the order of the charts; those of answers stand elsewhere."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for figure in figures:
        place = charts.CHARTS[figure["name"]].place
        if place is not charts.ANSWERS:
            groups.setdefault(place.caption, []).append(figure)
    return [{"name": name, "folded": name != charts.SPEED.caption, "figures": own} for name, own in groups.items()]


def covered(plan: Plan) -> tuple[str, dict[str, Any]]:
    """Say with what probability the range of the rounds holds the true median: 1 − 2^(1 − rounds)."""
    if plan.rounds == 1:
        return "charts.one_round", {}
    return "charts.covered", {"share": f"{100 - 200 / 2**plan.rounds:.3g}"}


def drawn(
    tables: Mapping[str, pa.Table], plan: Plan, style: Mapping[str, Any], names: Iterable[str]
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Draw these charts where they have data, and make the script's input: specifications, data sets, colours."""
    looks = {language: Style.configured({**style, "language": language}, plan) for language in LANGUAGES}
    drawing = Drawing()
    for name in names:
        for run in charts.runs_with_data(name, tables, list(plan.runs)):
            key = f"{name}-{run}"
            with debug_mode(False):
                made = {code: (look, charts.chart(name, tables, look, run)) for code, look in looks.items()}
            shown = finding(tables, name, run)
            found = {language: " ".join(claim_said(claim)[language] for claim in shown) for language in LANGUAGES}
            drawing.add(key, made, found, content.charted(tables, name, run, key), name=name, run=run)
    return drawing.figures, drawing.data


def finding(tables: Mapping[str, pa.Table], name: str, run: str) -> list[Claim]:
    """List the claims that say what a chart shows."""
    leading = verdicts.headline(claims.of(tables, run))
    found = [claim for claim in leading if claim.kind in charts.CHARTS[name].finds]
    rest = [claim for claim in claims.of(tables, run) if claim.kind in charts.CHARTS[name].finds]
    return found[:2] or rest[:1]


def _client(tables: Mapping[str, pa.Table]) -> Row | None:
    """Return the calibration at the most users, in milliseconds; None without a calibration."""
    rows = [row for row in rows_of(tables, "calibration") if row["ttft_error_p99_s"] is not None]
    if not rows:
        return None
    row = max(rows, key=lambda row: (row["users"], row["ttft_error_p99_s"]))
    milliseconds = {name: digits(1000 * row[f"ttft_error_{name}_s"]) for name in ("p50", "p99")}
    return {"users": row["users"], "most": row["max_users"], **milliseconds}


def _workloads(plan: Plan) -> list[tuple[str, list[tuple[str, str]]]]:
    """List each run's workload: name and value as in the configuration."""
    found = []
    for run in plan.runs:
        setting = next((s for s in plan.settings.values() if s.run == run), None)
        if setting:
            entries = content.workload(setting)
            entries += [("prompts sha256", setting.prompts_sha256 or "–")]
            entries += [("trace sha256", setting.trace_sha256)] if setting.trace_sha256 else []
            found.append((run, entries))
    return found


_PLAIN = " ,;:/()[]{}=+*'!@$|~?"  # characters of a CSV file that need no escape in an address


def _files(tables: Mapping[str, pa.Table]) -> list[tuple[str, str]]:
    """List the files inside the page as (name, address)."""
    names = [name for name in ("settings", "measurements", "verdicts") if name in tables]
    texts = {name: quote(content.as_csv(tables[name]), safe=_PLAIN) for name in names}
    return [(f"{name}.csv", f"data:text/csv;charset=utf-8,{text}") for name, text in texts.items()]
