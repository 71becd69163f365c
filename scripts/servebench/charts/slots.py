"""Compare numbers of slots at one load: settings that differ in nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from servebench.charts.bars import at_users, bar, range_bars, usual_users
from servebench.charts.style import Style
from servebench.tables.files import Row, rows_of


def points(tables: Mapping[str, pa.Table], run: str) -> list[Row]:
    """Read the bars from `settings`, at the number of users at which `ratios` compares most settings."""
    pairs = [
        row for row in rows_of(tables, "ratios", run) if row["kind"] == "slots" and row["figure"] == "output_tok_s"
    ]
    users = usual_users(pairs)
    compared = {row[side] for row in pairs if row["users"] == users for side in ("setting", "baseline")}
    rows = [row for row in at_users(tables, run, "output_tok_s", users) if row["setting"] in compared]
    rows.sort(key=lambda row: (row["engine_kind"], row["slots"], row["rank"]))
    return [
        bar(f"{row['setting']} ({row['slots']})", row, "output_tok_s", row["engine_kind"]) | {"users": users}
        for row in rows
    ]


def chart(tables: Mapping[str, pa.Table], style: Style, run: str) -> Any:
    """Draw a group per engine."""
    bars = points(tables, run)
    return range_bars(bars, style, "slots", users=bars[0]["users"] if bars else "–")
