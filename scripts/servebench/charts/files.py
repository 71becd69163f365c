"""Charts to files: a page of its own, SVG and PNG. Nothing is fetched, neither now nor when they are looked at."""

from __future__ import annotations

import html
import json
from functools import cache
from pathlib import Path
from typing import Any

import altair as alt
import vl_convert

from servebench.charts.style import font_directory

VEGALITE = ".".join(alt.SCHEMA_VERSION.lstrip("v").split(".")[:2])
PNG_SCALE = 2


@cache
def javascript() -> str:
    """Vega, Vega-Lite and vega-embed in one script, safe to stand inside <script>; takes seconds the first time."""
    bundle: str = vl_convert.javascript_bundle(None, vl_version=VEGALITE)  # type: ignore[arg-type]
    return bundle.replace("</script", "<\\/script")


@cache
def _fonts() -> None:
    vl_convert.register_font_directory(str(font_directory()))


def save(chart: alt.TopLevelMixin, stem: Path, language: str = "en") -> list[Path]:
    """Save as `<stem>.html`, `.svg`, `.png`; raises FontMissing when there is no font for Japanese."""
    specification = chart.to_dict()
    if language == "ja" or _has_japanese(json.dumps(specification, ensure_ascii=False)):
        font_directory()
    _fonts()
    stem.parent.mkdir(parents=True, exist_ok=True)
    contents: dict[str, bytes] = {
        ".html": page(specification, language).encode(),
        ".svg": vl_convert.vegalite_to_svg(specification, vl_version=VEGALITE).encode(),
        ".png": vl_convert.vegalite_to_png(specification, vl_version=VEGALITE, scale=PNG_SCALE),
    }
    paths = []
    for ending, content in contents.items():
        path = stem.with_name(stem.name + ending)
        path.write_bytes(content)
        paths.append(path)
    return paths


def _has_japanese(text: str) -> bool:
    return any("\u3040" <= c <= "\u9fff" for c in text)


def page(specification: dict[str, Any], language: str) -> str:
    """One chart as a page of its own that needs no network."""
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
