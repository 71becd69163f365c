"""The processor's name, as calibrations and machines are told apart by it."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from servebench.load import calibrate
from servebench.machine import identity, processor


@pytest.mark.parametrize(
    ("cpuinfo", "name"),
    [
        (b"processor\t: 0\nmodel name\t: Some CPU: \xff 2 GHz\nmodel name\t: Another\n", "Some CPU: � 2 GHz"),
        (b"processor\t: 0\nBogoMIPS\t: 50.00\n", "aarch64"),  # as ARM has it
        (None, "aarch64"),
    ],
)
def test_it_is_what_the_kernel_calls_it_else_the_architecture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cpuinfo: bytes | None, name: str
) -> None:
    monkeypatch.setattr(processor, "CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(platform, "processor", lambda: "")
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    if cpuinfo is not None:
        processor.CPUINFO.write_bytes(cpuinfo)
    assert (calibrate.machine()["processor"], identity.machine().cpu) == (name, name)
