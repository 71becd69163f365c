"""Raw records in, tables out. Each table has a schema, checked when it is written and when it is read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from servebench.models.kv_cache import Cache
from servebench.plan import Plan
from servebench.schema import TableError
from servebench.store.measurements import Discarded, Record
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
from servebench.tables.schemas import FIGURES, SCHEMAS
from servebench.tables.served import prefill_bands, served, slow_prefills

__all__ = [
    "FIGURES",
    "SCHEMAS",
    "TableError",
    "calibration",
    "check",
    "cost",
    "discarded",
    "expected",
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
    """Every table that follows from the records alone, by name. `caches` (KV) is by key of the model."""
    measured = measurements(records, plan.line)
    ranges, launches = settings(measured, plan.rounds), sessions(records)
    control = {run: entry.get("control") for run, entry in plan.runs.items()}
    slow, told = slow_requests(records, reference_bands(records, control)), served(records)
    return {
        "measurements": measured,
        "settings": ranges,
        "sessions": launches,
        "expected": expected(launches, plan),
        "unstable": unstable(measured),
        "queueing": queueing(ranges),
        "ratios": ratios(measured, ranges, plan),
        "slow_requests": slow,
        "slow_by_micro_batch": slow_by_micro_batch(slow, launches),
        "served": told,
        "slow_prefills": slow_prefills(told, prefill_bands(records, control)),
        "ttft": ttft(records),
        "timeline": timeline(records),
        "telemetry": telemetry(records),
        "memory": memory(launches, measured, caches or {}, plan.settings),
        "calibration": calibration(records),
        "discarded": discarded(thrown_out),
    }
