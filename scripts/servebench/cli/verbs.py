"""Define the verbs a user types; each verb's module is imported only when the verb is called.

So `load` and `calibrate` run where only the base dependencies are installed.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

import servebench
from servebench.cli.messages import start
from servebench.faults import Fault
from servebench.plan.layout import RESULTS

app = typer.Typer()

ConfigFiles = Annotated[
    list[Path] | None, typer.Option("--configfile", help="As for snakemake; default: the quick start.")
]
Overrides = Annotated[
    list[str] | None, typer.Option("--config", metavar="KEY=VALUE", help="As for snakemake, over the files.")
]


@app.command()
def version() -> None:
    """Print the version."""
    print(servebench.__version__)


@app.command()
def pull(configfile: ConfigFiles = None, config: Overrides = None) -> None:
    """Pull the container images of an experiment for apptainer, by digest; needs internet access."""
    from servebench.engines import images, runtime
    from servebench.machine import cache

    start(None)
    plan = read_plan(configfile, config)
    for engine in plan.engines.values():
        if engine.runtime == "container":
            progress = logging.getLogger("servebench").info
            print(images.pull(runtime.image(engine), cache.ready(plan.runtime.cache), progress))


@app.command("plan")
def show_plan(
    configfile: ConfigFiles = None,
    config: Overrides = None,
    language: Annotated[str, typer.Option(help="en or ja, for the texts of the configuration.")] = "en",
) -> None:
    """Show what an experiment measures, how long it takes, what it needs and what is missing. Starts nothing."""
    from servebench.cli import plan as plan_command

    plan_command.command(read_plan(configfile, config), language)


@app.command("kv-cache")
def show_kv_cache(
    model: Annotated[str, typer.Option(help="A GGUF file, a config.json, or hf://owner/repository@revision.")],
    tokens: Annotated[int | None, typer.Option(help="Tokens of each stream.")] = None,
    streams: Annotated[int, typer.Option(help="Number of streams.")] = 1,
    gib: Annotated[str | None, typer.Option(help="Calculate how many tokens fit into this many GiB.")] = None,
    key_type: Annotated[str, typer.Option(help="Type of the keys: f16, q8_0, ...")] = "f16",
    value_type: Annotated[str, typer.Option(help="Type of the values.")] = "f16",
) -> None:
    """Calculate the memory of the KV cache: bytes = 2 x layers x KV heads x head size x tokens x bytes per element."""
    from servebench.cli import kv_cache

    found = kv_cache.report(model, tokens=tokens, streams=streams, gib=gib, key_type=key_type, value_type=value_type)
    for name, value in found.items():
        if value not in (None, []):
            print(f"{name}: {', '.join(value) if isinstance(value, list) else value}")


@app.command()
def status(configfile: ConfigFiles = None, config: Overrides = None) -> None:
    """Report what is measured, failed or discarded, and how to redo it. Exit code 1 when a measurement failed."""
    from servebench.cli import status

    lines, failed = status.report(read_plan(configfile, config), RESULTS, configfile or ())
    print("\n".join(lines))
    raise typer.Exit(1 if failed else 0)


@app.command()
def watch(
    configfile: ConfigFiles = None,
    config: Overrides = None,
    once: Annotated[bool, typer.Option("--once", help="Print the present state and exit.")] = False,
) -> None:
    """Watch an experiment while it runs: running jobs, finished measurements, time left."""
    from servebench.cli import watch

    plan = read_plan(configfile, config)
    with suppress(KeyboardInterrupt):
        watch.command(plan, RESULTS / plan.experiment, once=once)


@app.command()
def compare(
    first: Annotated[str, typer.Argument(metavar="A", help="An experiment's name, or its folder of results.")],
    second: Annotated[str, typer.Argument(metavar="B")],
    out: Annotated[Path | None, typer.Option(help="Also write a page to this file.")] = None,
) -> None:
    """Compare two experiments side by side: another machine, another version, another day."""
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
    """Discard measurements, keeping them on record; the next snakemake run measures them again."""
    from servebench.cli import status

    plan = read_plan(configfile, config)
    found = status.discard(plan, RESULTS, run, setting, round_, users, why, configfile or ())
    for line in found:
        print(line)


@app.command()
def columns(
    table: Annotated[str | None, typer.Argument(help="Only this table, such as measurements.")] = None,
) -> None:
    """Explain what a row of each table is, and what each column means (docs/tables.md)."""
    from servebench.tables import columns as tables

    print("\n".join(tables.text(table)))


def read_plan(configfile: list[Path] | None, config: list[str] | None) -> Any:
    from servebench import configuration

    if config and not configfile:
        raise Fault("--config: changes keys of a file; name that file too: --configfile FILE")
    overrides = configuration.overrides(config) if config else {}
    return configuration.read(configfile or [servebench.ROOT / "config" / "config.yaml"], overrides)
