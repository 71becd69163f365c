"""A measurement that does not count is never in the store as a good one; one that is there is not measured again."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import synthetic
from chat_double import ChatDouble, serving
from servebench import configuration, estimate, job, plan, session, store
from servebench.load.measurement import Measurement

FIGURES = synthetic.UNPUBLISHED
CHANGED = "after the measurement: model: asked m, got other"


class Measured:
    """A session of two numbers of users on a server behind an address; `during` is done while each is measured."""

    def __init__(self, results: Path, double: ChatDouble) -> None:
        config = {
            "experiment": "doubled",
            "rounds": 1,
            "engines": {"far": {"kind": "url", "url": double.url, "options": {"model": "m"}}},
            "models": {"m": {"source": "file:///nowhere.gguf", "sha256": "0" * 64}},
            "workload": {"prompts": "en-short", "max_tokens": 4, "warmup_s": 1, "window_s": 60},
            "settings": {"s": {"engine": "far", "model": "m", "slots": 1, "users": [1, 2]}},
        }
        self.plan = configuration.load(config, ["config.yaml"])
        (self.session,) = self.plan.sessions()
        self.kept = store.Store(results)
        self.results = results
        self.measured: list[int] = []
        self.during: Callable[[int], None] = lambda users: None

    def digest(self, users: int) -> str:
        return estimate.stored_path(self.plan, self.results, self.session, users).stem

    def statuses(self) -> list[str | None]:
        return [self.kept.status(self.digest(users)) for users in (1, 2)]

    def links(self) -> list[bool]:
        return [estimate.users_path(self.results, self.session.setting, 1, users).exists() for users in (1, 2)]

    def reasons(self) -> list[str]:
        return [thrown.why for thrown in self.kept.discarded()]

    def put(self, users: int) -> None:
        """As another session does, from another folder that leads to these results."""
        record = synthetic.record(synthetic.setting_of("llama-np4", "main", (1, 2)), 0, users, 1, FIGURES)
        store.write(record, self.kept.path(self.digest(users)))

    def measure(self, target: Any, workload: Any, users: int, **options: Any) -> Measurement:
        self.measured.append(users)
        self.during(users)
        now = time.monotonic_ns()
        requests, chunks = synthetic.exchanges(users, FIGURES, now, 60, seed=0)
        times = dict.fromkeys(("load_start_ns", "window_start_ns", "load_end_ns"), now)
        meta = {"mode": "closed", "users": users, "probe": None, "workload": {}, "window_end_ns": now + 60 * 10**9}
        meta |= {"client": {"cpu_ratio": 0.1, "processes": []}, "started_at": "2026-11-14T08:00:00+00:00", **times}
        return Measurement(requests, chunks, meta)

    def run(self) -> None:
        context = job.Context(
            slice=plan.session_slice(self.plan, self.session.setting),
            models=self.plan.models,
            results=self.results,
            runtime=plan.Runtime(ready_timeout_s=5),
            engine_log=self.results / "engine.log",
            retry_failed=False,
        )
        session.run(self.session, context)


@pytest.fixture
def double() -> Iterator[ChatDouble]:
    with serving(ChatDouble(lambda *_: None, lambda prompt: False)) as made:
        yield made


@pytest.fixture
def made(tmp_path: Path, double: ChatDouble, monkeypatch: pytest.MonkeyPatch) -> Measured:
    measured = Measured(tmp_path, double)
    monkeypatch.setattr(session, "measure", measured.measure)
    monkeypatch.setattr(session._Measuring, "_calibrated", lambda self, users: {"max_users": users})
    return measured


def change(double: ChatDouble) -> Callable[[int], None]:
    """The server has another model from now on."""
    return lambda users: setattr(double, "listing", b'{"data": [{"id": "other"}]}')


def full_disk(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """No file can be made in folders of that name."""
    made = store.tempfile.mkstemp

    def mkstemp(prefix: str, dir: Path) -> tuple[int, str]:
        if dir.name == name:
            raise OSError(errno.ENOSPC, "No space left on device")
        return made(prefix=prefix, dir=dir)

    monkeypatch.setattr(store.tempfile, "mkstemp", mkstemp)


def test_what_was_measured_of_a_server_that_has_changed_is_on_record_and_no_result(
    made: Measured, double: ChatDouble
) -> None:
    made.during = change(double)
    made.run()
    assert made.measured == [1]
    assert made.statuses() == ["failed", "failed"]
    assert made.reasons() == [CHANGED]
    (thrown,) = made.kept.discarded()
    assert len(store.read(thrown.file).requests) > 0
    assert store.read(made.kept.path(made.digest(1))).reason == CHANGED


def test_what_others_have_disturbed_is_on_record_and_measured_again(
    made: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = iter([3, 0, 0])
    monkeypatch.setattr(session, "_foreign_samples", lambda telemetry, rule: next(found))
    made.run()
    assert made.measured == [1, 1, 2]
    assert made.statuses() == ["ok", "ok"]
    assert made.reasons() == ["others used the device in 3 samples"]


@pytest.mark.parametrize("why", ["the server has changed", "others used the device"])
def test_what_does_not_count_is_no_result_even_when_nothing_can_be_written_of_it(
    made: Measured, double: ChatDouble, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    if why == "the server has changed":
        made.during = change(double)
    else:
        monkeypatch.setattr(session, "_foreign_samples", lambda telemetry, rule: 3)
    full_disk(monkeypatch, "discarded")
    with pytest.raises(OSError, match="No space left"):
        made.run()
    assert made.statuses() == [None, None]
    assert made.reasons() == []


def test_what_another_session_has_measured_while_the_device_was_waited_for_is_not_measured_again(
    made: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched = job.Context.launched

    def waited(*arguments: Any) -> Any:
        made.put(1)
        return launched(*arguments)

    monkeypatch.setattr(job.Context, "launched", waited)
    made.run()
    assert made.measured == [2]
    assert made.statuses() == ["ok", "ok"]
    assert made.links() == [True, True]
    assert made.reasons() == []


def test_what_two_sessions_have_measured_at_the_same_time_counts_once_and_both_are_kept(made: Measured) -> None:
    made.during = lambda users: made.put(1) if users == 1 else None
    made.run()
    assert made.statuses() == ["ok", "ok"]
    assert made.links() == [True, True]
    assert made.reasons() == ["another session has measured it at the same time"]
