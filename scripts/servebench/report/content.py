"""Fill the page's tables: which loads each setting serves, all values, gaps, conditions."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from servebench import charts, claims
from servebench.claims import Claim
from servebench.marks import Mark
from servebench.outlook import requirements
from servebench.plan import Plan, Setting, canonical
from servebench.plan.layout import Layout, session_job
from servebench.report.fold import Fold, Text
from servebench.schema import rows
from servebench.tables.files import Row, rows_of
from servebench.tables.memory import rooms
from servebench.verdicts.leaders import PAIRED
from servebench.words import LANGUAGES, labels, words
from servebench.words.claims import differs, measure
from servebench.words.marks import told, translated
from servebench.words.numbers import digits, span

# The columns of the table of all values that hold ranges.
COLUMNS = (
    *("output_tok_s", "user_tok_s", "ttft_p50_s", "ttft_p95_s"),
    *("prompt_tokens_p50", "cached_share", "output_tokens_mean", "target_requests"),
)
SURE = 0.95  # confidence from which a level within the target is shown as certain


def anchor(row: Row) -> str:
    """Return the id of a row of the table of all values."""
    return f"row-{row['run']}-{row['setting']}-{row['users']}"


def start(run: str, setting: str) -> str:
    """Return the id of a row of the table of starts and memory."""
    return f"start-{run}-{setting}"


def heatmap(tables: Mapping[str, pa.Table], plan: Plan, run: str) -> dict[str, Any]:
    """Fill the table of setting × users: `users`, and `rows` of a setting with its cells (None where not planned).

    `unit` says what the numbers count, as in `charts.style.unit`. Settings stand in the order of the
    largest number of users that they serve within the target.
    """
    settings = {setting.name: setting for setting in plan.settings.values() if setting.run == run}
    users = sorted({level for setting in settings.values() for level in setting.users})
    found = {(row["setting"], row["users"]): row for row in rows_of(tables, "settings", run)}
    judged = {(claim.subjects[0], claim.users): claim for claim in claims.of(tables, run, "level")}
    serves = {claim.subjects[0]: claim.users or 0 for claim in claims.of(tables, run, "capacity")}
    fits = rooms(tables, run)
    rows = [
        {
            "setting": settings[name],
            "serves": serves.get(name),
            "fit": fits.get(name),
            "cells": [
                _cell(judged.get((name, level)), found.get((name, level)), plan)
                if level in settings[name].users
                else None
                for level in users
            ],
        }
        for name in sorted(settings, key=lambda name: -serves.get(name, 0))
    ]
    return {"users": users, "rows": rows, "unit": charts.unit(tables, run, settings)}


def _cell(claim: Claim | None, row: Row | None, plan: Plan) -> dict[str, Any]:
    """Return what one cell shows: its state, TTFT p95 of the slowest round, speed of the slowest, and what missed."""
    cell: dict[str, Any] = {"state": state(claim), "anchor": anchor(row) if row else None, "missed": ()}
    if claim and row and row["rounds"] and claim.verdict != "failed":
        cell |= {"ttft": digits(row["ttft_p95_s_max"], plan.line.ttft_p95_s)}
        cell |= {"speed": digits(row["user_tok_s_min"], plan.line.user_tok_s)}
        cell |= {"missed": claim.values.get("limits", ())}
    return cell | {"marks": [*claim.caveats, *(row["failure"] if row else ())] if claim else []}


# The sign of each state of a level; its words are under `page.state` in labels.yaml.
SIGNS = {
    "sure": "●",
    "met": "○",
    "once": "○",
    "invalid": "◌",
    "missed": "▽",
    "failed": "×",
    "few_requests": "?",
    "few_rounds": "?",
    "not_measured": "…",
}


def state(claim: Claim | None) -> str:
    """Return the state of a level: `sure` where it is within the target with a confidence of at least 95 %."""
    if claim is None:
        return "not_measured"
    if claim.verdict != "met":
        return claim.verdict
    if not claim.values["valid"]:
        return "invalid"
    return "sure" if claim.confidence is not None and claim.confidence >= SURE else "met"


def states(found: Sequence[Claim]) -> set[str]:
    """Return the states that some level has."""
    return {state(claim) for claim in found if claim.kind == "level"}


def values(tables: Mapping[str, pa.Table], run: str) -> list[dict[str, Any]]:
    """Fill the table of all values, a row for each setting × users: texts, and numbers to sort by."""
    judged = {(claim.subjects[0], claim.users): claim for claim in claims.of(tables, run, "level")}
    before: dict[tuple[str, int], list[str]] = {}
    backlog: dict[tuple[str, int], list[int]] = {}
    for row in rows_of(tables, "measurements", run):
        told = ", ".join(map(str, row["users_before"])) if row["users_before"] else "–"
        before.setdefault((row["setting"], row["users"]), []).append(told)
        if row["backlog_end"] is not None:
            backlog.setdefault((row["setting"], row["users"]), []).append(row["backlog_end"])
    return [
        {
            "anchor": anchor(row),
            "setting": row["setting"],
            "engine": row["engine_kind"],
            "quantization": row["quantization"] or "–",
            "slots": row["slots"],
            "users": row["users"],
            "figures": [
                {"name": name, "text": span(low, high), "sort": low}
                for name, low, high in (
                    *((name, row[f"{name}_min"], row[f"{name}_max"]) for name in COLUMNS),
                    ("backlog_end", *_ends(backlog.get((row["setting"], row["users"]), []))),
                )
            ],
            "failures": row["failures_max"],
            "state": state(claim := judged.get((row["setting"], row["users"]))),
            "confidence": claim.confidence if claim else None,
            "before": " · ".join(dict.fromkeys(before.get((row["setting"], row["users"]), ["–"]))),
            "marks": [*(claim.caveats if claim else row["marks"]), *row["failure"]],
        }
        for row in rows_of(tables, "settings", run)
    ]


def _ends(values: Sequence[int]) -> tuple[int | None, int | None]:
    return min(values, default=None), max(values, default=None)


def pairs(tables: Mapping[str, pa.Table], run: str) -> Fold | None:
    """List the settings that differ in one thing, with the ratio of each figure and what is concluded of it."""
    found: dict[tuple[str, str, int | None], dict[str | None, Claim]] = {}
    for claim in claims.of(tables, run, "pair"):
        found.setdefault((claim.subjects[0], claim.subjects[1], claim.users), {})[claim.figure] = claim
    if not found:
        return None
    return Fold(
        id=f"pairs-{run}",
        name=words("page.compared.pairs"),
        heads=[words(f"page.compared.{head}") for head in ("first", "second", "differs")]
        + [words("page.values.load")]
        + [words(f"page.compared.{figure}") for figure in PAIRED],
        rows=[
            (
                first,
                second,
                differs(next(iter(own.values())).values["differs"]),
                digits(users),
                *(_finding(own.get(figure)) for figure in PAIRED),
            )
            for (first, second, users), own in found.items()
        ],
    )


def charted(tables: Mapping[str, pa.Table], name: str, run: str, key: str) -> Fold:
    """List the values of a chart, the same fields as it draws; a field without any value is left out."""
    found = charts.values(name, tables, run)
    columns = [column for column in charts.CHARTS[name].columns if any(row[column] is not None for row in found)]
    rows = [[_charted(column, row[column]) for column in columns] for row in found]
    unit = charts.unit(tables, run, [row["setting"] for row in found if "setting" in row])
    return Fold(
        id=f"values-{key}",
        name=words("charts.values"),
        heads=[
            words(f"charts.tooltip.{unit}" if column == "users" and unit != "users" else f"charts.column.{column}")
            for column in columns
        ],
        rows=rows,
    )


def _charted(column: str, value: Any) -> Text:
    """Write one value of a chart's table: a name in both languages, marks, a number, or the text it is."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, bool):
        return words(f"charts.value.{'true_' if value else 'false_'}")
    if column == "measure":
        return measure(value)
    if column == "kind":
        texts = {**labels()["charts"]["value"], **labels()["figures"]}
        return dict(texts[value])
    if column == "part":
        return words(f"charts.value.{value}")
    if column == "variant":
        return dict(labels()["charts"]["client_error"]["variants"].get(value) or dict.fromkeys(LANGUAGES, value))
    if column == "marks":
        return {language: told(value, language) for language in LANGUAGES}
    return digits(value) if value is None or isinstance(value, int | float) else str(value)


def _finding(claim: Claim | None) -> Text:
    """Write a ratio with its interval, and what is concluded from it."""
    if claim is None:
        return "–"
    low, high = claim.values.get("low"), claim.values.get("high")
    interval = "" if low is None else f" ({digits(low)}–{digits(high)})"
    ratio, verdict = f"{digits(claim.values['ratio'])} ×{interval}", words(f"page.compared.{claim.verdict}")
    return {
        code: text.format(ratio=ratio, verdict=verdict[code]) for code, text in words("page.compared.finding").items()
    }


def as_csv(table: pa.Table) -> str:
    """Write a table as CSV: lists joined by `; `, marks in English, nothing where it is null."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(table.schema.names)
    for row in rows(table):
        writer.writerow(["; ".join(map(_cell_text, v)) if isinstance(v, list) else v for v in row.values()])
    return out.getvalue()


def _cell_text(value: Any) -> str:
    return translated(value)["en"] if isinstance(value, Mark) else str(value)


def missing(tables: Mapping[str, pa.Table], plan: Plan) -> list[dict[str, Any]]:
    """List the planned measurements without a result: failed ones with reason and engine's log, missing ones without.

    Then those that failed in further rounds of a search. The log's path is that below results/EXPERIMENT.
    """
    have = {(r["setting"], r["users"], r["round"]): r for r in rows_of(tables, "measurements")}
    gaps: list[dict[str, Any]] = []
    further = [row for row in have.values() if row["round"] > plan.rounds and row["status"] == "failed"]
    for session in plan.sessions():
        for users in session.setting.users:
            row = have.get((session.setting.name, users, session.round))
            if row is None or row["status"] == "failed":
                place = {"run": session.setting.run, "setting": session.setting.name}
                reason = row["reason"] if row else []
                gaps.append(place | {"users": users, "round": session.round, "reason": reason})
    gaps += [{name: row[name] for name in ("run", "setting", "users", "round", "reason")} for row in further]
    for gap in gaps:
        job = session_job(gap["run"], gap["setting"], gap["round"], search=gap["round"] > plan.rounds)
        gap["log"] = Layout(Path()).engine_log(job) if gap["reason"] else None
    return gaps


def servers(tables: Mapping[str, pa.Table], plan: Plan) -> list[dict[str, Any]]:
    """List how each setting was launched: its first launch on each engine build, machine and model file."""
    seen: list[dict[str, Any]] = []
    for row in rows_of(tables, "sessions"):
        setting = plan.settings.get(row["setting"])
        entry = {
            "run": row["run"],
            "setting": row["setting"],
            "engine": row["engine_kind"],
            "version": row["engine_version"],
            "build": row["engine_build"],
            "pin": setting.engine.pin if setting else None,
            "argv": " ".join(row["argv"] or ()),
            "machine": row["machine"],
            "model": row["model_name"],
            "quantization": row["quantization"],
            "sha256": row["model_sha256"],
            "facts": json.loads(row["facts"] or "{}"),
        }
        same = {name: value for name, value in entry.items() if name not in ("argv", "facts")}
        if all({name: other[name] for name in same} != same for other in seen):
            seen.append(entry)
    return seen


def machines(tables: Mapping[str, pa.Table], run: str | None = None) -> list[tuple[str, int | None, float | None]]:
    """List (name, cores, memory in GiB) of each machine that ran a server, once, in the order of the launches."""
    rows = [row for row in rows_of(tables, "sessions", run) if row["machine"]]
    return list(dict.fromkeys((row["machine"], row["cores"], row["machine_memory_gib"]) for row in rows))


def workload(setting: Setting) -> list[tuple[str, str]]:
    """List a setting's workload: name and value as in the configuration."""
    return [(name, json.dumps(value, ensure_ascii=False)) for name, value in setting.workload.items()]


def notes(plan: Plan) -> list[tuple[str, Any]]:
    """List (subject, text or text per language) for each note on a model or setting, each note once."""
    found = [(model.name + f" {model.quantization or ''}", model.note) for model in plan.models.values() if model.note]
    return found + [(setting.name, setting.note) for setting in plan.settings.values() if setting.note]


def unverified(plan: Plan) -> list[tuple[str, Any]]:
    """List what could not be verified as (models, or none; text or text per language), each text once."""
    found: dict[str, tuple[list[str], Any]] = {}
    for where, text in requirements.unverified(plan):
        found.setdefault(canonical(text), ([], text))[0].append(where)
    return [(", ".join(where for where in places if where != plan.experiment), text) for places, text in found.values()]


def round_trips(tables: Mapping[str, pa.Table], plan: Plan) -> list[dict[str, Any]]:
    """List the round trip of each setting behind a URL, in milliseconds.

    `p50` is the range over the launches, `range` that of single requests; both are None where not measured.
    """
    found = []
    for setting in plan.settings.values():
        if setting.engine.kind != "url":
            continue
        rows = [row for row in rows_of(tables, "sessions", setting.run) if row["setting"] == setting.name]
        known = [row for row in rows if row["round_trip_p50_s"] is not None]
        ends = {name: [1000 * row[f"round_trip_{name}_s"] for row in known] for name in ("p50", "min", "max")}
        found.append(
            {
                "setting": setting.name,
                "p50": span(min(ends["p50"]), max(ends["p50"])) if known else None,
                "range": span(min(ends["min"]), max(ends["max"])) if known else None,
            }
        )
    return found


def cold_starts(tables: Mapping[str, pa.Table]) -> list[dict[str, Any]]:
    """List the ranges over each setting's launches.

    These are the seconds of the model's download, to healthy and to the first token; memory, CPUs and threads.
    """
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows_of(tables, "sessions"):
        found.setdefault((row["run"], row["setting"]), []).append(row)
    fit = {(row["run"], row["setting"]): row["requests_fit"] for row in rows_of(tables, "memory")}
    return [
        {"id": start(run, setting), "setting": setting, "launches": len(rows), "fit": fit.get((run, setting))}
        | {
            name: _span(rows, name)
            for name in ("model_fetch_s", "healthy_s", "first_token_s", "memory_gib", "cpus", "threads")
        }
        for (run, setting), rows in found.items()
    ]


def _span(rows: Sequence[Row], name: str) -> str:
    there = [row[name] for row in rows if row[name] is not None]
    return span(min(there), max(there)) if there else "–"
