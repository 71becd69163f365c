"""Make the table of prefill and decode speed by the length of the prompt. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

import msgspec
import pyarrow as pa

from servebench.plan import Setting
from servebench.plan.identity import canonical
from servebench.schema import rows
from servebench.tables.files import Row, table

_FREE = ("name", "users", "note", "expect")


def depth(settings: pa.Table, asked: Mapping[str, Setting]) -> pa.Table:
    """List the settings that differ in nothing but the length of their prompts, one row each, with fewest users.

    `asked` are the settings as configured. A setting whose prompts have no fixed length, or that no other length is
    measured of, has no row.
    """
    series: dict[str, dict[int, Setting]] = defaultdict(dict)
    for setting in asked.values():
        length = setting.workload.get("prompt_tokens")
        if isinstance(length, int):
            series[_but_length(setting, length)][length] = setting
    fewest: dict[tuple[str, str], Row] = {}
    for one in sorted(rows(settings), key=lambda row: -row["users"]):
        fewest[one["run"], one["setting"]] = one
    found = []
    for lengths in series.values():
        name = _common([setting.name for setting in lengths.values()])
        for length, setting in sorted(lengths.items()):
            row = fewest.get((setting.run, setting.name))
            if row and len(lengths) > 1:
                reply = setting.workload.get("reply_tokens", setting.workload.get("max_tokens"))
                told: dict[str, Any] = {
                    "series": name,
                    "prompt_tokens": length,
                    "reply_tokens": None if reply is None else str(reply),
                }
                found.append({column: told.get(column, row.get(column)) for column in _COLUMNS})
    return table("depth", found)


_COLUMNS = (
    *("series", "run", "setting", "engine_kind", "users", "prompt_tokens", "reply_tokens"),
    *(f"{figure}_{end}" for figure in ("prompt_tokens_p50", "prompt_tok_s", "user_tok_s") for end in ("min", "max")),
    "marks",
)


def _but_length(setting: Setting, length: int) -> str:
    """Return what determines a setting's measurements, but the length of its prompts.

    Of the run, too: a matrix over lengths makes a run for each, named by its values (`main-1024-128`).
    """
    held = {key: value for key, value in msgspec.to_builtins(setting).items() if key not in _FREE}
    run = setting.run.split("-")
    if str(length) in run[1:]:
        del run[run.index(str(length), 1)]
    held["run"] = run
    held["workload"] = {key: value for key, value in setting.workload.items() if key != "prompt_tokens"}
    return canonical(held)


def _common(names: Sequence[str]) -> str:
    """Return the parts between hyphens that names have in common at their beginning; the first name without one."""
    parts = zip(*(name.split("-") for name in names), strict=False)
    shared = [one[0] for one in takewhile(lambda one: len(set(one)) == 1, parts)]
    return "-".join(shared) or names[0]
