"""docs/reliability.md: every row of the table names a test that is there, and every hostile reply has its rows."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\|(?: [^|]+ \|){7} `([\w/]+\.py)::(\w+)` \|$", re.M)
PARTS = {
    part.partition("\n")[0]: part
    for part in (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8").split("\n## ")
}
DOCUMENT = PARTS["Faults, moments, outcomes"]


def functions(path: Path) -> set[str]:
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef)}


def test_every_row_names_a_test_that_is_there() -> None:
    rows = ROW.findall(DOCUMENT)
    assert len(rows) >= 60
    assert len(rows) == len(re.findall(r"^\| (?!fault )[^-]", DOCUMENT, re.M))
    for file, test in rows:
        assert test in functions(ROOT / "tests" / file), f"{file}::{test}"


def test_each_of_the_kinds_names_tests_that_are_there() -> None:
    rows = re.findall(r"^\| (\d+) \| [^|]+ \| ([^|]+) \|$", PARTS["Kinds of faults"], re.M)
    assert [int(number) for number, _ in rows] == list(range(1, 27))
    for number, tests in rows:
        named = re.findall(r"`([\w/]+\.py)::(\w+)`", tests)
        assert named and len(named) == tests.count("`") // 2, number
        for file, test in named:
            assert test in functions(ROOT / "tests" / file), f"{number}: {file}::{test}"


def test_every_hostile_reply_has_a_row_for_each_moment() -> None:
    text = (ROOT / "tests" / "fault" / "test_hostile_servers.py").read_text(encoding="utf-8")
    names = re.findall(r'^    "([^"]+)": lambda', text, re.M)
    assert len(names) > 20
    for name in names:
        moments = re.findall(rf"^\| reply: {re.escape(name)} \| ([^|]+) \|", DOCUMENT, re.M)
        assert "attaching" in moments, name
        assert len(moments) == (1 if name in ("a byte now and then", "100 Continue for ever") else 2), name
