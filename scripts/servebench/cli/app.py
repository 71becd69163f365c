"""The verbs, thin: each turns its options into one call and a fault into one clear line and exit code 1."""

from __future__ import annotations

import io
import json
import logging
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

import servebench
from servebench.cli.conclude import app as conclude_app
from servebench.cli.load import app as load_app
from servebench.cli.score import app as tasks_app
from servebench.faults import Fault
from servebench.machine.infrastructure import DISK, ROOM
from servebench.plan.layout import RESULTS

app = typer.Typer(
    help="Measure what LLM servers really do when many people use them at once.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for other in (load_app, tasks_app, conclude_app):
    app.registered_commands.extend(other.registered_commands)

LogFile = Annotated[Path | None, typer.Option("--log", help="Also write messages to this file.")]
ConfigFiles = Annotated[
    list[Path] | None, typer.Option("--configfile", help="As for snakemake; default: the quick start.")
]
Overrides = Annotated[
    list[str] | None, typer.Option("--config", metavar="KEY=VALUE", help="As for snakemake, over the files.")
]
ModelsJson = Annotated[str, typer.Option("--models", help="All models of the plan as JSON.")]
EnginesJson = Annotated[str, typer.Option("--engines", help="All engines of the plan as JSON.")]
RuntimeJson = Annotated[str, typer.Option("--runtime", help="plan.Runtime as JSON.")]
SpecJson = Annotated[str, typer.Option("--spec", help="What decides the job's results, as canonical JSON.")]
Results = Annotated[Path, typer.Option(help="results/<experiment>")]
EngineLog = Annotated[Path, typer.Option("--engine-log", help="The engine's own output.")]
RetryFailed = Annotated[bool, typer.Option("--retry-failed", help="Try again what has failed.")]


def main(argv: Sequence[str] | None = None) -> None:
    """Run one verb; exit 0 only when all of it worked."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # what a terminal cannot show ends nothing
    try:
        app(args=_one_each(sys.argv[1:] if argv is None else argv))
    except Fault as fault:
        _tell(str(fault))
        raise SystemExit(1) from None
    except OSError as error:
        if error.filename is None and error.errno not in DISK:
            raise
        room = f"; {ROOM}" if error.errno in DISK else ""
        where = "" if error.filename is None else f"{error.filename}: "
        _tell(f"{where}{error.strerror}{room}")
        raise SystemExit(1) from None
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "servebench":
            raise
        _tell(f"this verb needs {error.name}; install servebench[workflow]")
        raise SystemExit(1) from None


@app.command()
def version() -> None:
    """Print the version."""
    print(servebench.__version__)


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

    from servebench import models as store
    from servebench import plan
    from servebench.machine import cache

    _start(log)
    how = msgspec.json.decode(runtime, type=plan.Runtime)
    known = msgspec.json.decode(models, type=dict[str, plan.Model])
    manifest = store.fetch(
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

    _start(log)
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
    log: LogFile = None,
    retry_failed: RetryFailed = False,
) -> None:
    """Measure one (run, setting, round): start the engine, every number of users, stop. Called by the workflow."""
    from servebench import plan
    from servebench.sessions import measuring

    _start(log)
    context = _context(spec, models, engines, runtime, results, engine_log, retry_failed)
    with _ending_with_parent():
        measuring.run(plan.session_from_spec(spec, round_, rank, context.models, context.engines), context)


@app.command()
def pull(configfile: ConfigFiles = None, config: Overrides = None) -> None:
    """Pull the container images of an experiment for apptainer, by digest, where there is internet."""
    from servebench.engines import images, runtime
    from servebench.machine import cache

    _start(None)
    plan = _plan(configfile, config)
    for engine in plan.engines.values():
        if engine.runtime == "container":
            progress = logging.getLogger("servebench").info
            print(images.pull(runtime.image(engine), cache.ready(plan.runtime.cache), progress))


@app.command(hidden=True)
def questions(
    task: Annotated[str, typer.Argument(help="A task of the evaluations.")],
    wanted: Annotated[str, typer.Option(help="Which of its sets, and the SHA-256 of it, as JSON.")],
    runtime: RuntimeJson,
    out: Annotated[Path, typer.Option(help="The file to write.")],
    log: LogFile = None,
) -> None:
    """Fetch a task's questions, or copy our own, and check that they are the ones. Called by the workflow."""
    import msgspec

    from servebench import plan
    from servebench.machine import cache
    from servebench.outlook import questions
    from servebench.tasks import TASKS

    _start(log)
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
    """Ask one target all questions it has not answered yet. Called by the workflow."""
    from servebench.sessions import asking

    _start(log)
    with _ending_with_parent():
        asking.run(_context(spec, models, engines, runtime, results, engine_log, retry_failed))


@app.command("plan")
def show_plan(
    configfile: ConfigFiles = None,
    config: Overrides = None,
    language: Annotated[str, typer.Option(help="en or ja, for the texts of the configuration.")] = "en",
) -> None:
    """What an experiment measures, how long it takes, what it needs and what of that is there. Starts nothing."""
    from servebench.cli import plan as plan_command

    plan_command.command(_plan(configfile, config), language)


@app.command("kv-cache")
def show_kv_cache(
    model: Annotated[str, typer.Option(help="A GGUF file, a config.json, or hf://owner/repository@revision.")],
    tokens: Annotated[int | None, typer.Option(help="Tokens of each stream.")] = None,
    streams: Annotated[int, typer.Option(help="Streams, each of so many tokens.")] = 1,
    gib: Annotated[str | None, typer.Option(help="How many tokens fit into so many GiB.")] = None,
    key_type: Annotated[str, typer.Option(help="Type of the keys: f16, q8_0, ...")] = "f16",
    value_type: Annotated[str, typer.Option(help="Type of the values.")] = "f16",
) -> None:
    """Memory of the KV cache: bytes = 2 x layers x KV heads x head size x tokens x bytes per element."""
    from servebench.cli import kv_cache

    found = kv_cache.report(model, tokens=tokens, streams=streams, gib=gib, key_type=key_type, value_type=value_type)
    for name, value in found.items():
        if value not in (None, []):
            print(f"{name}: {', '.join(value) if isinstance(value, list) else value}")


@app.command()
def status(configfile: ConfigFiles = None, config: Overrides = None) -> None:
    """What is measured, what failed or was discarded, and the command to repeat it. Exit code 1 when any failed."""
    from servebench.cli import status

    lines, failed = status.report(_plan(configfile, config), RESULTS, configfile or ())
    print("\n".join(lines))
    raise typer.Exit(1 if failed else 0)


@app.command()
def watch(
    configfile: ConfigFiles = None,
    config: Overrides = None,
    once: Annotated[bool, typer.Option("--once", help="Print how things stand now, and end.")] = False,
) -> None:
    """Look at an experiment while it runs: what is measured right now, what is done, how long it still takes."""
    from servebench.cli import watch

    plan = _plan(configfile, config)
    with suppress(KeyboardInterrupt):
        watch.command(plan, RESULTS / plan.experiment, once=once)


@app.command()
def compare(
    first: Annotated[str, typer.Argument(metavar="A", help="An experiment's name, or its folder of results.")],
    second: Annotated[str, typer.Argument(metavar="B")],
    out: Annotated[Path | None, typer.Option(help="Also write a page to this file.")] = None,
) -> None:
    """Two experiments side by side: another machine, another version, another day. What differs is said."""
    from servebench.cli import compare

    compare.command(first, second, out)


@app.command()
def discard(
    run: Annotated[str, typer.Argument()],
    setting: Annotated[str, typer.Argument()],
    why: Annotated[str, typer.Option(help="The reason, kept with the record.")],
    round_: Annotated[int | None, typer.Option("--round", help="Only this round.")] = None,
    users: Annotated[int | None, typer.Option(help="Only this number of users.")] = None,
    configfile: ConfigFiles = None,
    config: Overrides = None,
) -> None:
    """Throw measurements out, on record; the next snakemake measures them again."""
    from servebench.cli import status

    plan = _plan(configfile, config)
    found = status.discard(plan, RESULTS, run, setting, round_, users, why, configfile or ())
    for line in found:
        print(line)


@app.command()
def columns(
    table: Annotated[str | None, typer.Argument(help="Only this table, such as measurements.")] = None,
) -> None:
    """What a row of each table is, and what each column means (docs/tables.md)."""
    from servebench.tables import columns as tables

    print("\n".join(tables.text(table)))


@app.command("tables", hidden=True)
def make_tables(results: Results, log: LogFile = None) -> None:
    """Raw records to tables and published JSON. Called by the workflow."""
    from servebench.tables import make

    _start(log)
    make.run(results)


@app.command("charts", hidden=True)
def make_charts(
    style: Annotated[str, typer.Option(help="The configuration's charts section as JSON.")],
    results: Results,
    log: LogFile = None,
) -> None:
    """Draw every chart as HTML and SVG. Called by the workflow."""
    from servebench import charts

    _start(log)
    charts.draw(json.loads(style), results)


@app.command("pictures", hidden=True)
def make_pictures(results: Results, log: LogFile = None) -> None:
    """Every chart as PNG, from its SVG. Called by the workflow."""
    from servebench import charts

    _start(log)
    charts.pictures(results)


@app.command("report", hidden=True)
def make_report(
    style: Annotated[str, typer.Option(help="The configuration's charts section as JSON.")],
    results: Results,
    log: LogFile = None,
) -> None:
    """Build the page. Called by the workflow."""
    from servebench.report import page

    _start(log)
    page.build(json.loads(style), results)


def _one_each(argv: Sequence[str]) -> list[str]:
    """`--configfile A.yaml B.yaml` and `--config A=1 B=2`, as snakemake takes them, with the option before each."""
    spread: list[str] = []
    for place, word in enumerate(argv):
        option = spread[-2] if place > 1 else ""
        is_file = option == "--configfile" and Path(word).suffix in (".yaml", ".yml", ".json")
        is_override = option == "--config" and "=" in word and not word.startswith("-")
        spread += [option, word] if is_file or is_override else [word]
    return spread


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


def _plan(configfile: list[Path] | None, config: list[str] | None) -> Any:
    from servebench import configuration

    if config and not configfile:
        raise Fault("--config: takes the place of no file; name the one it changes, too: --configfile FILE")
    overrides = configuration.overrides(config) if config else {}
    return configuration.read(configfile or [servebench.ROOT / "config" / "config.yaml"], overrides)


def _start(log: Path | None) -> None:
    """Messages go to the console and, when asked, to a log file, where a time stands for itself, whatever the zone."""
    handlers: list[logging.Handler] = [logging.StreamHandler()]
    if log:
        log.parent.mkdir(parents=True, exist_ok=True)
        file = logging.FileHandler(log, mode="w", encoding="utf-8")
        file.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S%z"))
        handlers.append(file)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s", datefmt="%H:%M:%S", handlers=handlers)
    logging.getLogger("servebench").setLevel(logging.INFO)
    logging.raiseExceptions = False  # where no message can be written, what is written next says why


def _tell(fault: str) -> None:
    """What ends a verb: on the console, and in its log file, which is all that is left of a job elsewhere."""
    print(f"servebench: {fault}", file=sys.stderr)
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.FileHandler):
            handler.handle(logging.makeLogRecord({"msg": fault, "levelno": logging.ERROR}))


class _Ended(SystemExit):
    """Of a verb by a signal."""


@contextmanager
def _ending_with_parent() -> Iterator[None]:
    """TERM ends a session through its `finally` blocks, and a session never outlives the workflow that started it."""
    from servebench.machine import lifeline

    def stop(signum: int, frame: FrameType | None) -> None:
        # Once only: a second signal must not interrupt the stopping of the engine.
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
