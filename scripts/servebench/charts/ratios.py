"""Draw the settings of a run as ratios to its control, each within one round, as the range over the rounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from servebench.charts.spans import intervals
from servebench.charts.style import Style
from servebench.tables.files import Row, rows_of
from servebench.words.marks import starred
from servebench.words.numbers import span


def points(tables: Mapping[str, pa.Table], run: str) -> list[Row]:
    """Read from `ratios` the output tok/s over the run's control; none in a run without a control."""
    engines = {row["setting"]: row["engine_kind"] for row in rows_of(tables, "settings", run)}
    return [
        {
            "name": starred(row["setting"], row["marks"]),
            "group": str(row["users"]),
            "engine": engines[row["setting"]],
            "low": row["ratio_min"],
            "high": row["ratio_max"],
            "middle": (row["ratio_min"] * row["ratio_max"]) ** 0.5,
            "text": f"{span(row['ratio_min'], row['ratio_max'])} ×",
            "control": row["baseline"],
            "marks": row["marks"],
        }
        for row in sorted(rows_of(tables, "ratios", run), key=lambda row: row["users"])
        if row["kind"] == "control" and row["figure"] == "output_tok_s" and row["ratio_min"] > 0
    ]


def chart(tables: Mapping[str, pa.Table], style: Style, run: str) -> Any:
    """Draw a group per number of users."""
    rows = points(tables, run)
    said = [row | {"group": style.say("charts.ratios.group", users=row["group"])} for row in rows]
    control = rows[0]["control"] if rows else "–"
    return intervals(said, style, "ratios", scale="log", neutral=1.0, control=control)
