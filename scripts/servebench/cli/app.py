"""Join all verbs into the command line; print a fault as one line and exit with code 1."""

from __future__ import annotations

import io
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from servebench.cli import jobs, verbs
from servebench.cli.messages import tell
from servebench.faults import Fault
from servebench.machine.infrastructure import DISK, ROOM
from servebench.machine.priority import spare_pandas

app = typer.Typer(
    help="Measure what LLM servers really do when many people use them at once.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for module in (verbs, jobs):
    app.registered_commands.extend(module.app.registered_commands)


def main(argv: Sequence[str] | None = None) -> None:
    """Run one verb; exit with 0 only when it succeeded completely."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a character the terminal cannot show must not end the verb
    if argv is None and sys.argv[1:2] in (["load"], ["calibrate"]):  # this process is the verb's alone
        spare_pandas()
    try:
        app(args=one_each(sys.argv[1:] if argv is None else argv))
    except Fault as fault:
        tell(str(fault))
        raise SystemExit(1) from None
    except OSError as error:
        if error.filename is None and error.errno not in DISK:
            raise
        room = f"; {ROOM}" if error.errno in DISK else ""
        where = "" if error.filename is None else f"{error.filename}: "
        tell(f"{where}{error.strerror}{room}")
        raise SystemExit(1) from None
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "servebench":
            raise
        tell(f"this verb needs {error.name}: {shlex.quote(sys.executable)} -m pip install 'servebench[workflow]'")
        raise SystemExit(1) from None


def one_each(argv: Sequence[str]) -> list[str]:
    """Repeat the option before each value of `--configfile A.yaml B.yaml` and `--config A=1 B=2`, snakemake's form."""
    spread: list[str] = []
    for place, word in enumerate(argv):
        option = spread[-2] if place > 1 else ""
        is_file = option == "--configfile" and Path(word).suffix in (".yaml", ".yml", ".json")
        is_override = option == "--config" and "=" in word and not word.startswith("-")
        spread += [option, word] if is_file or is_override else [word]
    return spread
