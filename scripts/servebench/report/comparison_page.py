"""Lay out the page of `servebench compare`, in both languages, in the style of the report page."""

from __future__ import annotations

import jinja2
from markupsafe import Markup

import servebench
from servebench.report import comparison, spoken
from servebench.words.numbers import digits


def page(found: comparison.Comparison) -> str:
    """Render the page as text; it needs no other file."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(spoken.HERE), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    environment.globals.update(
        t=spoken.both, attribute=spoken.attribute, mark=spoken.mark, pair_claim=spoken.pair, digits=digits
    )
    return environment.get_template("compare.html").render(
        found=found,
        counts={figure: comparison.counts(found, figure) for figure in comparison.FIGURES},
        several=len({pair.run for pair in found.pairs}) > 1,
        version=servebench.__version__,
        css=Markup((spoken.HERE / "page.css").read_text(encoding="utf-8")),
        script=Markup((spoken.HERE / "page.js").read_text(encoding="utf-8")),
    )
