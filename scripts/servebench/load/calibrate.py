"""Measure this client's timing error, and up to how many users it stays within bounds on this machine.

The load generator loads our clock server (clock_server.py) like any other server. Each chunk carries the time at
which it was sent, on the same clock that stamps its arrival, so the errors below are the client's, its kernel's and
its core's, not the server's:

- arrival error = arrival − sent, of each chunk;
- TTFT error = (first token − request sent) by the client's stamps − (first chunk sent − request received) by the
  server's;
- delivered ÷ ideal = tokens that arrived in the window ÷ tokens of the same number of users who lose no time at all.
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

import msgspec
import numpy as np
import psutil
from msgspec.structs import replace

from servebench.load.calibration import Calibration, Level
from servebench.load.clock_server import Schedule, running
from servebench.load.doubts import CLIENT_CPU_LIMIT
from servebench.load.endpoint import Endpoint
from servebench.load.measurement import Measurement
from servebench.load.percentiles import percentile
from servebench.load.run import USERS_A_PROCESS, measure
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
# For `ensure`: the same rhythm in shorter answers, so that a few seconds suffice.
_SHORT = {"steady": Schedule(tokens=32), "lockstep": Schedule(tokens=32, lockstep=True)}


@dataclass(frozen=True)
class Bounds:
    """Bound the client's errors: within these it loads accurately.

    10 ms are half a gap between tokens at 50 tok/s and 0.5 % of the line's TTFT of 2 s. A client that drives 1 % less
    than the load it reports, or is busier than a measurement allows, is refused too.
    """

    ttft_error_p99_s: float = 0.010
    arrival_error_p99_s: float = 0.010
    delivered_ratio_min: float = 0.99
    delivered_ratio_max: float = 1.01
    cpu_ratio: float = CLIENT_CPU_LIMIT


def level(
    variant: str,
    users: int,
    schedule: Schedule,
    *,
    window_s: float,
    processes: int | None = None,
    cpus: Sequence[int] = (),
) -> Level:
    """Measure one number of users on one schedule: errors (s), delivered ÷ ideal, CPU s per 100k chunks, bounds missed.

    The window is rounded to whole answers, so that each user ideally delivers a whole number of them.
    """
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
        measured = measure(endpoint, workload, users, processes=processes, cpus=cpus, clock=True)
    found = errors(measured, schedule, users)
    done = Level(variant=variant, users=users, schedule=asdict(schedule), **found)
    return replace(done, beyond=beyond(done, Bounds()))


def errors(measured: Measurement, schedule: Schedule, users: int) -> dict[str, Any]:
    """Compute the errors of one level from arrivals in the window and the TTFT of requests sent in it.

    A figure is None where nothing was measured.
    """
    requests, meta = measured.requests, measured.meta
    start_ns, end_ns = meta.window_start_ns, meta.window_end_ns
    assert measured.clock
    clock = {name: measured.clock[name].to_numpy() for name in measured.clock.schema.names}
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


def beyond(found: Level, bounds: Bounds) -> list[str]:
    """List, in words, the figures of a level that are out of bounds."""
    words = [f"{found.failed} requests failed"] if found.failed else []
    for name in ("ttft_error_p99_s", "arrival_error_p99_s"):
        value, most = getattr(found, name), getattr(bounds, name)
        if value is None or value > most:
            words.append(f"{name} {value if value is None else round(value, 4)}, at most {most}")
    ratio = found.delivered_ratio
    if not bounds.delivered_ratio_min <= ratio <= bounds.delivered_ratio_max:
        words.append(
            f"delivered ÷ ideal {ratio:.4f}, from {bounds.delivered_ratio_min} to {bounds.delivered_ratio_max}"
        )
    if found.cpu_ratio > bounds.cpu_ratio:
        words.append(f"cpu_ratio {found.cpu_ratio:.2f}, at most {bounds.cpu_ratio}")
    return words


def calibrate(
    users: Iterable[int],
    *,
    window_s: float,
    processes: int | None,
    cpus: Sequence[int],
    told: Callable[[Level], None],
) -> Calibration:
    """Calibrate every number of users on the steady schedule, and the largest on the other variants too.

    A level out of bounds is measured once more, since a single disturbance says nothing about the machine. `told` is
    called with each finished level.
    """
    counts = sorted(set(users))
    todo = [("steady", count) for count in counts] + [(name, counts[-1]) for name in VARIANTS if name != "steady"]
    levels = []
    for name, count in todo:
        done = _twice(name, VARIANTS[name], count, window_s=window_s, processes=processes, cpus=cpus)
        told(done)
        levels.append(done)
    return record(levels, cpus, processes)


def record(levels: list[Level], cpus: Sequence[int] = (), processes: int | None = None) -> Calibration:
    """Make a calibration of levels measured just now."""
    return Calibration(
        protocol=PROTOCOL,
        machine=machine(cpus),
        processes=processes,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        bounds=asdict(Bounds()),
        max_users=_max_users(levels),
        levels=levels,
    )


def _max_users(levels: list[Level]) -> int:
    refused = [done.users for done in levels if done.beyond]
    return max((done.users for done in levels if not refused or done.users < min(refused)), default=0)


def _outdated(old: Level, levels: list[Level]) -> bool:
    return any(
        new.users == old.users or (old.beyond and not new.beyond and new.users > old.users)
        for new in levels
        if new.variant == old.variant
    )


def ensure(
    users: int, cache_dir: str | os.PathLike[str], cpus: Sequence[int] = (), processes: int | None = None
) -> Calibration:
    """Return this machine's calibration, measured now where the cache does not cover `users`.

    It holds for a load on `cpus` ((): any) in `processes` (None: as many as `run.measure` takes). The calibration in
    `cache_dir` is returned when it says whether `users` can be loaded accurately; otherwise a new one is measured, in
    about 12 s for 16 users or fewer, and added to `cache_dir`.

    A level out of bounds is tried once more, since a single disturbance says nothing about the machine; if it fails
    again, half as many users are tried, until a level passes.
    """
    found = known(cache_dir, cpus, processes)
    if found is not None and (
        users <= found.max_users or any(done.beyond and done.users <= users for done in found.levels)
    ):
        return found
    writable(Path(cache_dir), NAMED_BY)
    logging.getLogger("servebench").info(
        "calibrating the load generator for %d users, once on this machine: 12 s, or minutes if that is too many",
        users,
    )
    levels: list[Level] = []
    count = users
    while True:
        done = [
            _twice(name, schedule, count, window_s=3.0, processes=processes, cpus=cpus)
            for name, schedule in _SHORT.items()
        ]
        levels += done
        if count == 1 or not any(one.beyond for one in done):
            return keep(record(levels, cpus, processes), cache_dir)
        count //= 2


def _twice(variant: str, schedule: Schedule, users: int, **how: Any) -> Level:
    done = level(variant, users, schedule, **how)
    return level(variant, users, schedule, **how) if done.beyond else done


def known(
    cache_dir: str | os.PathLike[str], cpus: Sequence[int] = (), processes: int | None = None
) -> Calibration | None:
    """Return an earlier calibration of this machine, `cpus` and `processes` under this PROTOCOL; None without one."""
    return _read(_path(cache_dir, machine(cpus), processes))


def keep(found: Calibration, cache_dir: str | os.PathLike[str]) -> Calibration:
    """Merge a calibration into the machine's earlier ones in `cache_dir`, and return the merged record.

    A level replaces the earlier level of the same variant and number of users and, if it is within the bounds, its
    variant's failures with fewer users.
    """
    path = _path(cache_dir, found.machine, found.processes)
    before = _read(path)
    kept = [old for old in before.levels if not _outdated(old, found.levels)] if before else []
    levels = [*kept, *found.levels]
    found = replace(found, levels=levels, max_users=_max_users(levels))
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}")
    part.write_text(as_json(found), encoding="utf-8")
    part.replace(path)
    return found


def as_json(found: Calibration) -> str:
    """Return a calibration as the text of a JSON file."""
    return json.dumps(msgspec.to_builtins(found), indent=1) + "\n"


def _read(path: Path) -> Calibration | None:
    """Read a calibration; None without one, or with a damaged one, which is then measured again."""
    if not path.is_file():
        return None
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Calibration)
    except (msgspec.DecodeError, RecursionError) as error:
        logging.getLogger("servebench").warning("%s: is no calibration (%s); measuring it again", path, error)
        return None
    return found if found.max_users == _max_users(found.levels) else None


def machine(cpus: Sequence[int] = ()) -> dict[str, Any]:
    """Describe what a calibration depends on: processor, number of the load's CPUs, system, Python.

    Without `cpus`, they are this process's."""
    affinity = len(cpus or os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "host": platform.node(),
        "processor": processor.name(),
        "cores": affinity,
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
    }


def _path(cache_dir: str | os.PathLike[str], machine: dict[str, Any] | None, processes: int | None) -> Path:
    division = processes or f"one for {USERS_A_PROCESS} users"
    name = hashlib.sha256(json.dumps([PROTOCOL, machine, division], sort_keys=True).encode()).hexdigest()[:16]
    return Path(cache_dir) / "calibration" / f"{name}.json"
