"""Turn raw records into tables. Each table has a schema, checked when it is written and when it is read."""

from __future__ import annotations

from servebench.schema import TableError
from servebench.tables.catalogue import FIGURES, SCHEMAS
from servebench.tables.cost import cost, paid_idle
from servebench.tables.derived import queueing, reproduction, settings, slow_by_micro_batch, unstable
from servebench.tables.expected import expected
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
from servebench.tables.memory import memory, requests_fit
from servebench.tables.predicted import predicted
from servebench.tables.ratios import ratios
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
    "measurements",
    "memory",
    "paid_idle",
    "predicted",
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
