"""Make engine environments: virtual environments from hash-pinned locks, kept in the user's cache."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from servebench.machine.infrastructure import InfrastructureError, locked

# Written last, so that an interrupted environment is not taken for a complete one.
MARKER = "servebench.json"


class _Manifest(msgspec.Struct):
    name: str
    python: str
    lock_sha256: str
    python_version: str
    packages: dict[str, str]


def make(
    name: str, lock_path: Path, cache_root: Path, progress: Callable[[str], None] = lambda line: None
) -> dict[str, Any]:
    """Make the environment of `lock_path` (`envs/<name>.lock`) under `<cache>/envs`, unless it exists.

    Returns {name, python (path), lock_sha256, python_version, packages: {name: version}}, plain JSON. A virtual
    environment cannot be moved, so it is built at its final place, under a lock, and marked when it is complete.
    Beside the lock, `envs/<name>.after.py` may hold a script that is run by the new interpreter at the end.
    Raises `InfrastructureError` with pip's own words when a package cannot be installed.
    """
    digest = hashlib.sha256(lock_path.read_bytes()).hexdigest()
    after, at = _after(lock_path), place(name, lock_path, cache_root)
    with locked(at.with_name(f"{at.name}.lock"), waiting=progress):
        manifest = _made(at)
        if manifest is None:
            shutil.rmtree(at, ignore_errors=True)
            progress(f"making the engine environment {name} in {at}")
            manifest = _make(name, lock_path, digest, after, at)
    return manifest


def made(name: str, lock_path: Path, cache_root: Path) -> bool:
    """Return whether the environment exists, complete."""
    return _made(place(name, lock_path, cache_root)) is not None


def _after(lock_path: Path) -> Path:
    return lock_path.with_suffix(".after.py")


def place(name: str, lock_path: Path, cache_root: Path) -> Path:
    """Return the environment's folder, there or not: another lock, script or Python makes another folder."""
    after = _after(lock_path)
    content = lock_path.read_bytes() + (after.read_bytes() if after.exists() else b"") + sys.version.encode()
    return cache_root / "envs" / f"{name}-{hashlib.sha256(content).hexdigest()[:16]}"


def _made(at: Path) -> dict[str, Any] | None:
    return read(at / MARKER)


def read(marker: Path) -> dict[str, Any] | None:
    """Read the manifest of an environment; None when it is missing or damaged, or the environment is gone."""
    try:
        found = msgspec.to_builtins(msgspec.json.decode(marker.read_bytes(), type=_Manifest))
    except (OSError, msgspec.DecodeError, RecursionError):
        return None
    # The interpreter that made the environment may have been removed since; then the link leads nowhere.
    return dict(found) if Path(found["python"]).exists() else None


def _make(name: str, lock_path: Path, digest: str, after: Path, at: Path) -> dict[str, Any]:
    python = at / "bin" / "python"
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet"]
    _run([sys.executable, "-m", "venv", str(at)], name)
    # The lock is complete, so dependencies are not resolved again; wheels only, so that nothing is compiled.
    _run([*pip, "install", "--require-hashes", "--only-binary", ":all:", "--no-deps", "-r", str(lock_path)], name)
    if after.exists():
        _run([str(python), str(after)], name)
    listed = json.loads(
        _run([str(python), "-m", "pip", "list", "--disable-pip-version-check", "--format", "json"], name)
    )
    made = {
        "name": name,
        "python": str(python),
        "lock_sha256": digest,
        "python_version": sys.version.split()[0],
        "packages": {entry["name"]: entry["version"] for entry in listed},
    }
    part = at / f"{MARKER}.part"
    part.write_text(json.dumps(made, indent=1), encoding="utf-8")
    part.replace(at / MARKER)
    return made


def _run(command: list[str], name: str) -> str:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise InfrastructureError(
            f"envs/{name}.lock: the environment could not be made: {' '.join(command)}: "
            f"{(result.stderr or result.stdout).strip()}"
        )
    return result.stdout
