"""Publish `quantization.json`, the results of the evaluations (docs/json.md); its schema follows from the tables'."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pyarrow as pa

from servebench import schema
from servebench.plan import Plan
from servebench.tables.catalogue import TABLES as CATALOGUE
from servebench.tables.published.form import columns, finished, form, head, listed, mapping, record, text
from servebench.versions import PROMPTS, SAMPLING
from servebench.words.comparisons import said

TABLES = ("targets", "scores", "comparisons", "agreement", "proofreading", "positions", "under_load")
SENTENCES = ("comparisons", "under_load")


def quantization(tables: Mapping[str, pa.Table], plan: Plan) -> dict[str, Any]:
    """Collect rows as JSON values, what was asked, and a sentence for each comparison. Null: not measured."""
    asked = plan.evaluations
    assert asked
    content: dict[str, Any] = {
        **head("quantization", plan),
        "baseline": asked.baseline,
        "repeats": asked.repeats,
        "concurrency": asked.concurrency,
        "sampling": {**SAMPLING, "seed": asked.seed},
        "prompts": PROMPTS,
        "tasks": {name: msgspec.to_builtins(task) for name, task in asked.tasks.items()},
        "margins": dict(asked.margins),
        "load": msgspec.to_builtins(asked.under_load),
    }
    for name in TABLES:
        rows = schema.rows(tables[name])
        content[name] = [row | {"sentence": said(row)} for row in rows] if name in SENTENCES else rows
    return finished(content, SCHEMA)


_TASKS = mapping(
    "the questions, by task",
    record(
        "a task",
        set=text("full, small, or a file"),
        sha256=text("SHA-256 of the file of questions"),
        questions={"type": "integer", "description": "how many of them were asked"},
        max_tokens={"type": "integer", "description": "most tokens of a reply"},
        request=mapping("further keys of every request's body"),
    ),
)
_SENTENCE = record("the result in words", en=text("in English"), ja=text("in Japanese"))

SCHEMA: Mapping[str, Any] = form(
    "quantization",
    "The results of an experiment's evaluations. Shares are 0 to 1, differences and margins are points.",
    baseline=text("the target that the others are compared with"),
    repeats={"type": "integer", "description": "how often everything was asked"},
    concurrency={"type": "integer", "description": "how many questions at once"},
    sampling=mapping("parameters sent with every request", {"type": "number"}),
    prompts={
        "type": "integer",
        "description": "version of the prompts; replies to different versions are not compared",
    },
    tasks=_TASKS,
    margins=mapping("for each measure, as declared before the run, in points", {"type": "number"}),
    load=mapping("questions asked beside a load: which, of which targets, beside how many users", null=True),
    **{
        name: listed(
            f"a row: {next(table.row for table in CATALOGUE if table.name == name)}",
            **columns(name),
            **({"sentence": _SENTENCE} if name in SENTENCES else {}),
        )
        for name in TABLES
    },
)
