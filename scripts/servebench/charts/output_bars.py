"""Draw output tok/s at one number of users, in groups of one engine, by their slots."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from servebench.charts.bars import bar, compared, range_bars
from servebench.charts.style import Style
from servebench.tables.files import Row


def points(tables: Mapping[str, pa.Table], run: str) -> list[Row]:
    """Read the bars from `settings`, at the largest of the numbers of users that most settings were measured at.

    A schedule decides the output, so its settings are left out.
    """
    rows = sorted(compared(tables, run), key=lambda row: (row["engine_kind"], row["slots"], row["rank"]))
    return [
        bar(f"{row['setting']} ({row['slots']})", row, "output_tok_s", row["engine_kind"]) | {"users": row["users"]}
        for row in rows
    ]


def chart(tables: Mapping[str, pa.Table], style: Style, run: str) -> Any:
    """Draw a group per engine."""
    bars = points(tables, run)
    return range_bars(bars, style, "output_bars", users=bars[0]["users"] if bars else "–")
