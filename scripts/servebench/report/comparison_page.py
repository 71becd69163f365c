"""Lay out the page of `servebench compare`, in both languages, in the style of the report page."""

from __future__ import annotations

from servebench.report import comparison, spoken
from servebench.report.templates import fill
from servebench.words import LANGUAGES


def page(found: comparison.Comparison) -> str:
    """Render the page as text; it needs no other file."""
    names = " · ".join(one.plan.experiment for one in (found.first, found.second))
    return fill(
        "compare.html",
        dict.fromkeys(LANGUAGES, names),
        "",
        found=found,
        pair_claim=spoken.pair,
        counts={figure: comparison.counts(found, figure) for figure in comparison.FIGURES},
        several=len({pair.run for pair in found.pairs}) > 1,
    )
