"""User tok/s against users: users log, speed linear, with the line."""

from __future__ import annotations

from collections.abc import Mapping

import altair as alt
import pyarrow as pa

from servebench.charts.against_users import against_users, ranges
from servebench.charts.style import Style


def chart(tables: Mapping[str, pa.Table], style: Style, run: str) -> alt.TopLevelMixin:
    """From `settings`."""
    points = ranges(tables["settings"].to_pylist(), "user_tok_s", run)
    return against_users(points, style, "user_by_users", log=False, limit=style.line["user_tok_s"])
