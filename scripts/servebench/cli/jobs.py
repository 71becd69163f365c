"""Define the verbs that only the workflow calls, one for each kind of job; they are hidden from the help."""

from __future__ import annotations

import json
import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

import servebench
from servebench.cli.messages import start

app = typer.Typer()

LogFile = Annotated[Path | None, typer.Option("--log", help="Also write messages to this file.")]


def _given(text: str | None) -> str | None:
    """Return an option's value; of @FILE the file's content, which may be longer than an argument."""
    if text is None:
        return None
    return Path(text[1:]).read_text(encoding="utf-8").removesuffix("\n") if text.startswith("@") else text


ModelsJson = Annotated[str, typer.Option("--models", callback=_given, help="All models of the plan as JSON, or @FILE.")]
EnginesJson = Annotated[
    str, typer.Option("--engines", callback=_given, help="All engines of the plan as JSON, or @FILE.")
]
RuntimeJson = Annotated[str, typer.Option("--runtime", callback=_given, help="plan.Runtime as JSON, or @FILE.")]
SpecJson = Annotated[
    str,
    typer.Option("--spec", callback=_given, help="What determines the results, as canonical JSON, or @FILE."),
]
Results = Annotated[Path, typer.Option(help="results/<experiment>")]
StyleJson = Annotated[str, typer.Option("--style", help="The configuration's charts section as JSON.")]
EngineLog = Annotated[Path, typer.Option("--engine-log", help="The engine's own output.")]
RetryFailed = Annotated[bool, typer.Option("--retry-failed", help="Retry failed measurements and questions.")]


@app.command("fetch", hidden=True)
def fetch_model(
    model: Annotated[str, typer.Argument(help="Key of the model.")],
    models: ModelsJson,
    runtime: RuntimeJson,
    out: Annotated[Path, typer.Option(help="The manifest to write.")],
    log: LogFile = None,
) -> None:
    """Fetch or make one model file, check it, and write its manifest."""
    import msgspec

    from servebench import plan
    from servebench.machine import cache
    from servebench.models import fetch

    start(log)
    how = msgspec.json.decode(runtime, type=plan.Runtime)
    known = msgspec.json.decode(models, type=dict[str, plan.Model])
    manifest = fetch(
        known[model],
        known,
        cache_root=cache.ready(how.cache),
        mirror=how.mirror,
        progress=logging.getLogger("servebench").info,
    )
    _write_json(out, manifest)


@app.command("environment", hidden=True)
def engine_environment(
    name: Annotated[str, typer.Argument(help="envs/NAME.lock")],
    runtime: RuntimeJson,
    out: Annotated[Path, typer.Option(help="The manifest to write.")],
    log: LogFile = None,
) -> None:
    """Make an engine's virtual environment from its hash-pinned lock, and write its manifest."""
    import msgspec

    from servebench import plan
    from servebench.engines import environment
    from servebench.machine import cache

    start(log)
    how = msgspec.json.decode(runtime, type=plan.Runtime)
    lock, say = servebench.ROOT / "envs" / f"{name}.lock", logging.getLogger("servebench").info
    _write_json(out, environment.make(name, lock, cache.ready(how.cache), progress=say))


@app.command(hidden=True)
def session(
    spec: SpecJson,
    round_: Annotated[int, typer.Option("--round")],
    rank: Annotated[int, typer.Option()],
    models: ModelsJson,
    engines: EnginesJson,
    runtime: RuntimeJson,
    results: Results,
    engine_log: EngineLog,
    search: Annotated[str | None, typer.Option(help="Search for the capacity: capacity.Search as JSON.")] = None,
    objectives: Annotated[str, typer.Option(help="The objectives of the search as JSON, by name.")] = "{}",
    plan_json: Annotated[
        str | None,
        typer.Option("--plan", callback=_given, help="Look for ties among all settings of this plan: JSON, or @FILE."),
    ] = None,
    log: LogFile = None,
    retry_failed: RetryFailed = False,
) -> None:
    """Measure one (run, setting, round): start the engine, measure every number of users or what a search wants."""
    import msgspec

    from servebench import plan
    from servebench.capacity.search import Search
    from servebench.cli import capacities
    from servebench.load.objective import Objective
    from servebench.sessions import measuring, searching

    start(log)
    context = _context(spec, models, engines, runtime, results, engine_log, retry_failed)
    with ending_with_parent():
        asked = plan.session_from_spec(spec, round_, rank, context.models, context.engines)
        if search is None:
            measuring.run(asked, context)
        else:
            judged_by = msgspec.json.decode(objectives, type=dict[str, Objective])
            tied = capacities.tied(plan_json, results, asked.setting.name) if plan_json else ()
            searching.run(asked, context, msgspec.json.decode(search, type=Search), judged_by, tied)


@app.command("capacities", hidden=True)
def state_capacities(
    plan_json: Annotated[
        str, typer.Option("--plan", callback=_given, help="The plan as it is saved, as JSON, or @FILE.")
    ],
    results: Results,
    out: Annotated[Path, typer.Option(help="The file to write.")],
    log: LogFile = None,
) -> None:
    """State for how many users each setting keeps each objective, by what the searches have measured."""
    from servebench.cli import capacities

    start(log)
    _write_json(out, capacities.found(plan_json, results))


@app.command(hidden=True)
def questions(
    task: Annotated[str, typer.Argument(help="A task of the evaluations.")],
    wanted: Annotated[str, typer.Option(help="The name and SHA-256 of one of its sets, as JSON.")],
    runtime: RuntimeJson,
    out: Annotated[Path, typer.Option(help="The file to write.")],
    log: LogFile = None,
) -> None:
    """Fetch a task's questions, or copy our own, and check their SHA-256."""
    import msgspec

    from servebench import plan
    from servebench.machine import cache
    from servebench.outlook import questions
    from servebench.tasks import TASKS

    start(log)
    how = msgspec.json.decode(runtime, type=plan.Runtime)
    say = logging.getLogger("servebench").info
    which = json.loads(wanted)
    root = cache.root(how.cache)
    questions.copy(TASKS[task], which["set"], which["sha256"], out, cache_root=root, mirror=how.mirror, progress=say)


@app.command(hidden=True)
def evaluate(
    spec: SpecJson,
    models: ModelsJson,
    engines: EnginesJson,
    runtime: RuntimeJson,
    results: Results,
    engine_log: EngineLog,
    log: LogFile = None,
    retry_failed: RetryFailed = False,
) -> None:
    """Ask one target every question it has not answered yet."""
    from servebench.sessions import asking

    start(log)
    with ending_with_parent():
        asking.run(_context(spec, models, engines, runtime, results, engine_log, retry_failed))


@app.command("tables", hidden=True)
def make_tables(results: Results, log: LogFile = None) -> None:
    """Make tables and published JSON from the raw records."""
    from servebench.tables import make

    start(log)
    make.run(results)


@app.command("charts", hidden=True)
def make_charts(style: StyleJson, results: Results, log: LogFile = None) -> None:
    """Draw every chart as HTML and SVG."""
    from servebench import charts

    start(log)
    charts.draw(json.loads(style), results)


@app.command("pictures", hidden=True)
def make_pictures(results: Results, log: LogFile = None) -> None:
    """Convert every chart from SVG to PNG."""
    from servebench import charts

    start(log)
    charts.pictures(results)


@app.command("report", hidden=True)
def make_report(style: StyleJson, results: Results, log: LogFile = None) -> None:
    """Build the report page."""
    from servebench.report import page

    start(log)
    page.build(json.loads(style), results)


def _context(
    spec: str, models: str, engines: str, runtime: str, results: Path, engine_log: Path, retry_failed: bool
) -> Any:
    import msgspec

    from servebench import plan
    from servebench.sessions import job

    return job.Context(
        spec=spec,
        models=msgspec.json.decode(models, type=dict[str, plan.Model]),
        engines=msgspec.json.decode(engines, type=dict[str, plan.Engine]),
        results=results,
        runtime=msgspec.json.decode(runtime, type=plan.Runtime),
        engine_log=engine_log,
        retry_failed=retry_failed,
    )


class _Ended(SystemExit):
    """A signal has ended the verb."""


@contextmanager
def ending_with_parent() -> Iterator[None]:
    """End a job through its `finally` blocks on SIGTERM and SIGINT, and when the workflow that started it dies."""
    from servebench.machine import lifeline

    def stop(signum: int, frame: FrameType | None) -> None:
        # Only the first signal raises: a second one must not interrupt stopping the engine.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        raise _Ended(128 + signum)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    lifeline.follow_parent(os.getppid())
    try:
        yield
    except _Ended as end:
        name = signal.Signals(end.args[0] - 128).name
        logging.getLogger("servebench").warning("ended by %s; the engine is stopped, what was measured is kept", name)
        raise


def _write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    temporary.rename(path)
