"""Write each chart to files: an HTML page, SVG and PNG. Neither writing nor viewing fetches anything."""

from __future__ import annotations

import html
import json
import re
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import altair as alt
import vl_convert

from servebench.charts.style import FontMissing, font_directory

_JAPANESE = re.compile("[\u3000-\u9fff\uf900-\ufaff\uff00-\uffef]")
VEGALITE = ".".join(alt.SCHEMA_VERSION.lstrip("v").split(".")[:2])
PNG_SCALE = 2


@cache
def javascript() -> str:
    """Bundle Vega, Vega-Lite and vega-embed in one script, safe inside <script>; takes seconds the first time."""
    bundle: str = vl_convert.javascript_bundle(None, vl_version=VEGALITE)  # type: ignore[arg-type]
    return bundle.replace("</script", "<\\/script")


@cache
def _register(folder: Path) -> None:
    vl_convert.register_font_directory(str(folder))


def _fonts() -> None:
    """Register our font, if installed; otherwise this machine's fonts are used."""
    with suppress(FontMissing):
        _register(font_directory())


def save(chart: alt.TopLevelMixin, stem: Path, language: str = "en") -> list[Path]:
    """Save as `<stem>.html` and `.svg`; both use the fonts of the machine that shows them."""
    specification = chart.to_dict()
    _fonts()
    stem.parent.mkdir(parents=True, exist_ok=True)
    contents = {
        ".html": page(specification, language),
        ".svg": vl_convert.vegalite_to_svg(specification, vl_version=VEGALITE),
    }
    paths = []
    for ending, content in contents.items():
        path = stem.with_name(stem.name + ending)
        path.write_text(content, encoding="utf-8")
        paths.append(path)
    return paths


def picture(drawing: Path) -> Path:
    """Convert an .svg to a .png beside it. Raises FontMissing when no font has its Japanese characters."""
    content = drawing.read_text(encoding="utf-8")
    if _JAPANESE.search(content):
        font_directory()
    _fonts()
    path = drawing.with_suffix(".png")
    path.write_bytes(vl_convert.svg_to_png(content, scale=PNG_SCALE))
    return path


def page(specification: dict[str, Any], language: str) -> str:
    """Make a page of one chart that needs no network."""
    title = specification.get("title", {})
    name = html.escape(str(title.get("text", "servebench")))
    text = html.escape(str(specification.get("description", "")))
    content = json.dumps(specification, ensure_ascii=False).replace("</", "<\\/")
    return (
        f'<!doctype html>\n<html lang="{language}"><head><meta charset="utf-8"><title>{name}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<style>body{margin:0}</style></head>\n"
        f'<body><main id="chart" role="img" aria-label="{text}"></main>\n<script>{javascript()}</script>\n'
        f'<script>vegaEmbed("#chart", {content}, {{renderer: "svg", actions: false}})</script></body></html>\n'
    )
