"""Fill the templates of the pages: one frame, style and script for all of them."""

from __future__ import annotations

import gzip
import json
from base64 import b64encode
from collections.abc import Mapping
from functools import partial
from typing import Any

import jinja2
from markupsafe import Markup

import servebench
from servebench.charts.files import javascript
from servebench.report.content import SIGNS
from servebench.report.spoken import HERE, attribute, both, claim, counted, hover, mark, own_text, scored
from servebench.words import labels
from servebench.words.numbers import digits

NO_CHARTS: Mapping[str, Any] = {"charts": {}, "datasets": {}, "colours": []}


def packed(data: Mapping[str, Any]) -> str:
    """Pack the script's input for the page: JSON, gzip, base64. The same data gives the same text."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def fill(
    name: str,
    title: Mapping[str, str],
    brand: str,
    data: Mapping[str, Any] = NO_CHARTS,
    *,
    rounds: int = 2,
    **values: Any,
) -> str:
    """Render a page as text; it needs no other file.

    title, brand: of the window and beside the project's name. data: the script's input: specifications of charts by
    language, their data sets, and colours in light and dark. rounds: of the experiment, for words that name them.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    environment.globals.update(own=own_text, mark=mark, hover=hover, claim=claim, digits=digits, signs=SIGNS)
    environment.globals.update(told=counted, scored=scored, measures=labels()["claims"]["measures"])
    environment.globals.update(t=partial(both, rounds=rounds), attribute=partial(attribute, rounds=rounds))
    return environment.get_template(name).render(
        title=title,
        brand=brand,
        version=servebench.__version__,
        css=Markup((HERE / "page.css").read_text(encoding="utf-8")),
        script=Markup((HERE / "page.js").read_text(encoding="utf-8")),
        vega=Markup(javascript()) if data["charts"] else None,
        data=packed(data),
        **{"print_all": False, **values},
    )
