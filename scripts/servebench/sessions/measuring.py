"""Run one session: start the engine, check its settings, measure each number of users, stop.

A session is one (run, setting, round). A failure that is part of the experiment becomes a row with its reason. A
failure of the infrastructure raises; the measurements made before it are in the store.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from msgspec.structs import replace

import servebench
from servebench import engines, plan
from servebench.engines import devices, llama_log
from servebench.faults import Fault
from servebench.load import calibrate, figures
from servebench.load.calibration import Calibration
from servebench.load.endpoint import Endpoint
from servebench.load.line import Line
from servebench.load.measurement import Measurement
from servebench.load.records import CHUNKS_SCHEMA, REQUESTS_SCHEMA
from servebench.load.run import measure
from servebench.load.workers import LoadError, WorkerDied
from servebench.load.workload import Workload
from servebench.machine import bandwidth, cache, cpus, gpu
from servebench.machine.identity import Machine, machine
from servebench.machine.watcher import Watcher
from servebench.marks import Mark, mark
from servebench.outlook import duration, inventory
from servebench.plan.layout import Layout
from servebench.sessions.job import Context, whole_log, workload_of
from servebench.sessions.progress import Publisher
from servebench.store import measurements
from servebench.store.parquet import Damaged
from servebench.store.records import (
    ColdStart,
    Identity,
    ModelFile,
    Provenance,
    SessionFacts,
    Software,
)
from servebench.versions import PROTOCOL

ATTEMPTS = 3
LAUNCHES = 2  # of a session's engine, if the first one dies
log = logging.getLogger("servebench")


def run(session: plan.Session, context: Context) -> None:
    """Put every measurement of the session under measurements/: link those in the store, make the missing ones."""
    kept = measurements.Store(context.results)
    kept.sweep()
    setting = session.setting
    context = context.identified(setting)
    missing = []
    for users in setting.users:
        digest = plan.measurement_id(context.spec, users, session.round)
        output = Layout(context.results).measurement(setting, session.round, users)
        kept.restore(output)
        try:
            status = kept.status(digest)
        except Damaged as error:
            place = {"run": setting.run, "setting": setting.name, "round": session.round, "users": users}
            aside, status = kept.discard(digest, f"damaged: {error}", place), None
            log.warning("%s; it is kept as %s, and measured again", error, aside)
        if status == "failed" and context.retry_failed:
            kept.discard(digest, "failed; tried again")
        if not _linked(kept, digest, output):
            missing.append(users)
    if missing:
        with Publisher(context.results, session) as published:
            Measuring(session, context, kept, published).run(missing)


def _linked(kept: measurements.Store, digest: str, output: Path) -> bool:
    """Link `output` to the measurement if the store holds it, and return whether it does."""
    there = kept.status(digest) is not None
    if there:
        kept.link(digest, output)
    return there


class Measuring:
    """Run the part of a session that needs the engine.

    `min_targets`: the target requests that a window is lengthened for, if the workload does not ask for more. `most`:
    the largest number of users that is measured.
    """

    def __init__(
        self,
        session: plan.Session,
        context: Context,
        kept: measurements.Store,
        published: Publisher,
        min_targets: int | None = None,
        most: int | None = None,
    ) -> None:
        self.min_targets, self.most = min_targets, most
        self.up = False  # whether an engine of this session has ever been ready
        self.session, self.context, self.kept, self.published = session, context, kept, published
        self.setting = session.setting
        self.machine = _machine(self.setting, context.runtime)
        self.session_id = ""
        self.launched_at: str | None = None
        self.calibration: Calibration | None = None
        self.users_before: list[int] = []
        self.load_cpus = cpus.allot(self.setting.cpus).get("load", [])
        self.model: ModelFile | None = None
        self.log_before = ""

    def run(self, missing: list[int], then: Callable[[], int | None] = lambda: None) -> None:
        """Measure the missing numbers of users in ascending order, then those that `then` names until it has none.

        What an engine that died has not tried is tried once with a fresh one.
        """
        self.calibration = calibrated(self.setting, self.most or max(missing), self.context.runtime, self.load_cpus)
        model_path, manifest = self.context.weights(self.setting)
        self.model = msgspec.convert(manifest, ModelFile | None)
        for _ in range(LAUNCHES):
            died_at, missing = self._launched(model_path, missing, then)
            if not missing:
                return
            log.warning("%s: not tried with that engine: %s users", self._name(), ", ".join(map(str, missing)))
        for users in missing:
            if not self._linked(users):
                self._keep_failed(users, self._facts(), [mark("not_tried", died_at=died_at)])

    def _launched(
        self, model_path: Path | None, missing: list[int], then: Callable[[], int | None]
    ) -> tuple[int | None, list[int]]:
        """Launch the engine and measure; if it dies, return at how many users, and the numbers it has not tried."""
        context = self.context
        self.session_id, self.users_before, self.launched_at = uuid.uuid4().hex[:12], [], _now()
        engine = self.setting.engine
        log.info("%s: %s", self._name(), f"connecting to {engine.url}" if engine.url else f"starting {engine.kind}")
        died = False
        try:
            with context.launched(self.session, model_path) as server:
                self.up = True
                up_s = (time.monotonic_ns() - server.launched_ns) / 1e9
                self.launched_at = (datetime.now(UTC) - timedelta(seconds=up_s)).isoformat(timespec="seconds")
                place = f"on {devices.node()} ({', '.join(server.devices)})" if server.devices else f"at {server.url}"
                log.info("%s: up %s", self._name(), place)
                try:
                    self._measure_all(server, missing, then)
                except engines.LaunchFailed:
                    died = server.pid is not None and not server.alive()
                    raise
        except engines.LaunchFailed as error:
            log.error("%s: %s; the engine's log: %s", self._name(), error.reason, self.context.engine_log)
            failed, untried = (missing[:1], missing[1:]) if died else (missing, [])
            for users in failed:
                if not self._linked(users):
                    self._keep_failed(users, self._facts(log_tail=error.log_tail), error.marks)
            return missing[0], untried
        return None, []

    def _measure_all(self, server: engines.Server, missing: list[int], then: Callable[[], int | None]) -> None:
        """Measure each number of users and take it from `missing`, which `then` refills."""
        with Watcher(server.pid, server.watched) as watcher:
            while missing:
                if not self._linked(missing[0]):
                    self._measure(server, watcher, missing[0])
                missing.pop(0)
                if not missing and (users := then()) is not None:
                    missing.append(users)

    def _linked(self, users: int) -> bool:
        """Link the measurement if another session has made it while this session waited for the device."""
        return _linked(self.kept, self._digest(users), self._output(users))

    def _measure(self, server: engines.Server, watcher: Watcher, users: int) -> None:
        """Measure one number of users, at most ATTEMPTS times while others use the device or a load worker dies.

        What was measured is kept first, with what is known without asking anybody, and then judged.
        """
        for attempt in range(1, ATTEMPTS + 1):
            age_s = (time.monotonic_ns() - server.launched_ns) / 1e9
            log_start, self.log_before = server.log_size(), ""
            try:
                measured = measure(
                    Endpoint(
                        url=server.url,
                        model=server.model,
                        extra={**server.extra, **self.setting.request},
                        api_key_env=self.setting.engine.api_key_env,
                    ),
                    self._workload(),
                    users,
                    processes=self.setting.processes,
                    seed=plan.documents_seed(self.session.round, users),
                    number_seed=self._number_seed(users, attempt),
                    cpus=self.load_cpus,
                    begin=partial(self._begin, server, log_start),
                    progress=partial(self._tell, watcher, users),
                )
            except WorkerDied as error:
                if attempt == ATTEMPTS:
                    raise
                log.warning("%s, %d users: %s; measured again", self._name(), users, error)
                continue
            except LoadError as error:
                state = "" if server.alive() else "the server died: "
                raise engines.LaunchFailed(f"{state}{error}", server.log_tail()) from error
            self.users_before.append(users)
            facts = self._served_facts(server, age_s, self.users_before[:-1])
            record = self._record(users, facts, measured)
            aside = self.kept.put_aside(record)
            logged = whole_log(server, log_start)  # before `check` sends requests of its own
            served = llama_log.served(logged, self.log_before)
            counted = engines.ADAPTERS[self.setting.engine.kind].counted(logged[len(self.log_before) :])
            telemetry = watcher.table(measured.meta.load_start_ns, measured.meta.load_end_ns)
            rule = self.context.runtime.foreign_use
            foreign = rule.exceeded(telemetry["foreign_utilisation"].to_pylist())
            differences = server.check()
            record = replace(
                record,
                telemetry=telemetry.to_pydict(),
                served=dict(served),
                session=replace(facts, facts={**server.facts, **counted}, **_memory(watcher)),
            )
            if differences:
                changed = engines.AskedNotGot(differences, server.log_tail(), measured=True)
                self.kept.reject(record, aside, changed.reason)
                raise changed
            if foreign is None or foreign < rule.samples or rule.action == "mark":
                self.kept.accept(record, aside)
                self._linked(users)
                self._say(users, measured)
                return
            self.kept.reject(record, aside, f"others used the device in {foreign} samples")
            log.warning("%s, %d users: %s", self._name(), users, self._disturbed(telemetry, foreign, attempt))
        facts = replace(self._served_facts(server, age_s, self.users_before), **_memory(watcher))
        self._keep_failed(users, facts, [mark("foreign_use_every_time", attempts=ATTEMPTS)])

    def _workload(self) -> Workload:
        """Return the workload, whose window is open until `min_targets` requests were sent in it."""
        configured = workload_of(self.setting.workload)
        if self.min_targets is None or configured.way.ends_itself:
            return configured
        return dataclasses.replace(configured, min_targets=max(self.min_targets, configured.min_targets or 0))

    def _disturbed(self, telemetry: pa.Table, samples: int, attempt: int) -> str:
        """Say how much of the device others used, what happens now, and how to keep such measurements."""
        shares = [share for share in telemetry["foreign_utilisation"].to_pylist() if share is not None]
        told = f"others used the device in {samples} of {len(shares)} samples"
        told += f", at most {max(shares):.0%} of it" if shares else ""
        if attempt < ATTEMPTS:
            return f"{told}; measured again (attempt {attempt + 1} of {ATTEMPTS})"
        given = os.environ.get(plan.GIVEN, "")
        return (
            f"{told}; given up after {ATTEMPTS} attempts:"
            f" servebench retry {self.setting.run} {self.setting.name}{given} when the device is free, or"
            " runtime: {foreign_use: {action: mark}} in the configuration keeps it"
        )

    def _keep_failed(self, users: int, session: SessionFacts, why: Sequence[Mark]) -> None:
        """Write into the store why nothing was measured, unless another session has measured meanwhile."""
        if self.kept.status(self._digest(users)) is None:
            record = self._record(users, session, failed=why)
            measurements.write(record, self.kept.path(record.identity.digest))
        self._linked(users)

    def _record(
        self,
        users: int,
        session: SessionFacts,
        measured: Measurement | None = None,
        failed: Sequence[Mark] = (),
    ) -> measurements.Record:
        """Make a record of what is known without asking the server or the watcher; `failed` is why nothing is."""
        setting = self.setting
        digest = self._digest(users)
        return measurements.Record(
            identity=Identity.of(
                setting,
                experiment=self.session.experiment,
                rank=self.session.rank,
                round_=self.session.round,
                users=users,
                digest=digest,
            ),
            status="failed" if failed else "ok",
            reason=list(failed),
            requests=measured.requests if measured else REQUESTS_SCHEMA.empty_table(),
            chunks=measured.chunks if measured else CHUNKS_SCHEMA.empty_table(),
            meta=measured.meta if measured else None,
            foreign_use=self.context.runtime.foreign_use,
            session=session,
            provenance=Provenance(
                machine=self.machine,
                model=self.model,
                engine=setting.engine,
                servebench=Software(version=servebench.__version__, protocol=PROTOCOL),
                calibration=self.calibration,
                started_at=measured.meta.started_at if measured and measured.meta.started_at else _now(),
            ),
        )

    def _facts(self, **facts: Any) -> SessionFacts:
        """Make the session's facts from those known of its server."""
        log_path = str(self.context.engine_log)
        return SessionFacts(session_id=self.session_id, launched_at=self.launched_at, log=log_path, **facts)

    def _served_facts(self, server: engines.Server, age_s: float, users_before: list[int]) -> SessionFacts:
        """Make the session's facts with its running server, which has measured `users_before` since its launch."""
        return self._facts(
            engine_version=server.version,
            engine_build=server.build,
            node=devices.node(),
            devices=list(server.devices),
            argv=server.argv,
            env=server.env,
            cold_start_s=ColdStart(**server.cold_start_s),
            facts=dict(server.facts),
            server_age_s=age_s,
            users_before=users_before,
        )

    def _output(self, users: int) -> Path:
        return Layout(self.context.results).measurement(self.setting, self.session.round, users)

    def _digest(self, users: int) -> str:
        return plan.measurement_id(self.context.spec, users, self.session.round)

    def _number_seed(self, users: int, attempt: int) -> int:
        """Return a seed that gives each measurement number lines of its own, the same when it is repeated elsewhere."""
        return int(plan.digest([self._digest(users), attempt])[:8], 16)

    def _name(self) -> str:
        return f"{self.setting.run} {self.setting.name} round {self.session.round}"

    def _begin(self, server: engines.Server, log_start: int) -> None:
        """Keep what the server's log reports from before the load."""
        self.log_before = server.log_since(log_start)

    def _tell(self, watcher: Watcher, users: int, news: Mapping[str, Any]) -> None:
        """Publish the progress of a running measurement; tokens are only counted afterwards."""
        sample = watcher.latest() or {}
        device = {name: sample.get(name) for name in ("memory_bytes", "foreign_utilisation")}
        self.published.tell(users=users, memory_kind=watcher.kind, **device, **news)

    def _of_whole(self, whole: plan.Plan) -> tuple[str, str]:
        """Say how many of the experiment's measurements are there and did not fail, and how long the rest takes."""
        results = self.context.results
        good = inventory.done(whole, results) - inventory.failed(whole, results)
        left = duration.minutes(duration.remaining_s(whole, results))
        return f"[{good}/{whole.measurements}] ", f"; {left} left"

    def _say(self, users: int, measured: Measurement) -> None:
        """Log one line: the measurement's number, its figures, time left; where the plan cannot be read, no time."""
        path = Layout(self.context.results).plan
        whole = None
        try:
            whole = plan.read(path) if path.exists() else None
            done, left = self._of_whole(whole) if whole else ("", "")
        except Fault as error:
            done, left = "", ""
            log.warning("%s", error)
        line = whole.line if whole else Line()
        found = figures.measurement_figures(measured.requests, measured.chunks, measured.meta, line)
        self.published.tell(
            phase="between", last={"users": users} | {name: found[name] for name in ("output_tok_s", "ttft_p95_s")}
        )
        log.info(
            "%s%s, %d user%s: %s tok/s, TTFT p95 %s s, %d requests, %d failed%s",
            done,
            self._name(),
            users,
            "s" if users > 1 else "",
            _number(found["output_tok_s"], 1),
            _number(found["ttft_p95_s"], 2),
            found["target_requests"],
            found["failures"],
            left,
        )


def calibrated(setting: plan.Setting, users: int, runtime: plan.Runtime, load_cpus: Sequence[int]) -> Calibration:
    """Calibrate the load generator on this machine, and refuse more users than it can load accurately."""
    found = calibrate.ensure(users, cache.root(runtime.cache), load_cpus, setting.processes)
    if users > found.max_users and runtime.beyond_calibration == "refuse":
        divided = {"cpus": len(load_cpus), "processes": setting.processes}
        options = "".join(f" --{name} {count}" for name, count in divided.items() if count)
        raise engines.InfrastructureError(
            f"settings.{setting.name}.users: this machine loads at most {found.max_users} users accurately, not"
            f" {users}; use fewer, a faster machine, servebench calibrate --out out/ --users {users}{options} when"
            " nothing else runs on it, or runtime.beyond_calibration: mark"
        )
    return found


def _machine(setting: plan.Setting, runtime: plan.Runtime) -> Machine:
    """Describe this machine, with the bandwidth of its memory where a model is computed from there."""
    found = machine()
    if not engines.ADAPTERS[setting.engine.kind].loads_model or gpu.resolve(runtime.device):
        return found
    return replace(found, copied_gb_s=bandwidth.measured(cache.root(runtime.cache), found.fingerprint))


def _memory(watcher: Watcher) -> dict[str, Any]:
    """Return the session's facts of memory that the watcher has seen so far."""
    return {"memory_gib": watcher.memory_gib, "memory_kind": watcher.kind}


def _number(value: figures.Figure, digits: int) -> str:
    return f"{value:.{digits}f}" if isinstance(value, int | float) else "–"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
