"""Draw the differences to the baseline in points with their 95 % intervals: a forest plot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from servebench.charts.spans import intervals
from servebench.charts.style import Style
from servebench.tables.files import Row, rows_of


def points(tables: Mapping[str, pa.Table], run: str) -> list[Row]:
    """Read the differences from `comparisons`."""
    return [
        {
            "name": f"{row['target']} · {row['repeat']}",
            "group": row["measure"],
            "low": row["low"],
            "high": row["high"],
            "middle": row["difference"],
            "text": f"{row['difference']:+.1f}  p = {row['p_holm']:.2g}",
            "baseline": row["baseline"],
        }
        for row in rows_of(tables, "comparisons")
    ]


def chart(tables: Mapping[str, pa.Table], style: Style, run: str) -> Any:
    """Draw a group per measure; the rule marks no difference."""
    rows = points(tables, run)
    return intervals(rows, style, "differences", neutral=0.0, baseline=rows[0]["baseline"] if rows else "–")
