"""Turn raw records into tables. Each table has a schema, checked when it is written and when it is read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from servebench.models.kv_cache import Cache
from servebench.plan import Plan
from servebench.schema import TableError
from servebench.store.measurements import Discarded, Record
from servebench.store.replies import Evaluated
from servebench.tables.catalogue import FIGURES, SCHEMAS, TABLES
from servebench.tables.derived import (
    cost,
    expected,
    memory,
    paid_idle,
    queueing,
    ratios,
    reproduction,
    requests_fit,
    settings,
    slow_by_micro_batch,
    unstable,
)
from servebench.tables.files import check, read, read_all, read_reference, table, write
from servebench.tables.measured import (
    calibration,
    discarded,
    measurements,
    reference_bands,
    sessions,
    slow_requests,
    telemetry,
    timeline,
    ttft,
)
from servebench.tables.served import prefill_bands, served, slow_prefills
from servebench.tables.sources import Sources
from servebench.tasks.answers import Questions

__all__ = [
    "FIGURES",
    "SCHEMAS",
    "TableError",
    "calibration",
    "check",
    "cost",
    "discarded",
    "expected",
    "from_answers",
    "from_records",
    "measurements",
    "memory",
    "paid_idle",
    "prefill_bands",
    "queueing",
    "ratios",
    "read",
    "read_all",
    "read_reference",
    "reference_bands",
    "reproduction",
    "requests_fit",
    "served",
    "sessions",
    "settings",
    "slow_by_micro_batch",
    "slow_prefills",
    "slow_requests",
    "table",
    "telemetry",
    "timeline",
    "ttft",
    "unstable",
    "write",
]


def from_records(
    records: Sequence[Record],
    thrown_out: Iterable[Discarded],
    plan: Plan,
    caches: Mapping[str, Cache] | None = None,
) -> dict[str, pa.Table]:
    """Make every table that follows from the records alone, by name. `caches` are KV caches by model key."""
    sources = Sources(plan=plan, records=records, thrown_out=thrown_out, caches=caches or {})
    return sources.tables(table for table in TABLES if table.needs is None)


def from_answers(plan: Plan, evaluated: Sequence[Evaluated], questions: Questions) -> dict[str, pa.Table]:
    """Make every table of the evaluations, by name. `evaluated` is in the order of the plan's targets."""
    sources = Sources(plan=plan, evaluated=evaluated, questions=questions)
    return sources.tables(table for table in TABLES if table.needs == "evaluations")
