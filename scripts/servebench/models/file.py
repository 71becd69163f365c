"""Take a model from this machine: `file:///absolute/path` or `file://relative/path`, a file or a snapshot's folder."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

from servebench.machine.infrastructure import InfrastructureError


def path_of(source: str) -> Path:
    """Return the path a source names."""
    return Path(unquote(source.removeprefix("file://"))).expanduser()


def fetch(source: str, into: Path, progress: Callable[[str], None]) -> Path:
    """Bring the file into the directory `into`: a hard link where the file system allows it, else a copy."""
    path = path_of(source)
    if not path.exists():
        raise InfrastructureError(f"{source}: no such file; put it there or name another source")
    if path.is_dir():
        shutil.rmtree(into)
        shutil.copytree(path, into, ignore=shutil.ignore_patterns(".*"))
        return into
    target = into / path.name
    target.unlink(missing_ok=True)
    try:
        target.hardlink_to(path)
    except OSError:
        shutil.copyfile(path, target)
    return target
