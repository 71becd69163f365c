"""Draw intervals: a bar from low to high, a point inside, and a rule where nothing differs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import altair as alt

from servebench.charts.style import FAINT, INK, MUTED, PAPER, Style, grouped, inline, width_px, written
from servebench.tables.files import Row
from servebench.words.marks import told

ROW_PX = 22


def intervals(
    rows: Sequence[Row],
    style: Style,
    key: str,
    *,
    scale: Literal["linear", "log"] = "linear",
    neutral: float | None = None,
    shade: tuple[float, float] | None = None,
    shapes: Sequence[str] = (),
    ticks: Sequence[float] | None = None,
    **values: Any,
) -> Any:
    """Draw rows of `name, low, high, middle, text, engine` in the order given, in groups where the rows have a `group`.

    Rows of measurements also have `marks`. The text is written at `high`, or at the row's `text_at`.
    `neutral` is the rule's position; `shade` is drawn grey; `shapes` are the values of `kind` that get shapes of their
    own; `ticks` are the labelled values of the axis, None to leave them to Vega.
    """
    if not rows:
        return style.nothing(key, **values)
    entries = [
        {"text_at": row["high"]}
        | row
        | {"colour": _colour(row, style), "marks": told(row.get("marks", ()), style.language)}
        for row in rows
    ]
    room = max(width_px(row["text"]) for row in entries) + 24
    domain = _domain(entries, scale, neutral, shade, room / style.width)
    x_scale = alt.Scale(type=scale, domain=domain, nice=False)
    frame = _Frame(style, x_scale, style.say(f"charts.{key}.x", **values), neutral, shade, shapes, ticks)
    return style.finished(grouped(entries, frame.draw), key, room=room, **values)


class _Frame:
    """Hold the axis, shapes and rules that the groups of one chart share."""

    def __init__(
        self,
        style: Style,
        x_scale: alt.Scale,
        title: str,
        neutral: float | None,
        shade: tuple[float, float] | None,
        shapes: Sequence[str],
        ticks: Sequence[float] | None,
    ) -> None:
        self.style, self.x_scale, self.title = style, x_scale, title
        self.neutral, self.shade, self.shapes, self.ticks = neutral, shade, shapes, ticks

    def draw(self, rows: Sequence[Row], last: bool) -> Any:
        """Draw the intervals of one group; the axis is labelled under the last group."""
        style, base = self.style, alt.Chart(inline(rows))
        x = (
            self.x("low")
            .title(self.title if last else None)
            .axis(format="~r", tickCount=6, values=self.ticks or alt.Undefined, labels=last, ticks=last, domain=last)
        )
        y = alt.Y("name:N", sort=list(dict.fromkeys(row["name"] for row in rows)), title=None).axis(
            ticks=False, domain=False, labelPadding=8, labelLimit=300, labelFontSize=12.5
        )
        colour = alt.Color("colour:N", scale=None)
        shape: Any = alt.value("circle")
        if self.shapes:
            legend = alt.Legend(title=None, orient="bottom", symbolFillColor=MUTED[0])
            shape = alt.Shape("kind:N", legend=legend).scale(
                domain=list(self.shapes), range=["circle", "diamond", "square"][: len(self.shapes)]
            )
        layers = [
            base.mark_rule(strokeWidth=4, opacity=0.55).encode(x, y, colour, x2="high:Q"),
            base.mark_point(size=64, filled=True, opacity=1, stroke=PAPER[0], strokeWidth=1).encode(
                self.x("middle"),
                y,
                colour,
                shape=shape,
                tooltip=style.tooltip(row="name:N", value="text:N", marks="marks:N"),
            ),
            *(
                base.mark_text(align="left", dx=9, **look).encode(self.x("text_at"), y, text="text:N")
                for look in written(INK[0])
            ),
        ]
        fixed = inline([{"neutral": self.neutral, "from": (self.shade or [None])[0], "to": (self.shade or [None])[-1]}])
        if self.neutral is not None:
            rule = alt.Chart(fixed).mark_rule(strokeDash=[4, 3], color=INK[0], strokeWidth=1)
            layers.insert(0, rule.encode(self.x("neutral")))
        if self.shade is not None:
            rect = alt.Chart(fixed).mark_rect(color=FAINT[0], opacity=0.5)
            layers.insert(0, rect.encode(self.x("from"), x2="to:Q"))
        return alt.layer(*layers).properties(width=style.width, height={"step": ROW_PX})

    def x(self, field: str) -> alt.X:
        return alt.X(f"{field}:Q", scale=self.x_scale)


def _colour(row: Row, style: Style) -> str:
    return style.colour(row["engine"]) if row.get("engine") else INK[0]


def _domain(
    rows: Sequence[Row], scale: str, neutral: float | None, shade: tuple[float, float] | None, share: float
) -> list[float]:
    """Reach from the lowest to the highest value, with room for the figures on the right."""
    shown = [row[end] for row in rows for end in ("low", "high", "text_at")] + [
        v for v in (neutral, *(shade or ())) if v is not None
    ]
    low, high = min(shown), max(shown)
    if scale == "log":
        low, high = low / 1.06, high * 1.02
        return [low, low * (high / low) ** (1 / (1 - share))]
    width = (high - low) or 1.0
    return [low - 0.04 * width, low + width / (1 - share)]
