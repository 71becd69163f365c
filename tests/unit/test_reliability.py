"""docs/reliability.md: its table is made from the tests' marks, and each kind of fault names tests that are there."""

import ast
import re
from pathlib import Path

import outcomes

ROOT = Path(__file__).parents[2]
DOCUMENT = outcomes.DOCUMENT.read_text(encoding="utf-8")
PARTS = {part.partition("\n")[0]: part for part in DOCUMENT.split("\n## ")}


def functions(path: Path) -> set[str]:
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef)}


def test_the_table_is_made_from_the_tests() -> None:
    assert outcomes.documented(DOCUMENT) == DOCUMENT, "make schema"
    rows = outcomes.table().splitlines()[2:]
    assert len(rows) >= 60
    assert len(rows) == len(set(rows))


def test_every_hostile_reply_has_a_row_for_each_moment() -> None:
    names = re.findall(r"^\| reply: ([^|]+) \| attaching \|", outcomes.table(), re.M)
    assert len(names) > 20
    checked = re.findall(r"^\| reply: ([^|]+) \| the check after a measurement \|", outcomes.table(), re.M)
    assert {*names} - {*checked} == {"a byte now and then", "100 Continue for ever"}


def test_each_of_the_kinds_names_tests_that_are_there() -> None:
    rows = re.findall(r"^\| (\d+) \| [^|]+ \| ([^|]+) \|$", PARTS["Kinds of faults"], re.M)
    assert [int(number) for number, _ in rows] == list(range(1, 27))
    for number, tests in rows:
        named = re.findall(r"`([\w/]+\.py)::(\w+)`", tests)
        assert named and len(named) == tests.count("`") // 2, number
        for file, test in named:
            assert test in functions(ROOT / "tests" / file), f"{number}: {file}::{test}"
