"""Draw a figure against the number of users: a panel per engine, the other engines faint behind its lines."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import pandas as pd
import pyarrow as pa

from servebench.charts.style import DASHES, FAINT, LINE, PAPER, SHAPES, Style, bits, inline, log_ticks, width_px
from servebench.tables.files import Row, rows_of
from servebench.words.marks import told
from servebench.words.numbers import span

LABEL_GAP_PX = 13.0


def ranges(tables: Mapping[str, pa.Table], figure: str, run: str) -> list[Row]:
    """List, from `settings`, an entry per setting × users of the run that has the figure: low, high, middle, marks."""
    return [
        {
            "setting": row["setting"],
            "engine": row["engine_kind"],
            "bits": bits(row["quantization"]),
            "users": row["users"],
            "low": row[f"{figure}_min"],
            "high": row[f"{figure}_max"],
            "middle": (row[f"{figure}_min"] + row[f"{figure}_max"]) / 2,
            "range": span(row[f"{figure}_min"], row[f"{figure}_max"]),
            "marks": row["marks"],
            "trusted": not row["marks"],
        }
        for row in rows_of(tables, "settings", run)
        if row[f"{figure}_min"] is not None
    ]


def against_users(
    points: Sequence[Row], style: Style, key: str, *, log: bool, limit: float | None = None, **values: Any
) -> Any:
    """Draw lines through the middles of the rounds with a bar for each range; `limit` as a dashed rule."""
    if not points:
        return style.nothing(key, limit=limit or 0, settings=0, **values)
    engines = list(dict.fromkeys(point["engine"] for point in points))
    style = style.sized({1: 760, 2: 480}.get(len(engines), 344), style.height)
    frame = _Frame(points, style, log, limit)
    data = inline(point | {"marks": told(point["marks"], style.language)} for point in points)
    panels = [_panel(frame, data, engine, key, limit, n) for n, engine in enumerate(engines)]
    chart = (
        panels[0]
        if len(panels) == 1
        else alt.concat(*panels, columns=3, spacing=18).resolve_scale(strokeDash="independent")
    )
    room = min(room_px([point["setting"] for point in points]), 0.6 * style.width)
    return style.finished(
        chart, key, room=room, limit=limit or 0, settings=len({p["setting"] for p in points}), **values
    )


def room_px(names: Sequence[str]) -> float:
    """Estimate the pixels that names to the right of a plot's last point take."""
    return max(map(width_px, names)) + 18


class _Frame:
    """Hold the axes that all panels share, and compute the positions of values on them (pixels from the top)."""

    def __init__(self, points: Sequence[Row], style: Style, log: bool, limit: float | None) -> None:
        self.points, self.style, self.log = points, style, log
        self.users = sorted({point["users"] for point in points})
        ends = [value for point in points for value in (point["low"], point["high"])] + ([limit] if limit else [])
        low, high = min(ends), max(ends)
        self.domain = (low / 1.25, high * 1.25) if log else (0.0, high * 1.06)

    def x_domain(self, names: Sequence[str]) -> tuple[float, float]:
        """Reach from a little before the fewest users to where the longest label ends."""
        share = min(0.6, room_px(names) / self.style.width)
        span_log = math.log2(self.users[-1] / self.users[0]) + 0.3 if len(self.users) > 1 else 1.0
        return self.users[0] / 2**0.3, self.users[-1] * 2 ** (span_log * share / (1 - share))

    def pixel(self, value: float) -> float:
        low, high = (math.log(end) for end in self.domain) if self.log else self.domain
        return self.style.height * (1 - ((math.log(value) if self.log else value) - low) / (high - low))

    def value(self, pixel: float) -> float:
        low, high = (math.log(end) for end in self.domain) if self.log else self.domain
        at = low + (1 - pixel / self.style.height) * (high - low)
        return math.exp(at) if self.log else at


def _panel(frame: _Frame, data: pd.DataFrame, engine: str, key: str, limit: float | None, number: int) -> Any:
    style, colour = frame.style, frame.style.colour(engine)
    own = [point for point in frame.points if point["engine"] == engine]
    names = list(dict.fromkeys(point["setting"] for point in own))
    last = [max((p for p in own if p["setting"] == name), key=lambda p: p["users"]) for name in names]
    named: Any = limit and {
        "text": style.say(f"charts.{key}.limit", limit=limit),
        "middle": limit,
        "colour": LINE[0],
    }
    x_scale = alt.Scale(
        type="log", base=2, domain=frame.x_domain([*names, named["text"]] if named else names), nice=False
    )
    y_scale = alt.Scale(type="log" if frame.log else "linear", domain=frame.domain, nice=False)
    x = alt.X("users:Q", scale=x_scale, title=style.say(f"charts.{key}.x")).axis(
        values=frame.users, format="d", grid=False
    )
    y_title = style.say(f"charts.{key}.y") if number == 0 else None
    y = alt.Y("middle:Q", scale=y_scale, title=y_title).axis(
        values=log_ticks(*frame.domain) if frame.log else alt.Undefined, format=",~r", tickCount=6
    )
    base = alt.Chart(data)
    mine = base.transform_filter(alt.datum.engine == engine)
    dash = alt.StrokeDash("setting:N", legend=None).scale(
        domain=names, range=[list(DASHES[n % len(DASHES)]) for n in range(len(names))]
    )
    shape = alt.Shape("bits:N", legend=None).scale(domain=list(SHAPES), range=list(SHAPES.values()))
    tooltip = style.tooltip(setting="setting:N", users="users:Q", range="range:N", marks="marks:N")
    behind = base.transform_filter(alt.datum.engine != engine).mark_line(color=FAINT[0], strokeWidth=1.2)
    layers = [
        behind.encode(x, y, detail="setting:N"),
        mine.mark_line(color=colour, strokeWidth=1.8).encode(x, y, strokeDash=dash),
        mine.mark_rule(color=colour, strokeWidth=3, opacity=0.55).encode(
            x, alt.Y("low:Q", scale=y_scale), alt.Y2("high:Q")
        ),
        mine.mark_point(size=46, strokeWidth=1.6, color=colour, fillOpacity=1, opacity=1).encode(
            x,
            y,
            shape=shape,
            fill=alt.condition("datum.trusted", alt.value(colour), alt.value(PAPER[0])),
            tooltip=tooltip,
        ),
        *_labels(frame, last, x_scale, y_scale, colour, named),
    ]
    if limit is not None:
        ends = {"limit": limit, "users": x_scale["domain"][0], "column": max(point["users"] for point in last)}
        rule = alt.Chart(inline([ends])).mark_rule(strokeDash=[6, 4], strokeWidth=1.3, color=LINE[0])
        where = alt.X("users:Q", scale=x_scale), alt.X2("column:Q"), alt.Y("limit:Q", scale=y_scale)
        layers.insert(0, rule.encode(*where))
    header = alt.TitleParams(engine, color=colour, fontSize=13, anchor="start", offset=6, fontWeight="normal")
    return alt.layer(*layers).properties(width=style.width, height=style.height, title=header)


def _labels(
    frame: _Frame, last: Sequence[Row], x_scale: alt.Scale, y_scale: alt.Scale, colour: str, limit: Any
) -> list[alt.Chart]:
    """Write each line's name in a column on the right, apart from its neighbours, with a thread to the line."""
    column = max(point["users"] for point in last)
    named = [{"text": p["setting"], "users": p["users"], "middle": p["middle"], "colour": colour} for p in last]
    named += [limit | {"users": column}] if limit else []
    named.sort(key=lambda entry: frame.pixel(entry["middle"]))
    pixels = _apart([frame.pixel(entry["middle"]) for entry in named], frame.style.height)
    values = [e | {"column": column, "at": frame.value(pixel)} for e, pixel in zip(named, pixels, strict=True)]
    base = alt.Chart(inline(values))
    start = alt.X("users:Q", scale=x_scale), alt.Y("middle:Q", scale=y_scale)
    end = alt.X("column:Q", scale=x_scale), alt.Y("at:Q", scale=y_scale)
    thread = base.transform_filter(alt.datum.users < alt.datum.column)
    tint = alt.Color("colour:N", scale=None)
    return [
        thread.mark_rule(strokeWidth=0.7, opacity=0.45, strokeDash=[1, 2]).encode(
            *start, alt.X2("column:Q"), alt.Y2("at:Q"), tint
        ),
        base.mark_text(align="left", dx=9, fontSize=11.5).encode(*end, tint, text="text:N"),
    ]


def _apart(pixels: Sequence[float], height: int) -> list[float]:
    """Move ascending positions so that neighbours are a line of text apart and the last is within the plot."""
    moved: list[float] = []
    for pixel in pixels:
        moved.append(max(pixel, moved[-1] + LABEL_GAP_PX) if moved else pixel)
    ceiling = height + LABEL_GAP_PX - 4
    for n in reversed(range(len(moved))):
        moved[n] = ceiling = min(moved[n], ceiling - LABEL_GAP_PX)
    return moved
