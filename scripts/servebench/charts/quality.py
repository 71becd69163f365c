"""Draw each target's scores as differences to the baseline, in points, both repeats on one row: a forest plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import pyarrow as pa

from servebench.charts.bars import compared
from servebench.charts.style import FAINT, INK, MUTED, PAPER, Style, grouped, inline, ticks_between, width_px
from servebench.tables.files import Row, rows_of
from servebench.words.claims import measure
from servebench.words.numbers import digits, span

ROW_PX = 26
COLUMNS = ("score", "p", "gib", "output_tok_s")  # written beside the plot, from left to right
GAP_PX = 16
UNKNOWN: Row = dict.fromkeys(("setting", "users", "gib", "output_tok_s"))


def points(tables: Mapping[str, pa.Table], run: str) -> list[Row]:
    """Read a point for each target × measure × repeat from `comparisons`, with its score from `scores`.

    `p` is that of all repeats together. `gib` and `output_tok_s` are those of a `setting` of the run with the target's
    model: that with the most output where outputs are compared, of the same engine if there is one; None without one.
    """
    scores = {(row["target"], row["measure"], row["repeat"]): row for row in rows_of(tables, "scores")}
    means = {row["target"]: _means(tables, row, run) for row in rows_of(tables, "targets")}
    found = []
    for row in rows_of(tables, "comparisons"):
        score = scores.get((row["target"], row["measure"], row["repeat"]))
        p = row["p_holm"] if row["combined_p_holm"] is None else row["combined_p_holm"]
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
                "p": None if p is None else digits(p),
            }
            | means.get(row["target"], UNKNOWN)
        )
    return sorted(found, key=lambda row: row["measure"])


def _means(tables: Mapping[str, pa.Table], target: Row, run: str) -> dict[str, Any]:
    """Return what a setting with the target's model gives and needs."""
    own = [row for row in compared(tables, run) if row["model"] == target["model"]]
    own = [row for row in own if row["engine"] == target["engine"]] or own
    best = max(own, key=lambda row: row["output_tok_s_min"], default=None)
    if best is None:
        return UNKNOWN
    memory = {row["setting"]: row["measured_gib"] for row in rows_of(tables, "memory", run)}
    gib = memory.get(best["setting"])
    return {
        "setting": best["setting"],
        "users": best["users"],
        "gib": None if gib is None else digits(gib),
        "output_tok_s": span(best["output_tok_s_min"], best["output_tok_s_max"]),
    }


def chart(tables: Mapping[str, pa.Table], style: Style, run: str) -> Any:
    """Draw a group per measure; the rule is no difference, the grey band the declared margin."""
    rows = points(tables, run)
    if not rows:
        return style.nothing("quality", baseline="–", targets=0, means="")
    lower = style.say("charts.quality.lower")
    rows = [
        row | {"group": measure(row["measure"])[style.language] + (f" {lower}" if row["lower_is_better"] else "")}
        for row in rows
    ]
    columns, room = _columns(rows, style)
    ends = [value for row in rows for value in (row["low"], row["high"], row["margin"] or 0, -(row["margin"] or 0))]
    low, high = min(0, *ends), max(0, *ends)
    share = room / style.width
    scale = alt.Scale(domain=[low - 0.03 * (high - low), low + (high - low) / (1 - share)], nice=False)

    def draw(own: Sequence[Row], last: bool) -> Any:
        x = alt.X("middle:Q", scale=scale, title=style.say("charts.quality.x") if last else None).axis(
            values=ticks_between(low, high),
            labels=last,
            ticks=last,
            domain=last,
            labelExpr="(datum.value > 0 ? '+' : '') + datum.label",
        )
        y = alt.Y("target:N", sort=list(dict.fromkeys(row["target"] for row in own)), title=None).axis(
            ticks=False, domain=False, labelPadding=8, labelFontSize=12.5
        )
        offset = alt.YOffset("repeat:N", sort=["1", "2"]).scale(paddingOuter=0.6)
        base = alt.Chart(inline(own))
        first = [row for row in own if row["repeat"] == own[0]["repeat"]]
        margin = own[0]["margin"]
        fixed = alt.Chart(inline([{"zero": 0.0, "from": -(margin or 0), "to": margin or 0}]))
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
            *(
                alt.Chart(inline({"edge": high, "target": row["target"], "text": row[name] or "–"} for row in first))
                .mark_text(align="right", dx=right)
                .encode(alt.X("edge:Q", scale=scale), y, text="text:N")
                for name, right in columns.items()
            ),
        ]
        if own[0] is rows[0]:  # above the first group
            layers += [
                alt.Chart(inline([{"edge": high, "text": style.say(f"charts.quality.{name}")}]))
                .mark_text(align="right", dx=right, color=MUTED[0])
                .encode(alt.X("edge:Q", scale=scale), y=alt.value(-12), text="text:N")
                for name, right in columns.items()
            ]
        return alt.layer(*layers).properties(width=style.width, height={"step": ROW_PX, "for": "position"})

    targets = len({row["target"] for row in rows})
    users = next((row["users"] for row in rows if row["users"] is not None), None)
    return style.finished(
        grouped(rows, draw),
        "quality",
        room=room,
        baseline=rows[0]["baseline"],
        targets=targets,
        means="" if users is None else style.say("charts.quality.means", users=users),
    )


def _columns(rows: Sequence[Row], style: Style) -> tuple[dict[str, float], float]:
    """Return how far right of the plot's last value each column with any value ends, in pixels, and the room of all."""
    ends, right = {}, 4.0
    for name in COLUMNS:
        texts = [row[name] for row in rows if row[name] is not None]
        if texts:
            right += GAP_PX + max(map(width_px, [*texts, style.say(f"charts.quality.{name}")]))
            ends[name] = right
    return ends, right + 4
