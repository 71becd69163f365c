"""Charts: tables in, Altair out, one module each. Adding one is a module, its words, and a line in CHARTS."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType

import altair as alt
import pyarrow as pa

from servebench.charts import output_by_users, ttft_by_users, user_by_users
from servebench.charts.files import save
from servebench.charts.style import LANGUAGES, FontMissing, Style

# In the order in which the page shows them.
CHARTS: Mapping[str, ModuleType] = {
    "output_by_users": output_by_users,
    "ttft_by_users": ttft_by_users,
    "user_by_users": user_by_users,
}

__all__ = ["CHARTS", "LANGUAGES", "FontMissing", "Style", "draw", "save", "stems", "write"]


def stems(runs: Sequence[str]) -> list[str]:
    """Names of the files, without language and ending: a chart of the first run by its name, others with `-<run>`."""
    return [_stem(name, run, runs) for run in runs for name in CHARTS]


def _stem(name: str, run: str, runs: Sequence[str]) -> str:
    return name if run == runs[0] else f"{name}-{run}"


def draw(
    tables: Mapping[str, pa.Table], style: Style, runs: Sequence[str]
) -> Iterator[tuple[str, str, alt.TopLevelMixin]]:
    """(stem, run, chart) for each chart of each run."""
    for run in runs:
        for name, module in CHARTS.items():
            yield _stem(name, run, runs), run, module.chart(tables, style, run)


def write(tables: Mapping[str, pa.Table], style: Style, runs: Sequence[str], directory: Path) -> list[Path]:
    """Save every chart as `<directory>/<language>/<stem>` .html, .svg and .png; returns the paths.

    Raises FontMissing when Japanese is asked for and there is no font for it.
    """
    paths = []
    for stem, _, chart in draw(tables, style, runs):
        paths += save(chart, directory / style.language / stem, style.language)
    return paths
