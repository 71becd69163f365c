"""Draw the cost of a million output tokens against users."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from servebench.charts.against_users import against_users
from servebench.charts.style import Style, bits
from servebench.tables.files import Row, rows_of
from servebench.words.numbers import span

FIGURE = "usd_per_million_tokens"


def points(tables: Mapping[str, pa.Table], run: str) -> list[Row]:
    """Read the ranges from `cost`; none without a price."""
    settings = {(row["setting"], row["users"]): row for row in rows_of(tables, "settings", run)}
    rows = []
    for row in rows_of(tables, "cost", run):
        low, high, place = row[f"{FIGURE}_min"], row[f"{FIGURE}_max"], settings[row["setting"], row["users"]]
        rows.append(
            {
                "setting": row["setting"],
                "engine": place["engine_kind"],
                "bits": bits(place["quantization"]),
                "users": row["users"],
                "low": low,
                "high": high,
                "middle": (low + high) / 2,
                "range": span(low, high),
                "marks": place["marks"],
                "trusted": not place["marks"],
                "price": row["price_per_hour"],
            }
        )
    return rows


def chart(tables: Mapping[str, pa.Table], style: Style, run: str) -> Any:
    """Draw one panel per engine."""
    rows = points(tables, run)
    return against_users(rows, style, "cost", log=True, price=rows[0]["price"] if rows else 0)
