"""Lay out the page of `servebench compare`, in both languages, in the style of the report page."""

from __future__ import annotations

from collections.abc import Sequence

from servebench.charts import dumbbell
from servebench.charts.style import Style
from servebench.report import comparison, spoken
from servebench.report.comparison import Pair
from servebench.report.drawing import Drawing
from servebench.report.fold import Fold
from servebench.report.templates import fill
from servebench.tables.files import Row
from servebench.verdicts.leaders import PAIRED
from servebench.words import LANGUAGES, words
from servebench.words.claims import said
from servebench.words.numbers import digits


def page(found: comparison.Comparison) -> str:
    """Render the page as text; it needs no other file."""
    names = " · ".join(one.plan.experiment for one in (found.first, found.second))
    sizes = list(map(said, found.sizes))
    drawing = Drawing()
    for figure in PAIRED:
        rows = points([pair for pair in found.pairs if pair.figure == figure])
        if not rows:
            continue
        looks = {language: Style(language=language) for language in LANGUAGES}
        made = {language: (look, dumbbell.chart(rows, look, figure)) for language, look in looks.items()}
        finding = {language: " ".join(size[language] for size in sizes) for language in LANGUAGES}
        drawing.add(f"dumbbell-{figure}", made, finding, _listed(figure, rows), figure=figure)
    return fill(
        "compare.html",
        dict.fromkeys(LANGUAGES, names),
        "",
        drawing.data,
        found=found,
        figures=drawing.figures,
        pair_claim=spoken.pair,
        counts={figure: comparison.counts(found, figure) for figure in PAIRED},
        heads={name: f"compare.{name}" for name in ("figure", "first", "second", "ratio", "verdict")},
        measured=comparison.MEASURED,
        several=len({pair.run for pair in found.pairs}) > 1,
    )


def points(pairs: Sequence[Pair]) -> list[Row]:
    """List a row for each pair with positive values: name, middles `a` and `b` of the ranges, and the texts."""
    several = len({pair.run for pair in pairs}) > 1
    rows = []
    for pair in pairs:
        a, b = (None if None in ends else (ends[0] * ends[1]) ** 0.5 for ends in pair.ranges)  # type: ignore[operator]
        if a and b:
            name = f"{f'{pair.run} · ' if several else ''}{pair.setting} · {pair.users}"
            texts = {"first": pair.first, "second": pair.second, "ratio": digits(pair.ratio)}
            rows.append({"name": name, "a": a, "b": b, **texts})
    return rows


def _listed(figure: str, rows: Sequence[Row]) -> Fold:
    heads = [words("page.compare.row"), *(words(f"page.compare.{name}") for name in ("first", "second", "ratio"))]
    cells = [(row["name"], row["first"], row["second"], row["ratio"]) for row in rows]
    return Fold(id=f"values-dumbbell-{figure}", name=words("charts.values"), heads=heads, rows=cells)
