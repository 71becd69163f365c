"""The clock, what is read from it, and what is made of it."""

import json
import os
import re

import httpx
import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from servebench import plan
from servebench.cli import app as cli
from servebench.load import calibrate
from servebench.load.calibrate import Bounds, beyond, record
from servebench.load.calibration import Level
from servebench.load.clock_server import Schedule, read_clock, running
from servebench.machine.infrastructure import InfrastructureError
from servebench.sessions.measuring import calibrated
from servebench.versions import PROTOCOL

pytestmark = pytest.mark.timed

GOOD = Level(
    variant="steady",
    users=8,
    processes=1,
    failed=0,
    ttft_error_p50_s=0.001,
    ttft_error_p99_s=0.010,
    arrival_error_p50_s=0.001,
    arrival_error_p99_s=0.010,
    delivered_ratio=0.99,
    cpu_s_per_100k_chunks=1.0,
    cpu_ratio=0.7,
)


@pytest.mark.parametrize(
    ("schedule", "answer_s"),
    [
        (Schedule(), 0.050 + 127 * 0.020),
        (Schedule(tokens_per_chunk=4), 0.050 + 31 * 0.080),
        (Schedule(ttft_ms=200.0), 0.200 + 127 * 0.020),
        (Schedule(lockstep=True), 0.060 + 127 * 0.020),  # right after a step, 50 ms end on the third
    ],
)
def test_the_length_of_an_answer(schedule, answer_s):
    assert schedule.answer_s == pytest.approx(answer_s)


def test_lockstep_puts_first_tokens_on_the_grid():
    schedule = Schedule(lockstep=True)
    for received_ns in (0, 1, 10_000_000, 19_999_999):
        first_ns = schedule.first_ns(received_ns)
        assert first_ns % 20_000_000 == 0
        assert 50_000_000 <= first_ns - received_ns < 70_000_000


@pytest.mark.parametrize("schedule", [Schedule(itl_ms=5.0), Schedule(itl_ms=5.0, tokens_per_chunk=4)])
def test_the_clock_server_keeps_its_schedule_and_speaks_the_api(schedule):
    with running(schedule) as (url, _):
        replies = [httpx.post(f"{url}/v1/chat/completions", json={"max_tokens": n}) for n in (8, 9, 1)]
    for reply, tokens in zip(replies, (8, 9, 1), strict=True):
        assert reply.headers["content-type"] == "text/event-stream"
        stamps = read_clock(reply.content)
        chunks = -(-tokens // schedule.tokens_per_chunk)
        received_ns = stamps[0][0]
        assert [due for _, due, _ in stamps] == [received_ns + 50_000_000 + n * schedule.step_ns for n in range(chunks)]
        assert all(sent >= due for _, due, sent in stamps)
        assert reply.content.endswith(b"data: [DONE]\n\n")
        events = [json.loads(data) for data in re.findall(rb"data: (\{.*)", reply.content)]
        assert events[-1]["usage"]["completion_tokens"] == tokens
        text = "".join(event["choices"][0]["delta"].get("content", "") for event in events[:-1])
        assert text.count("token") == chunks * schedule.tokens_per_chunk


def test_a_level_counts_what_the_clock_sent():
    schedule = Schedule(tokens=16, itl_ms=10.0)
    found = calibrate.level("steady", 6, schedule, window_s=1.0, processes=2)
    assert found.failed == 0
    assert found.processes == 2
    assert found.chunks > 6 * 16
    assert 0 < found.arrival_error_p50_s <= found.arrival_error_p99_s
    assert 0 < found.ttft_error_p50_s <= found.ttft_error_p99_s
    assert 0.5 < found.delivered_ratio < 1.1
    assert found.beyond == beyond(found, Bounds())


@pytest.mark.parametrize(
    "worse",
    [
        {"failed": 1},
        {"ttft_error_p99_s": 0.0101},
        {"ttft_error_p99_s": None},
        {"arrival_error_p99_s": 0.0101},
        {"delivered_ratio": 0.989},
        {"delivered_ratio": 1.011},
        {"cpu_ratio": 0.71},
    ],
)
def test_each_bound_is_one(worse):
    assert beyond(GOOD, Bounds()) == []
    assert len(beyond(replace(GOOD, **worse), Bounds())) == 1


@pytest.mark.parametrize(
    ("levels", "most"),
    [
        ([(1, True), (16, True), (64, True)], 64),
        ([(1, True), (16, True), (64, False)], 16),
        ([(1, True), (16, False), (64, True)], 1),
        ([(16, True), (16, False)], 0),  # one variant of two
        ([(1, False)], 0),
    ],
)
def test_the_largest_number_of_users(levels, most):
    assert record([replace(GOOD, users=n, beyond=[] if good else ["late"]) for n, good in levels]).max_users == most


def test_ensure_measures_once_per_machine_and_halves_until_it_passes(tmp_path, monkeypatch):
    tried = []

    def level(variant, users, schedule, **_):
        tried.append((users, schedule.lockstep))
        return replace(GOOD, variant=variant, users=users, beyond=["late"] if users > 5 else [])

    monkeypatch.setattr(calibrate, "level", level)
    found = calibrate.ensure(16, tmp_path)
    assert found.max_users == 4
    assert tried == [(16, False)] * 2 + [(16, True)] * 2 + [(8, False)] * 2 + [(8, True)] * 2 + [(4, False), (4, True)]
    assert found.protocol == PROTOCOL
    assert calibrate.ensure(16, tmp_path) == calibrate.ensure(3, tmp_path) == found
    assert len(tried) == 10
    monkeypatch.setattr(calibrate, "machine", lambda cpus: {"host": "another"})
    assert calibrate.known(tmp_path) is None


def test_what_could_not_be_kept_is_not_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(calibrate, "level", None)
    (tmp_path / "file").touch()
    with pytest.raises(InfrastructureError, match=r"file: cannot be written \(File exists\).*SERVEBENCH_CACHE$"):
        calibrate.ensure(16, tmp_path / "file")


def test_what_was_never_tried_is_not_refused(tmp_path, monkeypatch):
    """256 users were too many; whether 64 are is still to be seen. Then 256 and 64 are known."""
    tried = []

    def level(variant, users, schedule, **_):
        tried.append(users)
        return replace(GOOD, variant=variant, users=users, beyond=["late"] if users > 100 else [])

    monkeypatch.setattr(calibrate, "level", level)
    calibrate.keep(record([replace(GOOD, users=n, beyond=["late"] if n > 100 else []) for n in (1, 256)]), tmp_path)
    assert calibrate.ensure(300, tmp_path).max_users == 1
    assert not tried
    assert calibrate.ensure(64, tmp_path).max_users == 64
    assert set(tried) == {64}
    assert calibrate.ensure(20, tmp_path).max_users == 64
    assert len(tried) == 2


@pytest.mark.parametrize(
    ("before", "now", "most"),
    [
        ([("steady", 8, True)], [("steady", 16, True), ("lockstep", 16, False)], 8),  # one that failed leaves the rest
        ([("steady", 16, False)], [("steady", 16, True)], 16),
        ([("steady", 16, False), ("steady", 8, True)], [("steady", 64, True)], 64),
        ([("lockstep", 16, False), ("steady", 8, True)], [("steady", 64, True)], 8),
    ],
)
def test_a_calibration_is_added_to_what_is_known(before, now, most, tmp_path):
    for run in (before, now):
        levels = [replace(GOOD, variant=v, users=n, beyond=[] if good else ["late"]) for v, n, good in run]
        kept = calibrate.keep(record(levels), tmp_path)
    assert kept.max_users == most
    assert calibrate.known(tmp_path) == kept


def test_the_calibration_that_a_refusal_names_lifts_it(tmp_path, monkeypatch):
    """With CPUs and processes of the load's own: a calibration of another division says nothing of it."""
    good = False

    def level(variant, users, schedule, *, processes, cpus, **_):
        assert (processes, len(cpus)) == (2, 1)
        return replace(GOOD, variant=variant, users=users, processes=processes, beyond=[] if good else ["late"])

    monkeypatch.setattr(calibrate, "level", level)
    monkeypatch.setenv("SERVEBENCH_CACHE", str(tmp_path))
    calibrate.keep(record([replace(GOOD, users=256, beyond=[])]), tmp_path)
    model, engine = plan.Model(key="m", name="M"), plan.Engine(key="llama", kind="llama-server")
    setting = plan.Setting(name="np4", run="main", engine=engine, model=model, slots=4, users=(64,), processes=2)
    given = setting, 64, plan.Runtime(beyond_calibration="refuse"), [sorted(os.sched_getaffinity(0))[0]]
    with pytest.raises(InfrastructureError, match=r"^settings\.np4\.users: .* at most 0 users accurately") as refused:
        calibrated(*given)
    said = re.search(r"servebench (calibrate --out out/ .*) when", str(refused.value)).group(1)
    assert said == "calibrate --out out/ --users 64 --cpus 1 --processes 2"
    good = True
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(cli.app, said.split()).exit_code == 0
    assert calibrated(*given).max_users == 64
