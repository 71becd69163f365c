"""Output tok/s against users: both axes log, a point at the middle of the rounds and a bar for their range."""

from __future__ import annotations

from collections.abc import Mapping

import altair as alt
import pyarrow as pa

from servebench.charts.against_users import against_users, ranges
from servebench.charts.style import Style


def chart(tables: Mapping[str, pa.Table], style: Style, run: str) -> alt.TopLevelMixin:
    """From `settings`."""
    points = ranges(tables["settings"].to_pylist(), "output_tok_s", run)
    return against_users([p for p in points if p["low"] > 0], style, "output_by_users", log=True)
