"""Draw output against the speed for one user: a line per setting, through its numbers of users."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import pyarrow as pa

from servebench import claims
from servebench.charts.style import DASHES, FAINT, LINE, PAPER, Axis, Style, inline, log_ticks, width_px
from servebench.tables.files import Row, rows_of
from servebench.words.numbers import span

X, Y = "user_tok_s", "output_tok_s"


def points(tables: Mapping[str, pa.Table], run: str) -> list[Row]:
    """Read a point for each setting × users from `settings`, with whether it was concluded to be within the target.

    A schedule decides the output, so its settings are left out.
    """
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
            {"setting": row["setting"], "engine": row["engine_kind"], "users": row["users"]}
            | ends
            | {axis: (ends[f"{axis}_min"] * ends[f"{axis}_max"]) ** 0.5 for axis in "xy"}
            | {name: span(row[f"{name}_min"], row[f"{name}_max"]) for name in (X, Y)}
            | {"met": claim is not None and claim.verdict == "met" and claim.values["valid"]}
        )
    return found


def chosen(tables: Mapping[str, pa.Table], run: str, rows: Sequence[Row]) -> list[Row]:
    """List the points that the claims of kind `choice` name: which setting to run for that number of users."""
    named = {(name, claim.users) for claim in claims.of(tables, run, "choice") for name in claim.values["choose"]}
    return [row for row in rows if (row["setting"], row["users"]) in named]


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
    """Draw lines and points, pale discs behind those to run; the rule is the target's speed."""
    rows, limit = points(tables, run), style.line[X]
    if not rows:
        return style.nothing("tradeoff", limit=limit, settings=0)
    style = style.sized(800, 440)
    rows = [
        row
        | {
            "colour": style.colour(row["engine"]),
            "state": style.say(f"charts.tradeoff.{'met' if row['met'] else 'not'}"),
        }
        | {"fill": style.colour(row["engine"]) if row["met"] else PAPER[0]}
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
    tint = alt.Color("colour:N", scale=None)
    dash = alt.StrokeDash("setting:N", legend=None).scale(
        domain=settings, range=[list(DASHES[n % len(DASHES)]) for n in range(len(settings))]
    )
    base = alt.Chart(inline(rows))
    rule = alt.Chart(inline([{"limit": limit, "text": style.say("charts.tradeoff.limit", limit=limit)}]))
    at_limit = alt.X("limit:Q", scale=x_scale)
    names: Any = alt.Chart(inline(_ends(rows, settings, axis)))
    layers: list[Any] = [
        rule.mark_rule(strokeDash=[6, 4], strokeWidth=1.3, color=LINE[0]).encode(at_limit),
        rule.mark_text(align="left", dx=6, dy=-6, color=LINE[0], baseline="bottom").encode(
            at_limit, y=alt.value(style.height), text="text:N"
        ),
        base.mark_line(strokeWidth=1.6).encode(x, y, tint, strokeDash=dash, detail="setting:N", order="users:Q"),
        base.mark_rule(strokeWidth=2, opacity=0.45).encode(alt.X("x_min:Q", scale=x_scale), y, tint, x2="x_max:Q"),
        base.mark_rule(strokeWidth=2, opacity=0.45).encode(x, alt.Y("y_min:Q", scale=y_scale), tint, y2="y_max:Q"),
        base.mark_point(size=52, strokeWidth=1.6, opacity=1, fillOpacity=1).encode(
            x,
            y,
            tint,
            fill=alt.Fill("fill:N", scale=None),
            tooltip=style.tooltip(
                setting="setting:N", users="users:Q", output=f"{Y}:N", speed=f"{X}:N", state="state:N"
            ),
        ),
        alt.Chart(inline(labelled(tables, run, rows)))
        .mark_text(dy=-11, fontSize=10.5)
        .encode(x, y, tint, text="users:N"),
        *(
            names.mark_text(align="right", dx=-9, **halo).encode(
                x, alt.Y("at:Q", scale=y_scale), text="setting:N", **own
            )
            for halo, own in (({"stroke": PAPER[0], "strokeWidth": 3}, {}), ({}, {"color": tint}))
        ),
    ]
    if best := chosen(tables, run, rows):
        layers.insert(0, alt.Chart(inline(best)).mark_circle(size=420, color=FAINT[0], opacity=1).encode(x, y))
    drawn = alt.layer(*layers).properties(width=style.width, height=style.height)
    return style.finished(drawn, "tradeoff", limit=limit, settings=len(settings))


def _ends(rows: Sequence[Row], settings: Sequence[str], axis: Axis) -> list[Row]:
    """List the point of each setting with the most users, and where its name is written."""
    ends = [max((row for row in rows if row["setting"] == name), key=lambda row: row["users"]) for name in settings]
    ends.sort(key=lambda row: -row["y"])
    return [row | {"at": at} for row, at in zip(ends, axis.apart([row["y"] for row in ends]), strict=True)]
