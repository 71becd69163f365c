"""Draw the pairs of rounds that differ by 20 % or more, the largest first."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from servebench import charts, claims
from servebench.charts.spans import intervals
from servebench.charts.style import Style
from servebench.tables.derived import STABLE_FROM, STABLE_TO
from servebench.tables.files import Row, rows_of
from servebench.words import LANGUAGES, spoken
from servebench.words.numbers import digits

MOST = 20


def points(tables: Mapping[str, pa.Table], run: str) -> list[Row]:
    """Read the 20 pairs of `unstable` that changed by the largest factor: from 1 (no change) to that ratio."""
    engines = {row["setting"]: row["engine_kind"] for row in rows_of(tables, "settings", run)}
    schedules = claims.of_schedules(tables, run)
    return [
        {
            "name": _name(row, row["setting"] in schedules),
            "setting": row["setting"],
            "engine": engines[row["setting"]],
            "kind": row["figure"],
            "low": min(1.0, row["ratio"]),
            "high": max(1.0, row["ratio"]),
            "middle": row["ratio"],
            "text": f"{digits(row['first'])} → {digits(row['second'])}",
        }
        for row in sorted(rows_of(tables, "unstable", run), key=_factor)[:MOST]
        if row["ratio"] > 0
    ]


def _name(row: Row, scheduled: bool) -> dict[str, str]:
    """Name a row in each language: setting · users; connections of a schedule are called so."""
    if not scheduled:
        return dict.fromkeys(LANGUAGES, f"{row['setting']} · {row['users']}")
    told = spoken("charts.load.connections", users=row["users"])
    return {language: f"{row['setting']} · {text}" for language, text in told.items()}


def _factor(row: Row) -> float:
    """Sort a rise and a fall by the same factor alike, the largest first."""
    return -abs(math.log(row["ratio"])) if row["ratio"] > 0 else 0.0


def chart(tables: Mapping[str, pa.Table], style: Style, run: str) -> Any:
    """Draw a bar per pair; ratios in the grey band count as stable."""
    names = {figure: style.say(f"figures.{figure}") for figure in ("output_tok_s", "user_tok_s", "ttft_p95_s")}
    found = points(tables, run)
    rows = [row | {"kind": names[row["kind"]], "name": row["name"][style.language]} for row in found]
    unit = charts.unit(tables, run, [row["setting"] for row in found])
    return intervals(
        rows,
        style,
        "unstable",
        scale="log",
        neutral=1.0,
        shade=(STABLE_FROM, STABLE_TO),
        shapes=list(names.values()),
        count=len(rows),
        unit=style.say(f"charts.unit.{unit}"),
    )
