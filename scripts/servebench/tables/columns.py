"""The tables explained: `servebench columns`, and `docs/tables.md`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from servebench.faults import Fault
from servebench.tables.schemas import SCHEMAS

# What a row of each table is.
ROWS: Mapping[str, str] = {
    "measurements": "a measurement: (run, setting, users, round)",
    "settings": "(run, setting, users), with the smaller and the larger of its rounds",
    "sessions": "a launch of an engine: (run, setting, round)",
    "expected": "a fact the configuration expects of a server, for each launch",
    "unstable": "a pair of rounds in which some figure changed by 20 % or more",
    "queueing": "(setting, users) with as many users as slots, or more",
    "ratios": "a figure of a setting over that of its baseline, both of the same round",
    "slow_requests": "(run, setting, users): those with a TTFT over 1 s, in the run's band of prompt lengths and not",
    "slow_by_micro_batch": "the same by engine and micro-batch",
    "served": "a request as llama-server's log tells of it",
    "slow_prefills": "(run, setting, users): prompts that took over 1 s on a server with little to do",
    "ttft": "a measurement, with the TTFT of each of its target requests",
    "timeline": "a second of a window",
    "telemetry": "a sample of the machine while it is loaded, two a second",
    "discarded": "a measurement that was thrown out",
    "memory": "a setting: device memory, measured and predicted",
    "cost": "(run, setting, users), where a price is configured",
    "paid_idle": "a setting, where a price is configured: what is paid while nobody is served",
    "calibration": "a variant of the clock server and a number of users",
    "reproduction": "a cell of the published table, beside ours",
    "answers": "a reply: (target, task, repeat, question)",
    "targets": "a target of the evaluations: (engine, model file)",
    "scores": "(target, task, measure, repeat)",
    "comparisons": "a target against the baseline, by measure",
    "agreement": "a target and a task: the two repeats beside each other",
    "proofreading": "(target, repeat, category)",
    "positions": "(target, repeat, place of the choice) of JCommonsenseQA",
    "under_load": "the same questions asked of a busy and of an idle server",
}
_KINDS = {
    pa.string(): "text",
    pa.int64(): "int",
    pa.float64(): "real",
    pa.bool_(): "bool",
    pa.list_(pa.string()): "list of text",
    pa.list_(pa.int64()): "list of int",
    pa.list_(pa.float64()): "list of real",
}


def text(table: str | None = None) -> Iterator[str]:
    """All tables, or one, as lines of Markdown."""
    if table not in (None, *SCHEMAS):
        raise Fault(f"{table}: is not a table; tables are: {', '.join(SCHEMAS)}")
    for name in SCHEMAS if table is None else [table]:
        yield from _table(name)


def _table(name: str) -> Iterator[str]:
    yield f"## `{name}`"
    yield ""
    yield f"A row: {ROWS[name]}."
    yield ""
    yield "| column | type | meaning |"
    yield "|---|---|---|"
    for field in SCHEMAS[name]:
        meaning = (field.metadata or {}).get(b"meaning", b"").decode()
        kind = _KINDS[field.type] + (" or null" if field.nullable else "")
        yield f"| `{field.name}` | {kind} | {meaning.replace('|', chr(92) + '|')} |"
    yield ""
