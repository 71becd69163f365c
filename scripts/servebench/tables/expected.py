"""Make the table of a setting's published facts beside those its server reported. Pure.

A difference stops nothing: another GPU holds a KV cache of another size, another machine starts another number of
threads. Whether a server has what its setting *asks* for is checked by `servebench.engines`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from servebench.plan import Plan, Struct
from servebench.tables.files import table


class Fact(Struct, frozen=True, kw_only=True):
    """Hold one expected fact. `met` is None when the server does not report it (`got` is None)."""

    what: str
    expected: bool | int | float | str
    got: Any
    met: bool | None


def expected(sessions: pa.Table, plan: Plan) -> pa.Table:
    """Compare the published facts of each setting with those its launches reported."""
    rows = []
    for launch in sessions.to_pylist():
        facts = json.loads(launch["facts"]) if launch["facts"] else {}
        place = {name: launch[name] for name in ("run", "setting", "round", "session_id")}
        for fact in compare(plan.settings[launch["setting"]].expect, facts):
            said = {"what": fact.what, "published": as_text(fact.expected), "found": as_text(fact.got), "met": fact.met}
            rows.append(place | said)
    return table("expected", rows)


def compare(expect: Mapping[str, bool | int | float | str], facts: Mapping[str, Any]) -> list[Fact]:
    """Compare `expect` (a setting's) with `facts` (a server's), in the order of `expect`.

    Numbers and booleans are met when equal. A text is met when the reported text contains it as a whole word or as the
    beginning of a version: 0.6 in "0.6.5", 3b4d6ab3f in "b12242-3b4d6ab3f".
    """
    return [
        Fact(what=what, expected=expected, got=facts.get(what), met=_met(expected, facts.get(what)))
        for what, expected in expect.items()
    ]


def as_text(value: Any) -> str | None:
    """Format a fact's value as a configuration writes it: true, 4096, b12242; None stays None."""
    if isinstance(value, str) or value is None:
        return value
    return json.dumps(value)


def _met(expected: bool | int | float | str, got: Any) -> bool | None:
    if got is None:
        return None
    if isinstance(expected, str):
        return re.search(rf"(?<![\w.]){re.escape(expected)}(?!\w)", str(got)) is not None
    return type(expected) is type(got) and expected == got
