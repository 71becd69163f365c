"""What the cache holds may be damaged: it is then measured, made or hashed again, and never believed."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from servebench import models
from servebench.engines import environment
from servebench.load import calibrate
from servebench.load.calibration import Calibration, Level
from servebench.models import checking
from servebench.plan import Model

DAMAGED = [b"", b"{", b"5", b"[]", b"{}", b"null", b"1e999", b'"text"', b"\xff", b"[" * 10**5, b'{"max_users": 8}']


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_calibration_is_none(content: bytes, tmp_path: Path) -> None:
    level = Level(variant="steady", users=8, delivered_ratio=1.0, cpu_ratio=0.1)
    kept = calibrate.keep(calibrate.record([level]), tmp_path)
    assert calibrate.known(tmp_path) == kept
    (path,) = (tmp_path / "calibration").iterdir()
    path.write_bytes(content)
    assert calibrate.known(tmp_path) is None
    assert calibrate.keep(calibrate.record([level]), tmp_path).max_users == 8


def test_a_calibration_whose_result_does_not_follow_from_its_levels_is_none(tmp_path: Path) -> None:
    level = Level(variant="steady", users=8, delivered_ratio=1.0, cpu_ratio=0.1)
    calibrate.keep(calibrate.record([level]), tmp_path)
    (path,) = (tmp_path / "calibration").iterdir()
    whole = msgspec.json.decode(path.read_bytes(), type=Calibration)
    path.write_text(calibrate.as_json(msgspec.structs.replace(whole, max_users=4096)))
    assert calibrate.known(tmp_path) is None


@pytest.mark.parametrize("content", [*DAMAGED[:-1], b'{"python": 5}', json.dumps({"python": sys.executable}).encode()])
def test_a_damaged_marker_is_no_environment(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / environment.MARKER
    whole = {"name": "e", "python": sys.executable, "lock_sha256": "0", "python_version": "3", "packages": {"a": "1"}}
    path.write_text(json.dumps(whole))
    assert environment.read(path) == whole
    path.write_bytes(content)
    assert environment.read(path) is None


@pytest.mark.parametrize("content", [*DAMAGED[:-1], b'{"m.gguf": 5}', b'{"m.gguf": {"sha256": "x", "seen": []}}'])
def test_a_damaged_stamp_is_no_proof_of_a_models_hash(content: bytes, tmp_path: Path) -> None:
    model = tmp_path / "m.gguf"
    model.write_bytes(b"model")
    sha256 = hashlib.sha256(b"model").hexdigest()
    checking.accept(model, checking.Wanted(sha256))
    (tmp_path / checking.STAMP).write_bytes(content)
    assert checking.remembered(model) == (sha256, 5)
    checking.accept(model, checking.Wanted(sha256))
    assert checking.recorded(tmp_path) == model


@pytest.mark.parametrize(
    "put",
    [
        lambda place: (place.unlink(), place.mkdir(), (place / "x").touch()),
        lambda place: (place.unlink(), place.symlink_to("/etc/hostname")),
        lambda place: (place.unlink(), place.symlink_to(place.with_name("nowhere"))),
        lambda place: place.write_bytes(b"other"),
        lambda place: place.unlink(),
    ],
    ids=["a folder", "a link", "a link to nowhere", "another file", "nothing"],
)
def test_whatever_stands_in_a_models_place_the_model_is_fetched_again(
    put: Callable[[Path], object], tmp_path: Path
) -> None:
    source = tmp_path / "m.gguf"
    source.write_bytes(b"model")
    model = Model(key="m", name="M", source=f"file://{source}", sha256=hashlib.sha256(b"model").hexdigest())
    manifest = models.fetch(model, {"m": model}, cache_root=tmp_path / "cache")
    place = models.path(manifest, tmp_path / "cache")
    source.unlink()  # the fetch may have linked it
    source.write_bytes(b"model")
    put(place)
    found = models.ensure(manifest, model, {"m": model}, cache_root=tmp_path / "cache")
    assert found.read_bytes() == b"model" and not found.is_symlink()
