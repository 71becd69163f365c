"""Explain the tables: `servebench columns`, and docs/tables.md."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from servebench import ROOT
from servebench.faults import Fault
from servebench.schema import MARKS
from servebench.tables.catalogue import SCHEMAS, TABLES, Table

_KINDS = {
    pa.string(): "text",
    pa.int64(): "int",
    pa.float64(): "real",
    pa.bool_(): "bool",
    pa.list_(pa.string()): "list of text",
    pa.list_(pa.int64()): "list of int",
    pa.list_(pa.float64()): "list of real",
    MARKS: "list of marks",
}


def text(table: str | None = None) -> Iterator[str]:
    """Describe all tables, or one, as lines of Markdown."""
    if table not in (None, *SCHEMAS):
        raise Fault(f"{table}: is not a table; tables are: {', '.join(SCHEMAS)}")
    for listed in TABLES:
        if table in (None, listed.name):
            yield from _table(listed)


def write() -> None:
    """Write the part of docs/tables.md that lists the tables, for `make schema`."""
    path = ROOT / "docs" / "tables.md"
    before = path.read_text(encoding="utf-8").partition("\n## ")[0]
    path.write_text(f"{before}\n" + "\n".join(text()) + "\n", encoding="utf-8")


def _table(table: Table) -> Iterator[str]:
    yield f"## `{table.name}`"
    yield ""
    yield f"A row: {table.row}."
    yield ""
    yield "| column | type | meaning |"
    yield "|---|---|---|"
    for field in SCHEMAS[table.name]:
        meaning = (field.metadata or {}).get(b"meaning", b"").decode()
        kind = _KINDS[field.type] + (" or null" if field.nullable else "")
        yield f"| `{field.name}` | {kind} | {meaning.replace('|', chr(92) + '|')} |"
    yield ""
