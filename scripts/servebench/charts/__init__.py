"""List the charts, and draw them: tables in, Altair out, one module for each chart.

To add a chart, write its module and its words, and add an entry to `CHARTS`. The workflow imports this package at every
start, so a chart's module is imported only when the chart is drawn.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from servebench import claims
from servebench.plan.layout import Layout

if TYPE_CHECKING:
    import pyarrow as pa

    from servebench.charts.style import Style


@dataclass(frozen=True, slots=True)
class Place:
    """Name a section of `snakemake --report`, and its caption, a file of rules/captions without `.rst`."""

    category: str
    caption: str


@dataclass(frozen=True, slots=True)
class Chart:
    """Describe one chart.

    name: of its module, of its words (`charts.NAME` in labels.yaml) and of its files. columns: the fields of its points
    (`values` of its module, where it has one) that the table below it shows. finds: kinds of claims that say what the
    chart shows. of_runs: whether it is drawn for each run; False when its values belong to no run.
    """

    name: str
    place: Place
    columns: tuple[str, ...]
    finds: tuple[str, ...] = ()
    of_runs: bool = True


SPEED = Place("Speed", "speed")
WAITING = Place("Waiting", "waiting")
CHANGES = Place("Against the control", "changes")
MEANS = Place("Memory and cost", "means")
ANSWERS = Place("Answers", "answers")
TRUST = Place("Trust", "trust")

# In the order in which the page shows them.
CHARTS: Mapping[str, Chart] = {
    chart.name: chart
    for chart in (
        Chart(
            "tradeoff", SPEED, ("setting", "users", "output_tok_s", "user_tok_s", "usd", "met"), ("capacity", "leader")
        ),
        Chart("output_bars", SPEED, ("group", "name", "range"), ("leader",)),
        Chart(
            "output_by_users",
            WAITING,
            ("setting", "users", "range", "predicted", "reached", "fit", "marks"),
            ("leader",),
        ),
        Chart("user_by_users", WAITING, ("setting", "users", "range", "predicted", "reached", "marks"), ("capacity",)),
        Chart("ttft_by_users", WAITING, ("setting", "users", "range", "marks"), ("capacity",)),
        Chart("depth", SPEED, ("series", "prompt_tokens", "users", "prefill", "decode", "marks"), of_runs=False),
        Chart("ttft_ecdf", WAITING, ("setting", "users", "round", "p50", "p90", "p95", "p99")),
        Chart("slow_requests", WAITING, ("name", "kind", "share", "low", "high"), ("slow",)),
        Chart("ratios", CHANGES, ("group", "name", "text", "marks")),
        Chart("memory", MEANS, ("name", "part", "size"), ("memory",)),
        Chart(
            "quality",
            ANSWERS,
            ("measure", "target", "repeat", "score", "difference", "p", "setting", "users", "gib", "output_tok_s"),
            ("score",),
            of_runs=False,
        ),
        Chart("timeline", TRUST, ("second", "running", "output_tok_s", "foreign_utilisation"), ("highest",)),
        Chart("unstable", TRUST, ("name", "kind", "text")),
        Chart("client_error", TRUST, ("variant", "users", "error")),
    )
}


def chart(name: str, tables: Mapping[str, pa.Table], style: Style, run: str) -> Any:
    """Make the chart called `name` for one run, without the common look (`Style.look`)."""
    return importlib.import_module(f"servebench.charts.{name}").chart(tables, style, run)


def whole(name: str, tables: Mapping[str, pa.Table], style: Style, runs: Sequence[str]) -> Any:
    """Make the chart for every run that it has data for, one below the other, each with axes of its own."""
    import altair as alt

    shown = runs_with_data(name, tables, runs) or list(runs[:1])
    charts = [chart(name, tables, style, run) for run in shown]
    for run, one in zip(shown, charts, strict=True):
        if run != runs[0]:
            one.title.subtitle = [style.say("charts.other_run", run=run), *one.title.subtitle]
    if len(charts) == 1:
        return style.look(charts[0])
    for one in charts:
        one.usermeta = alt.Undefined  # only the outermost chart may have usermeta
    return style.look(alt.vconcat(*charts, spacing=48))


def values(name: str, tables: Mapping[str, pa.Table], run: str) -> list[dict[str, Any]]:
    """List the values of a chart for one run: the rows of the table below it, with the chart's `columns`."""
    module = importlib.import_module(f"servebench.charts.{name}")
    made: list[dict[str, Any]] = getattr(module, "values", module.points)(tables, run)
    return made


def unit(tables: Mapping[str, pa.Table], run: str, settings: Iterable[str]) -> str:
    """Say what a number beside these settings counts: `users`, `connections` (of a schedule), or `either`."""
    names = set(settings)
    schedules = names & claims.of_schedules(tables, run)
    return "users" if not schedules else "connections" if schedules == names else "either"


def runs_with_data(name: str, tables: Mapping[str, pa.Table], runs: Sequence[str]) -> list[str]:
    """List the runs for which the chart has data; a chart that belongs to no run counts as the first run's."""
    module = importlib.import_module(f"servebench.charts.{name}")
    asked = runs if CHARTS[name].of_runs else runs[:1]
    return [run for run in asked if module.points(tables, run)]


def draw(style: Mapping[str, Any], results: Path) -> list[Path]:
    """Draw every chart of an experiment as `<results>/charts/<name>` .html and .svg; returns the paths.

    `style` is the configuration's `charts` section.
    """
    import pyarrow.parquet as pq
    from altair.utils.schemapi import debug_mode

    from servebench import plan as planning
    from servebench.charts.files import save
    from servebench.charts.style import Style
    from servebench.tables import read_all

    layout = Layout(results)
    plan = planning.read(layout.plan)
    look = Style.configured(style, plan)
    tables = read_all(layout.tables) | {"verdicts": pq.read_table(layout.table("verdicts"))}
    with debug_mode(False):  # as for the page: the charts' tests check every specification
        return [
            path
            for name in CHARTS
            for path in save(whole(name, tables, look, list(plan.runs)), layout.charts / name, look.language)
        ]


def pictures(results: Path) -> list[Path]:
    """Convert every drawn chart to `<results>/charts/<name>.png`; returns the paths.

    Raises FontMissing when a chart is in Japanese and no font for Japanese is installed.
    """
    from servebench.charts.files import picture

    return [picture(Layout(results).chart(name, "svg")) for name in CHARTS]
