"""Draw output tok/s at one number of users: the setting with the highest range first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from servebench.charts.bars import at_users, bar, range_bars, usual_users
from servebench.charts.style import Style
from servebench.tables.files import Row, rows_of


def points(tables: Mapping[str, pa.Table], run: str) -> list[Row]:
    """Read the bars from `settings`, at the number of users that most settings were measured at."""
    users = usual_users(rows_of(tables, "settings", run))
    rows = at_users(tables, run, "output_tok_s", users)
    rows.sort(key=lambda row: -(row["output_tok_s_min"] + row["output_tok_s_max"]))
    return [bar(row["setting"], row, "output_tok_s") | {"users": row["users"]} for row in rows]


def chart(tables: Mapping[str, pa.Table], style: Style, run: str) -> Any:
    """Draw one bar per setting."""
    bars = points(tables, run)
    return range_bars(bars, style, "output_bars", users=bars[0]["users"] if bars else "–")
