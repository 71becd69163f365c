"""Which machine this is: rows of different machines never share a comparison."""

from __future__ import annotations

import hashlib
import json
import platform
from typing import Any

import psutil

from servebench.machine import gpu, host, processor

GIB = 2**30


def machine() -> dict[str, Any]:
    """cpu, cores (logical; physical_cores, usable_cores by affinity), memory_gib, gpus, os, kernel, python, host.

    `fingerprint` is a digest of what can change a measurement: CPU, cores, memory, GPUs with their driver.
    """
    facts: dict[str, Any] = {
        "cpu": processor.name(),
        "cores": psutil.cpu_count(),
        "physical_cores": psutil.cpu_count(logical=False),
        "usable_cores": len(host.cpus()),
        "memory_gib": round(psutil.virtual_memory().total / GIB, 2),
        "gpus": [gpu.describe(found) for found in gpu.gpus()],
    }
    fingerprint = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
    return {
        **facts,
        "os": _os(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "host": platform.node(),
        "fingerprint": fingerprint,
    }


def _os() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        return platform.platform(terse=True)
