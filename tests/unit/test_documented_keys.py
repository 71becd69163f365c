"""docs/keys.md names a test for every key of the configuration, and every test that it names is there."""

import ast
import re

import pytest

from servebench import ROOT
from servebench.configuration import schema

TABLE = dict(
    re.findall(r"^\| `([^`]+)` \| `([^`]+)` \|$", (ROOT / "docs" / "keys.md").read_text(encoding="utf-8"), re.M)
)
KEYS = re.findall(r"^\| `([^`]+)` \|", schema.tables(), re.M)


def test_every_key_has_a_test_and_no_other_is_named() -> None:
    assert list(TABLE) == KEYS


@pytest.mark.parametrize("named", sorted(set(TABLE.values())))
def test_the_test_is_there_and_has_the_key(named: str) -> None:
    file, _, function = named.partition("::")
    text = (ROOT / file).read_text(encoding="utf-8")
    tests = {node.name: node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)}
    assert function in tests
    parameters = [ast.unparse(mark.args[0]) for mark in tests[function].decorator_list if isinstance(mark, ast.Call)]
    if "'key'" in parameters:
        assert not [key for key, test in TABLE.items() if test == named and f'"{key}"' not in text]
