"""Make tables of llama-server's log: each request it served, and slow prompt evaluations. Pure functions.

Requests have the log's own numbers: the log does not say which of our requests they are. A server without such a log
has no rows in these tables.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import pyarrow as pa

from servebench.store.measurements import Record
from servebench.tables.catalogue import SCHEMAS
from servebench.tables.files import table
from servebench.tables.measured import micro_batch, order, references

SLOW_MS = 1000.0
MOST_BUSY_SLOTS = 2
BAND_WIDTH = 18
_COLUMNS = SCHEMAS["served"].names[4:]


def served(records: Sequence[Record]) -> pa.Table:
    """Make one row per request that got a slot during the measurement, warm-up included, in the log's order."""
    rows = []
    for record in sorted((r for r in records if r.status == "ok" and r.served), key=order):
        unknown = [None] * len(record.served["task"])  # columns that earlier versions did not write
        values = (record.served.get(name, unknown) for name in _COLUMNS)
        rows += [record.identity.place | dict(zip(_COLUMNS, row, strict=True)) for row in zip(*values, strict=True)]
    return table("served", rows)


def prefill_bands(records: Sequence[Record], control: Mapping[str, str | None]) -> dict[str, tuple[int, int]]:
    """Find each run's band, the 18 numbers of newly computed tokens just over the micro-batch: (first, last)."""
    return {
        run: prefill_band(size)
        for run, reference in references(records, control).items()
        if (size := micro_batch(reference[0])) is not None
    }


def prefill_band(micro_batch_tokens: int) -> tuple[int, int]:
    """Return the band of a micro-batch: (513, 530) for the default of 512 (docs/tables.md, slow_prefills)."""
    return micro_batch_tokens + 1, micro_batch_tokens + BAND_WIDTH


def slow_prefills(told: pa.Table, bands: Mapping[str, tuple[int, int]]) -> pa.Table:
    """Count prompt evaluations of more than 1 s, of those in the run's band that began with at most 2 busy slots.

    One row per run × setting × users that the log covers, over all rounds; a run without a band has no rows.
    """
    counts: dict[tuple[str, str, int], list[int]] = defaultdict(lambda: [0, 0])
    for row in told.to_pylist():
        if row["run"] not in bands or row["prompt_ms"] is None:
            continue
        low, high = bands[row["run"]]
        counted = counts[row["run"], row["setting"], row["users"]]
        if low <= row["prompt_tokens"] <= high and row["busy_slots"] <= MOST_BUSY_SLOTS:
            counted[0] += row["prompt_ms"] > SLOW_MS
            counted[1] += 1
    rows = []
    for (run, setting, users), (slow, total) in counts.items():
        low, high = bands[run]
        place = {"run": run, "setting": setting, "users": users}
        rows.append(place | {"band_low": low, "band_high": high, "slow": slow, "total": total})
    return table("slow_prefills", rows)
