"""Fill the page's tables: which settings meet the line, all values, gaps, conditions."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from servebench.marks import Mark
from servebench.outlook import requirements
from servebench.plan import Plan, canonical
from servebench.schema import rows
from servebench.tables.files import Row, rows_of
from servebench.words.marks import translated
from servebench.words.numbers import span

# The columns of the table of all values that hold ranges.
COLUMNS = ("output_tok_s", "user_tok_s", "ttft_p50_s", "ttft_p95_s", "target_requests")


def anchor(row: Row) -> str:
    """Return the id of a row of the table of all values."""
    return f"row-{row['run']}-{row['setting']}-{row['users']}"


def start(run: str, setting: str) -> str:
    """Return the id of a row of the table of starts and memory."""
    return f"start-{run}-{setting}"


def matrix(tables: Mapping[str, pa.Table], plan: Plan, run: str) -> dict[str, Any]:
    """Fill the table of setting × users: `users`, and `rows` of a setting with its cells (None where not planned)."""
    settings = [setting for setting in plan.settings.values() if setting.run == run]
    users = sorted({level for setting in settings for level in setting.users})
    found = {(row["setting"], row["users"]): row for row in rows_of(tables, "settings", run)}
    rows = []
    for setting in settings:
        cells = [_cell(found.get((setting.name, level)), level in setting.users) for level in users]
        rows.append({"setting": setting, "cells": cells})
    return {"users": users, "rows": rows}


def _cell(row: Row | None, planned: bool) -> dict[str, Any] | None:
    if row is None:
        return {"state": "missing"} if planned else None
    if not row["rounds"]:
        return {"state": "failed", "reasons": row["failure"], "anchor": anchor(row)}
    return {
        "state": "measured",
        "range": span(row["output_tok_s_min"], row["output_tok_s_max"]),
        "met": row["meets_line_both_rounds"],
        "marks": row["marks"],
        "anchor": anchor(row),
    }


def values(tables: Mapping[str, pa.Table], run: str) -> list[dict[str, Any]]:
    """Fill the table of all values, a row for each setting × users: texts, and numbers to sort by."""
    return [
        {
            "anchor": anchor(row),
            "setting": row["setting"],
            "engine": row["engine_kind"],
            "quantization": row["quantization"] or "–",
            "slots": row["slots"],
            "users": row["users"],
            "figures": [
                {"name": name, "text": span(row[f"{name}_min"], row[f"{name}_max"]), "sort": row[f"{name}_min"]}
                for name in COLUMNS
            ],
            "failures": row["failures_max"],
            "met": row["meets_line_both_rounds"],
            "marks": row["marks"],
            "failure": row["failure"],
        }
        for row in rows_of(tables, "settings", run)
    ]


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
    """List the planned measurements without a result: failed ones with their reason, missing ones without."""
    have = {(r["setting"], r["users"], r["round"]): r for r in rows_of(tables, "measurements")}
    gaps: list[dict[str, Any]] = []
    for session in plan.sessions():
        for users in session.setting.users:
            row = have.get((session.setting.name, users, session.round))
            if row is None or row["status"] == "failed":
                place = {"run": session.setting.run, "setting": session.setting.name}
                reason = row["reason"] if row else []
                gaps.append(place | {"users": users, "round": session.round, "reason": reason})
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


def machines(tables: Mapping[str, pa.Table]) -> list[tuple[str, int | None, float | None]]:
    """List (name, cores, memory in GiB) of each machine that ran a server, once, in the order of the launches."""
    rows = [row for row in rows_of(tables, "sessions") if row["machine"]]
    return list(dict.fromkeys((row["machine"], row["cores"], row["machine_memory_gib"]) for row in rows))


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
    """List the round trip of each setting behind a URL, milliseconds: `p50` of each launch, `range` of single requests;
    both None where not measured."""
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
    """List the ranges over each setting's launches: seconds of the model's download, to healthy and to the first token;
    memory, CPUs and threads."""
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
