"""The verbs on terminals and clocks of all kinds."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from servebench import ROOT

SERVEBENCH = (sys.executable, "-m", "servebench")


@pytest.mark.parametrize(("zone", "offset"), [("Asia/Tokyo", r"\+0900"), ("America/St_Johns", "-0[23]30")])
def test_a_time_in_a_log_file_has_its_date_and_its_zone(tmp_path: Path, zone: str, offset: str) -> None:
    log = tmp_path / "tables.log"
    command = [*SERVEBENCH, "tables", "--results", str(tmp_path / "none"), "--log", str(log)]
    assert subprocess.run(command, env={**os.environ, "TZ": zone}, capture_output=True).returncode == 1
    said = log.read_text(encoding="utf-8")
    at = re.match(rf"\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d{offset} ", said)
    assert at, said
    assert abs(datetime.strptime(at[0].strip(), "%Y-%m-%d %H:%M:%S%z") - datetime.now(UTC)) < timedelta(hours=1)


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
def test_a_terminal_that_cannot_show_japanese_ends_nothing(errors: str) -> None:
    command = [*SERVEBENCH, "plan", "--language", "ja", "--configfile", str(ROOT / "config" / "h200.yaml")]
    env = {**os.environ, "PYTHONIOENCODING": f"ascii:{errors}"}
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "\\u" in done.stdout
