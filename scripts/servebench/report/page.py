"""Build the report page from the tables."""

from __future__ import annotations

import json
import logging
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
import pyarrow as pa
from markupsafe import Markup

import servebench
from servebench import charts
from servebench import plan as planning
from servebench.charts.files import javascript
from servebench.charts.style import ENGINES, FAINT, INK, LINE, MUTED, PAPER, Style
from servebench.plan import Plan
from servebench.plan.layout import Layout
from servebench.report import answer, content, evaluated, published, questions
from servebench.report.spoken import HERE, attribute, both, hover, mark, own_text, sentence
from servebench.tables import SCHEMAS, read_all
from servebench.tables import published as published_json
from servebench.tables.files import Row, rows_of
from servebench.words import LANGUAGES, spoken, words
from servebench.words.numbers import digits

QUICKSTART = ("config/config.yaml",)  # the configuration when none is named


def build(style: Mapping[str, Any], results: Path) -> Path:
    """Write `<results>/report/index.html` from an experiment's tables and plan.json, log its answer, return the path.

    `style` is the configuration's `charts` section.
    """
    layout = Layout(results)
    plan = planning.read(layout.plan)
    tables = read_all(layout.tables)
    path = layout.page
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(page(tables, plan, style), encoding="utf-8")
    part.replace(path)
    for said in answers(tables, plan, style.get("language", "en")):
        logging.getLogger("servebench").info("%s", said)
    return path


def answers(tables: Mapping[str, pa.Table], plan: Plan, language: str) -> Iterator[str]:
    """Yield the answer of each run, sentence by sentence, as plain text."""
    for run in plan.runs:
        for said in answer.answer(tables, plan, run):
            yield spoken(f"page.{said.key}", **said.values)[language]


def page(tables: Mapping[str, pa.Table], plan: Plan, style: Mapping[str, Any] | None = None) -> str:
    """Render the page as text. A table that is absent from `tables` is reported as missing."""
    figures, data = drawn(tables, plan, style or {})
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    environment.globals.update(own=own_text, mark=mark, hover=hover, sentence=sentence, digits=digits)
    environment.globals["named"] = _chart_name
    environment.globals.update(t=partial(both, rounds=plan.rounds), attribute=partial(attribute, rounds=plan.rounds))
    shown = {figure["name"] for figure in figures}
    runs = list(plan.runs)
    return environment.get_template("page.html").render(
        plan=plan,
        title=plan.title if isinstance(plan.title, dict) else dict.fromkeys(LANGUAGES, plan.title),
        runs=[_run(tables, plan, run, [f for f in figures if f["run"] == run]) for run in runs],
        questions=questions.questions(tables, plan),
        covered=answer.covered(plan),
        undrawn=[name for name in charts.CHARTS if name not in shown],
        words=words,
        gaps=content.missing(tables, plan),
        discarded=rows_of(tables, "discarded"),
        servers=content.servers(tables, plan),
        notes=content.notes(plan),
        unverified=content.unverified(plan),
        round_trips=content.round_trips(tables, plan),
        targets=evaluated.targets(tables, plan),
        compared=evaluated.comparisons(tables),
        proofread=evaluated.proofreading(tables),
        positions=evaluated.positions(tables),
        replies=evaluated.replies(tables),
        under_load=evaluated.under_load(tables),
        starts=content.cold_starts(tables),
        published=published.figures(tables),
        published_cells=published.cells(tables),
        expected=published.expected(tables),
        machines=content.machines(tables),
        fingerprints=len({row["fingerprint"] for row in rows_of(tables, "sessions") if row["fingerprint"]}),
        client=_client(tables),
        workloads=_workloads(plan),
        files=_files(tables, plan),
        config=_options("--configfile", () if plan.files == QUICKSTART and not plan.overrides else plan.files),
        overrides=_options("--config", plan.overrides),
        version=servebench.__version__,
        css=Markup((HERE / "page.css").read_text(encoding="utf-8")),
        script=Markup((HERE / "page.js").read_text(encoding="utf-8")),
        vega=Markup(javascript()),
        data=Markup(json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/")),
    )


def _chart_name(name: str) -> dict[str, str]:
    """Return the title of a chart without data, with … for the values it would name."""
    return {code: re.sub(r"{[^}]*}", "…", text) for code, text in words(f"charts.{name}.title").items()}


def _options(name: str, given: Sequence[str]) -> str:
    return " " + shlex.join([name, *given]) if given else ""


def _run(tables: Mapping[str, pa.Table], plan: Plan, run: str, figures: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "name": run,
        "answer": answer.answer(tables, plan, run),
        "cards": answer.cards(tables, plan, run),
        "matrix": content.matrix(tables, plan, run),
        "figures": figures,
        "table": content.values(tables, run),
    }


def drawn(
    tables: Mapping[str, pa.Table], plan: Plan, style: Mapping[str, Any]
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Draw the charts that have data, and the script's input: specifications by language, data sets, colours."""
    looks = {language: Style.configured({**style, "language": language}, plan) for language in LANGUAGES}
    figures: list[dict[str, Any]] = []
    specifications: dict[str, dict[str, Any]] = {}
    datasets: dict[str, Any] = {}
    for name in charts.CHARTS:
        for run in charts.runs_with_data(name, tables, list(plan.runs)):
            key = f"{name}-{run}"
            said: dict[str, dict[str, str]] = {}
            specifications[key] = {}
            for language, look in looks.items():
                made = look.look(charts.chart(name, tables, look, run)).to_dict()
                title = made.pop("title")
                subtitle = title["subtitle"]
                joined = (" " if language == "en" else "").join(subtitle)
                said[language] = {"title": title["text"], "subtitle": joined, "alt": made.get("description", "")}
                datasets |= made.pop("datasets", {})
                specifications[key][language] = made
            figures.append({"name": name, "run": run, "key": key, "said": said, "table": charts.CHARTS[name].table})
    pairs = [*ENGINES.values(), INK, FAINT, MUTED, PAPER, LINE]
    return figures, {"charts": specifications, "datasets": datasets, "colours": [list(pair) for pair in pairs]}


def _client(tables: Mapping[str, pa.Table]) -> Row | None:
    """Return the calibration at the most users, in milliseconds; None without a calibration."""
    rows = [row for row in rows_of(tables, "calibration") if row["ttft_error_p99_s"] is not None]
    if not rows:
        return None
    row = max(rows, key=lambda row: (row["users"], row["ttft_error_p99_s"]))
    milliseconds = {name: digits(1000 * row[f"ttft_error_{name}_s"]) for name in ("p50", "p99")}
    return {"users": row["users"], "most": row["max_users"], **milliseconds}


def _workloads(plan: Plan) -> list[tuple[str, list[tuple[str, str]]]]:
    """List each run's workload: name and value as in the configuration."""
    found = []
    for run in plan.runs:
        setting = next((s for s in plan.settings.values() if s.run == run), None)
        if setting:
            entries = [(name, json.dumps(value, ensure_ascii=False)) for name, value in setting.workload.items()]
            entries += [("prompts sha256", setting.prompts_sha256 or "–")]
            entries += [("trace sha256", setting.trace_sha256)] if setting.trace_sha256 else []
            found.append((run, entries))
    return found


def _files(tables: Mapping[str, pa.Table], plan: Plan) -> list[tuple[str, str, bool]]:
    """List the files as (name, address, whether inside the page): CSV inside, Parquet and JSON beside the page."""
    names = [name for name in SCHEMAS if name in tables]
    main = [name for name in names if name in ("settings", "measurements")]
    inside = [(f"{n}.csv", "data:text/csv;charset=utf-8," + quote(content.as_csv(tables[n])), True) for n in main]
    beside = [*published_json.files(plan), *(f"{name}.parquet" for name in names)]
    return inside + [(name, f"../tables/{name}", False) for name in beside]
