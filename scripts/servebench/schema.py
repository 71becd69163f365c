"""Declare and check the columns of tables: every column has a type and a meaning; other content is refused.

Null always means "not measured" or "not known", never zero; NaN is refused. A column of marks holds `Mark` objects in
rows; in the table each mark is stored as its kind and its values in JSON.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa

from servebench.faults import Fault
from servebench.marks import Mark

MARKS: Final = pa.list_(pa.struct([("kind", pa.string()), ("values", pa.string())]))
_TYPES = {
    "text": pa.string(),
    "int": pa.int64(),
    "real": pa.float64(),
    "bool": pa.bool_(),
    "texts": pa.list_(pa.string()),
    "ints": pa.list_(pa.int64()),
    "reals": pa.list_(pa.float64()),
    "marks": MARKS,
}


class TableError(Fault):
    """A table does not match its schema; the message names table, column and fault."""


def schema(columns: str) -> pa.Schema:
    """Build a schema from lines of name, type and meaning; `!` after the type means never null."""
    fields = []
    for line in filter(None, columns.splitlines()):
        name, kind, *meaning = line.split(maxsplit=2)
        metadata = {"meaning": meaning[0]} if meaning else None
        fields.append(pa.field(name, _TYPES[kind.rstrip("!")], nullable=not kind.endswith("!"), metadata=metadata))
    return pa.schema(fields)


def table(name: str, columns: pa.Schema, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Make the table called `name` from rows. Raises TableError when a row lacks a column or has an unknown one."""
    rows = list(rows)
    for row in rows:
        if wrong := set(row) ^ set(columns.names):
            raise TableError(f"{name}: {sorted(wrong)[0]}: is only in the {'row' if wrong & set(row) else 'schema'}")
    try:
        made = pa.Table.from_pylist([_stored(row, columns) for row in rows], schema=columns)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise TableError(f"{name}: {error}") from error
    return check(name, columns, made)


def rows(content: pa.Table) -> list[dict[str, Any]]:
    """Return the rows of a table, with marks as `Mark`. Raises TableError for a mark of an unknown kind."""
    made: list[dict[str, Any]] = content.to_pylist()
    for name in _marks(content.schema):
        for row in made:
            try:
                row[name] = [Mark(mark["kind"], json.loads(mark["values"])) for mark in row[name]]
            except ValueError as error:
                raise TableError(f"{name}: {error}; make the tables again") from error
    return made


def _stored(row: Mapping[str, Any], columns: pa.Schema) -> dict[str, Any]:
    marks = {name: [{"kind": mark.kind, "values": mark.text} for mark in row[name]] for name in _marks(columns)}
    return {**row, **marks}


def _marks(columns: pa.Schema) -> list[str]:
    return [field.name for field in columns if field.type == MARKS]


def check(name: str, columns: pa.Schema, content: pa.Table) -> pa.Table:
    """Return `content` unchanged. Raises TableError if columns, types or nulls differ from `columns`, and for NaN."""
    if content.schema.names != columns.names:
        wrong = sorted(set(content.schema.names) ^ set(columns.names)) or ["the order of the columns"]
        raise TableError(f"{name}: {wrong[0]}: differs from the schema; make the tables again")
    for field in columns:
        column = content[field.name]
        if column.type != field.type:
            raise TableError(f"{name}: {field.name}: is {column.type}, not {field.type}; make the tables again")
        if column.null_count and not field.nullable:
            raise TableError(f"{name}: {field.name}: has {column.null_count} nulls and may have none")
        if field.type == pa.float64() and any(v is not None and math.isnan(v) for v in column.to_pylist()):
            raise TableError(f"{name}: {field.name}: NaN; what was not measured is null")
    return content
