"""The house keeps its floors: every import between rooms goes down, as the table in CONTRIBUTING.md says."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from servebench import ROOT

PACKAGE = ROOT / "scripts" / "servebench"
ROW = re.compile(r"^\| `([\w/]+?)(?:\.py|/)?` \| [^|]* \| ([^|]*) \|$", re.M)


def table() -> dict[str, set[str]]:
    """Which rooms each room may import, as CONTRIBUTING.md has it; rows stand in the order of the floors."""
    section = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("## The rooms")[1].split("\n## ")[0]
    return {room: set(re.findall(r"`(\w+)`", may)) for room, may in ROW.findall(section)}


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name below `servebench`; "" is the package itself."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def imports(path: Path) -> Iterator[str]:
    """The modules of the package that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "servebench":
            module = (node.module or "").partition(".")[2]
            for alias in node.names:
                inner = f"{module}.{alias.name}".strip(".")
                yield inner if inner in MODULES else module


def room(module: str) -> str:
    return module.partition(".")[0]


def test_the_table_names_every_room() -> None:
    assert set(table()) == {room(module) for module in MODULES} - {"", "__main__"}


@pytest.mark.parametrize("name", sorted(set(map(room, MODULES)) - {"", "__main__"}))
def test_a_room_imports_only_what_the_table_lets_it(name: str) -> None:
    rooms = {room(other) for m, path in MODULES.items() if room(m) == name for other in imports(path)}
    assert rooms - {name, ""} == table()[name], "CONTRIBUTING.md, The rooms: what it says and what is imported"


def test_every_row_imports_only_rows_below_it() -> None:
    rows = table()
    order = list(rows)
    for name, may in rows.items():
        assert may <= set(order[order.index(name) + 1 :]), name


def test_no_module_imports_itself_by_way_of_others() -> None:
    edges = {module: set(imports(path)) - {module, ""} for module, path in MODULES.items()}

    def reached(module: str, seen: set[str]) -> set[str]:
        for other in edges[module] - seen:
            seen.add(other)
            reached(other, seen)
        return seen

    assert [module for module in MODULES if module in reached(module, set())] == []


def test_every_file_that_contributing_names_is_there() -> None:
    named = re.findall(r"`([\w./-]+\.(?:py|yaml|md|css|in))`", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    assert len(named) > 40
    places = (ROOT, PACKAGE, *(folder for folder in PACKAGE.iterdir() if folder.is_dir()), ROOT / "docs")
    assert [name for name in named if not any((place / name).is_file() for place in places)] == []
