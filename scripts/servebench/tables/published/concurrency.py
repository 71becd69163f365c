"""Publish `concurrency.json` for the first run, `<run>_concurrency.json` for every other (docs/json.md).

Runs never share a file, so that nobody merges their values into one table by accident.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jsonschema
import msgspec
import pyarrow as pa

from servebench.marks import KINDS
from servebench.plan import Plan
from servebench.tables.catalogue import FIGURES
from servebench.tables.files import rows_of

VERSION = 3
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
_SERVER = ("engine_version", "engine_build", "engine_pin", "argv", "model_sha256", "machine", "fingerprint")
_SESSION = (
    *("setting", "round", "session_id", "launched_at", "process_s", "healthy_s", "first_token_s"),
    *("round_trip_p50_s", "round_trip_min_s", "round_trip_max_s", "memory_gib", "memory_kind"),
)
_COUNTS = ("band_slow", "band_total", "other_slow", "other_total")
_SLOW = ("setting", "users", "band_low", "band_high", *_COUNTS)
_MICRO_BATCH = ("engine_kind", "micro_batch", "users_most", "settings", *_COUNTS)
_PREFILLS = ("setting", "users", "band_low", "band_high", "slow", "total")
_PRICES = ("usd_per_million_tokens", "tokens_per_s_per_usd_h")
_RATIO = ("kind", "setting", "baseline", "users", "figure", "ratio_min", "ratio_max", "rounds", "marks")


def concurrency(tables: Mapping[str, pa.Table], plan: Plan, run: str) -> dict[str, Any]:
    """Describe what one run measured, as JSON values: settings with how they were launched, and each setting × users.

    Needs the tables `measurements` and `settings`, and uses the others if given. A figure that was not measured is
    null; a range is [smaller, larger] over the rounds, or null.
    """
    measured = rows_of(tables, "measurements", run)
    prices = {(row["setting"], row["users"]): row for row in rows_of(tables, "cost", run)}
    content = {
        "schema": f"servebench.concurrency/{VERSION}",
        "experiment": plan.experiment,
        "title": plan.title,
        "run": run,
        "rounds": plan.rounds,
        "price_per_hour": plan.cost["price_per_hour"] if plan.cost else None,
        "line": {name: getattr(plan.line, name) for name in ("ttft_p95_s", "user_tok_s", "min_targets")},
        "settings": [_setting(tables, plan, name, measured) for name, s in plan.settings.items() if s.run == run],
        "sessions": [_only(row, _SESSION) for row in rows_of(tables, "sessions", run)],
        "results": [_result(row, measured, prices) for row in rows_of(tables, "settings", run)],
        "slow_requests": [_only(row, _SLOW) for row in rows_of(tables, "slow_requests", run)],
        "slow_by_micro_batch": [_only(row, _MICRO_BATCH) for row in rows_of(tables, "slow_by_micro_batch", run)],
        "slow_prefills": [_only(row, _PREFILLS) for row in rows_of(tables, "slow_prefills", run)],
        "paid_idle": [_paid_idle(row) for row in rows_of(tables, "paid_idle", run)],
        "ratios": [_only(row, _RATIO) for row in rows_of(tables, "ratios", run) if row["kind"] != "drift"],
    }
    made: dict[str, Any] = msgspec.to_builtins(content)
    jsonschema.validate(made, SCHEMA)
    return made


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
        "memory_gib": max((size for size in sizes if size is not None), default=None),
        "model_note": setting.model.note,
        "servers": _different([_only(row, _SERVER) for row in mine]),
    }


def _different(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    kept: list[dict[str, Any]] = []
    for row in rows:
        if row not in kept:
            kept.append(row)
    return kept


def _result(
    row: Mapping[str, Any], measured: list[dict[str, Any]], prices: Mapping[tuple[str, int], Mapping[str, Any]]
) -> dict[str, Any]:
    place = {"setting": row["setting"], "users": row["users"]}
    ranges = {figure: _pair(row, figure) for figure in (*RANGES, "joules_per_token")}
    price = prices.get((row["setting"], row["users"]))
    ranges |= {figure: _pair(price, figure) if price else None for figure in _PRICES}
    mine = [m for m in measured if (m["setting"], m["users"]) == (row["setting"], row["users"])]
    return place | ranges | _only(row, _MARKS) | {"by_round": [_only(m, _ROUND) for m in mine]}


def _paid_idle(row: Mapping[str, Any]) -> dict[str, Any]:
    ranges = {figure: _pair(row, figure) for figure in ("first_token_s", "usd_start")}
    return _only(row, ("setting",)) | ranges | _only(row, ("idle_after_min", "usd_idle"))


def _pair(row: Mapping[str, Any], figure: str) -> list[Any] | None:
    low, high = row[f"{figure}_min"], row[f"{figure}_max"]
    return None if low is None else [low, high]


def _only(row: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: row[name] for name in names}


def _object(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(properties),
        "properties": properties,
    }


def _list(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


_TEXT, _INT, _REAL = ({"type": kind} for kind in ("string", "integer", "number"))
_REAL_OR_NULL, _INT_OR_NULL, _TEXT_OR_NULL, _BOOL_OR_NULL = (
    {"type": [kind, "null"]} for kind in ("number", "integer", "string", "boolean")
)
MARKS = _list(_object(kind={"enum": list(KINDS)}, values={"type": "object"}))
_TEXTS, _TEXTS_OR_NULL = _list(_TEXT), {"type": ["array", "null"], "items": _TEXT}
_INTS_OR_NULL = {"type": ["array", "null"], "items": _INT}
_RANGE = {"type": ["array", "null"], "items": _REAL, "minItems": 2, "maxItems": 2}
_LANGUAGES = {"oneOf": [_TEXT, {"type": "object", "additionalProperties": _TEXT}, {"type": "null"}]}

SCHEMA: Mapping[str, Any] = _object(
    schema={"const": f"servebench.concurrency/{VERSION}"},
    experiment=_TEXT,
    title=_LANGUAGES,
    run=_TEXT,
    rounds=_INT,
    price_per_hour=_REAL_OR_NULL,
    line=_object(ttft_p95_s=_REAL, user_tok_s=_REAL, min_targets=_INT),
    settings=_list(
        _object(
            setting=_TEXT,
            engine=_TEXT,
            engine_kind=_TEXT,
            model_name=_TEXT,
            quantization=_TEXT_OR_NULL,
            slots=_INT,
            context=_INT_OR_NULL,
            args=_TEXTS,
            env={"type": "object", "additionalProperties": _TEXT},
            users=_list(_INT),
            memory_gib=_REAL_OR_NULL,
            model_note=_LANGUAGES,
            servers=_list(
                _object(
                    **{name: _TEXTS_OR_NULL if name == "argv" else _TEXT_OR_NULL for name in _SERVER},
                )
            ),
        )
    ),
    sessions=_list(
        _object(
            setting=_TEXT,
            round=_INT,
            session_id=_TEXT,
            launched_at=_TEXT_OR_NULL,
            **{name: _REAL_OR_NULL for name in _SESSION if name.endswith(("_s", "_gib"))},
            memory_kind=_TEXT_OR_NULL,
        )
    ),
    results=_list(
        _object(
            setting=_TEXT,
            users=_INT,
            **dict.fromkeys((*RANGES, "joules_per_token", *_PRICES), _RANGE),
            rounds=_INT,
            meets_line_both_rounds=_BOOL_OR_NULL,
            line_confidence_min=_REAL_OR_NULL,
            unstable=_BOOL_OR_NULL,
            reference_only=_BOOL_OR_NULL,
            marks=MARKS,
            failure=MARKS,
            by_round=_list(
                _object(
                    round=_INT,
                    status={"enum": ["ok", "failed"]},
                    reason=MARKS,
                    **{name: _INT_OR_NULL if kind == "int" else _REAL_OR_NULL for name, kind in FIGURES.items()},
                    utilisation=_REAL_OR_NULL,
                    power_w=_REAL_OR_NULL,
                    joules_per_token=_REAL_OR_NULL,
                    meets_line=_BOOL_OR_NULL,
                    line_confidence=_REAL_OR_NULL,
                    valid=_BOOL_OR_NULL,
                    invalid_reasons=MARKS,
                    session_id=_TEXT_OR_NULL,
                    server_age_s=_REAL_OR_NULL,
                    users_before=_INTS_OR_NULL,
                    started_at=_TEXT_OR_NULL,
                )
            ),
        )
    ),
    slow_requests=_list(
        _object(
            setting=_TEXT,
            users=_INT,
            band_low=_INT_OR_NULL,
            band_high=_INT_OR_NULL,
            band_slow=_INT_OR_NULL,
            band_total=_INT_OR_NULL,
            other_slow=_INT,
            other_total=_INT,
        )
    ),
    slow_by_micro_batch=_list(
        _object(engine_kind=_TEXT, micro_batch=_INT, users_most=_INT, settings=_TEXTS, **dict.fromkeys(_COUNTS, _INT))
    ),
    slow_prefills=_list(
        _object(setting=_TEXT, users=_INT, band_low=_INT, band_high=_INT, slow=_INT, total=_INT),
    ),
    paid_idle=_list(
        _object(
            setting=_TEXT,
            first_token_s=_RANGE,
            usd_start=_RANGE,
            idle_after_min=_REAL_OR_NULL,
            usd_idle=_REAL_OR_NULL,
        )
    ),
    ratios=_list(
        _object(
            kind={"enum": ["control", "engine", "slots", "quantization"]},
            setting=_TEXT,
            baseline=_TEXT,
            users=_INT,
            figure=_TEXT,
            ratio_min=_REAL,
            ratio_max=_REAL,
            rounds=_INT,
            marks=MARKS,
        )
    ),
)
