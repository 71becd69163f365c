"""These tests run on the cluster of tests/slurm/up.sh, and on no other: they cancel jobs and fill its GPUs."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from cluster import Cluster, queue
from waiting import until

MARK = "tests/slurm/up.sh"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = [item for item in items if item.path.parent == Path(__file__).parent and item.path.name == "test_slurm.py"]
    if not here or cluster_is_up():
        return
    for item in here:
        item.add_marker(pytest.mark.skip(reason="needs a SLURM: start one with tests/slurm/up.sh"))


def cluster_is_up() -> bool:
    configuration = Path("/etc/slurm/slurm.conf")
    if not shutil.which("scontrol") or not configuration.exists() or MARK not in configuration.read_text():
        return False
    answer = subprocess.run(["scontrol", "ping"], capture_output=True, text=True, timeout=30)
    return "is UP" in answer.stdout


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Provide a workspace; fail a test that leaves a process or a job behind, after ending them."""
    made = Cluster(tmp_path)
    assert not queue(), "jobs of somebody else are in the queue"
    yield made
    left = {process: describe(process) for process in made.processes()}
    jobs = queue()
    if jobs:
        subprocess.run(["scancel", *jobs], check=True)
        until(lambda: not queue(), 60, "the end of the jobs")
    for process in left:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    assert not jobs, "jobs were left in the queue"
    assert not left, f"left running: {list(left.values())}"


def describe(process: psutil.Process) -> str:
    """Describe a process for an assertion's message."""
    with process.oneshot():
        return f"{process.pid} (parent {process.ppid()}, {process.status()}): {process.cmdline()}"[:400]
