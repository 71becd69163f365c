"""Draw output against the speed for one user: a line per setting, through its numbers of users."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import pyarrow as pa

from servebench import claims
from servebench.charts.style import (
    DASHES,
    FAINT,
    INK,
    LABEL_GAP_PX,
    LINE,
    MUTED,
    PAPER,
    Axis,
    Style,
    inline,
    log_ticks,
    width_px,
    written,
)
from servebench.tables.cost import usd_per_million_tokens
from servebench.tables.files import Row, rows_of
from servebench.words.numbers import digits, span

X, Y = "user_tok_s", "output_tok_s"


def points(tables: Mapping[str, pa.Table], run: str) -> list[Row]:
    """Read a point for each setting × users from `settings`, with whether it was concluded to be within the target.

    A schedule decides the output, so its settings are left out. `usd`, for a million output tokens, is None without a
    price.
    """
    prices = {(row["setting"], row["users"]): row for row in rows_of(tables, "cost", run)}
    judged = {(claim.subjects[0], claim.users): claim for claim in claims.of(tables, run, "level")}
    found = []
    schedules = claims.of_schedules(tables, run)
    for row in rows_of(tables, "settings", run):
        if row["setting"] in schedules:
            continue
        claim = judged.get((row["setting"], row["users"]))
        if not row[f"{X}_min"] or not row[f"{Y}_min"] or (claim is not None and claim.verdict == "failed"):
            continue
        ends = {f"{axis}_{end}": row[f"{name}_{end}"] for axis, name in (("x", X), ("y", Y)) for end in ("min", "max")}
        found.append(
            {"setting": row["setting"], "engine": row["engine_kind"], "slots": row["slots"], "users": row["users"]}
            | ends
            | {axis: (ends[f"{axis}_min"] * ends[f"{axis}_max"]) ** 0.5 for axis in "xy"}
            | {name: span(row[f"{name}_min"], row[f"{name}_max"]) for name in (X, Y)}
            | {"usd": _usd(prices.get((row["setting"], row["users"])))}
            | {"met": claim is not None and claim.verdict == "met" and claim.values["valid"]}
        )
    return found


def _usd(row: Row | None) -> str | None:
    return None if row is None else span(row["usd_per_million_tokens_min"], row["usd_per_million_tokens_max"])


def chosen(tables: Mapping[str, pa.Table], run: str, rows: Sequence[Row]) -> list[Row]:
    """List the points that the claims of kind `choice` name: which setting to run for that number of users."""
    named = {(name, claim.users) for claim in claims.of(tables, run, "choice") for name in claim.values["choose"]}
    return [row for row in rows if (row["setting"], row["users"]) in named]


def frontier(rows: Sequence[Row]) -> list[Row]:
    """List the points within the target with more output than any other that is as fast or faster, by rising speed."""
    found: list[Row] = []
    for row in sorted((row for row in rows if row["met"]), key=lambda row: (-row["x"], -row["y"])):
        if not found or row["y"] > found[-1]["y"]:
            found.append(row)
    return found[::-1]


def labelled(tables: Mapping[str, pa.Table], run: str, rows: Sequence[Row]) -> list[Row]:
    """List the points of one setting of each engine, that which serves the most users: users are written at them."""
    serves = {claim.subjects[0]: claim.users or 0 for claim in claims.of(tables, run, "capacity")}
    engines = {row["setting"]: row["engine"] for row in rows}
    chosen = {
        max((name for name in engines if engines[name] == engine), key=lambda name: serves.get(name, 0))
        for engine in engines.values()
    }
    return [row for row in rows if row["setting"] in chosen]


def chart(tables: Mapping[str, pa.Table], style: Style, run: str) -> Any:
    """Draw lines and points, pale steps along the frontier, discs behind those to run; the rule is the target."""
    rows, limit = points(tables, run), style.line[X]
    if not rows:
        return style.nothing("tradeoff", limit=limit, settings=0)
    style = style.sized(800, 440)
    rows = [
        row
        | {
            "colour": style.colour(row["engine"]),
            "shade": (shade := style.shade(row["engine"], row["slots"])),
            "state": style.say(f"charts.tradeoff.{'met' if row['met'] else 'not'}"),
        }
        | {"fill": shade if row["met"] else PAPER[0]}
        for row in rows
    ]
    settings = list(dict.fromkeys(row["setting"] for row in rows))
    room = max(map(width_px, settings)) + 16
    low, high = min(limit, *(row["x_min"] for row in rows)) / 1.1, max(limit, *(row["x_max"] for row in rows)) * 1.15
    x_scale = alt.Scale(type="log", domain=[low * (low / high) ** (room / (style.width - room)), high], nice=False)
    axis = Axis(
        (min(row["y_min"] for row in rows) / 1.25, max(row["y_max"] for row in rows) * 1.25), style.height, True
    )
    y_scale = alt.Scale(type="log", domain=axis.domain, nice=False)
    x = alt.X("x:Q", scale=x_scale, title=style.say("charts.tradeoff.x")).axis(values=log_ticks(low, high), format="~r")
    y = alt.Y("y:Q", scale=y_scale, title=style.say("charts.tradeoff.y")).axis(
        values=log_ticks(*axis.domain), format=",~r"
    )
    tint, shade_of = alt.Color("colour:N", scale=None), alt.Color("shade:N", scale=None)
    dash = alt.StrokeDash("setting:N", legend=None).scale(
        domain=settings, range=[list(DASHES[n % len(DASHES)]) for n in range(len(settings))]
    )
    base = alt.Chart(inline(rows))
    users = labelled(tables, run, rows)
    priced = rows_of(tables, "cost", run)
    shown = {"usd": "usd:N"} if priced else {}
    rule = alt.Chart(inline([{"limit": limit, "text": style.say("charts.tradeoff.limit", limit=limit)}]))
    at_limit = alt.X("limit:Q", scale=x_scale)
    names = _named(rows, users, settings, style, x_scale["domain"], axis)
    layers: list[Any] = [
        rule.mark_rule(strokeDash=[6, 4], strokeWidth=1.3, color=LINE[0]).encode(at_limit),
        rule.mark_text(align="left", dx=6, dy=-6, color=LINE[0], baseline="bottom").encode(
            at_limit, y=alt.value(style.height), text="text:N"
        ),
        base.mark_line(strokeWidth=1.6).encode(x, y, shade_of, strokeDash=dash, detail="setting:N", order="users:Q"),
        base.mark_rule(strokeWidth=2, opacity=0.45).encode(alt.X("x_min:Q", scale=x_scale), y, shade_of, x2="x_max:Q"),
        base.mark_rule(strokeWidth=2, opacity=0.45).encode(x, alt.Y("y_min:Q", scale=y_scale), shade_of, y2="y_max:Q"),
        base.mark_point(size=52, strokeWidth=1.6, opacity=1, fillOpacity=1).encode(
            x,
            y,
            shade_of,
            fill=alt.Fill("fill:N", scale=None),
            tooltip=style.tooltip(
                setting="setting:N", users="users:Q", output=f"{Y}:N", speed=f"{X}:N", **shown, state="state:N"
            ),
        ),
        *(
            alt.Chart(inline(users)).mark_text(dy=-11, fontSize=10.5, **halo).encode(x, y, text="users:N", **own)
            for halo, own in zip(written(None), ({}, {"color": tint}), strict=True)
        ),
        *(
            alt.Chart(inline(beside))
            .mark_text(align=align, dx=dx, **halo)  # type: ignore[arg-type]
            .encode(x, alt.Y("at:Q", scale=y_scale), text="setting:N", **own)
            for align, dx in (("right", -9), ("left", 9))
            if (beside := [row for row in names if row["align"] == align])
            for halo, own in zip(written(None), ({}, {"color": tint}), strict=True)
        ),
        *(_prices(priced[0]["price_per_hour"], axis, y_scale, style) if priced else ()),
    ]
    if best := chosen(tables, run, rows):
        layers.insert(0, alt.Chart(inline(best)).mark_circle(size=420, color=FAINT[0], opacity=1).encode(x, y))
    if len(best := frontier(rows)) > 1:
        steps = alt.Chart(inline(best)).mark_line(interpolate="step-before", strokeWidth=6, color=FAINT[0])
        layers.insert(0, steps.encode(x, y, order="x:Q"))
    drawn = alt.layer(*layers).properties(width=style.width, height=style.height)
    return style.finished(drawn, "tradeoff", limit=limit, settings=len(settings))


def _named(
    rows: Sequence[Row],
    users: Sequence[Row],
    settings: Sequence[str],
    style: Style,
    x_domain: Sequence[float],
    axis: Axis,
) -> list[Row]:
    """List the point of each setting with the most users, and where its name is written: where it covers least.

    The name stands on one side (`align`) of the point, at the height of the value `at`.
    """
    low, high = map(math.log, x_domain)
    place = {id(row): (style.width * (math.log(row["x"]) - low) / (high - low), axis.pixel(row["y"])) for row in rows}
    covered = [(x - 5, y - 5, x + 5, y + 5) for x, y in place.values()]
    covered += [(x - 8, y - 18, x + 8, y - 6) for x, y in (place[id(row)] for row in users)]
    limit = style.width * (math.log(style.line[X]) - low) / (high - low)
    named: list[Row] = []
    boxes: list[tuple[float, ...]] = []
    ends = [max((row for row in rows if row["setting"] == name), key=lambda row: row["users"]) for name in settings]
    for row in sorted(ends, key=lambda row: -row["y"]):
        (x, y), wide = place[id(row)], width_px(row["setting"])
        options = []
        for lines in (0, -1, 1, -2, 2, -3, 3):
            for align, left in (("right", x - 9 - wide), ("left", x + 9)):
                middle = y + lines * LABEL_GAP_PX
                box = (left, middle - 6, left + wide, middle + 6)
                outside = left < 0 or left + wide > style.width or not 6 < middle < axis.height - 6
                hits = sum(_meet(box, other) for other in covered) + 3 * sum(_meet(box, other) for other in boxes)
                crossed = left < limit < left + wide
                cost = 50 * outside + 2 * hits + crossed + 0.7 * abs(lines) + 0.1 * (align == "left")
                options.append((cost, align, middle, box))
        _, align, middle, box = min(options, key=lambda option: option[0])
        boxes.append(box)
        named.append(row | {"at": axis.value(middle), "align": align})
    return named


def _meet(one: Sequence[float], other: Sequence[float]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _prices(price_per_hour: float, axis: Axis, y_scale: alt.Scale, style: Style) -> list[Any]:
    """Write on the right what a million output tokens cost at that output."""
    low, high = (usd_per_million_tokens(price_per_hour, end) for end in reversed(axis.domain))
    ticks = [{"y": usd_per_million_tokens(price_per_hour, usd), "text": digits(usd)} for usd in log_ticks(low, high)]
    title = inline([{"text": style.say("charts.tradeoff.usd")}])
    right: Any = alt.value("width")
    return [
        alt.Chart(inline(ticks))
        .mark_text(align="left", dx=8, color=MUTED[0])
        .encode(x=right, y=alt.Y("y:Q", scale=y_scale), text="text:N"),
        alt.Chart(title)
        .mark_text(align="right", dx=38, dy=-10, fontSize=12, color=INK[0])
        .encode(x=right, y=alt.value(0), text="text:N"),
    ]
