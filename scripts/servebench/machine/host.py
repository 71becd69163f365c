"""Sample the host by psutil: the memory and CPU share of a process tree, and others' use of the same CPUs."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psutil

CGROUPS = Path("/sys/fs/cgroup")


def tree(pid: int | None) -> list[psutil.Process]:
    """Return the process and all its descendants; [] when the process is gone."""
    if pid is None:
        return []
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.Error:
        return []


def cpus() -> list[int]:
    """Return the CPUs this process may use."""
    if sys.platform == "linux":
        usable = sorted(os.sched_getaffinity(0))
    else:
        usable = list(range(psutil.cpu_count() or 1))
    return usable


class Sampler:
    """Samples the CPUs this process may use, for one process tree (`server`) and for what belongs to the measurement.

    Foreign is what neither the server nor the processes below `session` (the load generator, this sampler) used.
    Time that a hypervisor gave to other machines counts as foreign. Of a server that is not ours (None), what others
    use is unknown: it may be the server itself, or run where we cannot see.
    """

    def __init__(self, server: int | None, session: int) -> None:
        self._server, self._session = server, session
        self._cpus = cpus()
        self._before = self._read()

    def sample(self) -> dict[str, Any]:
        """Return one row of the telemetry without its time.

        Shares are of all CPUs together (1: all busy), since the last sample.
        """
        before, now = self._before, self._read()
        self._before = now
        capacity_s = (now["wall_s"] - before["wall_s"]) * len(self._cpus)
        server_s = _since(before["server"], now["server"])
        ours_s = _since(before["ours"], now["ours"])
        busy_s = now["busy_s"] - before["busy_s"]
        known = capacity_s > 0
        return {
            "memory_bytes": now["memory_bytes"],
            "device_memory_bytes": psutil.virtual_memory().used,
            "utilisation": min(1.0, server_s / capacity_s) if known and now["server"] else None,
            "foreign_utilisation": min(1.0, max(0.0, busy_s - ours_s) / capacity_s) if known and self._server else None,
            "device_utilisation": min(1.0, busy_s / capacity_s) if known else None,
            "cpu_throttled_s": cgroup_throttled_s(self._server),
            "client_cpu_throttled_s": cgroup_throttled_s(self._session),
        }

    def _read(self) -> dict[str, Any]:
        server = tree(self._server)
        times = psutil.cpu_times(percpu=True)
        busy_s = sum(
            sum(times[cpu]) - times[cpu].idle - getattr(times[cpu], "iowait", 0.0) - getattr(times[cpu], "guest", 0.0)
            for cpu in self._cpus
            if cpu < len(times)
        )
        return {
            "wall_s": time.monotonic(),
            "busy_s": busy_s,
            "server": _cpu_s(server),
            "ours": _cpu_s({*server, *tree(self._session)}),
            "memory_bytes": _memory(server),
        }


def _cpu_s(processes: Iterable[psutil.Process]) -> dict[tuple[int, float], float]:
    """Return the CPU seconds by (pid, start time), those of ended children included."""
    found = {}
    for process in processes:
        try:
            times = process.cpu_times()
            found[process.pid, process.create_time()] = sum(times[:4])
        except psutil.Error:
            continue
    return found


def _since(before: dict[tuple[int, float], float], now: dict[tuple[int, float], float]) -> float:
    """Return the CPU seconds between two readings, without processes that ended uncollected by their parents."""
    return sum(max(0.0, spent - before.get(key, 0.0)) for key, spent in now.items())


def _memory(processes: Iterable[psutil.Process]) -> int | None:
    """Return the resident bytes of the tree; None when the tree is gone."""
    sizes = []
    for process in processes:
        try:
            sizes.append(process.memory_info().rss)
        except psutil.Error:
            continue
    return sum(sizes) if sizes else None


def cgroup_throttled_s(pid: int | None) -> float | None:
    """Return `throttled_s` of the process's control group (v2)."""
    try:
        groups = Path(f"/proc/{pid}/cgroup").read_text(encoding="ascii")
    except OSError:
        return None
    return throttled_s(groups.strip().rpartition("::")[2])


def throttled_s(group: str) -> float | None:
    """Return how many seconds quotas kept a control group (v2), and all groups above it, from their CPUs.

    None when the system does not say.
    """
    own = CGROUPS / group.lstrip("/")
    folders = [folder for folder in (own, *own.parents) if folder.is_relative_to(CGROUPS)]
    try:
        lines = [line for folder in folders for line in (folder / "cpu.stat").read_text(encoding="ascii").splitlines()]
    except OSError:
        return None
    told = [int(line.split()[1]) for line in lines if line.startswith("throttled_usec ")]
    return sum(told) / 1e6 if told else None
