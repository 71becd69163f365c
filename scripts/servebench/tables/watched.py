"""What the samples of the machine tell of a measurement's window. Pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from servebench.store.measurements import Record

# Clocks that are lower than they should be. `power_cap` is none of them: under full load it is a GPU's usual state.
SLOWING = ("hw_slowdown", "sw_thermal", "hw_thermal", "hw_power_brake")
# Of the window: so long may a quota keep a process from its CPUs, all of them together.
QUOTA_SHARE = 0.01


def in_window(record: Record, name: str) -> list[Any]:
    """The samples of this column of the telemetry that were taken in the window; [] where nothing was measured."""
    meta, telemetry = record.meta, record.telemetry
    if meta is None:
        return []
    samples = zip(telemetry.get("time_ns", ()), telemetry.get(name, ()), strict=False)
    return [value for time_ns, value in samples if meta.window_start_ns <= time_ns < meta.window_end_ns]


def slowed(record: Record) -> Iterator[str]:
    """Why the machine was not itself in the window, each as `kind: evidence`. What is not known is no reason."""
    if not in_window(record, "time_ns"):
        return
    told = [value for value in in_window(record, "throttle") if value is not None]
    counts = Counter(name for value in told for name in value.split(",") if name in SLOWING)
    if counts:
        evidence = ", ".join(f"{name} {count}" for name, count in counts.items())
        yield f"device throttled: {evidence} of {len(told)} samples"
    if errors := _grown(record, "ecc_errors"):
        yield f"memory errors: {errors:.0f} uncorrected ones of the device"
    window_s = record.loaded.window_s
    quotas = {"server": "cpu_throttled_s", "load generator": "client_cpu_throttled_s"}
    kept_s = {who: _grown(record, name) for who, name in quotas.items()}
    if late := [f"{who} {seconds:.1f} s" for who, seconds in kept_s.items() if seconds > QUOTA_SHARE * window_s]:
        yield f"cpu quota: kept from the CPUs in a window of {window_s:.0f} s: {', '.join(late)}"


def _grown(record: Record, name: str) -> float:
    """By how much a total grew from the first to the last sample of the window that tells it; 0 with fewer than two."""
    known = [value for value in in_window(record, name) if value is not None]
    return float(known[-1] - known[0]) if known else 0.0
