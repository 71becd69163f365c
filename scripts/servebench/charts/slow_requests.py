"""Draw slow requests by length: in the band of prompts just over the micro-batch, and outside the band."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from servebench.charts.spans import intervals
from servebench.charts.style import Style
from servebench.tables.evaluated.statistics import share_interval
from servebench.tables.files import Row, rows_of
from servebench.words.marks import starred


def points(tables: Mapping[str, pa.Table], run: str) -> list[Row]:
    """Read from `slow_requests` both kinds with 95 % intervals, where nobody queued and some request was slow."""
    places = {(row["setting"], row["users"]): row for row in rows_of(tables, "settings", run)}
    rows = []
    for row in rows_of(tables, "slow_requests", run):
        place = places[row["setting"], row["users"]]
        slow = row["other_slow"] + (row["band_slow"] or 0)
        if not row["band_total"] or not row["other_total"] or not slow or row["users"] > place["slots"]:
            continue
        text = f"{row['band_slow']}/{row['band_total']} · {row['other_slow']}/{row['other_total']}"
        for kind in ("band", "other"):
            count, total = row[f"{kind}_slow"], row[f"{kind}_total"]
            low, high = share_interval(count, total)
            rows.append(
                {
                    "kind": kind,
                    "name": starred(f"{row['setting']} · {row['users']}", place["marks"]),
                    "engine": place["engine_kind"],
                    "low": 100 * low,
                    "high": 100 * high,
                    "middle": 100 * count / total,
                    "share": f"{count}/{total}",
                    "text": text if kind == "band" else "",
                    "text_at": 100.0,
                    "marks": place["marks"],
                    "band": f"{row['band_low']}–{row['band_high']}",
                }
            )
    return rows


def chart(tables: Mapping[str, pa.Table], style: Style, run: str) -> Any:
    """Draw a row per setting × users."""
    rows = points(tables, run)
    band = rows[0]["band"] if rows else "–"
    kinds = {kind: style.say(f"charts.slow_requests.{kind}", band=band) for kind in ("band", "other")}
    said = [row | {"kind": kinds[row["kind"]]} for row in rows]
    ticks = range(0, 101, 20)  # the counts stand at 100
    return intervals(said, style, "slow_requests", shapes=list(kinds.values()), ticks=ticks, band=band)
