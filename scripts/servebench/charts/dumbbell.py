"""Draw a figure of two experiments, joined by a line for each setting × users: the chart of `servebench compare`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from servebench.charts.style import INK, MUTED, PAPER, Style, inline
from servebench.tables.files import Row
from servebench.words import words

ROW_PX = 22


def chart(rows: Sequence[Row], style: Style, figure: str) -> Any:
    """Draw a row for each of `rows`, with `name`, `a` and `b` (positive), `first` and `second` (as text), `ratio`."""
    name = words(f"page.values.{figure}")[style.language]
    points = [row | {"side": side, "value": row[side.lower()]} for row in rows for side in ("A", "B")]
    ends = [point["value"] for point in points]
    x = alt.Scale(type="log", domain=[min(ends) / 1.08, max(ends) * 1.08], nice=False)
    order = list(dict.fromkeys(row["name"] for row in rows))
    y = alt.Y("name:N", sort=order, title=None).axis(
        ticks=False, domain=False, labelPadding=8, labelLimit=300, labelFontSize=12.5
    )
    fill = alt.Fill("side:N", title=None).scale(domain=["A", "B"], range=[PAPER[0], INK[0]]).legend(orient="top")
    size = alt.Size("side:N", title=None).scale(domain=["A", "B"], range=[120, 46]).legend(orient="top")  # B within A
    tooltip = style.tooltip(setting="name:N", first="first:N", second="second:N", ratio="ratio:N")
    drawn = alt.layer(
        alt.Chart(inline(rows)).mark_rule(color=MUTED[0], strokeWidth=2).encode(alt.X("a:Q", scale=x), y, x2="b:Q"),
        alt.Chart(inline(points))
        .mark_point(filled=True, opacity=1, stroke=INK[0], strokeWidth=1.6)
        .encode(alt.X("value:Q", scale=x, title=name).axis(format=",~r", tickCount=6), y, fill, size, tooltip=tooltip),
    ).properties(width=style.width, height={"step": ROW_PX})
    return style.finished(drawn, "dumbbell", figure=name)
