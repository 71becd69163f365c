"""Draw TTFT p95 against users: both axes log, with the line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from servebench.charts.against_users import against_users, ranges
from servebench.charts.style import Style
from servebench.tables.files import Row


def points(tables: Mapping[str, pa.Table], run: str) -> list[Row]:
    """Read the ranges from `settings` without those from 0, which a log axis cannot show."""
    return [point for point in ranges(tables, "ttft_p95_s", run) if point["low"] is None or point["low"] > 0]


def chart(tables: Mapping[str, pa.Table], style: Style, run: str) -> Any:
    """Draw one panel per engine."""
    return against_users(points(tables, run), style, "ttft_by_users", log=True, limit=style.line["ttft_p95_s"])
