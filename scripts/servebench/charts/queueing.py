"""Draw TTFT with as many users as slots, twice and four times as many."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from servebench.charts.bars import bar, range_bars
from servebench.charts.style import Style
from servebench.tables.files import Row, rows_of

MULTIPLES = (1, 2, 4)


def points(tables: Mapping[str, pa.Table], run: str) -> list[Row]:
    """Read from `queueing` the settings that were measured beyond their slots."""
    rows = [
        row
        for row in rows_of(tables, "queueing", run)
        if row["multiple"] in MULTIPLES and row["ttft_p50_s_min"] is not None
    ]
    beyond = {row["setting"] for row in rows if row["multiple"] > 1}
    return [
        bar(f"{row['users']} ÷ {row['slots']} = {row['multiple']:g} ×", row, "ttft_p50_s", row["setting"])
        for row in rows
        if row["setting"] in beyond
    ]


def chart(tables: Mapping[str, pa.Table], style: Style, run: str) -> Any:
    """Draw a group per setting."""
    return range_bars(points(tables, run), style, "queueing")
