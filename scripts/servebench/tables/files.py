"""Tables from rows, to Parquet and back, always with exactly the columns of their schema."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from servebench.faults import Fault
from servebench.tables.schemas import SCHEMAS


class TableError(Fault):
    """A table that is not what its schema says; the message names table, column and what is wrong."""


def table(name: str, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Rows as the table called `name`; raises TableError when a row lacks a column or has one too many."""
    schema = SCHEMAS[name]
    rows = list(rows)
    for row in rows:
        if wrong := set(row) ^ set(schema.names):
            raise TableError(f"{name}: {sorted(wrong)[0]}: is only in the {'row' if wrong & set(row) else 'schema'}")
    try:
        made = pa.Table.from_pylist([dict(row) for row in rows], schema=schema)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise TableError(f"{name}: {error}") from error
    return check(name, made)


def check(name: str, content: pa.Table) -> pa.Table:
    """`content` itself; raises TableError where columns, types or nulls differ from the schema, or a number is NaN."""
    schema = SCHEMAS[name]
    if content.schema.names != schema.names:
        wrong = sorted(set(content.schema.names) ^ set(schema.names)) or ["the order of the columns"]
        raise TableError(f"{name}: {wrong[0]}: differs from the schema; make the tables again")
    for field in schema:
        column = content[field.name]
        if column.type != field.type:
            raise TableError(f"{name}: {field.name}: is {column.type}, not {field.type}; make the tables again")
        if column.null_count and not field.nullable:
            raise TableError(f"{name}: {field.name}: {column.null_count} nulls where none may be")
        if field.type == pa.float64() and any(v is not None and math.isnan(v) for v in column.to_pylist()):
            raise TableError(f"{name}: {field.name}: NaN; what was not measured is null")
    return content


def write(directory: Path, tables: Mapping[str, pa.Table]) -> list[Path]:
    """Write each table as `<directory>/<name>.parquet`, whole or not at all; returns the paths in order."""
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, content in tables.items():
        path = directory / f"{name}.parquet"
        part = path.with_suffix(".parquet.part")
        pq.write_table(check(name, content), part, compression="zstd")
        part.replace(path)
        paths.append(path)
    return paths


def read(path: Path, name: str | None = None) -> pa.Table:
    """The table in `path`, checked against the schema called `name` (by default the file's own name)."""
    try:
        content = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise TableError(f"{path}: is not a readable table ({error}); make the tables again") from error
    return check(name or path.stem, content)


def read_all(directory: Path, names: Sequence[str] = tuple(SCHEMAS)) -> dict[str, pa.Table]:
    """The tables of `directory` among `names`, by name; a table whose file is absent is absent here."""
    return {name: read(path) for name in names if (path := directory / f"{name}.parquet").exists()}


def read_reference(path: Path) -> list[dict[str, Any]]:
    """Rows of a file of published figures (config/references): numbers as numbers, true and false, empty as None.

    Lines that begin with # say where the figures are from.
    """
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(line for line in file if not line.startswith("#"))
        return [{name: _value(text) for name, text in row.items()} for row in rows]


def _value(text: str) -> Any:
    words = {"": None, "true": True, "false": False}
    if text in words:
        return words[text]
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text
