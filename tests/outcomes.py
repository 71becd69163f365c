"""Make the table of docs/reliability.md from the tests: each mark `outcome` of a test is a row for each of its faults.

    python tests/outcomes.py        writes the table

    @pytest.mark.outcome("a full disk", at="start", into="files", kept="all", again="nothing", reads="–", code="1")

`each="NAME"`: the fault, with {} in it, is one for each key of the module's dictionary NAME, `but` those named.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent
DOCUMENT = TESTS.parent / "docs" / "reliability.md"
HEADINGS = {
    "at": "at",
    "into": "injected into",
    "kept": "kept",
    "again": "measured again",
    "reads": "the user reads",
    "code": "exit code",
}


def table() -> str:
    """Return the table, in the order of the files and of the tests in them."""
    rows = [row for path in sorted(TESTS.glob("*/test_*.py")) for row in _rows(path)]
    heads = ["fault", *HEADINGS.values(), "test"]
    return "\n".join(f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *rows)).replace("| --- ", "|---")


def _rows(path: Path) -> Iterator[list[str]]:
    text = path.read_text(encoding="utf-8")
    if "mark.outcome" not in text:
        return
    tree = ast.parse(text)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            for mark in node.decorator_list:
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.outcome":
                    told: dict[str, Any] = {str(key.arg): ast.literal_eval(key.value) for key in mark.keywords}
                    cells = [told[name] for name in HEADINGS]
                    for fault in _faults([ast.literal_eval(fault) for fault in mark.args], told, tree):
                        yield [fault, *cells, f"`{path.relative_to(TESTS)}::{node.name}`"]


def _faults(faults: list[str], told: dict[str, Any], tree: ast.Module) -> list[str]:
    if "each" not in told:
        return faults
    (fault,) = faults
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == told["each"]:
            assert isinstance(node.value, ast.Dict)
            names = [ast.literal_eval(key) for key in node.value.keys if key]
            return [fault.format(name) for name in names if name not in told.get("but", ())]
    raise LookupError(told["each"])


def documented(document: str) -> str:
    """Return the document with the table as it is now."""
    start = document.index("| fault | at |")
    return document[:start] + table() + document[document.index("\n\n", start) :]


if __name__ == "__main__":
    DOCUMENT.write_text(documented(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
