"""A few of the random faults of `make chaos`, in seconds."""

import json
import subprocess
import sys

from servebench import ROOT


def test_random_faults_lose_nothing_double_nothing_and_leave_nothing_running() -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "faults" / "chaos.py"), "--faults", "3", "--seed", "5"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["faults"], found["lost"], found["doubled"], found["left_running"]) == (3, 0, 0, 0)
