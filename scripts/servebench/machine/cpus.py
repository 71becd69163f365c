"""Allot CPUs to the server and to the load generator: as many as the configuration says, never the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from servebench.machine import host
from servebench.machine.infrastructure import InfrastructureError

NODES = Path("/sys/devices/system/node")


def allot(asked: Mapping[str, int] | None) -> dict[str, list[int]]:
    """Return the CPU numbers of `server` and `load`; {} when nothing is asked.

    The server's come first and, if they fit, from one NUMA node. Raises `InfrastructureError` when too few are usable.
    """
    if not asked:
        return {}
    left = host.cpus()
    if sum(asked.values()) > len(left):
        wanted = " and ".join(f"{count} for the {who}" for who, count in asked.items())
        raise InfrastructureError(
            f"cpus: {wanted} are asked for, but {len(left)} can be used; ask for more, or set cpus: null"
        )
    found = {}
    for who in ("server", "load"):
        if who in asked:
            found[who] = _near(left, asked[who])
            left = [cpu for cpu in left if cpu not in found[who]]
    return found


def numa_nodes(cpus: Sequence[int]) -> list[int] | None:
    """Return the NUMA nodes these CPUs belong to; None when the system does not say."""
    nodes = _nodes()
    return sorted(node for node, members in nodes.items() if members & set(cpus)) if nodes else None


def _near(left: Sequence[int], count: int) -> list[int]:
    for members in _nodes().values():
        here = [cpu for cpu in left if cpu in members]
        if len(here) >= count:
            return here[:count]
    return list(left[:count])


def _nodes() -> dict[int, set[int]]:
    found = {}
    for directory in sorted(NODES.glob("node[0-9]*")):
        ranges = (directory / "cpulist").read_text(encoding="ascii").strip()
        found[int(directory.name[4:])] = {
            cpu
            for part in ranges.split(",")
            if part
            for cpu in range(int(part.partition("-")[0]), int(part.rpartition("-")[2]) + 1)
        }
    return found
