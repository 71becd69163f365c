"""Every command that servebench prints as a remedy is one that its command line, or Snakemake's, takes as printed."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from snakemake.cli import get_argument_parser

from servebench import ROOT
from servebench.cli import app as cli

PACKAGE = ROOT / "scripts" / "servebench"
# What stands in the braces of a command, by its source; a new remedy needs its own line here.
VALUES = {
    **dict.fromkeys(("one.setting.run", "session.setting.run", "self.setting.run", "some.run"), "main"),
    **dict.fromkeys(("one.setting.name", "session.setting.name", "self.setting.name", "some.name"), "np4"),
    **dict.fromkeys(("one.round", "session.round"), "2"),
    **dict.fromkeys(("users", "one.users", "some.users[0]"), "4"),
    **dict.fromkeys(
        ("given", "plan.given", "targets.plan.given", "options(plan, configfiles)"), " --configfile a.yaml b.yaml"
    ),
    "EVALUATIONS": "evaluations",
    "target.name": "Q4_0",
    "one.target": "all",
    "' '.join(targets)": "all capacity",
    "options": " --cpus 2 --processes 3",
    "divided": " --processes 3",
    "file": "config/mine.yaml",
    "port": "8000",
    "MODEL": "practice",
}
VALUE = r"(?:«[^»]*»|[^\s;,)`«»:]|:(?=\S))+"
OPTION = rf" --[a-z-]+ {VALUE}|«[^»]*»"
# Not in backticks, in which the documentation names a verb or a target.
TARGET = r" (?:all|capacity|fetch)\b| only_(?:«[^»]*»|\w)+"
COMMAND = re.compile(
    rf"(?<!`)(?:servebench [a-z-]+(?:{OPTION}| «[^»]*»| [A-Z]+\b)*|snakemake(?:{OPTION}|{TARGET}| «[^»]*»)+)"
)
VERBS = set(typer.main.get_command(cli.app).commands)  # type: ignore[attr-defined]


def texts(path: Path) -> Iterator[str]:
    """The strings of a source with their braces filled, each value in «»; of a page or labels, the lines."""
    if path.suffix != ".py":
        braces = re.compile(r"\{\{\s*(.+?)\s*\}\}|\{(\w+)\}")
        yield from (braces.sub(lambda m: filled(m[1] or m[2]), line) for line in path.read_text("utf-8").splitlines())
        return
    tree = ast.parse(path.read_text("utf-8"))
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(
                filled(ast.unparse(part.value)) if isinstance(part, ast.FormattedValue) else str(part.value)  # type: ignore[attr-defined]
                for part in node.values
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts | docs:
            yield node.value


def filled(source: str) -> str:
    return f"«{VALUES[source]}»" if source in VALUES else f"«?{source}»"


def printed() -> dict[str, str]:
    """Every command in the package's texts, by file and place."""
    found: dict[str, str] = {}
    for path in sorted(PACKAGE.rglob("*")):
        if path.suffix in (".py", ".html", ".yaml"):
            for text in texts(path):
                for command in COMMAND.findall(text):
                    words = re.sub("[«»]", "", command)
                    program, first, *_ = words.split()
                    if program == "snakemake" or first in VERBS:
                        found.setdefault(words, str(path.relative_to(PACKAGE)))
    return found


def parsed(command: str) -> None:
    program, *argv = shlex.split(command)
    if program == "snakemake":
        asked = get_argument_parser().parse_args(argv)
        assert asked.cores, "snakemake needs --cores"
        assert all(re.fullmatch(r"all|capacity|only_main_np4", target) for target in asked.targets)
    else:
        typer.main.get_command(cli.app).commands[argv[0]].make_context(argv[0], cli.one_each(argv[1:]))  # type: ignore[attr-defined]


def test_they_are_found() -> None:
    programs = {" ".join(command.split()[:2]) for command in printed()}
    assert programs >= {
        "snakemake --cores",
        "servebench retry",
        "servebench status",
        "servebench discard",
        "servebench plan",
    }
    assert not [command for command in printed() if "?" in command], "VALUES lacks what stands in braces"


@pytest.mark.parametrize("command", printed())
def test_it_is_taken_as_it_is_printed(command: str) -> None:
    parsed(command)


@pytest.mark.parametrize(
    "wrong", ["servebench calibrate --users 4", "servebench discard main np4", "snakemake capacity"]
)
def test_what_lacks_something_would_be_noticed(wrong: str) -> None:
    with pytest.raises((typer.BadParameter, AssertionError)):
        parsed(wrong)
