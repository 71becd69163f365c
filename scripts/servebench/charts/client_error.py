"""Draw the load generator's own error: how late it saw the first token of a server whose clock is known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt
import pyarrow as pa

from servebench.charts.style import DASHES, INK, Style, inline, log_ticks
from servebench.tables.files import Row, rows_of
from servebench.words import labels
from servebench.words.numbers import digits


def points(tables: Mapping[str, pa.Table], run: str) -> list[Row]:
    """Read the errors from `calibration`: milliseconds, p99."""
    return [
        {"variant": row["variant"], "users": row["users"], "error": 1000 * row["ttft_error_p99_s"]}
        for row in rows_of(tables, "calibration", run)
        if row["ttft_error_p99_s"] is not None and row["ttft_error_p99_s"] > 0
    ]


def chart(tables: Mapping[str, pa.Table], style: Style, run: str) -> Any:
    """Draw a line per schedule of the clock server."""
    rows = points(tables, run)
    most = max((row["max_users"] for row in rows_of(tables, "calibration", run)), default=0)
    if not rows:
        return style.nothing("client_error", most=most)
    said = labels()["charts"]["client_error"]["variants"]
    rows = [
        row
        | {"shown": digits(row["error"]), "variant": said.get(row["variant"], {}).get(style.language, row["variant"])}
        for row in rows
    ]
    users = sorted({row["users"] for row in rows})
    variants = list(dict.fromkeys(row["variant"] for row in rows))
    legend = alt.Legend(title=None, orient="bottom", symbolType="stroke")
    domain = [min(row["error"] for row in rows) / 1.5, max(row["error"] for row in rows) * 1.5]
    x_scale, y_scale = alt.Scale(type="log", base=2, padding=20), alt.Scale(type="log", domain=domain, nice=False)
    y = alt.Y("error:Q", scale=y_scale, title=style.say("charts.client_error.y"))
    drawn = (
        alt.Chart(inline(rows))
        .mark_line(color=INK[0], point={"size": 50, "color": INK[0]}, strokeWidth=1.5)
        .encode(
            alt.X("users:Q", scale=x_scale, title=style.say("charts.client_error.x")).axis(values=users, grid=False),
            y.axis(format="~r", values=log_ticks(*domain)),
            strokeDash=alt.StrokeDash("variant:N", legend=legend).scale(
                domain=variants, range=[list(dash) for dash in DASHES[: len(variants)]]
            ),
            tooltip=style.tooltip(variant="variant:N", users="users:Q", error="shown:N"),
        )
    )
    style = style.sized(style.width, 220)
    return style.finished(drawn.properties(width=style.width, height=style.height), "client_error", most=most)
