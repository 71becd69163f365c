"""The table of replies, `answers`: every column with its meaning. Null means not measured, never zero."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from servebench import schema
from servebench.tasks.task import OUTCOMES

# Outcome of a question that got no reply, or an error; it counts as not answered.
FAILED = "failed"

COLUMNS = f"""
target text! engine and model file that answered
task text! jcommonsenseqa, mgsm or proofreading
repeat int! 1 or 2: everything is asked twice
question_id text! as in the data file
text text content of the message, raw; null when it was null
reasoning text what the server put beside the content
extracted text the answer read from the text; null when no rule found one
rule text the rule that found it
outcome text! {", ".join(OUTCOMES)}; or {FAILED}: no reply came
reason text why it failed
correct bool! outcome is correct
tokens int output tokens as the server counts them
finish_reason text as the server gave it
latency_s real from sending to the end of the reply
"""
SCHEMA = schema.schema(COLUMNS)


def table(name: str, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Rows as the table called `name`, as `schema.table`."""
    return schema.table(name, SCHEMA, rows)


def check(name: str, content: pa.Table) -> pa.Table:
    """The table itself, as `schema.check`."""
    return schema.check(name, SCHEMA, content)
