"""Draw a figure against the number of users: a panel per engine, the other engines faint behind its lines."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import altair as alt
import pandas as pd
import pyarrow as pa

from servebench import claims
from servebench.charts.style import (
    DASHES,
    FAINT,
    INK,
    LINE,
    MUTED,
    PAPER,
    SHAPES,
    Axis,
    Style,
    bits,
    inline,
    log_ticks,
    width_px,
    written,
)
from servebench.tables.files import Row, rows_of
from servebench.words.marks import told
from servebench.words.numbers import span

COLUMNS = 3


# The columns of the table `predicted` that say the most of a figure, without what it reached of it.
PREDICTED = {"user_tok_s": ("stream_tok_s", "user_share"), "output_tok_s": ("output_tok_s", "output_share")}


def ranges(tables: Mapping[str, pa.Table], figure: str, run: str) -> list[Row]:
    """List, from `settings`, an entry per setting × users of the run: low, high, middle, marks; none of a schedule.

    `predicted`: the most that is predicted there (table `predicted`), None where nothing is; `reached`: its share that
    was measured. A level that was concluded to have failed has no figures and begins a new `segment` of its setting's
    line; any other level without the figure is left out.
    """
    failed = {(c.subjects[0], c.users) for c in claims.of(tables, run, "level") if c.verdict == "failed"}
    schedules = claims.of_schedules(tables, run)
    segments: dict[str, int] = {}
    most, share = PREDICTED.get(figure, ("", ""))
    limits = {(row["setting"], row["users"]): row for row in rows_of(tables, "predicted", run) if most}
    found = []
    for row in sorted(rows_of(tables, "settings", run), key=lambda row: (row["rank"], row["users"])):
        if row["setting"] in schedules:
            continue
        broken = (row["setting"], row["users"]) in failed
        if broken:
            segments[row["setting"]] = segments.get(row["setting"], 0) + 1
        elif row[f"{figure}_min"] is None:
            continue
        low, high = (None, None) if broken else (row[f"{figure}_min"], row[f"{figure}_max"])
        limit = limits.get((row["setting"], row["users"]), {})
        found.append(
            {
                "setting": row["setting"],
                "engine": row["engine_kind"],
                "bits": bits(row["quantization"]),
                "slots": row["slots"],
                "users": row["users"],
                "segment": f"{row['setting']} {segments.get(row['setting'], 0)}",
                "failed": broken,
                "low": low,
                "high": high,
                "middle": None if low is None else (low + high) / 2,
                "range": span(low, high),
                "predicted": limit.get(most),
                "reached": None
                if broken or limit.get(most) is None
                else span(limit[f"{share}_min"], limit[f"{share}_max"]),
                "marks": [*row["marks"], *(row["failure"] if broken else ())],
                "trusted": not row["marks"],
            }
        )
    return found


def against_users(
    points: Sequence[Row], style: Style, key: str, *, log: bool, limit: float | None = None, **values: Any
) -> Any:
    """Draw lines through the middles of the rounds with a bar for each range; `limit` as a dashed rule.

    What is predicted at most is a thin dotted line. What failed is a cross on the axis. A tick on a line stands where
    its `fit` is.
    """
    if not any(point["low"] is not None for point in points):
        return style.nothing(key, limit=limit or 0, settings=0, **values)
    engines = list(dict.fromkeys(point["engine"] for point in points))
    beside = min(len(engines), COLUMNS)
    style = style.sized({1: 760, 2: 480}.get(len(engines), 344), style.height, beside)
    frame = _Frame(points, style, log, limit)
    shades = {id(point): style.shade(point["engine"], point["slots"]) for point in points}
    data = inline(
        point
        | {"marks": told(point["marks"], style.language), "shade": shades[id(point)]}
        | {"fill": shades[id(point)] if point["trusted"] else PAPER[0]}
        for point in points
    )
    panels = [_panel(frame, data, engine, key, limit, n) for n, engine in enumerate(engines)]
    chart = (
        panels[0]
        if len(panels) == 1
        else alt.concat(*panels, columns=COLUMNS, spacing=18).resolve_scale(strokeDash="independent")
    )
    return style.finished(
        chart, key, room=frame.room, limit=limit or 0, settings=len({p["setting"] for p in points}), **values
    )


class _Frame:
    """Hold the axes that all panels share, so that the same place is the same value in each of them."""

    def __init__(self, points: Sequence[Row], style: Style, log: bool, limit: float | None) -> None:
        self.points, self.style, self.log = points, style, log
        self.users = sorted({point["users"] for point in points})
        ends = [value for point in points for value in (point["low"], point["high"]) if value is not None]
        ends += [limit] if limit else []
        ends += [point["predicted"] for point in points if point["predicted"] is not None]
        low, high = min(ends), max(ends)
        self.axis = Axis((low / 1.25, high * 1.25) if log else (0.0, high * 1.06), style.height, log)
        self.room = min(0.6 * style.width, self._room())

    def _room(self) -> float:
        """Return the pixels right of the most users that the names of the lines take, each at its own line's end."""
        steps = max(1.0, math.log2(self.users[-1] / self.users[0]))
        pixels = 0.6 * self.style.width / steps  # of a doubling, about
        ends = [point for point in self.points if point["users"] == _last(self.points, point["setting"])["users"]]
        return max(width_px(p["setting"]) + 18 - pixels * math.log2(self.users[-1] / p["users"]) for p in ends)

    @property
    def x_domain(self) -> tuple[float, float]:
        """Reach from a little before the fewest users to where the longest label ends."""
        share = max(0.04, self.room / self.style.width)
        span_log = math.log2(self.users[-1] / self.users[0]) + 0.3 if len(self.users) > 1 else 1.0
        return self.users[0] / 2**0.3, self.users[-1] * 2 ** (span_log * share / (1 - share))

    @property
    def ticks(self) -> list[int]:
        """Choose the numbers of users that are labelled: the most, then those far enough from the one chosen before."""
        chosen: list[int] = []
        low, high = map(math.log2, self.x_domain)
        for users in reversed(self.users):
            gap = (math.log2(chosen[-1] / users) if chosen else high) / (high - low) * self.style.width
            if gap > 10 + 3.4 * (len(str(users)) + len(str(chosen[-1] if chosen else ""))):
                chosen.append(users)
        return chosen[::-1]


def _last(points: Sequence[Row], setting: str) -> Row:
    """Return a setting's point with the most users; one with figures where there is one."""
    own = [point for point in points if point["setting"] == setting]
    return max([p for p in own if not p["failed"]] or own, key=lambda point: int(point["users"]))


def _panel(frame: _Frame, data: pd.DataFrame, engine: str, key: str, limit: float | None, number: int) -> Any:
    style, colour, log = frame.style, frame.style.colour(engine), frame.log
    own = [point for point in frame.points if point["engine"] == engine]
    names = list(dict.fromkeys(point["setting"] for point in own))
    x_scale = alt.Scale(type="log", base=2, domain=frame.x_domain, nice=False)
    y_scale = alt.Scale(type="log" if log else "linear", domain=frame.axis.domain, nice=False)
    x = alt.X("users:Q", scale=x_scale, title=style.say(f"charts.{key}.x")).axis(
        values=frame.ticks, format="d", grid=False
    )
    y_title = style.say(f"charts.{key}.y") if number == 0 else None
    y = alt.Y("middle:Q", scale=y_scale, title=y_title).axis(
        values=log_ticks(*frame.axis.domain) if log else alt.Undefined, format=",~r", tickCount=6
    )
    base = alt.Chart(data).transform_filter("!datum.failed")
    mine = base.transform_filter(alt.datum.engine == engine)
    dash = alt.StrokeDash("setting:N", legend=None).scale(
        domain=names, range=[list(DASHES[n % len(DASHES)]) for n in range(len(names))]
    )
    shape = alt.Shape("bits:N", legend=None).scale(domain=list(SHAPES), range=list(SHAPES.values()))
    tooltip = style.tooltip(setting="setting:N", users="users:Q", range="range:N", marks="marks:N")
    shade = alt.Color("shade:N", scale=None)
    behind = base.transform_filter(alt.datum.engine != engine).mark_line(color=FAINT[0], strokeWidth=1.2)
    layers = [
        behind.encode(x, y, detail="segment:N"),
        mine.mark_line(strokeWidth=1.8).encode(x, y, shade, strokeDash=dash, detail="segment:N"),
        mine.mark_rule(strokeWidth=3, opacity=0.55).encode(x, alt.Y("low:Q", scale=y_scale), shade, y2="high:Q"),
        mine.mark_point(size=46, strokeWidth=1.6, fillOpacity=1, opacity=1).encode(
            x,
            y,
            shade,
            shape=shape,
            fill=alt.Fill("fill:N", scale=None),
            tooltip=tooltip,
        ),
        *_labels(frame, [_last(own, name) for name in names], x_scale, y_scale, colour),
    ]
    if any(point["failed"] for point in own):
        crosses = alt.Chart(data).transform_filter(f"datum.failed && datum.engine === '{engine}'")
        layers.append(
            crosses.mark_text(text="×", fontSize=19, fontWeight="bold", color=LINE[0], dy=-7).encode(
                x, y=alt.value(style.height), tooltip=tooltip
            )
        )
    layers[:0] = _predicted(frame, own, x, y_scale)
    if full := _full(own, names):
        ticks: Any = alt.Chart(inline(full))
        fits = style.tooltip(setting="setting:N", fit="fit:Q")
        layers.append(
            ticks.mark_tick(orient="vertical", size=20, thickness=3, color=INK[0], opacity=1).encode(
                alt.X("fit:Q", scale=x_scale), y, tooltip=fits
            )
        )
    if limit is not None:
        text = style.say(f"charts.{key}.limit", limit=limit)
        rule = alt.Chart(inline([{"limit": limit, "text": text}]))
        at = alt.Y("limit:Q", scale=y_scale)
        layers.insert(0, rule.mark_rule(strokeDash=[6, 4], strokeWidth=1.3, color=LINE[0]).encode(at))
        # On the left: lines end, and their names stand, on the right.
        layers += [
            rule.mark_text(align="left", dx=5, dy=-7, **look).encode(x=alt.value(0), y=at, text="text:N")
            for look in written(LINE[0])
        ]
    header = alt.TitleParams(engine, color=colour, fontSize=13, anchor="start", offset=6, fontWeight="normal")
    return alt.layer(*layers).properties(width=style.width, height=style.height, title=header)


def _predicted(frame: _Frame, own: Sequence[Row], x: alt.X, y_scale: alt.Scale) -> list[alt.Chart]:
    """Draw what is predicted at most, each course once, with one name for all; [] without a prediction."""
    lines: dict[tuple[tuple[int, float], ...], str] = {}
    for name in dict.fromkeys(point["setting"] for point in own):
        course = ((p["users"], p["predicted"]) for p in own if p["setting"] == name and p["predicted"] is not None)
        lines.setdefault(tuple(course), name)
    rows: list[Row] = [
        {"line": name, "users": users, "predicted": most} for course, name in lines.items() for users, most in course
    ]
    if not rows:
        return []
    named = min(rows, key=lambda row: (row["users"], -row["predicted"])) | {"text": frame.style.say("charts.predicted")}
    y = alt.Y("predicted:Q", scale=y_scale)
    look: dict[str, Any] = {"align": "left", "dx": 2, "dy": -6, "fontSize": 10}
    line = alt.Chart(inline(rows)).mark_line(color=MUTED[0], strokeWidth=0.8, strokeDash=[1, 3])
    return [
        line.encode(x, y, detail="line:N"),
        *(
            alt.Chart(inline([named])).mark_text(**look | edge).encode(x, y, text="text:N")
            for edge in written(MUTED[0])
        ),
    ]


def _full(own: Sequence[Row], names: Sequence[str]) -> list[Row]:
    """List the places on the lines, of log scales, where the KV cache has no room for more requests."""
    found = []
    for name in names:
        line = [point for point in own if point["setting"] == name and not point["failed"]]
        for one, other in pairwise(line):
            fit = one.get("fit")
            if fit and one["users"] <= fit < other["users"] and one["segment"] == other["segment"]:
                share = math.log(fit / one["users"]) / math.log(other["users"] / one["users"])
                middle = one["middle"] * (other["middle"] / one["middle"]) ** share
                found.append({"setting": name, "fit": fit, "middle": middle})
    return found


def _labels(frame: _Frame, last: Sequence[Row], x_scale: alt.Scale, y_scale: alt.Scale, colour: str) -> list[alt.Chart]:
    """Write each line's name at its own end, apart from all other names of the panel."""
    there = sorted((point for point in last if point["middle"] is not None), key=lambda point: -point["middle"])
    values = [
        {"text": point["setting"], "users": point["users"], "at": at}
        for point, at in zip(there, frame.axis.apart([point["middle"] for point in there]), strict=True)
    ]
    base: Any = alt.Chart(inline(values or [{"text": "", "users": frame.users[0], "at": frame.axis.domain[1]}]))
    where = alt.X("users:Q", scale=x_scale), alt.Y("at:Q", scale=y_scale)
    return [base.mark_text(align="left", dx=9, **look).encode(*where, text="text:N") for look in written(colour)]
