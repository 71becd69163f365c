"""Draw the scores of the evaluations, each repeat with its 95 % interval."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from servebench.charts.spans import intervals, percent_ticks
from servebench.charts.style import Style
from servebench.tables.files import Row, rows_of


def points(tables: Mapping[str, pa.Table], run: str) -> list[Row]:
    """Read from `scores` the measures that are compared."""
    return [
        {
            "name": f"{row['target']} · {row['repeat']}",
            "group": row["measure"],
            "lower_is_better": row["lower_is_better"],
            "low": 100 * row["low"],
            "high": 100 * row["high"],
            "middle": 100 * row["share"],
            "text": f"{100 * row['share']:.1f} % ({row['count']}/{row['n']})",
        }
        for row in sorted(rows_of(tables, "scores"), key=lambda row: row["measure"])
        if row["headline"]
    ]


def chart(tables: Mapping[str, pa.Table], style: Style, run: str) -> Any:
    """Draw a group per measure."""
    rows = points(tables, run)
    lower = style.say("charts.scores.lower")
    said = [row | {"group": row["group"] + (f" {lower}" if row["lower_is_better"] else "")} for row in rows]
    return intervals(said, style, "scores", ticks=percent_ticks(said))
