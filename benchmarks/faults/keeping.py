"""Fail, interrupt or kill a session at every step with which it keeps what it has measured; count what is lost.

    python benchmarks/faults/keeping.py --faults 10000 --seed 1

A fault hits a session (its own code; what it measures comes at once from a double) or a file of replies at a step that
is drawn at random: each line of `store/` and `sessions/measuring.py` that runs, and each system call on a file under
the results. There the process is killed, or interrupted as by Ctrl-C, or the call fails (disk full, input/output error,
no permission, read-only, too many open files), or from there on no file may grow (a full disk inside a write). Up to
eight sessions are hit one after the other. Then a session without a fault must find everything in order:
nothing that was ever kept is gone or changed, nothing is measured again that had been accepted, every file in the store
is whole, every link leads there, and every error was one that a user can read.
"""

from __future__ import annotations

import errno
import logging
import os
import random
import resource
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests")]

import counted  # noqa: E402
import pyarrow as pa  # noqa: E402

import synthetic  # noqa: E402
from exchanges import load_meta  # noqa: E402
from servebench import configuration, engines, plan  # noqa: E402
from servebench.faults import Fault  # noqa: E402
from servebench.load.calibration import Calibration  # noqa: E402
from servebench.load.measurement import Client, Measurement  # noqa: E402
from servebench.machine.watcher import TELEMETRY_SCHEMA  # noqa: E402
from servebench.outlook import inventory  # noqa: E402
from servebench.plan.layout import Layout  # noqa: E402
from servebench.sessions import job, measuring  # noqa: E402
from servebench.store import measurements, parquet, replies  # noqa: E402

CONFIG = {
    "experiment": "keeping",
    "rounds": 1,
    "engines": {"far": {"kind": "url", "url": "http://127.0.0.1:9", "options": {"model": "m"}}},
    "models": {"m": {"source": "file:///nowhere.gguf", "sha256": "0" * 64}},
    "workload": {"prompts": "en-short", "max_tokens": 4, "warmup_s": 1, "window_s": 2},
    "settings": {"s": {"engine": "far", "model": "m", "slots": 1, "users": [1]}},
}
ERRORS = (errno.ENOSPC, errno.EIO, errno.EACCES, errno.EROFS, errno.EMFILE)
KINDS = ("kill", "interrupt", "full", *(errno.errorcode[number] for number in ERRORS))
# What Python tells its audit hooks before it calls the system.
CALLS = ("open", "os.rename", "os.link", "os.remove", "os.mkdir", "os.chmod", "os.utime", "shutil.copyfile")
TRACED = (measurements.__file__, parquet.__file__, replies.__file__, measuring.__file__)
# What a session finds: nothing; or, of its first measurement, no link, garbage in the link's place, a damaged file, a
# lost file whose link is the only copy; or others who use the device, a server that has changed, and another session.
SCENES = ("new", "no link", "garbage", "damaged", "only copy", "disturbed", "changed", "another", "replies")
Told = Callable[[str], None]


class Faulty:
    """Count the steps of a process; at the step `at` do what `kind` says."""

    def __init__(self, folder: Path, at: int, kind: str) -> None:
        self.folder, self.at, self.kind, self.steps = str(folder), at, kind, 0

    def __enter__(self) -> Faulty:
        sys.addaudithook(self.call)  # for good: the process ends after the block
        synced = os.fsync

        def fsync(descriptor: int) -> None:
            self.step(call=True)
            synced(descriptor)

        os.fsync = fsync
        sys.settrace(self.trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        self.at = -1

    def call(self, name: str, arguments: tuple[Any, ...]) -> None:
        if name in CALLS and str(arguments[0]).startswith(self.folder):
            self.step(call=True)

    def trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename in TRACED:
            if event == "line":
                self.step(call=False)
            return self.trace
        return None

    def step(self, *, call: bool) -> None:
        if self.kind.startswith("E") and not call:
            return
        self.steps += 1
        if self.steps != self.at:
            return
        if self.kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.kind == "interrupt":
            raise KeyboardInterrupt
        elif self.kind == "full":
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.at % 7000, resource.RLIM_INFINITY))
        else:
            number = getattr(errno, self.kind)
            raise OSError(number, os.strerror(number))


class Doubles:
    """Take the place of what measures; tell the journal what was measured, kept and accepted."""

    def __init__(self) -> None:
        """Replace what measures, in this process and those it forks."""
        self.play("new", os.open(os.devnull, os.O_WRONLY))
        aside, accept = measurements.Store.put_aside, measurements.Store.accept

        def put_aside(store: measurements.Store, record: measurements.Record) -> Path:
            found = aside(store, record)
            self.told("kept", record.loaded.users, record.loaded.seed)
            return found

        def accepted(store: measurements.Store, record: measurements.Record, path: Path) -> None:
            if self.scene == "another" and not store.status(record.identity.digest):
                measurements.write(changed(record), store.path(record.identity.digest))
            accept(store, record, path)
            self.told("accepted", record.loaded.users, record.loaded.seed)

        for where, name, double in (
            (measurements.Store, "put_aside", put_aside),
            (measurements.Store, "accept", accepted),
            (measuring, "measure", self.measure),
            (measuring, "calibrated", lambda setting, users, *_: Calibration(max_users=users)),
            (measuring, "Watcher", Watching),
            (job.Context, "launched", self.launched),
            (plan.ForeignUse, "exceeded", lambda rule, shares: next(self.disturbed, 0)),
        ):
            setattr(where, name, double)

    def play(self, scene: str, journal: int) -> None:
        """Begin a scene; what happens goes to the descriptor of a pipe, which no full disk stops."""
        self.scene, self.journal, self.disturbed = scene, journal, iter([3] if scene == "disturbed" else [])

    def told(self, what: str, users: int, number: int) -> None:
        os.write(self.journal, f"{what} {users} {number}\n".encode())

    def measure(self, target: Any, workload: Any, users: int, **options: Any) -> Measurement:
        options["begin"]()
        number = time.monotonic_ns()
        requests, chunks = EXCHANGES
        client = Client(cpu_ratio=0.1)
        meta = load_meta((number, number + 2 * 10**9), users=users, seed=number, client=client)
        self.told("measured", users, number)
        return Measurement(requests, chunks, meta)

    @contextmanager
    def launched(self, *_: Any) -> Iterator[Any]:
        changed = [SimpleNamespace(what="model", asked="m", got="other")] if self.scene == "changed" else []
        yield SimpleNamespace(
            **{"pid": None, "url": "http://127.0.0.1:9", "model": "m", "version": "1", "build": None, "facts": {}},
            **{"argv": [], "env": {}, "devices": [], "watched": (), "extra": {}, "launched_ns": time.monotonic_ns()},
            **{"cold_start_s": {}, "log_size": lambda: 0, "log_since": lambda start: "", "log_tail": lambda: ""},
            **{"alive": lambda: True, "check": lambda: [engines.base.Difference(**vars(one)) for one in changed]},
        )


class Watching:
    """Take the place of the watcher: nothing is sampled."""

    kind, memory_gib = "host", None

    def __init__(self, *_: Any) -> None:
        pass

    def __enter__(self) -> Watching:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def table(self, *_: int) -> pa.Table:
        return TELEMETRY_SCHEMA.empty_table()


EXCHANGES = synthetic.exchanges(1, synthetic.UNPUBLISHED, 10**12, 2, seed=0)


def changed(record: measurements.Record) -> measurements.Record:
    """Return the record of another session that has measured the same."""
    assert record.meta is not None
    meta = synthetic.changed(record.meta, seed=record.meta.seed + 1)
    return synthetic.changed(record, meta=meta)


class Keeping:
    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.random = folder, random.Random(seed)
        self.results = folder / "results"
        self.journal: list[str] = []
        self.plan = configuration.load(CONFIG, [])
        (self.session,) = self.plan.sessions()
        spec = plan.session_spec(self.plan, self.session.setting)
        self.stored = inventory.stored_path(self.plan, self.results, self.session, 1)
        self.linked = Layout(self.results).measurement(self.session.setting, 1, 1)
        self.context = job.Context(
            spec=spec,
            models=self.plan.models,
            engines=self.plan.engines,
            results=self.results,
            runtime=plan.Runtime(),
            engine_log=self.results / "engine.log",
            retry_failed=False,
        )
        self.counts: Counter[str] = Counter()
        self.ledger: Counter[str] = Counter()
        self.lost = self.doubled = self.broken = self.faults = 0
        self.steps: dict[tuple[str, str], int] = {}
        self.doubles = Doubles()
        self.begin("new")
        self.act("new")  # in this process: what it imports is there in those that it forks
        self.whole = self.stored.read_bytes()
        self.before = measurements.read(self.stored).loaded.seed

    def begin(self, scene: str) -> None:
        """Make the results that a session of the scene finds."""
        shutil.rmtree(self.results, ignore_errors=True)
        self.results.mkdir()
        self.journal = []
        if scene in ("no link", "garbage", "damaged", "only copy"):
            self.stored.parent.mkdir(parents=True)
            self.stored.write_bytes(self.whole)
            self.linked.parent.mkdir(parents=True)
            if scene != "no link":
                os.link(self.stored, self.linked)
            if scene == "garbage":
                self.linked.unlink()
                self.linked.write_bytes(b"garbage")
            elif scene == "damaged":
                self.stored.write_bytes(self.whole[:-9])
            elif scene == "only copy":
                self.stored.unlink()
        if scene == "replies":
            lines = Layout(self.results).replies("0")
            file = replies.AnswerFile(lines)
            for number in range(3):
                file.append(reply(number))
            file.close()
            content = lines.read_bytes()
            lines.write_bytes(content[:40] + b"#" + content[41:] + b'{"cut')

    def forked(self, scene: str, at: int, kind: str) -> tuple[int, int]:
        """Run the scene in a child with a fault at step `at`; return its wait status and the steps it took."""
        reader, writer = os.pipe()
        if not (child := os.fork()):
            os.close(reader)
            ended, faulty = 0, Faulty(self.results, at, kind)
            try:
                self.doubles.play(scene, writer)
                with faulty:
                    self.act(scene)
            except (KeyboardInterrupt, OSError, Fault) as error:
                ended = 2
                if isinstance(error, OSError) and error.errno is None:
                    ended = 3
            except BaseException as error:
                os.write(2, f"{scene}, step {at}, {kind}: {error!r}\n".encode())
                ended = 3
            os.write(writer, f"steps {faulty.steps}\n".encode())
            os._exit(ended)
        os.close(writer)
        with os.fdopen(reader) as told:
            lines = told.read().splitlines()
        steps = int(lines.pop().split()[1]) if lines and lines[-1].startswith("steps") else 0
        self.journal += lines
        return os.waitpid(child, 0)[1], steps

    def act(self, scene: str) -> None:
        if scene != "replies":
            measuring.run(self.session, self.context)
            return
        file = replies.AnswerFile(Layout(self.results).replies("0"))
        for number in range(3, 6):
            if file.missing(1, str(number), retry_failed=False):
                file.append(reply(number))
                self.doubles.told("answered", number, 0)
        file.close()

    def trial(self) -> None:
        """Inject one to eight faults, run without one, and look at what is there."""
        scene = self.random.choice(SCENES)
        for among in ("kill", "EIO"):
            if (scene, among) not in self.steps:
                self.begin(scene)
                self.steps[scene, among] = self.forked(scene, 0, among)[1]
        self.begin(scene)
        for _ in range(self.random.randint(1, 8)):
            kind = self.random.choice(KINDS)
            at = self.random.randint(1, self.steps[scene, "EIO" if kind.startswith("E") else "kill"])
            status, taken = self.forked(scene, at, kind)
            if os.WIFSIGNALED(status) or taken >= at:
                self.faults += 1
                self.counts[kind] += 1
            self.broken += os.WIFEXITED(status) and os.WEXITSTATUS(status) == 3
        status, _ = self.forked(scene, 0, "none")
        if status:
            self.complain(scene, f"the session without a fault ended with {status}")
            self.broken += 1
        self.compare(scene)

    def end(self) -> dict[str, Any]:
        """Return what went wrong, the faults by kind, and where what was measured is."""
        found = {"lost": self.lost, "doubled": self.doubled, "broken": self.broken}
        return {**found, "of": dict(sorted(self.counts.items())), "ledger": dict(self.ledger)}

    def complain(self, scene: str, what: str) -> None:
        print(f"{scene}: {what}", *self.journal, sep="\n  ", file=sys.stderr)

    def compare(self, scene: str) -> None:
        lines = [line.split() for line in self.journal]
        if scene == "replies":
            found = set(replies.Answers(Layout(self.results).replies("0")).replies)
            wanted = {(1, str(number)) for number in (1, 2, 3, 4, 5)}  # the first was damaged
            self.lost += len(wanted - found)
            answered = [number for what, number, _ in lines if what == "answered"]
            self.doubled += len(answered) - len(set(answered))
            self.ledger["replies"] += len(answered)
            return
        told = {
            what: [int(number) for of, _, number in lines if of == what] for what in ("measured", "kept", "accepted")
        }
        there = scene in ("no link", "garbage", "only copy")
        store, discarded = set(), set()
        try:
            record = measurements.read(self.stored)
            if record.meta is not None:  # else the server had changed
                store = {record.meta.seed}
            if not self.linked.exists() or not self.linked.samefile(self.stored):
                self.complain(scene, "the link leads elsewhere")
                self.broken += 1
        except (Fault, OSError) as error:
            self.complain(scene, str(error))
            self.lost += 1
        list(measurements.Store(self.results).discarded())  # can be read
        for path in Layout(self.results).discarded.glob("*.parquet"):
            with suppress(measurements.Damaged):
                discarded.add(measurements.read(path).loaded.seed)
        if gone := {*told["kept"], *([self.before] if there else [])} - store - discarded:
            self.complain(scene, f"lost: {gone}")
            self.lost += len(gone)
        first = 0 if there else min(told["accepted"], default=None)
        if first is not None and (again := [number for number in told["measured"] if number > first]):
            self.complain(scene, f"measured again though accepted: {again}")
            self.doubled += len(again)
        self.ledger["measured"] += len(told["measured"])
        for number in told["measured"]:
            where = "in the store" if number in store else "discarded" if number in discarded else "not yet kept"
            self.ledger[where] += 1


def reply(number: int) -> replies.Reply:
    return replies.Reply(repeat=1, question_id=str(number), session_id="s", text="yes", latency_s=1.0)


def main() -> None:
    """Run, and print the counts as JSON; exit with 1 when anything was lost, doubled or broken."""
    logging.disable()
    counted.main(str(__doc__), Keeping)


if __name__ == "__main__":
    main()
