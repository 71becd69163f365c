"""However a run ends, no engine and no worker is left, nothing measured is lost, and the next run goes on."""

import os
import signal

import pytest

from processes import alive, below
from waiting import until
from workspace import Workspace, engines


@pytest.fixture
def workspace(tmp_path):
    made = Workspace(tmp_path)
    made.config["settings"] = {"one": {**made.config["settings"]["one"], "users": [1, 2]}}
    made.config["workload"]["window_s"] = 3
    return made


@pytest.mark.outcome(
    "ctrl-c of the workflow",
    "sigterm of the workflow",
    "sigkill of the workflow",
    at="the second measurement",
    into="simulator",
    kept="the first",
    again="the second",
    reads="ended by SIG…; what was measured is kept",
    code="not 0",
)
@pytest.mark.parametrize("how", ["ctrl-c", "sigterm", "sigkill"])
def test_the_engine_ends_with_the_workflow_and_the_next_run_goes_on(workspace, how):
    run = workspace.start("all")
    try:
        # One measurement is there and the second one is under way.
        until(lambda: len(workspace.measured()) == 1, 120, "the first measurement")
        started = below(run.pid)
        assert len(engines(started)) == 1
        if how == "ctrl-c":  # a terminal sends it to the whole process group
            os.killpg(run.pid, signal.SIGINT)
        elif how == "sigterm":
            run.send_signal(signal.SIGTERM)
        else:
            run.kill()
        out = run.communicate(timeout=120)[0]
    finally:
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGKILL)
    assert run.returncode != 0, out[-2000:]
    until(lambda: not alive(started), 30, "the end of all that was started")
    before = workspace.measured()
    assert before

    if how == "sigkill":
        workspace.snakemake("--unlock")
    workspace.snakemake("results/reruns/tables/measurements.parquet")
    after = workspace.measured()
    assert len(after) == 4
    assert {name: after[name] for name in before} == before


@pytest.mark.outcome(
    "SIGKILL of the engine",
    at="the second measurement",
    into="simulator",
    kept="the first",
    again="by retry",
    reads="a failed row with the reason",
    code="0",
)
def test_a_dying_engine_is_a_row_with_its_reason_and_loses_nothing(workspace):
    run = workspace.start("results/reruns/tables/measurements.parquet")
    until(lambda: len(workspace.measured()) == 1, 120, "the first measurement")
    (engine,) = engines(below(run.pid))
    engine.kill()
    out = run.communicate(timeout=200)[0]
    assert run.returncode == 0, out[-2000:]
    status = workspace.servebench("status", code=1)
    assert "failed: main one round 1" in status
    assert "servebench retry main one" in status
