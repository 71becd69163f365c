"""Draw the distribution of the time to the first token, for every measurement."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import pyarrow as pa

from servebench import charts
from servebench.charts.style import LINE, MUTED, Style, inline
from servebench.tables.files import Row, rows_of
from servebench.words.marks import starred

STEPS, COLUMNS = 12, 3


def points(tables: Mapping[str, pa.Table], run: str) -> list[Row]:
    """Read at most 12 steps per measurement from `ttft`; a share counts failed requests as never answered."""
    places = {(row["setting"], row["users"]): row for row in rows_of(tables, "settings", run)}
    return [
        {name: row[name] for name in ("setting", "users", "round")}
        | {"engine": places[row["setting"], row["users"]]["engine_kind"]}
        | {"marks": places[row["setting"], row["users"]]["marks"]}
        | step
        for row in rows_of(tables, "ttft", run)
        for step in steps(row["ttft_s"], row["failures"])
    ]


QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}


def values(tables: Mapping[str, pa.Table], run: str) -> list[Row]:
    """Read percentiles of each measurement from `ttft`: seconds by which so many of all requests had their token."""
    found = []
    for row in rows_of(tables, "ttft", run):
        total = len(row["ttft_s"]) + row["failures"]
        ranks = {name: math.ceil(share * total) for name, share in QUANTILES.items()}
        known = {
            name: row["ttft_s"][rank - 1] if 0 < rank <= len(row["ttft_s"]) else None for name, rank in ranks.items()
        }
        found.append({name: row[name] for name in ("setting", "users", "round")} | known)
    return found


def steps(ascending_s: Sequence[float], failures: int) -> list[dict[str, float]]:
    """Choose (seconds, share of all requests with a token by then) at evenly spaced ranks, the last included."""
    count = len(ascending_s)
    ranks = sorted({round(n * count / STEPS) for n in range(1, STEPS + 1)} - {0})
    total = count + failures
    return [{"s": round(max(ascending_s[r - 1], 1e-4), 5), "share": round(r / total, 4)} for r in ranks]


def chart(tables: Mapping[str, pa.Table], style: Style, run: str) -> Any:
    """Draw a panel per setting, a line per number of users and round."""
    rows = points(tables, run)
    if not rows:
        return style.nothing("ttft_ecdf", settings=0, unit="–")
    names = list(dict.fromkeys(row["setting"] for row in rows))
    style = style.sized(270, 170, min(len(names), COLUMNS))
    levels = sorted({row["users"] for row in rows})
    ends = [row["s"] for row in rows]
    scale = alt.Scale(type="log", domain=[min(ends) / 1.2, max(ends) * 1.2], nice=False)
    marks = (1, 2, 5) if max(ends) < 30 * min(ends) else (1,)
    ticks = [step * 10.0**n for n in range(-4, 4) for step in marks]
    limit = style.line["ttft_p95_s"]
    shades = [0.3 + 0.7 * n / max(1, len(levels) - 1) for n in range(len(levels))]
    below = alt.Legend(
        orient="bottom", direction="horizontal", columns=4, symbolStrokeColor=MUTED[0], symbolStrokeWidth=3
    )
    unit = charts.unit(tables, run, names)
    tooltip = style.tooltip(round="round:N")
    tooltip.insert(0, alt.Tooltip("users:Q", title=style.say(f"charts.tooltip.{unit}")))
    tooltip += [
        alt.Tooltip(f"{name}:Q", title=style.say(f"charts.ttft_ecdf.{axis}"), format=form)
        for name, axis, form in (("s", "x", ".3~f"), ("share", "y", ".0%"))
    ]
    panels = []
    for n, name in enumerate(names):
        own = [row for row in rows if row["setting"] == name]
        engine = own[0]["engine"]
        title = style.say("charts.ttft_ecdf.y") if n % COLUMNS == 0 else None
        base = alt.Chart(
            inline({name: row[name] for name in ("setting", "users", "round", "s", "share")} for row in own)
        )
        curve = base.mark_line(interpolate="step-after", strokeWidth=1.6, color=style.colour(engine)).encode(
            alt.X("s:Q", scale=scale, title=style.say("charts.ttft_ecdf.x")).axis(
                format="~r", values=ticks, grid=False
            ),
            alt.Y("share:Q", scale=alt.Scale(domain=[0, 1]), title=title).axis(format="%", tickCount=5),
            detail=["users:O", "round:N"],
            opacity=alt.Opacity("users:O", title=style.say(f"charts.tooltip.{unit}"), legend=below).scale(
                type="ordinal", domain=levels, range=shades
            ),
            strokeDash=alt.StrokeDash("round:N", title=style.say("charts.tooltip.round"), legend=below),
            tooltip=tooltip,
        )
        rule = alt.Chart(inline([{"limit": limit}])).mark_rule(strokeDash=[6, 4], color=LINE[0])
        where = rule.encode(alt.X("limit:Q", scale=scale))
        header = alt.TitleParams(
            starred(name, {mark for row in own for mark in row["marks"]}),
            color=style.colour(engine),
            fontSize=13,
            anchor="start",
            fontWeight="normal",
        )
        layers = [where, curve] if min(ends) / 1.2 <= limit <= max(ends) * 1.2 else [curve]
        panels.append(alt.layer(*layers).properties(width=style.width, height=style.height, title=header))
    chart = panels[0] if len(panels) == 1 else alt.concat(*panels, columns=COLUMNS, spacing=16)
    counted = style.say(f"charts.unit.{unit}")
    return style.finished(chart, "ttft_ecdf", limit=limit, settings=len(names), unit=counted)
