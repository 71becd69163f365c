"""Give all published files one form: a common head, short numbers, no paths of a machine, and a JSON Schema."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import jsonschema
import msgspec
import pyarrow as pa

import servebench
from servebench.plan import Plan
from servebench.schema import MARKS
from servebench.tables.catalogue import SCHEMAS

Node = dict[str, Any]
# Raised when a key goes, or its meaning changes. A key that is added changes nothing for a reader of the others.
VERSION = 3
DIGITS = 6  # significant ones of a published number

_HOME = re.compile(r"""(?<![\w.~-])/(?:home|Users)/[^/\s"',:;=]+(?=/)""")
# An absolute path of three parts or more, or one in a home, but neither a URL's nor, after a ":", that of a container.
_PART = r"""/[^/\s"',:;=]+"""
_PATH = re.compile(rf"(?:(?<=file://)|(?<![\w:/.~-]))(?:~(?:{_PART})*|(?:{_PART})+)({_PART}{_PART})")


def head(name: str, plan: Plan) -> dict[str, Any]:
    """Make the keys with which every published file begins."""
    return {
        "schema": f"servebench.{name}/{VERSION}",
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "servebench_version": servebench.__version__,
        "license": plan.license,
        "experiment": plan.experiment,
        "title": plan.title,
    }


def finished(content: Mapping[str, Any], form: Mapping[str, Any]) -> dict[str, Any]:
    """Turn content into JSON values, as published, checked against its JSON Schema."""
    made: dict[str, Any] = _short(msgspec.to_builtins(content))
    jsonschema.validate(made, form)
    return made


def _short(value: Any) -> Any:
    """Round numbers to DIGITS significant digits; of absolute paths leave the last two parts, and no home's owner."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, str):
        return _PATH.sub(lambda found: found[1].removeprefix("/"), _HOME.sub("~", value))
    if isinstance(value, dict):
        return {name: _short(one) for name, one in value.items()}
    return [_short(one) for one in value] if isinstance(value, list) else value


def form(name: str, about: str, **properties: Node) -> Node:
    """Make the JSON Schema of a published file from that of its keys. Keys that it does not name are allowed."""
    own = {
        "schema": {"const": f"servebench.{name}/{VERSION}", "description": "name and major version of this format"},
        "created_at": text("when this file was made, ISO 8601 UTC"),
        "servebench_version": text("version of servebench that made this file"),
        "license": text("licence of this file, an SPDX identifier, as configured"),
        "experiment": text("name of the experiment"),
        "title": {**LANGUAGES, "description": "its title: a text, or one text per language"},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"servebench.{name}/{VERSION}",
        **record(about, **own, **properties),
    }


def record(about: str, **properties: Node) -> Node:
    """Make the JSON Schema of an object with at least these keys."""
    return {"type": "object", "description": about, "required": list(properties), "properties": properties}


def listed(about: str, **properties: Node) -> Node:
    """Make the JSON Schema of a list of objects with at least these keys."""
    return {"type": "array", "description": about, "items": record("one entry", **properties)}


def text(about: str) -> Node:
    """Make the JSON Schema of a text."""
    return {"type": "string", "description": about}


def mapping(about: str, values: Node | None = None, *, null: bool = False) -> Node:
    """Make the JSON Schema of an object whose keys are names."""
    named = {} if values is None else {"additionalProperties": values}
    return {"type": ["object", "null"] if null else "object", "description": about, **named}


def columns(table: str, names: Iterable[str] | None = None) -> dict[str, Node]:
    """Make the JSON Schemas of columns of a table, with their meanings; of all of them by default."""
    return {name: _column(SCHEMAS[table].field(name)) for name in names or SCHEMAS[table].names}


def ranges(table: str, names: Iterable[str], end: str = "") -> dict[str, Node]:
    """Make the JSON Schemas of [smaller, larger] over the rounds; `end` is that of the columns that say what it is."""
    return {
        name: {
            "type": ["array", "null"],
            "items": {"type": "number"},
            "minItems": 2,
            "maxItems": 2,
            "description": "smaller and larger of the rounds: " + meaning(SCHEMAS[table].field(name + end)),
        }
        for name in names
    }


def meaning(field: pa.Field) -> str:
    """Return what a column means."""
    return str((field.metadata or {})[b"meaning"].decode())


_VALUES: Mapping[pa.DataType, Node] = {
    pa.string(): {"type": "string"},
    pa.int64(): {"type": "integer"},
    pa.float64(): {"type": "number"},
    pa.bool_(): {"type": "boolean"},
}
_MARK = record(
    "a mark", kind=text("its kind, of servebench.marks.KINDS"), values=mapping("its values, by the names of its kind")
)


def _column(field: pa.Field) -> Node:
    if field.type == MARKS:
        node: Node = {"type": "array", "items": _MARK}
    elif pa.types.is_list(field.type):
        node = {"type": "array", "items": _VALUES[field.type.value_type]}
    else:
        node = dict(_VALUES[field.type])
    if field.nullable:
        node["type"] = [node["type"], "null"]
    return {**node, "description": meaning(field)}


LANGUAGES: Node = {"type": ["string", "object", "null"], "additionalProperties": {"type": "string"}}
