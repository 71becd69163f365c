"""Load a server while an evaluation asks it questions; of the load's requests only counts are kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import monotonic_ns

import msgspec

from servebench.faults import Fault
from servebench.load.endpoint import Endpoint
from servebench.load.measurement import Probe
from servebench.load.run import START_DELAY_NS, prepare, spread_s
from servebench.load.workers import Workers
from servebench.load.workload import Workload

_LISTEN_S = 0.05


@dataclass
class Counts:
    """Count the load's replies and failures so far; `failed` is the reason of the latest failure, None without one."""

    users: int
    replies: int = 0
    failures: int = 0
    failed: str | None = None


@asynccontextmanager
async def loaded(
    endpoint: Endpoint,
    workload: Workload,
    users: int,
    *,
    processes: int | None = None,
    seed: int = 0,
    cpus: Sequence[int] = (),
) -> AsyncIterator[Counts]:
    """Load `endpoint` with `users` users as `workload` says, from the end of the warm-up to the end of the block.

    The warm-up lasts at least `warmup_s`, and until each user's first request has ended (open loop: until any request
    has). The counts are kept up to date in the block. Raises Fault for a load that cannot run, such as a workload that
    ends by itself, and WorkerDied when a worker dies; inside the block the latter arrives as an ExceptionGroup that
    cancels it. Failed requests are counted.
    """
    if workload.way.ends_itself:
        raise Fault(f"workload.mode: {workload.mode!r} ends by itself; nothing can be asked beside it")
    counts = Counts(users)
    _, jobs = prepare(endpoint, workload, users, processes=processes, cpus=cpus, seed=seed, number_seed=seed)
    with Workers(jobs, cpus) as workers:
        await _until(workers, counts, lambda: workers.all("ready"))
        probe = msgspec.convert(next(workers.values("probe")), Probe | None)
        begin_ns = monotonic_ns() + START_DELAY_NS
        workers.tell(start_ns=begin_ns, spread_s=spread_s(workload, probe))
        warm_ns = begin_ns + round(workload.warmup_s * 1e9)

        def warm() -> bool:
            begun = workers.all("through") if workload.way.in_turns else counts.replies + counts.failures > 0
            return begun and monotonic_ns() >= warm_ns

        await _until(workers, counts, warm)
        async with asyncio.TaskGroup() as group:
            listening = group.create_task(_until(workers, counts, lambda: False))
            try:
                yield counts
            finally:
                listening.cancel()
        workers.tell(stop=True)
        await _until(workers, counts, lambda: workers.all("done"))


async def _until(workers: Workers, counts: Counts, over: Callable[[], bool]) -> None:
    """Update the counts from the workers' reports until `over` returns True."""
    while True:
        workers.listen(0)
        counts.replies = sum(workers.values("answered"))
        counts.failures = sum(sum(by_status.values()) for by_status in workers.values("refused"))
        counts.failed = next((why for why in workers.values("refusal") if why is not None), None)
        if over():
            return
        await asyncio.sleep(_LISTEN_S)
