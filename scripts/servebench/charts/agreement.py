"""Draw how often two repeats gave the same answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from servebench.charts.spans import intervals, percent_ticks
from servebench.charts.style import Style
from servebench.tables.files import Row, rows_of


def points(tables: Mapping[str, pa.Table], run: str) -> list[Row]:
    """Read the shares from `agreement`, with 95 % intervals."""
    return [
        {
            "name": row["target"],
            "group": row["task"],
            "low": 100 * row["low"],
            "high": 100 * row["high"],
            "middle": 100 * row["same_answer_share"],
            "text": f"{100 * row['same_answer_share']:.1f} %",
        }
        for row in sorted(rows_of(tables, "agreement"), key=lambda row: row["task"])
    ]


def chart(tables: Mapping[str, pa.Table], style: Style, run: str) -> Any:
    """Draw a group per task."""
    rows = points(tables, run)
    return intervals(rows, style, "agreement", ticks=percent_ticks(rows))
