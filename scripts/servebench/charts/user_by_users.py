"""Draw user tok/s against users: users log, speed linear, with the line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from servebench.charts.against_users import against_users, ranges
from servebench.charts.style import Style
from servebench.tables.files import Row


def points(tables: Mapping[str, pa.Table], run: str) -> list[Row]:
    """Read the ranges from `settings`."""
    return ranges(tables, "user_tok_s", run)


def chart(tables: Mapping[str, pa.Table], style: Style, run: str) -> Any:
    """Draw one panel per engine."""
    return against_users(points(tables, run), style, "user_by_users", log=False, limit=style.line["user_tok_s"])
