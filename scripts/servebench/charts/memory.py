"""Draw the memory of each setting: measured, and its parts, weights and predicted KV cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt
import pyarrow as pa

from servebench.charts.style import INK, MUTED, Style, inline, width_px
from servebench.tables.files import Row, rows_of
from servebench.words.numbers import digits

PARTS = ("weights", "kv_cache", "rest")
OPACITY = {"weights": 1.0, "kv_cache": 0.55, "rest": 0.22, "unknown": 0.35}


def points(tables: Mapping[str, pa.Table], run: str) -> list[Row]:
    """Read the pieces of each bar from `memory`: known parts, or the whole as one piece."""
    pieces = []
    rows = [row for row in rows_of(tables, "memory", run) if row["measured_gib"] is not None]
    for row in sorted(rows, key=lambda row: (row["engine_kind"], row["slots"], row["rank"])):
        known = row["rest_gib"] is not None and row["rest_gib"] >= 0
        start = 0.0
        shown = PARTS if known else ("unknown",)
        for part in shown:
            size = row[f"{part}_gib"] if known else row["measured_gib"]
            piece = {"part": part, "start": start, "end": start + size, "size": f"{digits(size)} GiB"}
            common = {"name": f"{row['setting']} ({row['slots']})", "engine": row["engine_kind"]}
            pieces.append(common | piece | {"measured": row["measured_gib"], "last": part == shown[-1]})
            start += size
    return pieces


def chart(tables: Mapping[str, pa.Table], style: Style, run: str) -> Any:
    """Draw a bar per setting; the tick is the measured memory."""
    pieces = points(tables, run)
    if not pieces:
        return style.nothing("memory")
    parts = [part for part in OPACITY if any(piece["part"] == part for piece in pieces)]
    names = {part: style.say(f"charts.memory.{part}") for part in parts}
    rows = [
        piece
        | {"colour": style.colour(piece["engine"]), "part": names[piece["part"]]}
        | {"label": f"{digits(piece['measured'])} GiB"}
        for piece in pieces
    ]
    room = max(width_px(row["label"]) for row in rows) + 14
    most = max(row["measured"] for row in rows)
    scale = alt.Scale(domain=[0, most * style.width / (style.width - room)], nice=False)
    base = alt.Chart(inline(rows))
    ends = base.transform_filter(alt.datum.last)
    y = alt.Y("name:N", sort=list(dict.fromkeys(row["name"] for row in rows)), title=None).axis(
        ticks=False, domain=False, labelPadding=8, labelLimit=260, labelFontSize=12.5
    )
    opacity = alt.Opacity(
        "part:O",
        sort=list(names.values()),
        legend=alt.Legend(title=None, orient="bottom", symbolFillColor=MUTED[0]),
    ).scale(type="ordinal", domain=list(names.values()), range=[OPACITY[part] for part in parts])
    measured = alt.X("measured:Q", scale=scale)
    drawn = alt.layer(
        base.mark_bar(height={"band": 0.68}).encode(
            alt.X("start:Q", scale=scale, title=style.say("charts.memory.x")).axis(tickCount=6),
            y,
            alt.Color("colour:N", scale=None),
            opacity,
            x2="end:Q",
            tooltip=style.tooltip(setting="name:N", part="part:N", size="size:N"),
        ),
        ends.mark_tick(color=INK[0], thickness=2, height=20).encode(measured, y),
        ends.mark_text(align="left", dx=7).encode(measured, y, text="label:N"),
    )
    return style.finished(drawn.properties(width=style.width, height={"step": 28}), "memory", room=room)
