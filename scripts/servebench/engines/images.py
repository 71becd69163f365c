"""Container images for apptainer: pulled once by digest into the cache, for nodes that cannot reach a registry."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from servebench.machine.infrastructure import InfrastructureError, locked


def reference(entry: Mapping[str, Any]) -> str:
    """How an entry of envs/images.yaml is named, by digest."""
    return f"{entry['repository']}@{entry['digest']}"


def path(entry: Mapping[str, Any], cache_root: Path) -> Path:
    """Where the pulled image is, or would be: `<cache>/images/<digest>.sif`."""
    return cache_root / "images" / f"{entry['digest'].removeprefix('sha256:')}.sif"


def pull(entry: Mapping[str, Any], cache_root: Path, progress: Callable[[str], None]) -> Path:
    """Pull the image unless it is there; raises `InfrastructureError` when it cannot be had."""
    target = path(entry, cache_root)
    with locked(target.with_suffix(".lock"), waiting=progress):
        if target.exists():
            return target
        if shutil.which("apptainer") is None:
            raise InfrastructureError("apptainer is not a program here; load its module or install it")
        partial = target.with_suffix(".partial")
        progress(f"pulling {reference(entry)} into {target}")
        pulled = subprocess.run(
            ["apptainer", "pull", "--force", str(partial), f"docker://{reference(entry)}"], check=False
        )
        if pulled.returncode:
            raise InfrastructureError(f"{reference(entry)}: apptainer could not pull it; see its message above")
        partial.rename(target)
    return target
