"""An invalid measurement never enters the store as a good one; a stored measurement is not made again."""

from __future__ import annotations

import dataclasses
import errno
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec import structs

import synthetic
from chat_double import ChatDouble
from exchanges import load_meta
from processes import argv, below
from servebench import configuration, engines, plan, schema, tables
from servebench.capacity.search import Search
from servebench.faults import Fault
from servebench.load.calibration import Calibration
from servebench.load.line import Line
from servebench.load.measurement import Client, Measurement
from servebench.load.objective import Objective
from servebench.load.workers import WorkerDied
from servebench.machine import watcher
from servebench.marks import mark
from servebench.outlook import inventory
from servebench.plan.layout import Layout
from servebench.sessions import job, measuring, searching
from servebench.store import measurements

STARTED = "2026-11-14T08:00:00+00:00"
FIGURES = synthetic.UNPUBLISHED
CHANGED = "after the measurement: model: asked m, got other"
NO_LONGER = mark("no_longer_as_asked", what="model", asked="m", got="other")


class Measured:
    """A session of two numbers of users on a server behind an address; `during` is done while each is measured."""

    def __init__(self, results: Path, double: ChatDouble) -> None:
        double.listing = b'{"data": [{"id": "m"}]}'
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
        self.kept = measurements.Store(results)
        self.results = results
        self.measured: list[int] = []
        self.seeds: list[int] = []
        self.number_seeds: list[int] = []
        self.during: Callable[[int], None] = lambda users: None

    def digest(self, users: int) -> str:
        return inventory.stored_path(self.plan, self.results, self.session, users).stem

    def statuses(self) -> list[str | None]:
        return [self.kept.status(self.digest(users)) for users in (1, 2)]

    def links(self) -> list[bool]:
        return [Layout(self.results).measurement(self.session.setting, 1, users).exists() for users in (1, 2)]

    def reasons(self) -> list[str]:
        return [thrown.why for thrown in self.kept.discarded()]

    def row(self, users: int) -> dict[str, Any]:
        """Return a row of the table `measurements`."""
        record = measurements.read(Layout(self.results).measurement(self.session.setting, 1, users))
        (row,) = schema.rows(tables.measurements([record], Line()))
        return row

    def put(self, users: int) -> None:
        """As another session does, from another folder that leads to these results."""
        record = synthetic.record(synthetic.setting_of("llama-np4", "main", (1, 2)), 0, users, 1, FIGURES)
        measurements.write(record, self.kept.path(self.digest(users)))

    def measure(self, target: Any, workload: Any, users: int, **options: Any) -> Measurement:
        self.measured.append(users)
        self.seeds.append(options["seed"])
        self.number_seeds.append(options["number_seed"])
        options["begin"]()
        self.during(users)
        now = time.monotonic_ns()
        requests, chunks = synthetic.exchanges(users, FIGURES, now, 60, seed=0)
        meta = load_meta((now, now + 60 * 10**9), users=users, client=Client(cpu_ratio=0.1), started_at=STARTED)
        return Measurement(requests, chunks, meta)

    def run(self, **runtime: Any) -> None:
        measuring.run(self.session, self.context(**runtime))

    def search(self, round_: int = 1, retry_failed: bool = False, most: int = 4) -> None:
        session = structs.replace(self.session, round=round_)
        context = dataclasses.replace(self.context(beyond_calibration="mark"), retry_failed=retry_failed)
        searching.run(session, context, Search(most=most), self.plan.judged_by)

    def evidence(self, plan: plan.Plan) -> searching.Evidence:
        """Read the store as a search of this plan does."""
        found = searching.Evidence(self.session.setting, self.context(), plan.judged_by)
        found.read(4)
        return found

    def context(self, **runtime: Any) -> job.Context:
        return job.Context(
            spec=plan.session_spec(self.plan, self.session.setting),
            models=self.plan.models,
            engines=self.plan.engines,
            results=self.results,
            runtime=plan.Runtime(ready_timeout_s=60, **runtime),
            engine_log=self.results / "engine.log",
            retry_failed=False,
        )


@pytest.fixture
def double() -> Iterator[ChatDouble]:
    with ChatDouble(lambda *_: None, lambda prompt: False) as made:
        yield made


@pytest.fixture
def made(tmp_path: Path, double: ChatDouble, monkeypatch: pytest.MonkeyPatch) -> Measured:
    measured = Measured(tmp_path, double)
    monkeypatch.setattr(measuring, "measure", measured.measure)
    monkeypatch.setattr(measuring, "calibrated", lambda setting, users, *_: Calibration(max_users=users))
    return measured


def change(double: ChatDouble) -> Callable[[int], None]:
    """Let the server report another model from now on."""
    return lambda users: setattr(double, "listing", b'{"data": [{"id": "other"}]}')


def others_use(monkeypatch: pytest.MonkeyPatch, *shares: list[float | None]) -> None:
    """Set the others' use in the samples of each successive measurement; later measurements have none."""
    found = iter(shares)

    def table(self: watcher.Watcher, start_ns: int, end_ns: int) -> pa.Table:
        values = next(found, [0.0] * 4)
        rows = [{"time_ns": start_ns + n, "foreign_utilisation": value} for n, value in enumerate(values)]
        return pa.Table.from_pylist(rows, schema=watcher.TELEMETRY_SCHEMA)

    monkeypatch.setattr(watcher.Watcher, "table", table)


def full_disk(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let writing fail in folders of that name, as on a full disk."""
    made = measurements.tempfile.mkstemp

    def mkstemp(prefix: str, dir: Path) -> tuple[int, str]:
        if dir.name == name:
            raise OSError(errno.ENOSPC, "No space left on device")
        return made(prefix=prefix, dir=dir)

    monkeypatch.setattr(measurements.tempfile, "mkstemp", mkstemp)


def test_what_was_measured_of_a_server_that_has_changed_is_on_record_and_no_result(
    made: Measured, double: ChatDouble
) -> None:
    made.during = change(double)
    made.run()
    assert made.measured == [1]
    assert made.statuses() == ["failed", "failed"]
    assert made.reasons() == [CHANGED]
    (thrown,) = made.kept.discarded()
    assert len(measurements.read(thrown.file).requests) > 0
    assert measurements.read(made.kept.path(made.digest(1))).reason == [NO_LONGER]


def test_what_others_have_disturbed_is_on_record_and_measured_again(
    made: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = iter([3, 0, 0])
    monkeypatch.setattr(plan.ForeignUse, "exceeded", lambda rule, shares: next(found))
    made.run()
    assert made.measured == [1, 1, 2]
    assert made.statuses() == ["ok", "ok"]
    assert made.reasons() == ["others used the device in 3 samples"]


def test_what_others_disturb_three_times_is_a_failed_row_and_the_next_number_of_users_is_measured(
    made: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    others_use(monkeypatch, [0.05, 0.0, 0.05], [0.9, 0.9, 0.9], [None, 0.06, 0.07])
    made.run()
    assert made.measured == [1, 1, 1, 2]
    assert len(set(made.number_seeds)) == 4, "no attempt asks what another has asked: it might be in a cache"
    assert made.seeds == [plan.documents_seed(1, users) for users in made.measured], "the same for every setting"
    assert made.statuses() == ["failed", "ok"]
    row = made.row(1)
    assert (row["status"], row["reason"]) == ("failed", [mark("foreign_use_every_time", attempts=3)])
    assert (row["output_tok_s"], row["users_before"]) == (None, [1, 1, 1])
    assert made.row(2)["users_before"] == [1, 1, 1]
    rows = tables.discarded(made.kept.discarded()).to_pylist()
    assert [row["why"] for row in rows] == [f"others used the device in {count} samples" for count in (2, 3, 2)]
    assert {(row["run"], row["setting"], row["users"], row["round"]) for row in rows} == {("main", "s", 1, 1)}
    made.run()
    assert made.measured == [1, 1, 1, 2], "a failed row is a result, until it is asked for again"


@pytest.mark.parametrize(
    ("shares", "rule", "kept"),
    [
        ([0.05, 0.049, 0.049, 0.049], {}, True),
        ([0.05, 0.05, 0.0, 0.0], {}, False),
        ([None, None, None, 0.9], {}, True),
        ([0.2, 0.2, 0.2, 0.2], {"share": 0.25}, True),
        ([0.2, 0.2, 0.2, 0.2], {"samples": 5}, True),
        ([0.2, 0.2, 0.2, 0.2], {"share": 0.2, "samples": 4}, False),
    ],
)
def test_a_measurement_is_thrown_out_from_as_many_samples_of_as_much_use_as_the_rule_says(
    made: Measured, monkeypatch: pytest.MonkeyPatch, shares: list[float | None], rule: dict[str, Any], kept: bool
) -> None:
    others_use(monkeypatch, shares)
    made.run(foreign_use=plan.ForeignUse(**rule))
    assert made.measured == ([1, 2] if kept else [1, 1, 2])
    assert made.statuses() == ["ok", "ok"]
    assert len(made.reasons()) == (0 if kept else 1)
    assert made.row(1)["valid"], "what was thrown out is not what counts"


def test_where_the_rule_only_marks_the_measurement_is_kept_with_the_reason(
    made: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    others_use(monkeypatch, [0.3, 0.3, 0.3])
    made.run(foreign_use=plan.ForeignUse(action="mark"))
    assert (made.measured, made.reasons()) == ([1, 2], [])
    assert made.row(1)["invalid_reasons"] == [mark("foreign_use", samples=3, share_percent=5.0)]
    assert made.row(2)["valid"]


def test_a_server_found_changed_after_the_last_users_takes_nothing_from_those_before(
    made: Measured, double: ChatDouble
) -> None:
    made.during = lambda users: change(double)(users) if users == 2 else None
    made.run()
    assert made.measured == [1, 2]
    assert made.statuses() == ["ok", "failed"]
    assert made.row(1)["valid"]
    assert (made.row(2)["status"], made.row(2)["reason"]) == ("failed", [NO_LONGER])
    assert [(thrown.place["users"], thrown.why) for thrown in made.kept.discarded()] == [(2, CHANGED)]


@pytest.mark.parametrize("why", ["the server has changed", "others used the device"])
def test_what_does_not_count_is_no_result_even_when_nothing_can_be_written_of_it(
    made: Measured, double: ChatDouble, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    if why == "the server has changed":
        made.during = change(double)
    else:
        monkeypatch.setattr(plan.ForeignUse, "exceeded", lambda rule, shares: 3)
    full_disk(monkeypatch, "discarded")
    with pytest.raises(OSError, match="No space left"):
        made.run()
    assert made.statuses() == [None, None]
    assert made.reasons() == []


def test_served_are_the_requests_of_the_load_and_not_what_came_before(
    made: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, load = (
        f"slot launch_slot_: id  0 | task {task} | processing task\n"
        f"slot      release: id  0 | task {task} | stop processing: n_tokens = 9, truncated = 0\n"
        for task in (3, 7)
    )
    said = iter([before, before + load, "", load])
    monkeypatch.setattr(engines.Server, "log_since", lambda server, start: next(said))
    made.run()
    paths = [made.kept.path(made.digest(users)) for users in (1, 2)]
    assert [measurements.read(path).served["task"] for path in paths] == [[7], [7]]


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
    (reason,) = made.reasons()
    assert "another session" in reason


ODD = [b"[]", b"5", b'{"choices": [1]}', b'{"choices": [{"message": {"content": [1]}}]}', b"[" * 10**5, b"\xff", b""]


@pytest.mark.parametrize("reply", ODD)
def test_a_server_that_answers_anything_after_a_measurement_takes_nothing_from_it(
    made: Measured, double: ChatDouble, monkeypatch: pytest.MonkeyPatch, reply: bytes
) -> None:
    """What was measured is on record, with its rows; what the server answered is the reason why it does not count."""
    made.during = lambda users: monkeypatch.setattr(double, "respond", lambda request: [request.response(reply)])
    made.run()
    assert made.statuses() == ["failed", "failed"]
    (thrown,) = made.kept.discarded()
    assert thrown.why.startswith("after the measurement: a short request: asked a reply, got ")
    assert measurements.read(thrown.file).requests.num_rows > 0


@pytest.mark.outcome(
    "a signal ends the session",
    "a bug ends the session",
    "an error of this machine ends the session",
    "an error of the disk ends the session",
    at="between a measurement and its verdict",
    into="scripted server",
    kept="the measurement, as discarded",
    again="it",
    reads="discarded: its server was not checked afterwards",
    code="not 0",
)
@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, engines.InfrastructureError, OSError])
@pytest.mark.parametrize("where", ["engines.Server.check", "machine.watcher.Watcher.table", "engines.Server.log_tail"])
def test_whatever_ends_a_session_after_a_measurement_it_is_on_record_and_measured_again(
    made: Measured, double: ChatDouble, monkeypatch: pytest.MonkeyPatch, error: type[BaseException], where: str
) -> None:
    def end(*_: Any) -> None:
        raise error("as if killed")

    with monkeypatch.context() as patch:
        made.during = lambda users: patch.setattr(f"servebench.{where}", end)
        if where.endswith("log_tail"):
            made.during = lambda users: (patch.setattr(f"servebench.{where}", end), change(double)(users))
        with pytest.raises(error):
            made.run()
    double.listing, made.during = b'{"data": [{"id": "m"}]}', lambda users: None
    assert made.statuses() == [None, None]
    assert made.reasons() == [measurements.NOT_JUDGED]
    made.run()
    assert (made.measured, made.statuses()) == ([1, 1, 2], ["ok", "ok"])
    assert made.reasons() == [measurements.NOT_JUDGED]


@pytest.mark.outcome(
    "a signal ends the session",
    at="within accepting a measurement",
    into="scripted server",
    kept="the measurement",
    again="nothing",
    reads="nothing",
    code="not 0",
)
def test_a_session_killed_while_it_accepts_a_measurement_has_accepted_it(
    made: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = measurements.write

    def write(record: measurements.Record, path: Path) -> None:
        written(record, path)
        if path.parent.name == "store":
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(measurements, "write", write)
        with pytest.raises(KeyboardInterrupt):
            made.run()
    made.run()
    assert (made.measured, made.statuses(), made.reasons()) == ([1, 2], ["ok", "ok"], [])


@pytest.mark.outcome(
    "a signal every 2 ms, which interrupts every call",
    at="a session, from attaching to the store",
    into="scripted server",
    kept="all",
    again="nothing",
    reads="nothing",
    code="0",
)
def test_signals_that_interrupt_every_call_change_nothing(made: Measured) -> None:
    """EINTR: what waits, reads and writes goes on where a signal has interrupted it."""
    came: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda *_: came.append(made.measured[-1] if made.measured else 0))
    signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
    try:
        made.run()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert {*came} == {0, 1, 2}, "they came while it attached and after both measurements"
    assert (made.measured, made.statuses(), made.links(), made.reasons()) == ([1, 2], ["ok"] * 2, [True] * 2, [])
    assert [len(measurements.read(made.kept.path(made.digest(users))).requests) > 0 for users in (1, 2)] == [True] * 2


@pytest.mark.outcome(
    "a load worker dies, twice",
    at="a measurement",
    into="scripted server",
    kept="all before it",
    again="it, at once",
    reads="load worker 0 died; measured again",
    code="0",
)
@pytest.mark.outcome(
    "a load worker dies, three times",
    at="a measurement",
    into="scripted server",
    kept="all before it",
    again="it, by the next run",
    reads="load worker 0 died",
    code="1",
)
def test_a_load_worker_that_dies_is_no_result_and_its_measurement_is_made_again(made: Measured) -> None:
    def die(times: int) -> Callable[[int], None]:
        left = iter(range(times))

        def during(users: int) -> None:
            if users == 1 and next(left, None) is not None:
                raise WorkerDied("load worker 0 died")

        return during

    made.during = die(2)
    made.run()
    assert (made.measured, made.statuses(), made.reasons()) == ([1, 1, 1, 2], ["ok", "ok"], [])
    made.kept.discard(made.digest(1), "again")
    made.during = die(3)
    with pytest.raises(engines.InfrastructureError, match="worker 0"):
        made.run()
    assert made.statuses() == [None, "ok"]


DAMAGED_PLANS = [b"", b"{", b"{}", b"[]", b"5", b"null", b'{"order": {}, "unknown": 1}', b"[" * 10**5, b"\xff"]


@pytest.mark.outcome(
    "the saved plan: empty",
    "the saved plan: cut",
    "the saved plan: {}",
    "the saved plan: a list",
    "the saved plan: a number",
    "the saved plan: null",
    "the saved plan: an unknown field",
    "the saved plan: nested deep",
    "the saved plan: no text",
    at="a session",
    into="files",
    kept="all",
    again="nothing",
    reads="is not a saved plan; run the experiment again",
    code="0",
)
@pytest.mark.parametrize("content", DAMAGED_PLANS)
def test_a_damaged_plan_stops_no_session_and_is_named_where_it_is_needed(made: Measured, content: bytes) -> None:
    path = Layout(made.results).plan
    path.write_bytes(content)
    made.run()
    assert made.statuses() == ["ok", "ok"]
    with pytest.raises(Fault, match=f"^{path}: .*run the experiment again"):
        plan.read(path)


@pytest.mark.outcome(
    "a cut measurement",
    at="a session",
    into="files",
    kept="the file, as discarded",
    again="it alone",
    reads="is damaged; it is kept as …, and measured again",
    code="0",
)
def test_a_damaged_measurement_is_kept_aside_and_only_it_is_measured_again(made: Measured) -> None:
    made.run()
    path = made.kept.path(made.digest(1))
    path.write_bytes(path.read_bytes()[:-20])
    made.run()
    assert (made.measured, made.statuses()) == ([1, 2, 1], ["ok", "ok"])
    (reason,) = made.reasons()
    assert reason.startswith(f"damaged: {path}: ")


def test_what_a_dead_engine_has_not_tried_is_tried_once_with_a_fresh_one(made: Measured) -> None:
    setting = {"engine": "sim", "model": "m", "slots": 1, "context": 512, "users": [1, 2, 3, 4]}
    config = {
        "experiment": "dying",
        "rounds": 1,
        "engines": {"sim": {"kind": "simulator", "options": {"load_s": 0.1}}},
        "models": {"m": {"source": "file:///nowhere.gguf", "sha256": "0" * 64}},
        "workload": {"prompts": "en-short", "max_tokens": 4, "warmup_s": 1, "window_s": 60},
        "settings": {"s": setting},
    }
    made.plan = configuration.load(config, ["config.yaml"])
    (made.session,) = made.plan.sessions()

    def die(users: int) -> None:
        if users in (2, 3):
            (engine,) = [process for process in below() if "simulated.py" in str(argv(process)[1:2])]
            engine.kill()
            engine.wait()

    made.during = die
    made.run()
    assert made.measured == [1, 2, 3]
    rows = {users: made.row(users) for users in (1, 2, 3, 4)}
    assert {users: row["status"] for users, row in rows.items()} == {1: "ok", 2: "failed", 3: "failed", 4: "failed"}
    assert rows[4]["reason"] == [mark("not_tried", died_at=3)]
    assert [mark("not_tried", died_at=3)] not in (rows[2]["reason"], rows[3]["reason"])
    assert rows[1]["session_id"] == rows[2]["session_id"] != rows[3]["session_id"]


def no_launch(context: job.Context, *_: Any) -> None:
    raise engines.LaunchFailed("out of memory", "")


def test_a_search_ends_its_round_where_the_engine_does_not_start(
    made: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job.Context, "launched", no_launch)
    made.search()
    assert made.measured == [] and made.statuses() == ["failed", None]


def test_a_forced_search_tries_again_what_failed_in_its_own_round_only(
    made: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job.Context, "launched", no_launch)
    made.search()
    made.search(round_=1, retry_failed=True)
    assert made.reasons() == ["failed; tried again"]
    made.search(round_=2, retry_failed=True)
    assert made.reasons() == ["failed; tried again"], "what round 1 has just tried again stays"
    assert Layout(made.results).search(made.session.setting, 1).exists()


@pytest.mark.parametrize(("user_tok_s", "kept"), [(0.001, True), (1e6, False)])
def test_a_search_judges_goodput_by_the_line_of_the_experiment(made: Measured, user_tok_s: float, kept: bool) -> None:
    made.put(1)
    objectives = {"good": Objective(limits={"goodput_share": 0.9})}
    line = Line(ttft_p95_s=1e6, user_tok_s=user_tok_s)
    found = made.evidence(structs.replace(made.plan, line=line, objectives=objectives)).found
    margin = found["good"][1][1].margin
    assert margin is not None and (margin > 0) == kept


def test_a_search_tries_no_more_users_than_the_calibration_allows(
    made: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.search(round_=1)
    assert made.measured == [1, 2, 4]
    monkeypatch.setattr(searching, "_most", lambda *_: 2)
    made.search(round_=2)
    assert made.measured == [1, 2, 4, 2, 1]


def test_a_search_says_which_kept_measurements_are_too_short_for_an_objective(
    made: Measured, caplog: pytest.LogCaptureFixture
) -> None:
    made.put(1)
    many = Objective(limits={"e2e_p50_s": 1e6}, min_targets=10**6)
    made.plan = structs.replace(made.plan, objectives={"many": many})
    with caplog.at_level("WARNING", logger="servebench"):
        made.search(most=1)
    (told,) = [record.getMessage() for record in caplog.records if "too few requests" in record.getMessage()]
    assert "many with 1 users" in told and "servebench discard main s --round 1" in told
