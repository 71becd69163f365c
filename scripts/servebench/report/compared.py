"""The page of `servebench compare`: two experiments side by side, in both languages, in the style of the page."""

from __future__ import annotations

import jinja2
from markupsafe import Markup

import servebench
from servebench import compare, report
from servebench.charts.style import digits


def page(found: compare.Comparison) -> str:
    """The page as text; it needs nothing beside itself."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(report.HERE), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    environment.globals.update(t=report.both, attribute=report.attribute, mark=report.mark, digits=digits)
    return environment.get_template("compare.html").render(
        found=found,
        counts={figure: compare.counts(found, figure) for figure in compare.FIGURES},
        several=len({pair.run for pair in found.pairs}) > 1,
        version=servebench.__version__,
        css=Markup((report.HERE / "page.css").read_text(encoding="utf-8")),
        script=Markup((report.HERE / "page.js").read_text(encoding="utf-8")),
    )
