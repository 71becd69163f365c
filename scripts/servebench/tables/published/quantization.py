"""Publish `quantization.json`, the results of the evaluations (docs/json.md); its schema follows from the tables'."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jsonschema
import msgspec
import pyarrow as pa

from servebench import schema
from servebench.plan import Plan
from servebench.tables.catalogue import SCHEMAS
from servebench.tables.published.concurrency import MARKS
from servebench.versions import PROMPTS, SAMPLING
from servebench.words.comparisons import said

VERSION = 2
TABLES = ("targets", "scores", "comparisons", "agreement", "proofreading", "positions", "under_load")
SENTENCES = ("comparisons", "under_load")


def quantization(tables: Mapping[str, pa.Table], plan: Plan) -> dict[str, Any]:
    """Collect rows as JSON values, what was asked, and a sentence for each comparison. Null: not measured."""
    asked = plan.evaluations
    assert asked
    content: dict[str, Any] = {
        "schema": f"servebench.quantization/{VERSION}",
        "experiment": plan.experiment,
        "title": plan.title,
        "baseline": asked.baseline,
        "repeats": asked.repeats,
        "concurrency": asked.concurrency,
        "sampling": {**SAMPLING, "seed": asked.seed},
        "prompts": PROMPTS,
        "tasks": {name: msgspec.to_builtins(task) for name, task in asked.tasks.items()},
        "margins": dict(asked.margins),
        "load": msgspec.to_builtins(asked.under_load),
    }
    for name in TABLES:
        rows = schema.rows(tables[name])
        content[name] = [row | {"sentence": said(row)} for row in rows] if name in SENTENCES else rows
    made: dict[str, Any] = msgspec.to_builtins(content)
    jsonschema.validate(made, SCHEMA)
    return made


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(properties),
        "properties": dict(properties),
    }


_KINDS = {pa.string(): "string", pa.int64(): "integer", pa.float64(): "number", pa.bool_(): "boolean"}


def _column(field: pa.Field) -> dict[str, Any]:
    """Make the JSON Schema of a column."""
    if field.type == schema.MARKS:
        return MARKS
    kind = {"type": "array", "items": {"type": "string"}} if field.type not in _KINDS else {"type": _KINDS[field.type]}
    return {**kind, "type": [kind["type"], "null"]} if field.nullable else kind


def _rows(name: str) -> dict[str, Any]:
    columns = {field.name: _column(field) for field in SCHEMAS[name]}
    if name in SENTENCES:
        columns["sentence"] = _object({"en": {"type": "string"}, "ja": {"type": "string"}})
    return {"type": "array", "items": _object(columns)}


_TASK = {"set": "string", "sha256": "string", "questions": "integer", "max_tokens": "integer", "request": "object"}
SCHEMA: Mapping[str, Any] = _object(
    {
        "schema": {"const": f"servebench.quantization/{VERSION}"},
        "experiment": {"type": "string"},
        "title": {"type": ["string", "object"]},
        "baseline": {"type": "string"},
        "repeats": {"type": "integer"},
        "concurrency": {"type": "integer"},
        "sampling": {"type": "object", "additionalProperties": {"type": "number"}},
        "prompts": {"type": "integer"},
        "tasks": {
            "type": "object",
            "additionalProperties": _object({name: {"type": kind} for name, kind in _TASK.items()}),
        },
        "margins": {"type": "object", "additionalProperties": {"type": "number"}},
        "load": {"type": ["object", "null"]},
        **{name: _rows(name) for name in TABLES},
    }
)
