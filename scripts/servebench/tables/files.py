"""Make tables from rows, write and read them, always with exactly the columns of their schema."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from servebench import schema
from servebench.schema import TableError
from servebench.tables.catalogue import SCHEMAS


def table(name: str, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Make the table called `name` from rows, as `schema.table`."""
    return schema.table(name, SCHEMAS[name], rows)


def check(name: str, content: pa.Table) -> pa.Table:
    """Return `content` unchanged. Raises TableError as `schema.check`."""
    return schema.check(name, SCHEMAS[name], content)


def write(directory: Path, tables: Mapping[str, pa.Table]) -> list[Path]:
    """Write each table atomically as `<directory>/<name>.parquet`; return the paths in order.

    Files of listed tables that are not in `tables` are removed."""
    directory.mkdir(parents=True, exist_ok=True)
    for name in SCHEMAS.keys() - tables.keys():
        (directory / f"{name}.parquet").unlink(missing_ok=True)
    paths = []
    for name, content in tables.items():
        path = directory / f"{name}.parquet"
        part = path.with_suffix(".parquet.part")
        pq.write_table(check(name, content), part, compression="zstd")
        part.replace(path)
        paths.append(path)
    return paths


def read(path: Path, name: str | None = None) -> pa.Table:
    """Read the table in `path`, checked against the schema called `name` (by default the file's own name)."""
    try:
        content = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise TableError(f"{path}: is not a readable table ({error}); make the tables again") from error
    return check(name or path.stem, content)


def read_all(directory: Path, names: Sequence[str] = tuple(SCHEMAS)) -> dict[str, pa.Table]:
    """Read the tables of `directory` among `names`, by name, without those that have no file."""
    return {name: read(path) for name in names if (path := directory / f"{name}.parquet").exists()}


def read_reference(path: Path) -> list[dict[str, Any]]:
    """Read a file of published figures (config/references): numbers as numbers, true and false, empty as None.

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


Row = dict[str, Any]


def rows_of(tables: Mapping[str, pa.Table], name: str, run: str | None = None) -> list[Row]:
    """Return the rows of a table, or those of one run; none when the table was not made."""
    rows = schema.rows(tables[name]) if name in tables else []
    return [row for row in rows if run is None or row["run"] == run]
