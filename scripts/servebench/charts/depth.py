"""Draw prefill and decode speed against the length of the prompt, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import pyarrow as pa

from servebench.charts.style import DASHES, MUTED, PAPER, Style, inline
from servebench.tables.files import Row, rows_of
from servebench.words.marks import told
from servebench.words.numbers import span

FIGURES = {"prefill": "prompt_tok_s", "decode": "user_tok_s"}


def points(tables: Mapping[str, pa.Table], run: str) -> list[Row]:
    """Read a point for each length and figure from `depth`; lengths without the figure are left out."""
    return [
        {name: row[name] for name in ("users", "prompt_tokens", "setting")}
        | {"series": _series(row), "engine": row["engine_kind"], "figure": kind, "trusted": not row["marks"]}
        | {"low": low, "high": high, "middle": (low + high) / 2, "range": span(low, high), "marks": row["marks"]}
        for row in rows_of(tables, "depth")
        for kind, figure in FIGURES.items()
        if (low := row[f"{figure}_min"]) is not None and (high := row[f"{figure}_max"]) is not None
    ]


def _series(row: Row) -> str:
    return row["series"] if row["reply_tokens"] is None else f"{row['series']} → {row['reply_tokens']}"


def values(tables: Mapping[str, pa.Table], run: str) -> list[Row]:
    """Read the rows of `depth` as texts: one for each series and length."""
    return [
        {"series": _series(row), "prompt_tokens": row["prompt_tokens"], "users": row["users"], "marks": row["marks"]}
        | {kind: span(row[f"{figure}_min"], row[f"{figure}_max"]) for kind, figure in FIGURES.items()}
        for row in rows_of(tables, "depth")
    ]


def chart(tables: Mapping[str, pa.Table], style: Style, run: str) -> Any:
    """Draw a panel for each of the two speeds, a line for each series."""
    rows = points(tables, run)
    if not rows:
        return style.nothing("depth", series=0, users="–")
    style = style.sized(400, style.height, len(FIGURES))
    panels = [_panel(rows, style, kind) for kind in FIGURES]
    users = sorted({row["users"] for row in rows})
    series = len({row["series"] for row in rows})
    return style.finished(
        alt.concat(*panels, columns=len(FIGURES), spacing=26), "depth", series=series, users=", ".join(map(str, users))
    )


def _panel(rows: Sequence[Row], style: Style, kind: str) -> Any:
    names = list(dict.fromkeys(row["series"] for row in rows))
    lengths = sorted({row["prompt_tokens"] for row in rows})
    more = [{"marks": told(row["marks"], style.language), "colour": style.colour(row["engine"])} for row in rows]
    base = alt.Chart(inline(row | own for row, own in zip(rows, more, strict=True)))
    base = base.transform_filter(alt.datum.figure == kind)
    scale = alt.Scale(type="log", base=2, domain=[lengths[0] / 1.3, lengths[-1] * 1.3], nice=False)
    x = alt.X("prompt_tokens:Q", scale=scale, title=style.say("charts.depth.x")).axis(
        values=lengths, format="~s", labelExpr="datum.value % 1024 ? datum.value : datum.value / 1024 + 'k'", grid=False
    )
    high = max((row["high"] for row in rows if row["figure"] == kind), default=1.0)
    y_scale = alt.Scale(domain=[0, high * 1.08], nice=False)
    y = alt.Y("middle:Q", scale=y_scale, title=style.say(f"charts.depth.{kind}")).axis(format=",~r", tickCount=6)
    legend = alt.Legend(
        orient="bottom", title=None, direction="horizontal", columns=3, symbolSize=900, symbolStrokeColor=MUTED[0]
    )
    dash = alt.StrokeDash("series:N", legend=legend).scale(
        domain=names, range=[list(DASHES[n % len(DASHES)]) for n in range(len(names))]
    )
    colour = alt.Color("colour:N", scale=None)
    tooltip = style.tooltip(setting="setting:N", users="users:Q", range="range:N", marks="marks:N")
    layers = [
        base.mark_line(strokeWidth=1.8).encode(x, y, colour, dash),
        base.mark_rule(strokeWidth=3, opacity=0.55).encode(
            x, alt.Y("low:Q", scale=y_scale), colour, y2=alt.Y2("high:Q")
        ),
        base.mark_point(size=46, strokeWidth=1.6, fillOpacity=1, opacity=1).encode(
            x, y, colour, fill=alt.condition("datum.trusted", colour, alt.value(PAPER[0])), tooltip=tooltip
        ),
    ]
    return alt.layer(*layers).properties(width=style.width, height=style.height)
