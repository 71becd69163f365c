"""llama.cpp's real server is killed or stopped at its start and under load: a row with its reason, nothing lost."""

import signal
from pathlib import Path

import psutil
import pytest

from processes import alive, argv, below
from servebench import plan, tables
from servebench.store import measurements
from waiting import until
from workspace import Workspace

TABLE = "results/reruns/tables/measurements.parquet"

# Setting → the signal to its server, and how many of its two measurements are there by then.
FAULTS = {
    "killed-at-its-start": (signal.SIGKILL, 0),
    "killed": (signal.SIGKILL, 1),
    "stopped": (signal.SIGSTOP, 1),
}


@pytest.fixture
def workspace(smollm2: Path, quickstart: plan.Plan, tmp_path: Path) -> Workspace:
    """Three settings of the quick start's engine and model, with two short levels each."""
    made = Workspace(tmp_path)
    made.config |= {"rounds": 1, "engines": {"llama": {"kind": "llama-server", "runtime": "venv"}}}
    made.config["engines"]["llama"]["environment"] = "llama-cpp"
    sha256 = quickstart.models["smollm2-q4_1"].sha256
    made.config["models"] = {"smollm2": {"source": smollm2.as_uri(), "sha256": sha256}}
    made.config["workload"] |= {"window_s": 3, "timeout_s": 3}
    setting = {"engine": "llama", "model": "smollm2", "slots": 1, "context": 512, "users": [1, 2]}
    made.config["settings"] = dict.fromkeys(FAULTS, setting)
    made.config["runtime"] |= {"stop_timeout_s": 3}
    return made


def servers(pid: int) -> list[psutil.Process]:
    """List the processes of llama.cpp's server, not their guards."""
    return [process for process in below(pid) if "llama_wheel.py" in "".join(argv(process)[1:2])]


@pytest.mark.outcome(
    "SIGKILL of the engine",
    at="start",
    into="llama.cpp's server",
    kept="all before it",
    again="by retry",
    reads="… ended with status 137 before it was ready",
    code="0",
)
@pytest.mark.outcome(
    "SIGKILL of the engine",
    at="the second measurement",
    into="llama.cpp's server",
    kept="the first",
    again="by retry",
    reads="the server died: …",
    code="0",
)
@pytest.mark.outcome(
    "SIGSTOP of the engine",
    at="the second measurement",
    into="llama.cpp's server",
    kept="the first; the second, as discarded, with its rows",
    again="by retry",
    reads="asked answers, got ReadTimeout",
    code="0",
)
def test_a_server_that_is_killed_or_stopped_is_a_row_with_its_reason_and_loses_nothing(workspace: Workspace) -> None:
    run = workspace.start(TABLE)
    seen: list[psutil.Process] = []

    def new(pid: int = run.pid) -> list[psutil.Process]:
        return [server for server in servers(pid) if server not in seen]

    for name, (sent, measured) in FAULTS.items():
        until(new, 120, f"the server of {name}")
        seen += new()
        log = workspace.results / f"logs/sessions/main/{name}/round1.log"
        until(lambda log=log, n=measured: log.read_text().count(" tok/s, ") == n, 120, f"{name}: {measured}")
        seen[-1].send_signal(sent)
    out = run.communicate(timeout=300)[0]
    assert run.returncode == 0, out[-2000:]
    assert not alive(seen)
    rows = tables.read(workspace.folder / TABLE).to_pylist()
    assert {(row["setting"], row["users"]) for row in rows if row["status"] == "ok"} == {("killed", 1), ("stopped", 1)}
    told = {(row["setting"], row["users"]): str(row["reason"]) for row in rows}
    assert told["killed-at-its-start", 1] == told["killed-at-its-start", 2]
    assert "ended with status 137 before it was ready" in told["killed-at-its-start", 1]
    assert "the server died" in told["killed", 2]
    assert "ReadTimeout" in told["stopped", 2]
    aside = [measurements.read(path) for path in (workspace.results / "store/discarded").glob("*.parquet")]
    assert [(one.identity.setting, one.identity.users) for one in aside] == [("stopped", 2)]
