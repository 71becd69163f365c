"""Raw records in, tables out. Each table has a schema, checked when it is written and when it is read."""

from servebench.tables.derived import cost, memory, queueing, ratios, reproduction, settings, unstable
from servebench.tables.files import TableError, check, read, read_all, read_reference, table, write
from servebench.tables.measured import discarded, measurements, reference_bands, sessions, slow_requests, timeline, ttft
from servebench.tables.schemas import FIGURES, SCHEMAS

__all__ = [
    "FIGURES",
    "SCHEMAS",
    "TableError",
    "check",
    "cost",
    "discarded",
    "measurements",
    "memory",
    "queueing",
    "ratios",
    "read",
    "read_all",
    "read_reference",
    "reference_bands",
    "reproduction",
    "sessions",
    "settings",
    "slow_requests",
    "table",
    "timeline",
    "ttft",
    "unstable",
    "write",
]
