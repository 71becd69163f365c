"""Draw slow requests by length: in the band of prompts just over the micro-batch, and outside the band."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from servebench import claims
from servebench.charts.spans import intervals
from servebench.charts.style import Style
from servebench.tables.files import Row, rows_of
from servebench.words.marks import starred
from servebench.words.numbers import span


def points(tables: Mapping[str, pa.Table], run: str) -> list[Row]:
    """Make of each claim of kind `slow` a point of either kind, with its 95 % interval."""
    from servebench.tables.evaluated.statistics import share_interval  # slow to import, and often not needed

    places = {(row["setting"], row["users"]): row for row in rows_of(tables, "settings", run)}
    rows = []
    for claim in claims.of(tables, run, "slow"):
        name, values = claim.subjects[0], claim.values
        place = places[name, claim.users]
        counts = {kind: (values[f"{kind}_slow"], values[f"{kind}_total"]) for kind in ("band", "other")}
        for kind, (count, total) in counts.items():
            low, high = share_interval(count, total)
            rows.append(
                {
                    "kind": kind,
                    "name": starred(f"{name} · {claim.users}", place["marks"]),
                    "engine": place["engine_kind"],
                    "low": 100 * low,
                    "high": 100 * high,
                    "middle": 100 * count / total,
                    "share": f"{count}/{total}",
                    "text": " · ".join(f"{slow}/{own}" for slow, own in counts.values()) if kind == "band" else "",
                    "text_at": 100.0,
                    "marks": place["marks"],
                    "band": span(*values["band"]),
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
