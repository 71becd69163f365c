"""The load generator against a clock: how wrong it is on this machine, and up to how many users it is right.

A clock server of ours (clock_server.py) is loaded as any server would be. Each chunk says when it left, on the same
clock that stamps its arrival, so the errors below are the client's, its kernel's and its core's, not the server's:

- arrival error = arrival − sent, of each chunk;
- TTFT error = (first token − request sent) by the client's stamps − (first chunk sent − request received) by the
  server's;
- delivered ÷ ideal = tokens that arrived in the window ÷ tokens of as many users who lose no time at all.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import platform
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa

from servebench.load.clock_server import Schedule, running
from servebench.load.endpoint import Endpoint
from servebench.load.figures import CLIENT_CPU_LIMIT, percentile
from servebench.load.measurement import Measurement
from servebench.load.run import run
from servebench.load.workload import Workload
from servebench.machine import processor
from servebench.machine.cache import NAMED_BY
from servebench.machine.infrastructure import writable
from servebench.versions import PROTOCOL

VARIANTS = {
    "steady": Schedule(),
    "lockstep": Schedule(lockstep=True),
    "4 tokens a chunk": Schedule(tokens_per_chunk=4),
    "200 ms TTFT": Schedule(ttft_ms=200.0),
}
# For `ensure`: the same rhythm in shorter answers, so that a few seconds show it.
_SHORT = {"steady": Schedule(tokens=32), "lockstep": Schedule(tokens=32, lockstep=True)}


@dataclass(frozen=True)
class Bounds:
    """What "truthfully" means. 10 ms are half a gap between tokens at 50 tok/s and 0.5 % of the line's TTFT of 2 s;
    a client that drives 1 % less than the load it reports, or is busier than a measurement allows, is refused too."""

    ttft_error_p99_s: float = 0.010
    arrival_error_p99_s: float = 0.010
    delivered_ratio_min: float = 0.99
    delivered_ratio_max: float = 1.01
    cpu_ratio: float = CLIENT_CPU_LIMIT


def level(
    users: int,
    schedule: Schedule,
    *,
    window_s: float,
    processes: int | None = None,
    cpus: Sequence[int] = (),
) -> dict[str, Any]:
    """One number of users on one schedule: the errors (s), delivered ÷ ideal, CPU s per 100k chunks, and what of it is
    beyond the bounds. The window is rounded to whole answers, of which one user delivers whole numbers."""
    answers = max(1, round(window_s / schedule.answer_s))
    workload = Workload(
        prompts="en-short",
        max_tokens=schedule.tokens,
        warmup_s=schedule.answer_s,
        window_s=answers * schedule.answer_s,
        spread_s=schedule.answer_s,
        timeout_s=30.0,
    )
    with running(schedule) as (url, _):
        endpoint = Endpoint(url=url, model="clock")
        measured, stamps = run(endpoint, workload, users, processes=processes, cpus=cpus, clock=True)
    assert stamps is not None
    found = {"users": users, "schedule": asdict(schedule), **errors(measured, stamps, schedule, users)}
    return found | {"beyond": beyond(found, Bounds())}


def errors(measured: Measurement, stamps: pa.Table, schedule: Schedule, users: int) -> dict[str, Any]:
    """The figures of one level: arrivals in the window, TTFT of the requests sent in it; `stamps` as
    worker.CLOCK_SCHEMA. None where there was nothing to measure."""
    requests, meta = measured.requests, measured.meta
    start_ns, end_ns = meta.window_start_ns, meta.window_end_ns
    clock = {name: stamps[name].to_numpy() for name in stamps.schema.names}
    inside = (clock["arrival_ns"] >= start_ns) & (clock["arrival_ns"] < end_ns)
    arrival_s = (clock["arrival_ns"] - clock["sent_ns"])[inside] / 1e9
    lateness_s = (clock["sent_ns"] - clock["due_ns"])[inside] / 1e9
    _, first = np.unique(clock["request_id"], return_index=True)
    truth_ns = dict(zip(clock["request_id"][first], (clock["sent_ns"] - clock["received_ns"])[first], strict=True))
    ttft_s = [
        (row["first_token_ns"] - row["sent_ns"] - truth_ns[row["request_id"]]) / 1e9
        for row in requests.select(["request_id", "phase", "status", "sent_ns", "first_token_ns"]).to_pylist()
        if row["phase"] == "window" and row["status"] == "ok"
    ]
    arrivals, tokens = measured.chunks["arrival_ns"].to_numpy(), measured.chunks["tokens"].to_numpy()
    delivered = int(tokens[(arrivals >= start_ns) & (arrivals < end_ns)].sum())
    ideal = users * schedule.tokens / schedule.answer_s * (end_ns - start_ns) / 1e9
    chunks = measured.chunks.num_rows
    cpu_s = sum(process.cpu_s for process in meta.client.processes)
    return {
        "processes": meta.processes,
        "chunks": chunks,
        "failed": sum(status not in ("ok", "cancelled") for status in requests["status"].to_pylist()),
        "ttft_error_p50_s": percentile(np.array(ttft_s, np.float64), 50),
        "ttft_error_p99_s": percentile(np.array(ttft_s, np.float64), 99),
        "arrival_error_p50_s": percentile(arrival_s, 50),
        "arrival_error_p99_s": percentile(arrival_s, 99),
        "delivered_ratio": delivered / ideal,
        "cpu_s_per_100k_chunks": cpu_s / chunks * 1e5 if chunks else None,
        "cpu_ratio": meta.client.cpu_ratio,
        "server_lateness_p99_s": percentile(lateness_s, 99),
    }


def beyond(found: dict[str, Any], bounds: Bounds) -> list[str]:
    """What of a level is out of bounds, in words; empty when all is within."""
    words = [f"{found['failed']} requests failed"] if found["failed"] else []
    for name in ("ttft_error_p99_s", "arrival_error_p99_s"):
        value, most = found[name], getattr(bounds, name)
        if value is None or value > most:
            words.append(f"{name} {value if value is None else round(value, 4)}, at most {most}")
    ratio = found["delivered_ratio"]
    if not bounds.delivered_ratio_min <= ratio <= bounds.delivered_ratio_max:
        words.append(
            f"delivered ÷ ideal {ratio:.4f}, from {bounds.delivered_ratio_min} to {bounds.delivered_ratio_max}"
        )
    if found["cpu_ratio"] > bounds.cpu_ratio:
        words.append(f"cpu_ratio {found['cpu_ratio']:.2f}, at most {bounds.cpu_ratio}")
    return words


def calibrate(
    users: Iterable[int],
    *,
    window_s: float,
    processes: int | None,
    cpus: Sequence[int],
    told: Callable[[dict[str, Any]], None],
) -> dict[str, Any]:
    """Every number of users on the steady schedule, the largest on the other variants too; a level out of bounds once
    more, since one disturbance is not the machine. `told` gets each level as it is done. See `record` for what comes
    back."""
    counts = sorted(set(users))
    todo = [("steady", count) for count in counts] + [(name, counts[-1]) for name in VARIANTS if name != "steady"]
    levels = []
    for name, count in todo:
        done = _twice(name, VARIANTS[name], count, window_s=window_s, processes=processes, cpus=cpus)
        told(done)
        levels.append(done)
    return record(levels, cpus, processes)


def record(levels: list[dict[str, Any]], cpus: Sequence[int] = (), processes: int | None = None) -> dict[str, Any]:
    """JSON-able. `max_users` is the largest number of users of which every variant, and every smaller number, was
    within the bounds; 0 when none was."""
    return {
        "protocol": PROTOCOL,
        "machine": machine(cpus),
        "processes": processes,
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "bounds": asdict(Bounds()),
        **_judged(levels),
    }


def _judged(levels: list[dict[str, Any]]) -> dict[str, Any]:
    refused = [done["users"] for done in levels if done["beyond"]]
    good = [done["users"] for done in levels if not refused or done["users"] < min(refused)]
    return {"max_users": max(good, default=0), "levels": levels}


def _outdated(old: dict[str, Any], levels: list[dict[str, Any]]) -> bool:
    return any(
        new["users"] == old["users"] or (old["beyond"] and not new["beyond"] and new["users"] > old["users"])
        for new in levels
        if new["variant"] == old["variant"]
    )


def ensure(
    users: int, cache_dir: str | os.PathLike[str], cpus: Sequence[int] = (), processes: int | None = None
) -> dict[str, Any]:
    """This machine's calibration (as `record`) with the load on `cpus` ((): any) in `processes` (None: as many as
    `run.measure` takes), from `cache_dir` when it says whether `users` can be loaded truthfully; otherwise measured
    now, in about 12 s for 16 users or fewer, and kept there.

    A level out of bounds is tried once more, since one disturbance is not the machine; if it fails again, half as
    many users are tried, until some pass.
    """
    found = known(cache_dir, cpus, processes)
    if found is not None and (
        users <= found["max_users"] or any(done["beyond"] and done["users"] <= users for done in found["levels"])
    ):
        return found
    writable(Path(cache_dir), NAMED_BY)
    logging.getLogger("servebench").info(
        "calibrating the load generator for %d users, once on this machine: about 12 s", users
    )
    levels = []
    count = users
    while True:
        done = [
            _twice(name, schedule, count, window_s=3.0, processes=processes, cpus=cpus)
            for name, schedule in _SHORT.items()
        ]
        levels += done
        if count == 1 or not any(one["beyond"] for one in done):
            return keep(record(levels, cpus, processes), cache_dir)
        count //= 2


def _twice(name: str, schedule: Schedule, users: int, **how: Any) -> dict[str, Any]:
    done = level(users, schedule, **how)
    if done["beyond"]:
        done = level(users, schedule, **how)
    return {"variant": name, **done}


def known(
    cache_dir: str | os.PathLike[str], cpus: Sequence[int] = (), processes: int | None = None
) -> dict[str, Any] | None:
    """What was measured on this machine before, so divided, under the present protocol; None when nothing was."""
    path = _path(cache_dir, machine(cpus), processes)
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else None


def keep(found: dict[str, Any], cache_dir: str | os.PathLike[str]) -> dict[str, Any]:
    """Add a calibration to what is known of its machine, and return that. A level replaces what was found of the same
    variant and number of users, and where it is within the bounds, failures of its variant with fewer."""
    path = _path(cache_dir, found["machine"], found["processes"])
    before = json.loads(path.read_text(encoding="utf-8"))["levels"] if path.is_file() else []
    found = found | _judged([*(old for old in before if not _outdated(old, found["levels"])), *found["levels"]])
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}")
    part.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    part.replace(path)
    return found


def machine(cpus: Sequence[int] = ()) -> dict[str, Any]:
    """What a calibration depends on: processor, cores the load may use (`cpus`, else this process's), system,
    interpreter."""
    affinity = len(cpus or os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "host": platform.node(),
        "processor": processor.name(),
        "cores": affinity,
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
    }


def _path(cache_dir: str | os.PathLike[str], machine: dict[str, Any], processes: int | None) -> Path:
    name = hashlib.sha256(json.dumps([PROTOCOL, machine, processes], sort_keys=True).encode()).hexdigest()[:16]
    return Path(cache_dir) / "calibration" / f"{name}.json"
