"""A few of the random faults of `make chaos`, in seconds."""

import json
import subprocess
import sys

import pytest

from servebench import ROOT


@pytest.mark.outcome(
    "the session is killed",
    "ctrl-c",
    at="any step of keeping a measurement",
    into="files",
    kept="what had been put aside",
    again="at most it, by the next run",
    reads="–",
    code="not 0",
)
@pytest.mark.outcome(
    "a full disk, at the call or inside a write",
    at="any step of keeping a measurement",
    into="files",
    kept="what had been put aside",
    again="at most it, by the next run",
    reads="No space left on device",
    code="not 0",
)
@pytest.mark.outcome(
    "an input/output error, no permission, a read-only disk, too many open files",
    at="any step of keeping a measurement",
    into="files",
    kept="what had been put aside",
    again="at most it, by the next run",
    reads="the error and the file",
    code="not 0",
)
@pytest.mark.parametrize(("script", "faults"), [("chaos.py", 3), ("keeping.py", 15)])
def test_random_faults_lose_nothing_double_nothing_and_leave_nothing_running(script: str, faults: int) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "faults" / script), "--faults", str(faults), "--seed", "5"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["faults"] >= faults
    assert not any(found.get(what, 0) for what in ("lost", "doubled", "left_running", "broken"))
