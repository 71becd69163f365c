"""Run one worker process: a share of the users, its own event loop, its own clock readings.

Parent and worker exchange JSON lines: standard input brings the `Job`, then `{"start_ns": …}`, `{"window": [start,
end]}` and `{"stop": true}`; standard output carries `{"ready": …}`, progress once a second, `{"through": …}` when every
user's first request has ended, `{"drained": true}` and `{"done": …}`, and `{"lacking": …}` before a worker ends because
this machine lacks something. Records never pass these pipes: they are Arrow in files that the parent has opened. Run by
`servebench.load.run` as `python -m servebench.load.worker`.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import sys
import tempfile
import time
import traceback
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from random import Random
from typing import Any, BinaryIO

import httpx
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import uvloop

from servebench.load import reach
from servebench.load.arrivals import Pause, schedule_ns
from servebench.load.clock_server import read_clock
from servebench.load.exchange import Exchange
from servebench.load.limits import raise_nofile
from servebench.load.percentiles import percentile
from servebench.load.prompts import NUMBERS
from servebench.load.records import write_arrow
from servebench.load.requests import Requests
from servebench.load.stream import parse, to_tables
from servebench.load.tokens import counter
from servebench.load.transport import Channel, Origin, Timeouts
from servebench.load.users import Crew, Dispatcher, Ledger, Tickets, sleep_until
from servebench.load.workers import Job
from servebench.machine.infrastructure import DISK, ROOM, InfrastructureError
from servebench.machine.lifeline import follow_parent
from servebench.machine.priority import spare_pandas

_TICK_S = 0.02
_PROGRESS_S = 1.0
# Seconds between reports while the parent waits for a number of targets.
_TARGETS_S = 0.1
CLOCK_SCHEMA = pa.schema(
    [(name, pa.int64()) for name in ("request_id", "arrival_ns", "received_ns", "due_ns", "sent_ns")]
)


@dataclass
class Worker:
    job: Job
    out: BinaryIO
    window: tuple[int | None, int | None] = (None, None)
    lags_ns: array[int] = field(default_factory=lambda: array("q"))
    dispatches_ns: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    # Last count of arrived pieces of replies, and when it was taken (ns); pieces a second up to then.
    counted: tuple[int, int] = (0, 0)
    pieces_s: float | None = None

    @property
    def by_schedule(self) -> bool:
        return self.job.workload.way.scheduled

    def say(self, **report: Any) -> None:
        self.out.write(json.dumps(report).encode() + b"\n")
        self.out.flush()

    async def run(self) -> None:
        job, workload = self.job, self.job.workload
        origin = Origin.of(httpx.URL(job.endpoint.chat_url))
        timeouts = Timeouts(workload.connect_timeout_s, workload.timeout_s, workload.idle_timeout_s)
        self.ledger = Ledger(job.process, job.processes, recorded=bool(job.records))
        requests = Requests(job.endpoint, workload, job.seed, job.number_seed, job.fitted)
        crew = Crew(self.ledger, requests, lambda: Channel(origin, timeouts), job.seed, job.total_users)
        commands = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
        self.dispatcher = Dispatcher(crew, iter(()))
        self.trace = requests.trace(job.process, job.processes) if workload.mode == "trace" else []
        opened, refusal = await crew.warm(job.users)
        probe, probe_refused = await self._probe(crew) if job.probe and opened else (None, None)
        self.say(ready=True, opened=opened, refusal=refusal, probe=probe, probe_refused=probe_refused)
        start = await self._command(commands)
        start_ns: int = start["start_ns"]
        self.counted = (0, start_ns)
        gc.collect()
        gc.freeze()
        gc.disable()
        load = asyncio.create_task(self._load(crew, start_ns, start["spread_s"]))
        load.add_done_callback(self._fatal)
        ticks = asyncio.create_task(self._ticks(load))
        await sleep_until(start_ns)
        cpu_s, began_ns = time.process_time(), time.monotonic_ns()
        while "stop" not in (command := await self._command(commands)):
            self.window = tuple(command["window"])
        cpu_s, wall_s = time.process_time() - cpu_s, (time.monotonic_ns() - began_ns) / 1e9
        ticks.cancel()
        crew.stopped = True
        load.cancel()
        await asyncio.gather(load, ticks, return_exceptions=True)
        for channel in crew.channels.values():
            channel.close()
        self._tell()
        if job.records:
            self._write()
        cpus = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
        client = {"pid": os.getpid(), "cpus": cpus, "cpu_s": cpu_s, "wall_s": wall_s, **self._delays()}
        self.say(done=True, client=client)

    async def _probe(self, crew: Crew) -> tuple[dict[str, Any], str | None]:
        """Await one answer before the load, over whose duration users start.

        It enters no record, and no user of the load has the number of its prompt.

        Return `LoadMeta.probe`, and why no later request can succeed (None: one may).
        """
        user = self.job.users[0]
        request = crew.requests.nth(NUMBERS - 1)
        exchange = Exchange(-1, user, self.job.process, request.prompt_id, time.monotonic_ns())
        await crew.channels[user].exchange(exchange, request.payload)
        parsed = parse(exchange)
        good = parsed.status == "ok" and exchange.end_ns is not None and exchange.sent_ns is not None
        answer_s = (exchange.end_ns - exchange.sent_ns) / 1e9 if good else None  # type: ignore[operator]
        found = {"status": parsed.status, "error": parsed.error, "answer_s": answer_s}
        return found, await self._refused(exchange)

    async def _refused(self, exchange: Exchange) -> str | None:
        """Return why no later request can succeed either, with what to do; None when a later one may succeed."""
        if exchange.failure not in (None, "reset", "truncated") or 200 <= (exchange.http_status or 0) < 300:
            return None
        remedy = await asyncio.to_thread(reach.refusal_remedy, self.job.endpoint.chat_url, exchange.http_status)
        if remedy is None:
            return None
        return f"{parse(exchange).error}; {remedy}"

    async def _command(self, commands: asyncio.StreamReader) -> dict[str, Any]:
        line = await commands.readline()
        if not line:  # the parent has died, so nobody needs the result
            os._exit(1)
        return dict(json.loads(line))

    async def _load(self, crew: Crew, start_ns: int, spread_s: float) -> None:
        """Run this process's users, or its dispatcher; return only when nothing is left to send."""
        job, workload = self.job, self.job.workload
        pause = Pause.parse(workload.think) if workload.think else None
        if workload.way.scheduled:
            self.dispatcher.due = self._due(crew.requests, start_ns)
            await self.dispatcher.run()
            return
        async with asyncio.TaskGroup() as group:
            for user in job.users:
                begin_ns = start_ns + round(spread_s * 1e9 * user / job.total_users)
                if workload.mode == "conversation":
                    assert workload.turns is not None
                    group.create_task(crew.conversing(user, begin_ns, workload.turns, pause))
                else:
                    tickets = Tickets(job.tickets) if job.tickets is not None else None
                    group.create_task(crew.closed(user, begin_ns, pause, tickets))

    def _due(self, requests: Requests, start_ns: int) -> Iterator[tuple[int, Any]]:
        job, workload = self.job, self.job.workload
        if workload.mode == "trace":
            for at_s, make in self.trace:
                yield start_ns + round(at_s * 1e9), make
        else:
            rate, random = workload.rate_of(job.total_users), Random(f"{job.seed} arrivals {job.process}")
            numbers = count(job.process, job.processes)
            for at_ns in schedule_ns(rate, workload.arrivals, start_ns, job.process, job.processes, random):
                yield at_ns, partial(requests.nth, next(numbers))

    def _fatal(self, load: asyncio.Task[None]) -> None:
        """End the process, and with it the measurement, when the task of the load raised an exception."""
        if not load.cancelled() and (error := load.exception()) is not None:
            self.die(error)

    def die(self, error: BaseException) -> None:
        """End the process; tell the parent what this machine lacks, and the console of any other fault."""
        first = error
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        if isinstance(first, InfrastructureError):
            self.say(lacking=str(first))
        else:
            traceback.print_exception(error)
        os._exit(1)

    async def _ticks(self, load: asyncio.Task[None]) -> None:
        """Sample the event loop's lag and report progress to the parent."""
        loop = asyncio.get_running_loop()
        through = drained = judged = False
        told_s = loop.time()
        while True:
            due_ns = time.monotonic_ns() + round(_TICK_S * 1e9)
            await asyncio.sleep(_TICK_S)
            self.lags_ns.append(max(0, time.monotonic_ns() - due_ns))
            if not judged and self.ledger.first is not None:
                judged = True
                if refused := await self._refused(self.ledger.first):
                    self.say(first_refused=refused)
            if not through and len(self.ledger.through) == len(self.job.users):
                through = True
                self._tell()
                self.say(through=True, through_ns=self.ledger.through_ns)
            if not drained and (load.done() or self._drained()):
                drained = True
                self.say(drained=True)
            waited_for = self.window[0] is not None and self.window[1] is None
            if loop.time() - told_s >= (_TARGETS_S if waited_for else _PROGRESS_S):
                told_s = loop.time()
                self._tell()

    def _tell(self) -> None:
        ledger = self.ledger
        start_ns = self.window[0]
        targets = 0 if start_ns is None else ledger.begun_since(start_ns, by_schedule=self.by_schedule)
        (pieces, since_ns), now_ns = self.counted, time.monotonic_ns()
        if now_ns - since_ns >= _PROGRESS_S * 0.9e9:
            self.counted = ledger.pieces + sum(len(exchange.blocks) for exchange in ledger.running.values()), now_ns
            self.pieces_s = (self.counted[0] - pieces) / (now_ns - since_ns) * 1e9
        self.say(
            running=len(ledger.running),
            finished=len(ledger.finished),
            failures=ledger.failures,
            pieces_s=self.pieces_s,
            replies=ledger.replies,
            first_piece_s=ledger.first_piece_s,
            through_users=len(ledger.through),
            targets=targets,
            begun=ledger.begun,
            answered=ledger.answered,
            refused=ledger.refused,
            refusal=ledger.refusal,
        )

    def _drained(self) -> bool:
        start_ns, end_ns = self.window
        if start_ns is None or end_ns is None or time.monotonic_ns() < end_ns:
            return False
        if self.by_schedule and self.dispatcher.next_ns is not None and self.dispatcher.next_ns < end_ns:
            return False
        return not self.ledger.awaits(start_ns, end_ns, by_schedule=self.by_schedule)

    def _write(self) -> None:
        """Write the records of this process and, for a calibration, the clock server's stamps."""
        job = self.job
        clock: list[tuple[int, int, int, int, int]] = []

        def each() -> Iterator[Exchange]:
            exchanges = self.ledger.finished
            exchanges.sort(key=lambda exchange: exchange.request_id, reverse=True)
            while exchanges:
                exchange = exchanges.pop()
                if "clock" in job.records:
                    for arrival_ns, block in exchange.blocks:
                        clock.extend((exchange.request_id, arrival_ns, *stamps) for stamps in read_clock(block))
                yield exchange

        start_ns, end_ns = self.window
        requests, chunks = to_tables(
            each(),
            None if start_ns is None or end_ns is None else (start_ns, end_ns),
            count_tokens=counter(job.workload.tokenizer),
            keep_text=job.workload.keep_text,
            by_schedule=self.by_schedule,
        )
        tables = {"requests": requests, "chunks": chunks}
        if "clock" in job.records:
            columns = [pa.array(column, pa.int64()) for column in zip(*clock, strict=True)] or [[]] * len(CLOCK_SCHEMA)
            tables["clock"] = pa.table(dict(zip(CLOCK_SCHEMA.names, columns, strict=True)), schema=CLOCK_SCHEMA)
        for name, table in tables.items():
            write_arrow(job.records[name], table)
        self.dispatches_ns = _delays_ns(requests)

    def _delays(self) -> dict[str, float | None]:
        """Summarize loop lag and dispatch delay, in seconds.

        Loop lag includes the timers' resolution of 1 ms; a dispatch delay is sent − scheduled.
        """
        lags_s, dispatches_s = np.asarray(self.lags_ns) / 1e9, self.dispatches_ns / 1e9
        return {
            "loop_lag_p50_s": percentile(lags_s, 50),
            "loop_lag_p99_s": percentile(lags_s, 99),
            "loop_lag_max_s": percentile(lags_s, 100),
            "dispatch_delay_p50_s": percentile(dispatches_s, 50),
            "dispatch_delay_p99_s": percentile(dispatches_s, 99),
        }


def _delays_ns(requests: pa.Table) -> npt.NDArray[np.int64]:
    sent = requests.select(["scheduled_ns", "sent_ns"]).drop_null()
    return np.asarray(pc.subtract(sent["sent_ns"], sent["scheduled_ns"]), dtype=np.int64)


def _first_line() -> bytes:
    """Read the job byte by byte, so that the event loop can read the rest of standard input."""
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(0, 1)):
        line += byte
    return line


def main() -> None:
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # anything else that prints goes to the console
    spare_pandas()
    job = Job.from_json(_first_line())
    follow_parent(job.parent, signal.SIGKILL)
    raise_nofile()
    worker = Worker(job, out)
    try:
        uvloop.run(worker.run())
    except InfrastructureError as error:
        worker.die(error)
    except OSError as error:
        if error.errno not in DISK:
            raise
        worker.die(InfrastructureError(f"{tempfile.gettempdir()}: {error.strerror}; {ROOM}"))


if __name__ == "__main__":
    main()
