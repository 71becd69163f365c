"""The tables are explained as they are."""

import pytest

from servebench import ROOT
from servebench.faults import Fault
from servebench.tables import SCHEMAS, columns


def test_the_page_about_tables_is_what_the_verb_prints():
    page = (ROOT / "docs" / "tables.md").read_text(encoding="utf-8")
    assert page.endswith("\n".join(columns.text()) + "\n"), "make schema"


def test_every_column_has_a_meaning():
    bare = [
        f"{name}.{field.name}"
        for name, fields in SCHEMAS.items()
        for field in fields
        if not (field.metadata or {}).get(b"meaning")
    ]
    assert bare == []


def test_one_table_alone():
    lines = list(columns.text("measurements"))
    assert lines[0] == "## `measurements`"
    assert [line for line in lines if line.startswith("## ")] == lines[:1]
    with pytest.raises(Fault, match=r"^nothing: is not a table; tables are: .*measurements"):
        list(columns.text("nothing"))
