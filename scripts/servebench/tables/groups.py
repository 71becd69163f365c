"""Group the rows of a table, and find the range of their values. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from servebench import schema
from servebench.tables.files import Row

PLACE = ("run", "setting", "users")


def span_of(values: Iterable[Any]) -> tuple[Any, Any]:
    """Return the smallest and the largest of the values that are not None; (None, None) without any."""
    there = [value for value in values if value is not None]
    return (min(there), max(there)) if there else (None, None)


def groups(content: pa.Table, names: Sequence[str]) -> Iterator[list[Row]]:
    """Group rows that agree in `names`, in order of round, groups in the order of the experiment."""
    found: dict[Hashable, list[Row]] = defaultdict(list)
    key: Callable[[Row], Any] = lambda row: (row["rank"], row.get("users") if "users" in names else 0)  # noqa: E731
    for row in sorted(schema.rows(content), key=lambda row: (*key(row), row["round"])):
        found[tuple(row[name] for name in names)].append(row)
    yield from found.values()
