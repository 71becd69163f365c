"""Run one measurement: start the workers, set the times of start, window and stop for all, gather their records.

The parent sends no requests: users live in worker processes, `default_processes` many. While the load runs the parent
gives way to them, so that all may share one core (docs/load.md).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from time import monotonic_ns
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from servebench.faults import Fault
from servebench.load import lengths, reach
from servebench.load.arrivals import Pause
from servebench.load.endpoint import Endpoint
from servebench.load.limits import check_open_files
from servebench.load.measurement import (
    Address,
    Client,
    ClientProcess,
    LoadMeta,
    Measurement,
    Probe,
    PromptSet,
    Warmup,
)
from servebench.load.records import read_arrow
from servebench.load.requests import Requests
from servebench.load.tokens import counter
from servebench.load.workers import Job, LoadError, Workers
from servebench.load.workload import Workload
from servebench.machine.host import cpus as usable
from servebench.machine.priority import behind
from servebench.versions import PROTOCOL

# As many chunks that arrive at one instant are read within 1 ms by one process (docs/benchmarks.md).
USERS_A_PROCESS = 64
# Time for every worker to receive the start time and get ready.
START_DELAY_NS = 200_000_000
# Longest wait for a report before the clock is looked at. Each look takes time from the load on the same core; the
# window's end may be told late.
_LISTEN_S = 0.1
Progress = Callable[[dict[str, Any]], None]


def measure(
    endpoint: Endpoint,
    workload: Workload,
    users: int,
    *,
    processes: int | None = None,
    seed: int = 0,
    number_seed: int | None = None,
    cpus: Sequence[int] = (),
    begin: Callable[[], None] | None = None,
    progress: Progress | None = None,
    clock: bool = False,
) -> Measurement:
    """Load `endpoint` with `users` users (open loop and trace: connections opened beforehand) as `workload` says.

    `seed` decides the order of prompts, pauses and arrivals, and `number_seed` (None: `seed`) the number lines. `cpus`
    are the CPUs of the load processes, (): any. `begin` is called once, after the probe and before the first request of
    the load. `progress` is called about once a second with
    {phase (warmup|window|drain|whole), elapsed_s, total_s (None when unknown), running, finished, failures, pieces_s,
    first_piece_s}. Nothing is parsed while the load runs, so `pieces_s` (pieces of replies that arrived in the last
    second) and `first_piece_s` (mean seconds from sending to the first piece) only approximate output tok/s and TTFT;
    both are None before the first piece. With `clock`, the server is our clock server, and its stamps are kept.
    Raises Fault, before anything starts, for a load that cannot run, LoadError when no connection can be opened at all,
    WorkerDied when a worker is killed, and InfrastructureError for want of open files; failed requests are results.
    """
    number_seed = seed if number_seed is None else number_seed
    requests, jobs = prepare(
        endpoint, workload, users, processes=processes, cpus=cpus, seed=seed, number_seed=number_seed
    )
    with ExitStack() as files:
        tickets = _tickets(_unnamed(files), workload.requests) if workload.mode == "count" else None
        names = ("requests", "chunks", "clock") if clock else ("requests", "chunks")
        jobs = [replace(job, tickets=tickets, records={name: _unnamed(files) for name in names}) for job in jobs]
        # An interrupt ends the workers first, and so the thread that follows them.
        with behind() as thread, Workers(jobs, cpus) as workers:
            conductor = _Conductor(workers, endpoint.chat_url, workload, users, begin, progress)
            conductor.start()
            thread.submit(conductor.conduct).result()
        rows = _gather(jobs, "requests").sort_by("request_id")
        chunks = _gather(jobs, "chunks")
        stamps = _gather(jobs, "clock") if clock else None
    if (fitted := jobs[0].fitted).cuts:
        requests = Requests(endpoint, workload, seed, number_seed, fitted)
    meta = LoadMeta(
        protocol=PROTOCOL,
        mode=workload.mode,
        users=users,
        processes=len(jobs),
        seed=seed,
        number_seed=number_seed,
        prompts=msgspec.convert(requests.describe() | {"counted_by": fitted.how}, PromptSet),
        **conductor.facts(rows),
        workload=workload.to_dict(),
        target=Address(url=endpoint.url, model=endpoint.model, extra=endpoint.extra),
    )
    return Measurement(rows, chunks, meta, stamps)


def prepare(
    endpoint: Endpoint,
    workload: Workload,
    users: int,
    *,
    processes: int | None,
    cpus: Sequence[int],
    seed: int,
    number_seed: int,
) -> tuple[Requests, list[Job]]:
    """Check a load, and divide its users among `processes` worker processes (None: the default for that many users).

    Raises Fault for a load that cannot run, and InfrastructureError when a process may not open a connection for each
    of its users.
    """
    requests = _checked(endpoint, workload, users, seed)
    fitted = lengths.fitted(endpoint, workload, requests.source, blocks=requests.lengths_only)
    count = min(users, processes or default_processes(users, cpus))
    check_open_files(users, count)
    return requests, [
        Job(
            endpoint=endpoint,
            workload=workload,
            users=list(range(process, users, count)),
            process=process,
            processes=count,
            total_users=users,
            seed=seed,
            number_seed=number_seed,
            parent=os.getpid(),
            probe=process == 0 and users > 1 and workload.spread_s is None and workload.way.in_turns,
            fitted=fitted,
        )
        for process in range(count)
    ]


def _checked(endpoint: Endpoint, workload: Workload, users: int, seed: int) -> Requests:
    """Return the requests of a load. Raises Fault for a load that cannot run, so that no worker has to."""
    if users < 1:
        raise Fault(f"users: {users} is not a positive integer")
    if endpoint.url.startswith("https://"):
        reach.tls()
    requests = Requests(endpoint, workload, seed)
    if workload.mode == "trace" and not requests.lengths_only:
        requests.trace()
    if workload.think is not None:
        Pause.parse(workload.think)
    counter(workload.tokenizer)
    return requests


def default_processes(users: int, cpus: Sequence[int] = ()) -> int:
    """Return how many processes load with that many users: one for each `USERS_A_PROCESS`.

    At most one for each of `cpus`, which are the load's alone; without them one for every second CPU of this process,
    because the server may need the others.
    """
    return max(1, min(-(-users // USERS_A_PROCESS), len(cpus) or len(usable()) // 2))


def spread_s(workload: Workload, probe: Probe | None) -> float:
    """Return the seconds over which users start: as configured, else the duration of the probe's answer."""
    if workload.spread_s is not None:
        return workload.spread_s
    return probe.answer_s or 0.0 if probe else 0.0


def _unnamed(files: ExitStack) -> int:
    """Open a file without a name in the folder for temporary files: nobody has to remove it."""
    return files.enter_context(tempfile.TemporaryFile()).fileno()


def _tickets(descriptor: int, requests: int | None) -> int:
    """Give the open file one byte per request that may be sent; see users.Tickets."""
    assert requests is not None
    os.truncate(descriptor, requests)
    return descriptor


def _gather(jobs: list[Job], name: str) -> pa.Table:
    return pa.concat_tables(read_arrow(job.records[name]) for job in jobs)


@dataclass
class _Conductor:
    """Follow the workers' reports, and decide when the window starts and ends and when the load stops.

    The load stops early when the first reply of every worker says that no request can succeed. `url` is where
    requests go.
    """

    workers: Workers
    url: str
    workload: Workload
    users: int
    begin: Callable[[], None] | None
    progress: Progress | None
    start_ns: int = 0
    window: tuple[int, int] | None = None
    window_start_ns: int | None = None
    end_ns: int = 0
    started_at: str = ""
    spread_s: float = 0.0
    unfinished_users: int = 0
    bounded: bool = False
    opened: int = 0
    probe: Probe | None = None
    clients: list[ClientProcess] = field(default_factory=list)
    _told_ns: int = 0

    def start(self) -> None:
        """Start the load when all workers are ready."""
        workers = self.workers
        ready = workers.gather("ready")
        self.opened = sum(report["opened"] for report in ready)
        self.probe = msgspec.convert(ready[0]["probe"], Probe | None)
        if self.opened == 0:
            raise LoadError(f"{self.url}: no connection could be opened: {ready[0]['refusal']}")
        if ready[0]["probe_refused"]:
            raise LoadError(f"{self.url}: {ready[0]['probe_refused']}")
        self.spread_s = spread_s(self.workload, self.probe)
        if self.begin is not None:
            self.begin()
        self.start_ns = monotonic_ns() + START_DELAY_NS
        self.started_at = datetime.now(UTC).isoformat(timespec="seconds")
        workers.tell(start_ns=self.start_ns, spread_s=self.spread_s)

    def conduct(self) -> None:
        """Follow the load to its end."""
        workers, workload = self.workers, self.workload
        if workload.way.ends_itself:
            self._until(lambda: workers.all("drained"), "whole")
        else:
            self._warm_up()
            self._window()
            self._until(lambda: workers.all("drained"), "drain")
        self.end_ns = monotonic_ns()
        workers.tell(stop=True)
        self.clients = [msgspec.convert(report["client"], ClientProcess) for report in workers.gather("done")]

    def _warm_up(self) -> None:
        """Wait until warmup_s have passed and every user's first request has ended.

        Each request ends by its time-out at the latest, and so does the warm-up. Should a worker fail to report that,
        the warm-up ends at the bound, which is recorded.
        """
        workers, workload = self.workers, self.workload
        passed_ns = self.start_ns + round(workload.warmup_s * 1e9)
        bound_s = self.spread_s + 2 * workload.connect_timeout_s + workload.timeout_s
        bound_ns = max(passed_ns, self.start_ns + round(bound_s * 1e9))
        in_turns = workload.way.in_turns

        def over() -> bool:
            through = not in_turns or workers.all("through")
            return (through and monotonic_ns() >= passed_ns) or monotonic_ns() >= bound_ns

        self._until(over, "warmup")
        if in_turns and not workers.all("through"):
            self.bounded = True
            self.unfinished_users = self.users - sum(workers.values("through_users"))
            self.window_start_ns = monotonic_ns()
        else:
            self.window_start_ns = max(passed_ns, *workers.values("through_ns"), self.start_ns)

    def _window(self) -> None:
        """Keep the window open for window_s, and until min_targets requests have been sent in it.

        Where every request so far failed, more of them would not judge the server better: it ends after window_s.
        Workers need the window's end only to drain, so it may already have passed when they learn of it.
        """
        assert self.window_start_ns is not None
        workload, workers = self.workload, self.workers
        start_ns = self.window_start_ns
        end_ns = start_ns + round(workload.window_s * 1e9)
        if workload.min_targets is not None:
            wanted = workload.min_targets

            def judged() -> bool:
                ended = sum(workers.values("finished"))
                all_failed = ended == sum(workers.values("failures"))
                targets: int = sum(workers.values("targets"))
                return targets >= (1 if ended and all_failed else wanted)

            workers.tell(window=[start_ns, None])
            self._until(lambda: monotonic_ns() >= end_ns and judged(), "window")
            end_ns = max(end_ns, monotonic_ns())
        self.window = (start_ns, end_ns)
        workers.tell(window=[start_ns, end_ns])
        self._until(lambda: monotonic_ns() >= end_ns, "window")

    def _until(self, over: Callable[[], bool], phase: str) -> None:
        """Listen to the workers until `over` returns True; report progress about once a second."""
        while not over():
            self.workers.listen(_LISTEN_S)
            if self.workers.all("first_refused"):
                raise LoadError(f"{self.url}: {next(self.workers.values('first_refused'))}")
            now_ns = monotonic_ns()
            if self.progress is not None and now_ns - self._told_ns >= 1_000_000_000:
                self._told_ns = now_ns
                self.progress({"phase": phase, "total_s": self._total_s(), **self._news(now_ns)})

    def _news(self, now_ns: int) -> dict[str, Any]:
        names = ("running", "finished", "failures", "replies", "first_piece_s")
        count = {name: sum(self.workers.values(name)) for name in names}
        rates = [rate for rate in self.workers.values("pieces_s") if rate is not None]
        return {
            "elapsed_s": max(0.0, (now_ns - self.start_ns) / 1e9),
            **{name: count[name] for name in ("running", "finished", "failures")},
            "pieces_s": sum(rates) if rates else None,
            "first_piece_s": count["first_piece_s"] / count["replies"] if count["replies"] else None,
        }

    def _total_s(self) -> float | None:
        """Return the load's duration (s) without the drain; None where it is not known beforehand."""
        if self.workload.way.ends_itself:
            return None
        started_ns = self.window_start_ns or self.start_ns + round(self.workload.warmup_s * 1e9)
        return (started_ns - self.start_ns) / 1e9 + self.workload.window_s

    def facts(self, requests: pa.Table) -> dict[str, Any]:
        """Return the fields of `LoadMeta` that only the conductor knows."""
        window = self.window or (self.start_ns, max(self.start_ns, pc.max(requests["end_ns"]).as_py() or 0) + 1)
        return {
            "started_at": self.started_at,
            "load_start_ns": self.start_ns,
            "window_start_ns": window[0],
            "window_end_ns": window[1],
            "load_end_ns": self.end_ns,
            "spread_s": self.spread_s,
            "connections_opened": self.opened,
            "probe": self.probe,
            "warmup": Warmup(
                s=(window[0] - self.start_ns) / 1e9, bounded=self.bounded, unfinished_users=self.unfinished_users
            ),
            "client": Client(
                cpu_ratio=max(client.cpu_s / client.wall_s for client in self.clients), processes=self.clients
            ),
        }
