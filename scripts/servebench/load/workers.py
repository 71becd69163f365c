"""Start worker processes, send them commands, read their reports, and never leave a process behind."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from servebench.faults import Fault
from servebench.load.endpoint import Endpoint
from servebench.load.lengths import Fitted
from servebench.load.workload import Workload
from servebench.machine.infrastructure import InfrastructureError

# A worker reports every second while it loads; before and after it awaits a probe, or parses.
SILENT_S = 300.0


class LoadError(Fault):
    """Nothing could be measured: no connection at all, or no request can succeed."""


class WorkerDied(InfrastructureError):
    """A worker process was killed, or does not answer: that says nothing about the server."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """Describe the work of one worker.

    `users` is its share of `total_users`; `tickets` is an inherited descriptor (count mode); `probe` requests one
    answer before the load. `records` are the inherited descriptors of the files for the tables `requests` and `chunks`
    and, for a calibration, `clock`; without any, each reply is read and counted when it ends, and not kept. These files
    have no names, so that nothing is left of them whoever is killed. `fitted` makes prompts of a length.
    """

    endpoint: Endpoint
    workload: Workload
    users: list[int]
    total_users: int
    process: int
    processes: int
    seed: int
    number_seed: int
    parent: int
    probe: bool = False
    tickets: int | None = None
    records: dict[str, int] = field(default_factory=dict)
    fitted: Fitted = field(default_factory=Fitted)

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def from_json(cls, line: bytes) -> Job:
        values = json.loads(line)
        endpoint, workload = Endpoint(**values.pop("endpoint")), Workload(**values.pop("workload"))
        fitted = Fitted(**values.pop("fitted"))
        return cls(endpoint=endpoint, workload=workload, fitted=fitted, **values)


class Workers:
    """Run the workers (on `cpus`, if any are given) inside a `with` block, and end them all after it.

    Reports are JSON lines (see worker.py); of each name the latest value of each worker is kept.
    """

    def __init__(self, jobs: list[Job], cpus: Sequence[int] = ()) -> None:
        self._jobs, self._cpus = jobs, cpus
        self._processes: list[subprocess.Popen[bytes]] = []
        self._latest: list[dict[str, Any]] = [{} for _ in jobs]
        self._partial = [b"" for _ in jobs]
        self._selector = selectors.DefaultSelector()
        workload = jobs[0].workload
        self._silent_s = SILENT_S + workload.connect_timeout_s + workload.timeout_s
        self._heard_s = [time.monotonic() for _ in jobs]

    def __enter__(self) -> Self:
        try:
            for job in self._jobs:
                self._start(job)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self, job: Job) -> None:
        process = subprocess.Popen(
            [sys.executable, "-m", "servebench.load.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[*job.records.values(), *([] if job.tickets is None else [job.tickets])],
            process_group=0,  # Ctrl-C goes to the parent, which stops its workers
        )
        self._processes.append(process)
        if self._cpus and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(process.pid, self._cpus)
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(job.to_json())
        process.stdin.flush()
        self._selector.register(process.stdout, selectors.EVENT_READ, job.process)

    def __exit__(self, *_: object) -> None:
        """End the workers by closing their standard input; kill those that do not end."""
        for process in self._processes:
            assert process.stdin is not None and process.stdout is not None
            with suppress(BrokenPipeError):  # the worker is dead already
                process.stdin.close()
            process.stdout.close()
        for process in self._processes:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._selector.close()

    def tell(self, **command: Any) -> None:
        line = json.dumps(command).encode() + b"\n"
        for index, process in enumerate(self._processes):
            assert process.stdin is not None
            try:
                process.stdin.write(line)
                process.stdin.flush()
            except BrokenPipeError:
                self._died(index)

    def listen(self, timeout_s: float) -> None:
        """Read the workers' reports, waiting at most `timeout_s` for the first.

        Raises WorkerDied when a worker died or is silent, InfrastructureError when it ended because this machine lacks
        something.
        """
        for key, _ in self._selector.select(timeout_s):
            index: int = key.data
            self._heard_s[index] = time.monotonic()
            data = os.read(key.fd, 1 << 16)
            if not data:
                if "done" not in self._latest[index]:
                    self._died(index)
                self._selector.unregister(key.fileobj)
            self._take(index, data)
        for index, heard_s in enumerate(self._heard_s):
            if "done" not in self._latest[index] and time.monotonic() - heard_s > self._silent_s:
                raise WorkerDied(f"load worker {index} has been silent for {self._silent_s:g} s")

    def _take(self, index: int, data: bytes) -> None:
        *lines, self._partial[index] = (self._partial[index] + data).split(b"\n")
        for line in lines:
            self._latest[index].update(json.loads(line))

    def _died(self, index: int) -> None:
        process = self._processes[index]
        code = process.wait()
        assert process.stdout is not None
        self._take(index, process.stdout.read())
        if (lacking := self._latest[index].get("lacking")) is not None:
            raise InfrastructureError(lacking)
        raise WorkerDied(f"load worker {index} died with exit code {code}; what it said is in the output above")

    def gather(self, name: str) -> list[dict[str, Any]]:
        """Wait until every worker has reported `name`; return the latest reports of each."""
        while not self.all(name):
            self.listen(1.0)
        return self._latest

    def all(self, name: str) -> bool:
        return all(name in latest for latest in self._latest)

    def values(self, name: str) -> Iterator[Any]:
        return (latest[name] for latest in self._latest if name in latest)
