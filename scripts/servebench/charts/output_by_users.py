"""Draw output tok/s against users: both axes log, a point at the middle of the rounds and a bar for their range."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from servebench.charts.against_users import against_users, ranges
from servebench.charts.style import Style
from servebench.tables.files import Row
from servebench.tables.memory import rooms


def points(tables: Mapping[str, pa.Table], run: str) -> list[Row]:
    """Read the ranges from `settings` without those from 0, which a log axis cannot show.

    `fit` is the number of requests for which the KV cache has room, where it is full before the slots.
    """
    found = [point for point in ranges(tables, "output_tok_s", run) if point["low"] is None or point["low"] > 0]
    fits = rooms(tables, run)
    return [point | {"fit": fits.get(point["setting"])} for point in found]


def chart(tables: Mapping[str, pa.Table], style: Style, run: str) -> Any:
    """Draw one panel per engine."""
    rows = points(tables, run)
    fits = style.say("charts.output_by_users.fits") if any(row["fit"] for row in rows) else ""
    return against_users(rows, style, "output_by_users", log=True, fits=fits)
