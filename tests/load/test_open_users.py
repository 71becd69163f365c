"""An open loop with more load for more users, on a server whose capacity is known."""

import json
import subprocess
import sys

import httpx
import psutil
import pytest

from servebench.engines import simulated
from servebench.engines.launch import free_port
from servebench.load.endpoint import Endpoint
from servebench.load.figures import measurement_figures
from servebench.load.line import Line
from servebench.load.objective import Objective
from servebench.load.run import measure
from servebench.load.workload import Workload
from waiting import until

LINE = Line(ttft_p95_s=0.5, user_tok_s=10.0)


@pytest.fixture(scope="module")
def url():
    """A server with one slot that takes 50 ms for a reply of 6 tokens: 20 requests a second at most."""
    machine = {"port": free_port((20000, 29999)), "model": "m", "slots": 1, "decode_tok_s": {"1": 100.0}}
    command = [sys.executable, simulated.__file__, json.dumps(machine | {"prefill_tok_s": 1e9, "context": None})]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{machine['port']}"
    try:
        until(lambda: _answers(address), 60, "the simulator")
        yield address
    finally:
        psutil.Process(server.pid).terminate()
        server.wait(60)


def _answers(address):
    try:
        return httpx.get(f"{address}/health").is_success
    except httpx.TransportError:
        return False


@pytest.mark.parametrize(("users", "served"), [(10, True), (40, False)])
def test_half_of_what_the_server_can_do_is_served_and_twice_is_not(url, users, served):
    load = Workload(mode="open-users", user_rate=1.0, max_tokens=6, warmup_s=0.5, window_s=2.0, min_targets=20)
    made = measure(Endpoint(url=url, model="m"), load, users, processes=1, seed=1)
    found = measurement_figures(made.requests, made.chunks, made.meta, LINE)
    assert found["target_requests"] / found["window_s"] == pytest.approx(users, rel=0.5), "Poisson: at least 20 are due"
    outcome = Objective.of(LINE).outcome(found)
    assert (outcome.margin > 0, "backlog_grows" in outcome.missed) == (served, not served)
    if not served:
        assert found["requests_s"] == pytest.approx(20, rel=0.1)
