"""Load a server beside other work: the load lasts as long as the block, and counts its replies and failures."""

import asyncio

import pytest
from scripted_server import END, HEAD, ScriptedServer, event, framed, refusal, reply

from processes import below
from servebench.faults import Fault
from servebench.load.beside import loaded
from servebench.load.endpoint import Endpoint
from servebench.load.workers import WorkerDied
from servebench.load.workload import Workload


def beside(script, block, users=3, **workload):
    """Run a load beside `block(counts)`; return (final counts, the server)."""
    values = {"max_tokens": 8, "warmup_s": 0.1, "spread_s": 0.0, "timeout_s": 20.0, **workload}

    async def run(url):
        endpoint = Endpoint(url=url, model="scripted")
        async with asyncio.timeout(60), loaded(endpoint, Workload(**values), users, processes=2) as counts:
            await block(counts)
        return counts

    with ScriptedServer(script) as server:
        return asyncio.run(run(server.url)), server


async def until(condition):
    while not condition():
        await asyncio.sleep(0.01)


def workers():
    return below(holding="servebench.load.worker")


@pytest.mark.parametrize("workload", [{}, {"mode": "open", "rate": 50.0}, {"mode": "conversation", "turns": 2}])
def test_the_load_lasts_as_long_as_the_block(workload):
    begun = []

    async def block(counts):
        begun.append(counts.replies)
        await until(lambda: counts.replies >= begun[0] + 20)

    counts, server = beside(lambda _: reply(2, gap_s=0.01), block, **workload)
    assert begun[0] > 0, "the block begins when the warm-up is over"
    assert (counts.users, counts.failures, counts.failed) == (3, 0, None)
    assert begun[0] + 20 <= counts.replies <= len(server.received)
    assert not workers()


def test_failures_are_counted_with_their_reason_also_those_inside_a_stream():
    def script(received):
        return refusal(503) if received.number % 2 else [HEAD, framed(event({"error": "no room"})), END]

    async def block(counts):
        await until(lambda: counts.failures >= 4)

    counts, _ = beside(script, block, users=2)
    assert counts.replies == 0
    assert counts.failed.startswith(("HTTP 503 for POST http://127.0.0.1:", "in_band_error: "))


def test_a_worker_that_dies_ends_the_block():
    async def block(counts):
        for worker in workers():
            worker.kill()
        await until(lambda: False)

    with pytest.raises(ExceptionGroup) as ended:
        beside(lambda _: reply(2), block)
    assert any(isinstance(error, WorkerDied) for error in ended.value.exceptions)


@pytest.mark.parametrize("workload", [{"mode": "count", "requests": 5}, {"mode": "trace", "trace": "t.jsonl"}])
def test_a_load_that_ends_by_itself_is_none(workload):
    with pytest.raises(Fault, match="ends by itself"):
        beside(lambda _: reply(1), lambda counts: until(lambda: True), **workload)
