"""Publish `concurrency.json` for the first run, `<run>_concurrency.json` for every other (docs/json.md).

Runs never share a file, so that nobody merges their values into one table by accident.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from servebench.plan import Plan
from servebench.tables.catalogue import FIGURES
from servebench.tables.files import rows_of
from servebench.tables.published.form import (
    LANGUAGES,
    columns,
    finished,
    form,
    head,
    listed,
    mapping,
    ranges,
    record,
    text,
)

# Ranges over the rounds that are published; the rest of the figures is in the Parquet tables.
RANGES = tuple(name for name in FIGURES if name not in ("client_cpu_ratio", "send_delay_p99_s"))
_ROUND = (
    "round",
    "status",
    "reason",
    *FIGURES,
    "utilisation",
    "power_w",
    "joules_per_token",
    "meets_line",
    "line_confidence",
    "valid",
    "invalid_reasons",
    "session_id",
    "server_age_s",
    "users_before",
    "started_at",
)
_MARKS = ("rounds", "meets_line_both_rounds", "line_confidence_min", "unstable", "reference_only", "marks", "failure")
_SETTING = ("setting", "engine", "engine_kind", "model_name", "quantization", "slots", "context")
_MACHINE = ("machine", "cores", "machine_memory_gib", "fingerprint")
_SERVER = (
    *("engine_version", "engine_build", "engine_pin", "argv", "model_sha256", "machine", "fingerprint"),
    *("servebench_version", "protocol"),
)
_SESSION = (
    *("setting", "round", "session_id", "launched_at", "process_s", "healthy_s", "first_token_s"),
    *("round_trip_p50_s", "round_trip_min_s", "round_trip_max_s", "memory_gib", "memory_kind"),
)
_COUNTS = ("band_slow", "band_total", "other_slow", "other_total")
_SLOW = ("setting", "users", "band_low", "band_high", *_COUNTS)
_MICRO_BATCH = ("engine_kind", "micro_batch", "users_most", "settings", *_COUNTS)
_PREFILLS = ("setting", "users", "band_low", "band_high", "slow", "total")
_STARTS, _IDLE = ("first_token_s", "usd_start"), ("idle_after_min", "usd_idle")
_PRICES = ("usd_per_million_tokens", "tokens_per_s_per_usd_h")
_RATIO = ("kind", "setting", "baseline", "users", "figure", "ratio_min", "ratio_max", "rounds", "marks")


def concurrency(tables: Mapping[str, pa.Table], plan: Plan, run: str) -> dict[str, Any]:
    """Describe what one run measured, as JSON values: settings with how they were launched, and each setting × users.

    Needs the tables `measurements` and `settings`, and uses the others if given. A figure that was not measured is
    null; a range is [smaller, larger] over the rounds, or null.
    """
    measured = rows_of(tables, "measurements", run)
    prices = {(row["setting"], row["users"]): row for row in rows_of(tables, "cost", run)}
    sessions = rows_of(tables, "sessions", run)
    content = {
        **head("concurrency", plan),
        "run": run,
        "rounds": plan.rounds,
        "price_per_hour": plan.cost["price_per_hour"] if plan.cost else None,
        "line": {name: getattr(plan.line, name) for name in ("ttft_p95_s", "user_tok_s", "min_targets")},
        "machines": _different([_only(row, _MACHINE) for row in sessions if row["machine"]]),
        "settings": [_setting(tables, plan, name, measured) for name, s in plan.settings.items() if s.run == run],
        "sessions": [_only(row, _SESSION) for row in sessions],
        "results": [_result(row, measured, prices) for row in rows_of(tables, "settings", run)],
        "slow_requests": [_only(row, _SLOW) for row in rows_of(tables, "slow_requests", run)],
        "slow_by_micro_batch": [_only(row, _MICRO_BATCH) for row in rows_of(tables, "slow_by_micro_batch", run)],
        "slow_prefills": [_only(row, _PREFILLS) for row in rows_of(tables, "slow_prefills", run)],
        "paid_idle": [_paid_idle(row) for row in rows_of(tables, "paid_idle", run)],
        "ratios": [_only(row, _RATIO) for row in rows_of(tables, "ratios", run) if row["kind"] != "drift"],
    }
    return finished(content, SCHEMA)


def _setting(tables: Mapping[str, pa.Table], plan: Plan, name: str, measured: list[dict[str, Any]]) -> dict[str, Any]:
    setting = plan.settings[name]
    mine = [row for row in measured if row["setting"] == name]
    sizes = [row["memory_gib"] for row in rows_of(tables, "sessions", setting.run) if row["setting"] == name]
    return {
        "setting": name,
        "engine": setting.engine.key,
        "engine_kind": setting.engine.kind,
        "model_name": setting.model.name,
        "quantization": setting.model.quantization,
        "slots": setting.slots,
        "context": setting.context,
        "args": list(setting.args),
        "env": dict(setting.env),
        "users": list(setting.users),
        "workload": setting.workload,
        "request": setting.request,
        "prompts_sha256": setting.prompts_sha256,
        "trace_sha256": setting.trace_sha256,
        "memory_gib": max((size for size in sizes if size is not None), default=None),
        "model_note": setting.model.note,
        "servers": _different([_only(row, _SERVER) for row in mine]),
    }


def _different(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Keep the first of rows that are the same but for the port and the container's name, which each launch chooses."""
    kept: list[dict[str, Any]] = []
    seen: list[dict[str, Any]] = []
    for row in rows:
        same = row | {"argv": _lasting(row["argv"])} if row.get("argv") else row
        if same not in seen:
            kept.append(row)
            seen.append(same)
    return kept


_PORT = re.compile(r'(?:--port[ =]|127\.0\.0\.1:|"port": )(\d+)')


def _lasting(argv: Sequence[str]) -> str:
    """Join arguments without the launch's port, wherever it stands, and the container's name."""
    text = re.sub(r"--name \S+", "", " ".join(argv))
    for port in set(_PORT.findall(text)):
        text = re.sub(rf"\b{port}\b", "PORT", text)
    return text


def _result(
    row: Mapping[str, Any], measured: list[dict[str, Any]], prices: Mapping[tuple[str, int], Mapping[str, Any]]
) -> dict[str, Any]:
    place = {"setting": row["setting"], "users": row["users"]}
    pairs = {figure: _pair(row, figure) for figure in (*RANGES, "joules_per_token")}
    price = prices.get((row["setting"], row["users"]))
    pairs |= {figure: _pair(price, figure) if price else None for figure in _PRICES}
    mine = [m for m in measured if (m["setting"], m["users"]) == (row["setting"], row["users"])]
    return place | pairs | _only(row, _MARKS) | {"by_round": [_only(m, _ROUND) for m in mine]}


def _paid_idle(row: Mapping[str, Any]) -> dict[str, Any]:
    return _only(row, ("setting",)) | {name: _pair(row, name) for name in _STARTS} | _only(row, _IDLE)


def _pair(row: Mapping[str, Any], figure: str) -> list[Any] | None:
    low, high = row[f"{figure}_min"], row[f"{figure}_max"]
    return None if low is None else [low, high]


def _only(row: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: row[name] for name in names}


SCHEMA: Mapping[str, Any] = form(
    "concurrency",
    "What one run of an experiment measured. Null: not measured or not known. Times are seconds, speeds tokens/s.",
    run=text("name of the run"),
    rounds={"type": "integer", "description": "how many rounds the experiment asks for"},
    price_per_hour={"type": ["number", "null"], "description": "configured price of the machine, USD an hour"},
    line=record(
        "the limits that a server must keep",
        ttft_p95_s={"type": "number", "description": "the most that TTFT p95 may be"},
        user_tok_s={"type": "number", "description": "the least median speed of one user"},
        min_targets={"type": "integer", "description": "target requests that a judgement needs"},
    ),
    machines=listed("the machines that ran the servers", **columns("sessions", _MACHINE)),
    settings=listed(
        "the settings, in the experiment's order",
        **columns("settings", _SETTING),
        args={"type": "array", "items": {"type": "string"}, "description": "launch arguments, as configured"},
        env=mapping("environment of the launch, as configured", {"type": "string"}),
        users={"type": "array", "items": {"type": "integer"}, "description": "the numbers of users to measure"},
        workload=mapping("what was sent, as configured (config/README.md, `workload`)"),
        request=mapping("further keys of every request's body"),
        prompts_sha256={"type": ["string", "null"], "description": "SHA-256 over the files of the prompt set"},
        trace_sha256={"type": ["string", "null"], "description": "SHA-256 of the trace"},
        memory_gib={"type": ["number", "null"], "description": "largest memory of the server over all sessions"},
        model_note={**LANGUAGES, "description": "what a reader must know to judge the model"},
        servers=listed(
            "the servers that really ran, each once, whatever port it chose", **columns("measurements", _SERVER)
        ),
    ),
    sessions=listed("each launch of a server", **columns("sessions", _SESSION)),
    results=listed(
        "each setting × number of users",
        **columns("settings", ("setting", "users")),
        **ranges("measurements", (*RANGES, "joules_per_token")),
        **ranges("cost", _PRICES, "_min"),
        **columns("settings", _MARKS),
        by_round=listed("each round by itself", **columns("measurements", _ROUND)),
    ),
    slow_requests=listed("requests with a TTFT over 1 s", **columns("slow_requests", _SLOW)),
    slow_by_micro_batch=listed(
        "the same at few users, by the server's micro-batch", **columns("slow_by_micro_batch", _MICRO_BATCH)
    ),
    slow_prefills=listed("prompt evaluations over 1 s, from the server's log", **columns("slow_prefills", _PREFILLS)),
    paid_idle=listed(
        "the cost of time in which nobody is served; empty without a price",
        **columns("paid_idle", ("setting",)),
        **ranges("paid_idle", _STARTS, "_min"),
        **columns("paid_idle", _IDLE),
    ),
    ratios=listed("comparisons within the run, each made within one round", **columns("ratios", _RATIO)),
)
