"""The locks of the environments: every package at one version, by hashes, from whatever index pip is set to."""

import re
from pathlib import Path

import pytest

from servebench import ROOT

PINNED = re.compile(r"[A-Za-z0-9][\w.-]*(\[[\w,.-]+\])?==[^\s;]+( ; .+)?")
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")


@pytest.mark.parametrize("lock", sorted((ROOT / "envs").glob("*.lock")), ids=lambda lock: lock.stem)
def test_every_package_is_pinned_by_version_and_hash(lock: Path) -> None:
    text = lock.read_text(encoding="utf-8").replace("\\\n", "")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert lines
    for line in lines:
        requirement, *hashes = re.split(r"\s+(?=--hash)", line.strip())
        assert PINNED.fullmatch(requirement), line
        assert hashes and all(HASH.fullmatch(found) for found in hashes), line


@pytest.mark.parametrize("wanted", sorted((ROOT / "envs").glob("*.in")), ids=lambda wanted: wanted.stem)
def test_a_lock_has_what_it_was_made_for(wanted: Path) -> None:
    asked, locked = (
        {line.lower().replace("_", "-") for line in re.findall(r"^\w[^\s;]*", path.read_text(encoding="utf-8"), re.M)}
        for path in (wanted, wanted.with_suffix(".lock"))
    )
    assert asked and asked <= locked
