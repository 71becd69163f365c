"""TTFT p95 against users: both axes log, with the line."""

from __future__ import annotations

from collections.abc import Mapping

import altair as alt
import pyarrow as pa

from servebench.charts.against_users import against_users, ranges
from servebench.charts.style import Style


def chart(tables: Mapping[str, pa.Table], style: Style, run: str) -> alt.TopLevelMixin:
    """From `settings`."""
    points = ranges(tables["settings"].to_pylist(), "ttft_p95_s", run)
    limit = style.line["ttft_p95_s"]
    return against_users([p for p in points if p["low"] > 0], style, "ttft_by_users", log=True, limit=limit)
