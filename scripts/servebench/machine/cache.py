"""Where models, engine environments and calibrations are kept: outside results/, shared by all experiments."""

from __future__ import annotations

import os
from pathlib import Path

from servebench.machine.infrastructure import writable

NAMED_BY = "runtime.cache or SERVEBENCH_CACHE"


def root(configured: str | None = None) -> Path:
    """The cache directory: `configured` (runtime.cache), else $SERVEBENCH_CACHE, else the user's cache directory."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(configured or os.environ.get("SERVEBENCH_CACHE") or Path(base) / "servebench").expanduser()


def ready(configured: str | None = None) -> Path:
    """`root`, where something is about to be kept; raises `InfrastructureError` where nothing can be."""
    return writable(root(configured), NAMED_BY)
