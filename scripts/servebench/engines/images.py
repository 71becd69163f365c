"""Pull container images for apptainer into the cache, once, by digest, for nodes that cannot reach a registry."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from servebench.machine.infrastructure import InfrastructureError, locked


def reference(entry: Mapping[str, Any]) -> str:
    """Return `repository@digest` of an entry of envs/images.yaml."""
    return f"{entry['repository']}@{entry['digest']}"


def path(entry: Mapping[str, Any], cache_root: Path) -> Path:
    """Return the place of the pulled image, there or not: `<cache>/images/<digest>.sif`."""
    return cache_root / "images" / f"{entry['digest'].removeprefix('sha256:')}.sif"


def pull(entry: Mapping[str, Any], cache_root: Path, progress: Callable[[str], None]) -> Path:
    """Pull the image unless the cache has it; raises `InfrastructureError` when it cannot be pulled."""
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
