"""Draw one measurement over time: requests running, tokens each second, use of the device by others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt
import pyarrow as pa

from servebench import claims
from servebench.charts.style import FAINT, LINE, Style, inline
from servebench.tables.files import Row, rows_of
from servebench.words.marks import starred


def points(tables: Mapping[str, pa.Table], run: str) -> list[Row]:
    """Read the seconds of the run's measurement that is shown from `timeline`, without the last, partial."""
    best = _shown(tables, run)
    if best is None:
        return []
    ours = [row for row in rows_of(tables, "timeline", run) if _key(row) == _key(best)]
    ours.sort(key=lambda row: row["second"])
    return [row | {"engine": best["engine_kind"]} for row in ours[:-1]]


def _shown(tables: Mapping[str, pa.Table], run: str) -> Row | None:
    """Find the row of `measurements` that the claim of kind `highest` is about; None without one."""
    places = [(c.subjects[0], c.users, c.values["round"]) for c in claims.of(tables, run, "highest")]
    return next((row for row in rows_of(tables, "measurements", run) if _key(row) in places), None)


def _key(row: Row) -> tuple[Any, ...]:
    return row["setting"], row["users"], row["round"]


def chart(tables: Mapping[str, pa.Table], style: Style, run: str) -> Any:
    """Draw three plots over the same seconds; the window is shaded."""
    best, rows = _shown(tables, run), points(tables, run)
    values: dict[str, Any] = {name: best[name] if best else "–" for name in ("setting", "round")}
    scheduled = best is not None and best["setting"] in claims.of_schedules(tables, run)
    load = f"charts.load.{'connections' if scheduled else 'users'}"
    values["load"] = style.say(load, users=best["users"] if best else "–")
    if best is not None:
        values["setting"] = starred(best["setting"], best["invalid_reasons"])
    if best is None or not rows:
        return style.nothing("timeline", **values)
    style = style.sized(style.width, 110)
    rows.append(rows[-1] | {"second": rows[-1]["second"] + 1})  # the end of the last step
    shown = ["running", "output_tok_s"]
    shown += ["foreign_utilisation"] if any(row["foreign_utilisation"] is not None for row in rows) else []
    plots = [_plot(rows, name, best["window_s"], style, name == shown[-1]) for name in shown]
    return style.finished(alt.vconcat(*plots, spacing=10), "timeline", **values)


def _plot(rows: list[Row], name: str, window_s: float | None, style: Style, last: bool) -> Any:
    seconds = [row["second"] for row in rows]
    scale = alt.Scale(domain=[min(seconds), max(seconds)], nice=False, clamp=True)
    colour = LINE[0] if name == "foreign_utilisation" else style.colour(rows[0]["engine"])
    x = alt.X("second:Q", scale=scale, title=style.say("charts.timeline.x") if last else None)
    x = x.axis(grid=False, labels=last, tickCount=10)
    ceiling = max(row[name] or 0 for row in rows) * 1.08
    ceiling = max(ceiling, 10.0) if name == "foreign_utilisation" else ceiling or 1.0
    y = alt.Y(f"{name}:Q", title=style.say(f"charts.timeline.{name}"), scale=alt.Scale(domain=[0, ceiling], nice=False))
    base = alt.Chart(inline(rows))
    layers = [base.mark_area(interpolate="step-after", opacity=0.18, color=colour, line=False).encode(x, y)]
    layers.append(base.mark_line(interpolate="step-after", strokeWidth=1.6, color=colour).encode(x, y))
    if window_s:
        shade = alt.Chart(inline([{"from": 0, "to": window_s}])).mark_rect(color=FAINT[0], opacity=0.35)
        layers.insert(0, shade.encode(alt.X("from:Q", scale=scale), x2="to:Q"))
    return alt.layer(*layers).properties(width=style.width, height=style.height)
