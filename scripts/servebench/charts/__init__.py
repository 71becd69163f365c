"""Charts: tables in, Altair out, one module each. Adding one is a module, its words, and a line in NAMES.

A module names the table that has its values as TABLE where that is not `settings`.

Importing this package is cheap (the workflow does it at every start); a module is imported when it draws.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

    from servebench.charts.style import Style

# In the order in which the page shows them.
NAMES = (
    "output_bars",
    "speed_bars",
    "output_by_users",
    "ttft_by_users",
    "user_by_users",
    "queueing",
    "slots",
    "ratios",
    "slow_requests",
    "memory",
    "cost",
    "ttft_ecdf",
    "timeline",
    "scores",
    "differences",
    "agreement",
    "unstable",
    "client_error",
)


def chart(name: str, tables: Mapping[str, pa.Table], style: Style, run: str) -> Any:
    """The chart called `name` for one run, without the common look (`Style.look`), so that it can be put together."""
    return importlib.import_module(f"servebench.charts.{name}").chart(tables, style, run)


def whole(name: str, tables: Mapping[str, pa.Table], style: Style, runs: Sequence[str]) -> Any:
    """The chart for every run that it has data for, one below the other, each with axes of its own."""
    import altair as alt

    shown = runs_with_data(name, tables, runs) or list(runs[:1])
    charts = [chart(name, tables, style, run) for run in shown]
    for run, one in zip(shown, charts, strict=True):
        if run != runs[0]:
            one.title.subtitle = [style.say("charts.other_run", run=run), *one.title.subtitle]
    if len(charts) == 1:
        return style.look(charts[0])
    for one in charts:
        one.usermeta = alt.Undefined  # only the outermost chart may have any
    return style.look(alt.vconcat(*charts, spacing=48))


def runs_with_data(name: str, tables: Mapping[str, pa.Table], runs: Sequence[str]) -> list[str]:
    """The runs of which the chart would show something; what belongs to no run counts as the first."""
    module = importlib.import_module(f"servebench.charts.{name}")
    asked = runs[:1] if getattr(module, "OF_NO_RUN", False) else runs
    return [run for run in asked if module.points(tables, run)]


def table(name: str) -> str:
    """The table that has the values of the chart called `name`."""
    return str(getattr(importlib.import_module(f"servebench.charts.{name}"), "TABLE", "settings"))


def draw(style: Mapping[str, Any], results: Path) -> list[Path]:
    """Draw every chart of an experiment as `<results>/charts/<name>` .html and .svg; returns the paths.

    `style` is the configuration's `charts` section.
    """
    from servebench import plan as planning
    from servebench.charts.files import save
    from servebench.charts.style import Style
    from servebench.tables import read_all

    plan = planning.from_json((results / "plan.json").read_bytes())
    look, tables = Style.configured(style, plan), read_all(results / "tables")
    return [
        path
        for name in NAMES
        for path in save(whole(name, tables, look, list(plan.runs)), results / "charts" / name, look.language)
    ]


def pictures(results: Path) -> list[Path]:
    """Every chart that is drawn as `<results>/charts/<name>` .png; raises FontMissing when one is in Japanese and there
    is no font for it."""
    from servebench.charts.files import picture

    return [picture(results / "charts" / f"{name}.svg") for name in NAMES]
