"""Whole measurements against scripted servers: counts and invariants, never speed."""

import itertools
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter, defaultdict

import msgspec
import psutil
import pyarrow.compute as pc
import pytest
from scripted_server import DONE, END, HEAD, ScriptedServer, event, finish, framed, refusal, reply, token

from certificate import self_signed
from http_double import CLOSE, RESET
from processes import below
from servebench.faults import Fault
from servebench.load import calibrate
from servebench.load.endpoint import Endpoint
from servebench.load.exchange import Exchange
from servebench.load.figures import measurement_figures
from servebench.load.line import Line
from servebench.load.run import measure
from servebench.load.transport import HEAD_BYTES
from servebench.load.users import Ledger
from servebench.load.workers import LoadError, WorkerDied
from servebench.load.workload import Workload
from servebench.machine.infrastructure import InfrastructureError
from waiting import until

pytestmark = pytest.mark.timed


def measured(script, users, *, processes=None, seed=1, **workload):
    values = {"max_tokens": 8, "warmup_s": 0.3, "window_s": 1.0, "spread_s": 0.1, "timeout_s": 20.0, **workload}
    with ScriptedServer(script) as server:
        endpoint = Endpoint(url=server.url, model="scripted")
        return measure(endpoint, Workload(**values), users, processes=processes, seed=seed), server


def rows(measurement, *columns):
    return measurement.requests.select(columns).to_pylist()


def statuses(measurement):
    return Counter(measurement.requests["status"].to_pylist())


def figures(measurement):
    return measurement_figures(measurement.requests, measurement.chunks, measurement.meta, Line())


@pytest.fixture(scope="module")
def closed():
    """6 users in 2 processes on a server that takes 40 ms a reply: some hundred requests."""
    return measured(lambda _: reply(4, gap_s=0.01), 6, processes=2)


def test_a_user_never_has_two_requests_in_flight(closed):
    by_user = defaultdict(list)
    for row in rows(closed[0], "user", "scheduled_ns", "sent_ns", "end_ns"):
        by_user[row["user"]].append(row)
    assert len(by_user) == 6
    for requests in by_user.values():
        requests.sort(key=lambda row: row["sent_ns"])
        for one, following in itertools.pairwise(requests):
            assert one["end_ns"] <= following["scheduled_ns"] <= following["sent_ns"]


def test_each_user_asks_the_same_in_the_same_order_whatever_the_speed_and_the_number_of_processes(closed):
    faster, _ = measured(lambda _: reply(2), 6, processes=3)

    def asked(measurement):
        found = defaultdict(list)
        for row in sorted(rows(measurement, "user", "prompt_id", "sent_ns"), key=lambda row: row["sent_ns"]):
            found[row["user"]].append(row["prompt_id"])
        return found

    one, other = asked(closed[0]), asked(faster)
    for user in range(6):
        common = min(len(one[user]), len(other[user]))
        assert common > 3
        assert one[user][:common] == other[user][:common]
    assert len({prompts[0] for prompts in one.values()}) == 6


def test_every_request_the_server_saw_is_in_the_records_once(closed):
    measurement, server = closed
    ids = measurement.requests["request_id"].to_pylist()
    assert len(set(ids)) == len(ids) == len(server.received)
    contents = [received.body["messages"][-1]["content"] for received in server.received]
    assert len(set(contents)) == len(contents)  # no two carry the same number line


def test_phases_follow_the_time_of_sending(closed):
    measurement, _ = closed
    start, end = measurement.meta.window_start_ns, measurement.meta.window_end_ns
    for row in rows(measurement, "phase", "sent_ns"):
        expected = "warmup" if row["sent_ns"] < start else "window" if row["sent_ns"] < end else "after"
        assert row["phase"] == expected
    assert end - start == 1_000_000_000


def test_targets_finish_and_only_later_requests_are_cancelled(closed):
    measurement, _ = closed
    outcome = Counter((row["phase"], row["status"]) for row in rows(measurement, "phase", "status"))
    assert outcome["window", "ok"] > 50
    assert {key for key in outcome if key[1] != "ok"} <= {("after", "cancelled")}
    assert outcome["after", "cancelled"] <= 6


def test_the_window_begins_when_everybody_is_through_and_the_warm_up_has_passed(closed):
    meta = closed[0].meta
    firsts = {}
    for row in sorted(rows(closed[0], "user", "sent_ns", "end_ns"), key=lambda row: row["sent_ns"]):
        firsts.setdefault(row["user"], row["end_ns"])
    assert meta.window_start_ns == max(meta.load_start_ns + 300_000_000, *firsts.values())


def test_a_slow_first_request_lengthens_the_warm_up():
    def script(received):
        return [1.5, *reply()] if received.number == 0 else reply(2, gap_s=0.01)

    measurement, _ = measured(script, 3)
    first = min(rows(measurement, "sent_ns", "end_ns"), key=lambda row: row["sent_ns"])
    assert measurement.meta.window_start_ns == first["end_ns"]
    assert measurement.meta.warmup.s >= 1.5
    assert not measurement.meta.warmup.bounded


def test_a_user_that_never_finishes_does_not_hang_the_warm_up():
    def script(received):
        return [HEAD, 60.0] if received.number == 0 else reply(2, gap_s=0.01)

    measurement, _ = measured(script, 3, timeout_s=1.0)
    assert statuses(measurement)["timeout"] == 1
    assert 1.0 <= measurement.meta.warmup.s < 10


def test_a_warm_up_request_with_tokens_in_the_window_is_drained():
    """Its second half arrives long after the window; without the drain it would be cancelled."""

    def script(received):
        if received.nth_on_connection == 1 and received.connection == 0:
            yield HEAD
            for _ in range(25):
                yield framed(token())
                yield 0.1
            yield framed(finish(25)) + END
        else:
            yield from reply(2, gap_s=0.02)

    measurement, _ = measured(script, 2, warmup_s=0.5)
    long = [row for row in rows(measurement, "phase", "status", "chunks", "end_ns") if row["chunks"] == 25]
    assert [(row["phase"], row["status"]) for row in long] == [("warmup", "ok")]
    assert long[0]["end_ns"] > measurement.meta.window_end_ns


def ledger_with(sent_ns, *block_ns, scheduled_ns=0):
    ledger = Ledger(process=0, processes=1)
    running = ledger.begin(user=0, prompt_id="p", scheduled_ns=scheduled_ns)
    running.sent_ns, running.blocks = sent_ns, [(at_ns, b"data: {}\n\n") for at_ns in block_ns]
    return ledger


def test_the_ledger_adds_up_pieces_and_the_time_to_the_first():
    ledger = ledger_with(1_000_000_000, 1_500_000_000, 1_700_000_000)
    silent = ledger.begin(user=1, prompt_id="p", scheduled_ns=0)
    silent.sent_ns = 1_000_000_000
    for exchange in list(ledger.running.values()):
        ledger.end(exchange)
    assert (ledger.pieces, ledger.replies, ledger.first_piece_s) == (2, 1, 0.5)


@pytest.mark.parametrize(
    ("sent_ns", "blocks", "awaited"),
    [
        (1_999, [], True),  # sent at the window's last nanosecond
        (2_000, [], False),  # the window is half open
        (1_000, [], True),
        (999, [], False),  # warm-up, nothing in the window
        (999, [1_000], True),
        (999, [1_999], True),
        (999, [500, 2_000], False),
    ],
)
def test_what_the_window_1000_to_2000_waits_for(sent_ns, blocks, awaited):
    assert ledger_with(sent_ns, *blocks).awaits(1_000, 2_000, by_schedule=False) is awaited


@pytest.mark.parametrize(("scheduled_ns", "awaited"), [(999, False), (1_000, True), (1_999, True), (2_000, False)])
def test_what_seeks_a_connection_is_waited_for_where_it_was_due(scheduled_ns, awaited):
    ledger = ledger_with(None, scheduled_ns=scheduled_ns)
    assert ledger.awaits(1_000, 2_000, by_schedule=False) is awaited


def test_the_ledger_counts_requests_begun_since():
    ledger = Ledger(process=1, processes=4)
    told = [ledger.begin(user, "p", 0) for user in range(4)]
    assert [one.request_id for one in told] == [1, 5, 9, 13]
    for one, sent_ns in zip(told, (10, 20, 30, None), strict=True):
        one.sent_ns = sent_ns
    told[0].end_ns, told[1].end_ns = 25, 26
    ledger.end(told[0])
    ledger.end(told[1])
    assert [ledger.begun_since(at, by_schedule=False) for at in (10, 11, 30, 31)] == [3, 2, 1, 0]
    told[3].scheduled_ns = 15  # has no connection yet
    assert [ledger.begun_since(at, by_schedule=False) for at in (10, 15, 16)] == [4, 3, 2]
    assert [ledger.begun_since(at, by_schedule=True) for at in (0, 1)] == [4, 1]


def test_64_users_and_three_kinds_of_failure():
    """Of every eight requests one is refused, one reset inside the reply, one stalls; 320 requests in 4 processes."""

    def script(received):
        kind = received.number % 8
        if kind == 1:
            yield from refusal(503)
        elif kind == 3:
            yield HEAD + framed(token())
            yield 0.01
            yield RESET
        elif kind == 5:
            yield HEAD + framed(token()) + framed(token())
            yield 60.0
        else:
            yield from reply(4)

    measurement, server = measured(script, 64, mode="count", requests=320, idle_timeout_s=1.0)
    assert len(server.received) == 320
    assert statuses(measurement) == {"ok": 200, "http_error": 40, "reset": 40, "idle_timeout": 40}
    found = figures(measurement)
    assert (found["target_requests"], found["failures"]) == (320, 120)
    assert (found["failures_http_error"], found["failures_reset"], found["failures_idle_timeout"]) == (40, 40, 40)
    assert found["output_tokens_mean"] == 4.0
    assert found["ttft_p95_s"] < 1.0  # of successes only
    assert found["ttft_p95_all_s"] is None and found["ttft_p95_all_infinite"]
    tokens = sum(measurement.chunks["tokens"].to_pylist())
    assert tokens == 200 * 4 + 40 * 1 + 40 * 2
    for row in rows(measurement, "status", "http_status", "error"):
        assert (row["error"] is None) == (row["status"] == "ok")
        assert row["http_status"] == (503 if row["status"] == "http_error" else 200)


@pytest.mark.parametrize(
    "body",
    [event({"error": "no room"}), finish(1) + DONE, token(), b"<!doctype html><title>Log in</title>"],
    ids=["in_band_error", "empty", "truncated", "a page"],
)
def test_a_user_whose_reply_failed_inside_a_200_pauses_like_all_others(body):
    measurement, _ = measured(lambda _: [HEAD + framed(body) + END], 2, mode="count", requests=4)
    assert statuses(measurement)["ok"] == 0
    for user in range(2):
        mine = [row for row in rows(measurement, "user", "sent_ns", "end_ns") if row["user"] == user]
        for earlier, later in itertools.pairwise(sorted(mine, key=lambda row: row["sent_ns"])):
            assert later["sent_ns"] - earlier["end_ns"] >= 1_000_000_000


def test_odd_heads_cost_one_request_each_and_nothing_else():
    other_bytes = HEAD.replace(b"\r\n\r\n", b"\r\nx: \xe6\x9d\xb1\xff\r\n\r\n")
    answers = {
        2: [b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab"],
        5: [b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\n\x1f\x8b"],
        8: [b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n"],
        11: [b"HTTP/1.1 200 OK\r\nx: ", 2 * HEAD_BYTES * b"a"],
        14: [other_bytes, framed(token()), framed(finish(1)), END],
    }
    measurement, _ = measured(lambda r: answers.get(r.number) or reply(2), 4, mode="count", requests=40)
    assert statuses(measurement) == {"ok": 36, "truncated": 4}
    assert all(row["error"] for row in rows(measurement, "status", "error") if row["status"] == "truncated")


def test_stale_connections_at_64_users():
    """The server drops every connection, unannounced, when its third request comes."""
    dropped = []

    def script(received):
        if received.nth_on_connection == 2:
            dropped.append(received.number)
            return [CLOSE]
        return reply(2)

    measurement, server = measured(script, 64, mode="count", requests=640)
    assert statuses(measurement) == {"ok": 640}
    assert sum(measurement.requests["resent"].to_pylist()) == len(dropped) > 0
    assert len(server.received) == 640 + len(dropped)


@pytest.mark.parametrize("processes", [1, 3])
def test_a_number_of_requests_is_exact(processes):
    measurement, server = measured(lambda _: reply(3), 5, mode="count", requests=83, processes=processes)
    assert len(server.received) == measurement.requests.num_rows == 83
    assert set(measurement.requests["phase"].to_pylist()) == {"window"}
    found = figures(measurement)
    assert found["output_tok_s"] * found["window_s"] == pytest.approx(83 * 3)


def test_signals_that_interrupt_the_parents_calls_change_nothing():
    came = []
    before = signal.signal(signal.SIGALRM, lambda *_: came.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.005, 0.005)
    try:
        measurement, server = measured(lambda _: reply(3), 2, mode="count", requests=20, processes=2)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert came
    assert statuses(measurement) == {"ok": 20} and len(server.received) == 20


def test_no_done_is_good_enough():
    def script(_):
        yield HEAD + framed(token()) + framed(finish(1)) + END

    measurement, _ = measured(script, 2, mode="count", requests=6)
    assert statuses(measurement) == {"ok": 6}
    assert figures(measurement)["without_done"] == 6


def test_the_window_goes_on_until_enough_targets():
    measurement, _ = measured(lambda _: reply(2, gap_s=0.1), 2, window_s=0.5, min_targets=20)
    phases = Counter(measurement.requests["phase"].to_pylist())
    assert phases["window"] >= 20
    meta = measurement.meta
    assert meta.window_s > 0.5


def test_the_window_does_not_go_on_where_every_request_failed():
    measurement, _ = measured(lambda _: refusal(503), 2, window_s=0.5, min_targets=10**6)
    assert set(statuses(measurement)) == {"http_error"}
    assert [mark.kind for mark in figures(measurement)["invalid_reasons"]] == ["all_failed"]


def test_a_server_that_dies_in_the_window_ends_it_by_its_failures():
    def script(received):
        if received.number == 60:
            threading.Thread(target=server.stop).start()
        yield from reply(2, gap_s=0.05)

    workload = Workload(max_tokens=8, warmup_s=0.2, window_s=0.5, spread_s=0.0, min_targets=100)
    with ScriptedServer(script) as server:
        measurement = measure(Endpoint(url=server.url, model="scripted"), workload, 8)
    found = figures(measurement)
    assert found["target_requests"] >= 100
    assert set(statuses(measurement)) >= {"ok", "connect_error"}
    assert not found["meets_line"]


def test_what_is_told_while_it_runs():
    told = []
    with ScriptedServer(lambda _: reply(4, gap_s=0.02)) as server:
        workload = Workload(max_tokens=8, warmup_s=0.3, window_s=2.5, spread_s=0.1)
        measured = measure(Endpoint(url=server.url, model="scripted"), workload, 2, progress=told.append)
    assert {said["phase"] for said in told} <= {"warmup", "window", "drain"}
    last = told[-1]
    assert 0 < last["finished"] <= measured.requests.num_rows
    assert last["running"] <= 2 and last["failures"] == 0
    assert last["pieces_s"] > 0
    assert last["first_piece_s"] > 0


def test_think_time_is_kept_between_reply_and_request():
    measurement, _ = measured(lambda _: reply(1), 3, think="0.2")
    by_user = defaultdict(list)
    for row in rows(measurement, "user", "sent_ns", "end_ns"):
        by_user[row["user"]].append(row)
    for requests in by_user.values():
        requests.sort(key=lambda row: row["sent_ns"])
        for one, following in itertools.pairwise(requests):
            assert following["sent_ns"] - one["end_ns"] >= 200_000_000


def test_open_loop_goes_on_while_the_server_does_not():
    """5 requests a second on a server that needs 2 s for each, connections unlimited: 10 are open in the mean."""
    measurement, _ = measured(
        lambda _: [HEAD, 2.0, framed(token()) + framed(finish(1)) + END],
        1,
        mode="open",
        rate=5.0,
        arrivals="constant",
        warmup_s=2.5,
        window_s=2.0,
    )
    targets = [
        row for row in rows(measurement, "phase", "status", "scheduled_ns", "sent_ns") if row["phase"] == "window"
    ]
    assert len(targets) == 10
    assert all(row["status"] == "ok" for row in targets)
    assert all(row["sent_ns"] >= row["scheduled_ns"] for row in targets)
    steps = {b["scheduled_ns"] - a["scheduled_ns"] for a, b in itertools.pairwise(targets)}
    assert steps == {200_000_000}
    assert 8 <= figures(measurement)["backlog_end"] <= 12


def test_poisson_arrivals_are_the_same_for_the_same_seed():
    def scheduled(seed):
        measurement, _ = measured(lambda _: reply(1), 2, seed=seed, mode="open", rate=40.0, processes=2)
        start = measurement.meta.load_start_ns
        return sorted(
            row["scheduled_ns"] - start
            for row in rows(measurement, "scheduled_ns", "phase")
            if row["phase"] == "window"
        )

    first = scheduled(7)
    assert 15 <= len(first) <= 75
    assert first == scheduled(7) != scheduled(8)


def test_a_conversation_grows_and_carries_the_replies():
    measurement, server = measured(lambda _: reply(3), 2, mode="conversation", turns=3)
    by_length = Counter(len(received.body["messages"]) for received in server.received)
    system = server.received[0].body["messages"][0]["role"] == "system"
    assert set(by_length) == {1 + system, 3 + system, 5 + system}
    longest = next(r.body["messages"] for r in server.received if len(r.body["messages"]) == 5 + system)
    assert [m["content"] for m in longest if m["role"] == "assistant"] == ["word word word "] * 2
    turns = Counter(prompt_id.split()[-1] for prompt_id in measurement.requests["prompt_id"].to_pylist())
    assert set(turns) == {"1", "2", "3"}


def test_a_trace_is_replayed(tmp_path):
    lines = [
        {"arrival_s": 0.0, "prompt": "first", "max_tokens": 1},
        {"arrival_s": 0.3, "prompt": "second"},
        {"arrival_s": 0.6, "messages": [{"role": "user", "content": "last"}], "max_tokens": 3},
    ]
    path = tmp_path / "trace.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    measurement, server = measured(lambda r: reply(r.body["max_tokens"]), 2, mode="trace", trace=str(path))
    asked = [(*r.body["messages"][-1]["content"].split("\n"), r.body["max_tokens"]) for r in server.received]
    assert [one[1:] for one in asked] == [("first", 1), ("second", 8), ("last", 3)]
    assert len({line for line, *_ in asked if line.startswith("No. ")}) == 3
    start = measurement.meta.load_start_ns
    due = sorted(
        (row["scheduled_ns"] - start, row["completion_tokens"])
        for row in rows(measurement, "scheduled_ns", "completion_tokens")
    )
    assert due == [(0, 1), (300_000_000, 8), (600_000_000, 3)]


def test_a_shared_prefix_is_the_same_for_all():
    _, server = measured(lambda _: reply(1), 2, mode="shared-prefix", shared_prefix_tokens=200)
    prefixes = {received.body["messages"][0]["content"] for received in server.received}
    assert {received.body["messages"][0]["role"] for received in server.received} == {"system"}
    assert len(prefixes) == 1
    assert 400 <= len(prefixes.pop()) <= 2_000


def test_the_request_is_the_one_of_the_experiment(monkeypatch):
    monkeypatch.setenv("SECRET_OF_THE_TEST", "s3cret")
    with ScriptedServer(lambda _: reply(1)) as server:
        endpoint = Endpoint(
            url=server.url + "/v1",
            model="scripted",
            extra={"top_k": 1, "seed": None},
            api_key_env="SECRET_OF_THE_TEST",
            headers={"x-tenant": "a"},
        )
        measurement = measure(endpoint, Workload(mode="count", requests=1, max_tokens=8), 1)
    body = dict(server.received[0].body)
    messages = body.pop("messages")
    assert [message["role"] for message in messages][-1] == "user"
    assert body == {
        "model": "scripted",
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 8,
        "temperature": 0.0,
        "top_p": 1.0,
        "top_k": 1,
    }
    head = server.received[0].head.lower()
    assert head.startswith(b"post /v1/chat/completions http/1.1\r\n")
    assert b"authorization: bearer s3cret" in head
    assert b"x-tenant: a" in head
    assert b"s3cret" not in msgspec.json.encode(measurement.meta)


def test_the_start_is_spread_over_one_measured_answer():
    measurement, _ = measured(lambda _: reply(10, gap_s=0.05), 5, spread_s=None)
    probe = measurement.meta.probe
    assert probe.status == "ok"
    assert measurement.meta.spread_s == probe.answer_s >= 0.5
    firsts = {}
    for row in sorted(rows(measurement, "user", "scheduled_ns"), key=lambda row: row["scheduled_ns"]):
        firsts.setdefault(row["user"], row["scheduled_ns"] - measurement.meta.load_start_ns)
    assert [firsts[user] for user in range(5)] == [round(probe.answer_s * 1e9 * user / 5) for user in range(5)]


def test_the_load_begins_when_the_probe_is_over_whatever_became_of_it():
    seen = []
    workload = Workload(max_tokens=8, warmup_s=0.1, window_s=0.3, timeout_s=0.5)
    with ScriptedServer(lambda received: reply(2) if received.number else [20.0]) as server:
        endpoint = Endpoint(url=server.url, model="scripted")
        measurement = measure(endpoint, workload, 2, begin=lambda: seen.append(len(server.received)))
    assert measurement.meta.probe.status == "timeout"
    assert seen == [1]
    assert len(measurement.requests) == len(server.received) - 1


@pytest.mark.parametrize(
    ("status", "users", "values"),
    [
        *((status, 1, {}) for status in (401, 403, 404, 405)),
        (401, 2, {"spread_s": None}),  # by the answer awaited before the load
        (403, 4, {"mode": "open", "rate": 40.0}),
        (404, 2, {"mode": "count", "requests": 999}),
    ],
)
def test_a_load_that_cannot_succeed_ends_with_the_first_reply(status, users, values):
    workload = Workload(**{"window_s": 3600, "spread_s": 0.0, **values})
    with ScriptedServer(lambda _: refusal(status, b"not here")) as server:
        address = f"{server.url}/v1/chat/completions"
        with pytest.raises(LoadError, match=f"^{re.escape(address)}: .*HTTP {status}.*: not here; "):
            measure(Endpoint(url=server.url, model="m"), workload, users)
    assert len(server.received) < 40


def test_a_refusal_after_a_good_reply_is_a_result():
    measurement, _ = measured(lambda received: refusal(404) if received.number > 3 else reply(2), 1, window_s=0.2)
    assert {"ok", "http_error"} <= set(statuses(measurement))


def test_plain_http_to_a_port_that_speaks_tls_is_said(tmp_path):
    context, _ = self_signed(tmp_path)
    with ScriptedServer(lambda _: reply(2), tls=context) as server:
        endpoint = Endpoint(url=server.url.replace("https:", "http:"), model="m")
        with pytest.raises(LoadError, match="begin the address with https://"):
            measure(endpoint, Workload(window_s=3600), 1)


def test_no_server_is_an_error_and_leaves_nobody_behind():
    with pytest.raises(LoadError, match=r"127\.0\.0\.1:9.*refused"):
        measure(Endpoint(url="http://127.0.0.1:9", model="m"), Workload(warmup_s=0, window_s=1), 2)
    assert not below(holding="servebench.load")


@pytest.mark.parametrize(
    ("workload", "message"),
    [
        ({"mode": "open"}, "workload.rate"),
        ({"think": "often"}, "workload.think"),
        ({"prompts": "no-such-set"}, "no-such-set"),
        ({"mode": "trace", "trace": "/no/such/trace.jsonl"}, "trace.jsonl"),
        ({"window_s": 0}, "workload.window_s"),
        ({"mode": "sideways"}, "sideways"),
    ],
)
def test_what_cannot_be_measured_is_said_before_anything_starts(workload, message):
    with pytest.raises(Fault, match=message):
        measure(Endpoint(url="http://127.0.0.1:9", model="m"), Workload(**workload), 1)


def test_the_client_reports_on_itself(closed):
    client = closed[0].meta.client
    assert len(client.processes) == 2
    assert client.cpu_ratio == max(one.cpu_s / one.wall_s for one in client.processes)
    for one in client.processes:
        assert 0 < one.cpu_s < one.wall_s
        assert 0 <= one.loop_lag_p50_s <= one.loop_lag_p99_s <= one.loop_lag_max_s
        assert 0 <= one.dispatch_delay_p50_s <= one.dispatch_delay_p99_s
    json.dumps(msgspec.to_builtins(closed[0].meta), allow_nan=False)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs Linux")
def test_the_load_runs_on_its_own_cpus():
    cpu = min(os.sched_getaffinity(0))
    with ScriptedServer(lambda _: reply(2, gap_s=0.01)) as server:
        workload = Workload(max_tokens=8, warmup_s=0.1, window_s=0.2, spread_s=0.1)
        endpoint = Endpoint(url=server.url, model="scripted")
        found = [measure(endpoint, workload, 2, processes=2, cpus=cpus) for cpus in ([cpu], [])]
    told = [[client.cpus for client in measured.meta.client.processes] for measured in found]
    assert told == [[[cpu]] * 2, [sorted(os.sched_getaffinity(0))] * 2]
    assert calibrate.machine([cpu])["cores"] == 1


@pytest.mark.outcome(
    "the session is killed",
    at="a load",
    into="scripted server",
    kept="all before it",
    again="it, by the next run",
    reads="–",
    code="not 0",
)
def test_killing_the_parent_leaves_no_worker_and_no_file(tmp_path):
    code = (
        "import sys; from servebench.load.run import measure; from servebench.load.endpoint import Endpoint\n"
        "from servebench.load.workload import Workload\n"
        "load = Workload(warmup_s=0, spread_s=0, mode='count', requests=100000)\n"
        "measure(Endpoint(url=sys.argv[1], model='m'), load, 4, processes=2)"
    )
    with ScriptedServer(lambda _: reply(2, gap_s=0.02)) as server:
        parent = subprocess.Popen([sys.executable, "-c", code, server.url], env={**os.environ, "TMPDIR": str(tmp_path)})
        until(lambda: len(server.received) >= 10, 30, "ten requests")
        workers = psutil.Process(parent.pid).children()
        assert len(workers) == 2
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
        gone, alive = psutil.wait_procs(workers, timeout=60)
        assert (len(gone), alive) == (2, [])
    assert not list(tmp_path.iterdir())


@pytest.mark.outcome(
    "a full disk under the load worker's records",
    at="the end of a load",
    into="scripted server",
    kept="all before it",
    again="it, by the next run",
    reads="…: No space left on device; make room",
    code="1",
)
def test_a_full_disk_under_the_records_is_named_and_no_dead_worker():
    def full():
        for worker in below(holding="servebench.load.worker"):
            resource.prlimit(worker.pid, resource.RLIMIT_FSIZE, (1000, 1000))

    workload = Workload(warmup_s=0.0, spread_s=0.0, mode="count", requests=2)
    with ScriptedServer(lambda _: reply(1)) as server, pytest.raises(InfrastructureError) as told:
        measure(Endpoint(url=server.url, model="m"), workload, 1, begin=full)
    assert not isinstance(told.value, WorkerDied)
    assert str(told.value).startswith(f"{tempfile.gettempdir()}: File too large; ")


def test_a_worker_that_dies_ends_the_measurement_with_an_error():
    killed = []

    def script(received):
        if received.number == 20:
            worker = below(holding="servebench.load.worker")[0]
            killed.append(worker.pid)
            worker.kill()
        return reply(1, gap_s=0.02)

    with pytest.raises(WorkerDied, match="died"):
        measured(script, 4, processes=2, window_s=20)
    assert killed
    assert not below(holding="servebench.load.worker")


def test_tokens_in_the_window_are_those_that_arrived_in_it(closed):
    measurement, _ = closed
    start, end = measurement.meta.window_start_ns, measurement.meta.window_end_ns
    arrival = measurement.chunks["arrival_ns"]
    inside = pc.and_(pc.greater_equal(arrival, start), pc.less(arrival, end))
    cancelled = measurement.requests.filter(pc.equal(measurement.requests["status"], "cancelled"))["request_id"]
    counted = pc.and_(
        inside, pc.invert(pc.is_in(measurement.chunks["request_id"], value_set=cancelled.combine_chunks()))
    )
    tokens = pc.sum(measurement.chunks.filter(counted)["tokens"]).as_py()
    assert figures(measurement)["output_tok_s"] == pytest.approx(tokens / 1.0)


def test_exchange_defaults_are_those_of_something_that_never_happened():
    told = Exchange(0, 0, 0, "p", 5)
    assert (told.sent_ns, told.end_ns, told.blocks, told.complete, told.failure) == (None, None, [], False, None)
