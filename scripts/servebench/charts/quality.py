"""Draw each target's scores as differences to the baseline, in points, both repeats on one row: a forest plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import pyarrow as pa

from servebench.charts.style import FAINT, INK, PAPER, Style, grouped, inline, width_px
from servebench.tables.files import Row, rows_of
from servebench.words.claims import measure

ROW_PX = 26


def points(tables: Mapping[str, pa.Table], run: str) -> list[Row]:
    """Read a point for each target × measure × repeat from `comparisons`, with its score from `scores`."""
    scores = {(row["target"], row["measure"], row["repeat"]): row for row in rows_of(tables, "scores")}
    found = []
    for row in rows_of(tables, "comparisons"):
        score = scores.get((row["target"], row["measure"], row["repeat"]))
        found.append(
            {
                "measure": row["measure"],
                "target": row["target"],
                "repeat": str(row["repeat"]),
                "low": row["low"],
                "high": row["high"],
                "middle": row["difference"],
                "difference": f"{row['difference']:+.1f} ({row['low']:+.1f} – {row['high']:+.1f})",
                "margin": row["margin"],
                "score": f"{100 * score['share']:.1f} % ({score['count']}/{score['n']})" if score else "–",
                "lower_is_better": bool(score and score["lower_is_better"]),
                "baseline": row["baseline"],
            }
        )
    return sorted(found, key=lambda row: row["measure"])


def chart(tables: Mapping[str, pa.Table], style: Style, run: str) -> Any:
    """Draw a group per measure; the rule is no difference, the grey band the declared margin."""
    rows = points(tables, run)
    if not rows:
        return style.nothing("quality", baseline="–", targets=0)
    lower = style.say("charts.quality.lower")
    rows = [
        row | {"group": measure(row["measure"])[style.language] + (f" {lower}" if row["lower_is_better"] else "")}
        for row in rows
    ]
    room = max(width_px(row["score"]) for row in rows) + 18
    ends = [value for row in rows for value in (row["low"], row["high"], row["margin"] or 0, -(row["margin"] or 0))]
    low, high = min(0, *ends), max(0, *ends)
    share = room / style.width
    scale = alt.Scale(domain=[low - 0.03 * (high - low), low + (high - low) / (1 - share)], nice=False)

    def draw(own: Sequence[Row], last: bool) -> Any:
        x = alt.X("middle:Q", scale=scale, title=style.say("charts.quality.x") if last else None).axis(
            labels=last, ticks=last, domain=last, tickCount=8, labelExpr="(datum.value > 0 ? '+' : '') + datum.label"
        )
        y = alt.Y("target:N", sort=list(dict.fromkeys(row["target"] for row in own)), title=None).axis(
            ticks=False, domain=False, labelPadding=8, labelFontSize=12.5
        )
        offset = alt.YOffset("repeat:N", sort=["1", "2"]).scale(paddingOuter=0.6)
        base = alt.Chart(inline(own))
        first = alt.Chart(inline([row for row in own if row["repeat"] == "1"] or own))
        margin = own[0]["margin"]
        fixed = alt.Chart(inline([{"zero": 0.0, "from": -(margin or 0), "to": margin or 0, "edge": high}]))
        layers = [
            *(
                [fixed.mark_rect(color=FAINT[0], opacity=0.6).encode(alt.X("from:Q", scale=scale), x2="to:Q")]
                if margin
                else []
            ),
            fixed.mark_rule(color=INK[0], strokeWidth=1).encode(alt.X("zero:Q", scale=scale)),
            base.mark_rule(strokeWidth=3, opacity=0.5, color=INK[0]).encode(
                alt.X("low:Q", scale=scale), y, x2="high:Q", yOffset=offset
            ),
            base.mark_point(size=56, filled=True, opacity=1, color=INK[0], stroke=PAPER[0], strokeWidth=1).encode(
                x,
                y,
                yOffset=offset,
                tooltip=style.tooltip(target="target:N", repeat="repeat:N", difference="difference:N", score="score:N"),
            ),
            first.transform_calculate(edge=str(high))
            .mark_text(align="left", dx=10)
            .encode(alt.X("edge:Q", scale=scale), y, text="score:N"),
        ]
        return alt.layer(*layers).properties(width=style.width, height={"step": ROW_PX, "for": "position"})

    targets = len({row["target"] for row in rows})
    return style.finished(grouped(rows, draw), "quality", room=room, baseline=rows[0]["baseline"], targets=targets)
