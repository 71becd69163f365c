"""Copy models to a node's own disk and check the copy, so that an engine does not load over the network."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from servebench.machine.infrastructure import InfrastructureError, locked
from servebench.models.checking import Mismatch, Wanted, accept, recorded, size


def root(configured: str | None) -> Path | None:
    """Return the folder: `configured` (runtime.scratch), else $SERVEBENCH_SCRATCH; None when no copies are wanted.

    The path may hold variables of the batch system, such as $SLURM_JOB_ID. Raises `InfrastructureError` when such a
    variable is unset.
    """
    given = configured or os.environ.get("SERVEBENCH_SCRATCH")
    if not given:
        return None
    expanded = os.path.expandvars(given)
    if "$" in expanded:
        raise InfrastructureError(f"runtime.scratch: {given!r} holds a variable that is not set on this node")
    return Path(expanded).expanduser()


def copied(model: Path, sha256: str, scratch: Path, progress: Callable[[str], None]) -> Path:
    """Return the model's copy under `scratch`, made and checked against `sha256` if missing; one job at a time.

    Raises `InfrastructureError` when the copy does not fit or differs from the original.
    """
    folder = scratch / "servebench-models"
    place, wanted = folder / sha256, Wanted(sha256, size(model))
    try:
        with locked(folder / f"{sha256}.lock", waiting=progress):
            found = recorded(place)
            if found is None or not _whole(found, wanted):
                progress(f"copying {model.name} to {place}")
                found = _copy(model, place, wanted)
    except Mismatch as mismatch:
        raise InfrastructureError(f"runtime.scratch: the copy of {model} is not the original: {mismatch}") from None
    except OSError as error:
        raise InfrastructureError(
            f"runtime.scratch: {model.name} ({wanted.size_bytes:,} bytes) cannot be copied to {place}: {error.strerror}"
        ) from error
    return found


def _whole(found: Path, wanted: Wanted) -> bool:
    try:
        accept(found, wanted)
    except Mismatch:
        return False
    return True


def _copy(model: Path, place: Path, wanted: Wanted) -> Path:
    """Copy beside `place`, read the copy back, and only then move it to `place`."""
    partial = place.with_name(f".partial-{place.name}")
    for old in (partial, place):
        shutil.rmtree(old, ignore_errors=True)
    if model.is_dir():
        copy = shutil.copytree(model, partial, ignore=shutil.ignore_patterns(".*"))
    else:
        partial.mkdir()
        copy = shutil.copyfile(model, partial / model.name)
    try:
        accept(copy, wanted)
    except Mismatch:
        shutil.rmtree(partial)
        raise
    partial.rename(place)
    return place / copy.relative_to(partial)
