"""Identify this machine: rows of different machines never share a comparison."""

from __future__ import annotations

import hashlib
import json
import platform
from dataclasses import asdict
from typing import Any

import msgspec
import psutil

from servebench.machine import gpu, host, processor

GIB = 2**30


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """A machine. `cores` are logical, `usable_cores` those this process may use.

    `fingerprint` is a digest of what can change a measurement: CPU, cores, memory, GPUs with their driver.
    `copied_gb_s`: bandwidth of its memory (`machine.bandwidth`); None where nothing needed it.
    """

    cpu: str
    cores: int | None = None
    physical_cores: int | None = None
    usable_cores: int | None = None
    memory_gib: float | None = None
    gpus: list[gpu.Gpu] = []
    os: str | None = None
    kernel: str | None = None
    python: str | None = None
    host: str | None = None
    fingerprint: str
    copied_gb_s: float | None = None

    @property
    def name(self) -> str:
        """The device that computes: the first GPU; the CPU of a machine without GPUs."""
        return self.gpus[0].name if self.gpus else self.cpu


def machine() -> Machine:
    """Describe this machine."""
    found = gpu.gpus()
    facts: dict[str, Any] = {
        "cpu": processor.name(),
        "cores": psutil.cpu_count(),
        "physical_cores": psutil.cpu_count(logical=False),
        "usable_cores": len(host.cpus()),
        "memory_gib": round(psutil.virtual_memory().total / GIB, 2),
        "gpus": [asdict(one) for one in found],
    }
    fingerprint = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
    return Machine(
        **facts | {"gpus": found},
        os=_os(),
        kernel=platform.release(),
        python=platform.python_version(),
        host=platform.node(),
        fingerprint=fingerprint,
    )


def _os() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        return platform.platform(terse=True)
