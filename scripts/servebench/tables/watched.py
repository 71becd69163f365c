"""Read a measurement's samples of the machine, and mark what they show. Pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from servebench.marks import Mark, mark
from servebench.store.measurements import Record

# Throttle reasons that lower the clocks. `power_cap` is not among them: under full load it is a GPU's usual state.
SLOWING = ("hw_slowdown", "sw_thermal", "hw_thermal", "hw_power_brake")
# Largest share of the window for which a quota may keep a process from its CPUs, summed over CPUs.
QUOTA_SHARE = 0.01


def in_window(record: Record, name: str) -> list[Any]:
    """Return the window's samples of this telemetry column; [] for a measurement that failed."""
    meta, telemetry = record.meta, record.telemetry
    if meta is None:
        return []
    samples = zip(telemetry.get("time_ns", ()), telemetry.get(name, ()), strict=False)
    return [value for time_ns, value in samples if meta.window_start_ns <= time_ns < meta.window_end_ns]


def slowed(record: Record) -> Iterator[Mark]:
    """Yield the reasons why the machine was slowed down in the window. An unknown sample is not a reason."""
    if not in_window(record, "time_ns"):
        return
    told = [value for value in in_window(record, "throttle") if value is not None]
    throttles = Counter(name for value in told for name in value.split(",") if name in SLOWING)
    if throttles:
        yield mark("device_throttled", throttles=dict(throttles), samples=len(told))
    if errors := _grown(record, "ecc_errors"):
        yield mark("memory_errors", errors=int(errors))
    window_s = record.loaded.window_s
    for kind, column in (
        ("server_kept_from_cpus", "cpu_throttled_s"),
        ("client_kept_from_cpus", "client_cpu_throttled_s"),
    ):
        kept_s = _grown(record, column)
        if kept_s > QUOTA_SHARE * window_s:
            yield mark(kind, kept_s=kept_s, window_s=window_s)


def shared(record: Record) -> Iterator[Mark]:
    """Yield a mark when others used the device in more samples than the session allowed."""
    rule = record.foreign_use
    foreign = rule.exceeded(record.telemetry.get("foreign_utilisation", ()))
    if foreign is not None and foreign >= rule.samples:
        yield mark("foreign_use", samples=foreign, share_percent=100 * rule.share)


def _grown(record: Record, name: str) -> float:
    """Return how much a running total grew from the first to the last known sample of the window; 0 without two."""
    known = [value for value in in_window(record, name) if value is not None]
    return float(known[-1] - known[0]) if known else 0.0
