"""Measure how fast this machine's memory is copied, in about half a second: only predictions need it.

A GPU's memory is not measured; its data sheet or the configuration says how fast it is.
"""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter

import numpy as np

from servebench.machine import host

COPIED_BYTES = 256 * 2**20  # at once, by all threads together: more than the caches of one socket hold
THREADS, REPEATS = 8, 5


def measured(cache_root: Path, fingerprint: str, *, again: bool = False) -> float:
    """Return the bandwidth of this machine's memory in GB/s, measured once for each `Machine.fingerprint`.

    The figure is kept in the cache folder, with its date. With `again` it is measured in any case, and the larger of
    the two is kept: a copy beside other work shows less than the memory can do.
    """
    path = cache_root / "bandwidth" / f"{fingerprint}.json"
    try:
        kept = float(json.loads(path.read_text(encoding="utf-8"))["gb_s"])
    except (OSError, ValueError, LookupError, TypeError):
        kept = None
    if kept is not None and not again:
        return kept
    found = copied_gb_s()
    if kept is not None and kept >= found:
        return kept
    part = path.with_suffix(f".{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps({"gb_s": found, "measured_at": datetime.now(UTC).isoformat(timespec="seconds")}))
        part.replace(path)
    except OSError:
        pass  # a folder that cannot be written to is reported by whoever needs it; the figure is the same
    return found


def copied_gb_s() -> float:
    """Copy memory with a thread for each core; return bytes read and written ÷ time of the fastest copy, GB/s."""
    threads = min(THREADS, len(host.cpus()))
    pairs = [tuple(np.ones(COPIED_BYTES // threads, np.uint8) for _ in range(2)) for _ in range(threads)]

    def copy(pair: tuple[np.ndarray, ...]) -> None:
        np.copyto(pair[0], pair[1])  # without the interpreter's lock

    best_s = float("inf")
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(REPEATS):
            begin_s = perf_counter()
            list(pool.map(copy, pairs))
            best_s = min(best_s, perf_counter() - begin_s)
    return round(2 * COPIED_BYTES / best_s / 1e9, 1)
