"""Tables with declared columns: every column has a type and a meaning, and what does not fit is refused.

Null always means "not measured" or "not known", never zero; NaN is nothing at all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from servebench.faults import Fault

_TYPES = {
    "text": pa.string(),
    "int": pa.int64(),
    "real": pa.float64(),
    "bool": pa.bool_(),
    "texts": pa.list_(pa.string()),
    "ints": pa.list_(pa.int64()),
    "reals": pa.list_(pa.float64()),
}


class TableError(Fault):
    """A table that is not what its schema says; the message names table, column and what is wrong."""


def schema(columns: str) -> pa.Schema:
    """From lines of name, type and meaning; `!` after the type: never null."""
    fields = []
    for line in filter(None, columns.splitlines()):
        name, kind, *meaning = line.split(maxsplit=2)
        metadata = {"meaning": meaning[0]} if meaning else None
        fields.append(pa.field(name, _TYPES[kind.rstrip("!")], nullable=not kind.endswith("!"), metadata=metadata))
    return pa.schema(fields)


def table(name: str, columns: pa.Schema, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Rows as the table called `name`; raises TableError when a row lacks a column or has one too many."""
    rows = list(rows)
    for row in rows:
        if wrong := set(row) ^ set(columns.names):
            raise TableError(f"{name}: {sorted(wrong)[0]}: is only in the {'row' if wrong & set(row) else 'schema'}")
    try:
        made = pa.Table.from_pylist([dict(row) for row in rows], schema=columns)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise TableError(f"{name}: {error}") from error
    return check(name, columns, made)


def check(name: str, columns: pa.Schema, content: pa.Table) -> pa.Table:
    """`content` itself; raises TableError where columns, types or nulls differ from `columns`, or a number is NaN."""
    if content.schema.names != columns.names:
        wrong = sorted(set(content.schema.names) ^ set(columns.names)) or ["the order of the columns"]
        raise TableError(f"{name}: {wrong[0]}: differs from the schema; make the tables again")
    for field in columns:
        column = content[field.name]
        if column.type != field.type:
            raise TableError(f"{name}: {field.name}: is {column.type}, not {field.type}; make the tables again")
        if column.null_count and not field.nullable:
            raise TableError(f"{name}: {field.name}: {column.null_count} nulls where none may be")
        if field.type == pa.float64() and any(v is not None and math.isnan(v) for v in column.to_pylist()):
            raise TableError(f"{name}: {field.name}: NaN; what was not measured is null")
    return content
