"""Draw user tok/s for the fewest users: the setting with the highest range first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from servebench.charts.bars import at_users, bar, range_bars
from servebench.charts.style import Style
from servebench.tables.files import Row, rows_of


def points(tables: Mapping[str, pa.Table], run: str) -> list[Row]:
    """Read the bars from `settings`, at the run's smallest number of users."""
    fewest = min((row["users"] for row in rows_of(tables, "settings", run)), default=None)
    rows = at_users(tables, run, "user_tok_s", fewest)
    rows.sort(key=lambda row: -(row["user_tok_s_min"] + row["user_tok_s_max"]))
    return [bar(row["setting"], row, "user_tok_s") | {"users": row["users"]} for row in rows]


def chart(tables: Mapping[str, pa.Table], style: Style, run: str) -> Any:
    """Draw one bar per setting."""
    bars = points(tables, run)
    return range_bars(bars, style, "speed_bars", users=bars[0]["users"] if bars else 1)
