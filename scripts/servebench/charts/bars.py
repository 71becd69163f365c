"""Draw bars of ranges: dark to the smaller round, light to the larger, the range in figures beside each bar."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import altair as alt
import pyarrow as pa

from servebench import claims
from servebench.charts.style import Style, grouped, inline, width_px
from servebench.tables.files import Row, rows_of
from servebench.words.marks import starred, told
from servebench.words.numbers import span

LIGHT, BAR_PX = 0.42, 25


def bar(name: str, row: Row, figure: str, group: str = "") -> Row:
    """Make the bar of a row of `settings` (or of a table made from `settings`) for one of its ranged figures."""
    low, high = row[f"{figure}_min"], row[f"{figure}_max"]
    marks = row["marks"]
    return {
        "name": starred(name, marks),
        "group": group,
        "engine": row["engine_kind"],
        "low": low,
        "high": high,
        "range": span(low, high),
        "marks": marks,
    }


def usual_users(rows: Iterable[Row]) -> int | None:
    """Choose the number of users to compare at: the largest of those that most rows have."""
    levels = [row["users"] for row in rows]
    return max(levels, key=lambda users: (levels.count(users), users), default=None)


def compared(tables: Mapping[str, pa.Table], run: str) -> list[Row]:
    """List the rows of `settings` whose outputs are compared: at the number of users that most have, no schedule's."""
    schedules = claims.of_schedules(tables, run)
    loaded = [row for row in rows_of(tables, "settings", run) if row["setting"] not in schedules]
    users = usual_users(loaded)
    return [row for row in loaded if row["users"] == users and row["output_tok_s_min"] is not None]


def range_bars(bars: Sequence[Row], style: Style, key: str, **values: Any) -> Any:
    """Draw horizontal bars in the order given, in groups where the rows have one."""
    if not bars:
        return style.nothing(key, **values)
    rows = [row | {"colour": style.colour(row["engine"]), "marks": told(row["marks"], style.language)} for row in bars]
    most = max(row["high"] for row in rows) or 1.0
    room = max(width_px(row["range"]) for row in rows) + 14
    scale = alt.Scale(domain=[0, most * style.width / (style.width - room)], nice=False)
    title = style.say(f"charts.{key}.x", **values)
    drawn = grouped(rows, lambda own, last: _bars(own, style, scale, title if last else None))
    return style.finished(drawn, key, room=room, **values)


def _bars(rows: Sequence[Row], style: Style, scale: alt.Scale, title: str | None) -> Any:
    """Draw the bars of one group; the axis is labelled when it has a title."""
    y = alt.Y("name:N", sort=list(dict.fromkeys(row["name"] for row in rows)), title=None).axis(
        ticks=False, domain=False, labelPadding=8, labelLimit=260, labelFontSize=12.5
    )
    base = alt.Chart(inline(rows))
    tooltip = style.tooltip(setting="name:N", range="range:N", marks="marks:N")
    colour = alt.Color("colour:N", scale=None)
    labelled = title is not None
    x = alt.X("high:Q", scale=scale, title=title).axis(
        format=",~r", tickCount=6, labels=labelled, ticks=labelled, domain=labelled
    )
    drawn = alt.layer(
        base.mark_bar(opacity=LIGHT, height={"band": 0.68}).encode(x, y, colour, tooltip=tooltip),
        base.mark_bar(height={"band": 0.68}).encode(alt.X("low:Q", scale=scale), y, colour, tooltip=tooltip),
        base.mark_text(align="left", dx=6).encode(alt.X("high:Q", scale=scale), y, text="range:N"),
    )
    return drawn.properties(width=style.width, height={"step": BAR_PX})
