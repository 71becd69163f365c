"""Where models, engine environments and calibrations are kept: outside results/, shared by all experiments."""

from __future__ import annotations

import os
from pathlib import Path

from platformdirs.unix import Unix

from servebench.machine.infrastructure import writable

NAMED_BY = "runtime.cache or SERVEBENCH_CACHE"


def root(configured: str | None = None) -> Path:
    """Return the cache directory: `configured` (runtime.cache), else $SERVEBENCH_CACHE, else the user's own.

    The user's own is $XDG_CACHE_HOME/servebench or ~/.cache/servebench, on macOS too.
    """
    named = configured or os.environ.get("SERVEBENCH_CACHE")
    return Path(named).expanduser() if named else Unix("servebench").user_cache_path


def ready(configured: str | None = None) -> Path:
    """Return `root`, made and tried; raises `InfrastructureError` when nothing can be written to it."""
    return writable(root(configured), NAMED_BY)
