"""What `servebench load` says of what it has measured, and meanwhile."""

import io
import json
import logging

import pytest
from msgspec import to_builtins
from msgspec.structs import replace
from rich.console import Console

from exchanges import load_meta
from servebench.cli import load
from servebench.faults import Fault
from servebench.load import calibrate
from servebench.load.calibration import Level
from servebench.load.endpoint import Endpoint
from servebench.load.line import Line
from servebench.load.measurement import Address, LoadMeta
from servebench.load.workload import Workload
from servebench.marks import mark
from servebench.words import claims

META = LoadMeta(mode="closed", users=1, load_start_ns=0, window_start_ns=1, window_end_ns=2, load_end_ns=3)


TARGET = {"url": "http://127.0.0.1:8000", "model": "m", "extra": {}}
OF_LOAD = {"users": 4, "target": TARGET, "workload": {"mode": "closed"}, "protocol": 4, "started_at": None}
MET = {"target_requests": 20, "failures": 0, "other_failures": 0, "valid": True, "invalid_reasons": []}
MET |= {"ttft_p50_s": 1.0, "ttft_p95_s": 2.0, "user_tok_s": 10.0, "output_tok_s": 40.0, "in_time_requests": 20}
MET |= {"meets_line": True, "line_confidence": 0.6, "reference_only": False}


@pytest.mark.parametrize(
    ("found", "verdict", "told"),
    [
        ({}, "few_rounds", "m met the target as far as it was measured (1 of the 2 rounds"),
        ({"target_requests": 3}, "few_requests", "it got 3 of the 20 requests needed"),
        ({"target_requests": 7, "ttft_p95_s": 2.5}, "few_requests", "it got 7 of the 20 requests needed"),
        ({"target_requests": 7, "ttft_p50_s": 2.5, "ttft_p95_s": 3.0}, "missed", "TTFT p95 3.00 s (at most 2)"),
        ({"failures": 2}, "missed", "2 of 20 requests failed"),
        ({"failures": 20}, "failed", "failed in 1 of 1 round"),
        ({"ttft_p95_s": 2.5}, "missed", "TTFT p95 2.50 s (at most 2)"),
        ({"user_tok_s": 9.96, "target_requests": 5}, "missed", "9.96 tokens/s"),
        ({"user_tok_s": None}, "missed", "no speed could be measured"),
        ({"invalid_reasons": [mark("warmup_failed", failures=3, requests=4)]}, "missed", "the warm-up failed"),
    ],
)
def test_what_a_load_met_or_missed_is_a_claim_of_an_experiment(found, verdict, told):
    (claim,), _ = load.judged([to_builtins({**MET, **found, "meta": OF_LOAD})], "a", Line())
    assert (claim.verdict, claim.subjects, claim.users) == (verdict, ["m"], 4)
    assert told in claims.said(claim)["en"]


@pytest.mark.parametrize(
    ("summary", "requests"),
    [([], None), ({"meta": []}, None), ({"meta": to_builtins(META)}, None), ({"meta": to_builtins(META)}, b"PAR1 cut")],
)
def test_what_is_no_whole_measurement_is_said_with_its_folder(summary, requests, tmp_path):
    assert load.read_kept(tmp_path) is None
    (tmp_path / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    if requests:
        (tmp_path / "requests.parquet").write_bytes(requests)
    with pytest.raises(Fault, match=f"--out: {tmp_path} holds files of no whole measurement"):
        load.read_kept(tmp_path)


@pytest.mark.parametrize(
    ("workload", "said"),
    [
        ({"warmup_s": 15, "window_s": 60}, "loading with 4 users: at least 75 s, and until the last reply"),
        ({"min_targets": 20}, "loading with 4 users: at least 75 s, 20 requests, and until the last reply"),
        ({"mode": "count", "requests": 9}, "loading with 4 users"),
    ],
)
def test_how_long_a_load_takes_as_far_as_it_is_known(workload, said):
    assert load.expected(Workload(**{"prompts": "en-short", "max_tokens": 8} | workload), 4) == said


def test_each_phase_is_said_once_where_no_bar_can_be_drawn():
    said, on_terminal = io.StringIO(), io.StringIO()
    for console in (Console(file=said, width=80), Console(file=on_terminal, force_terminal=True)):
        tell = load.phases(console)
        for second in range(3):
            tell("warmup", f": {second} s")
        tell("window", ": 3 s")
    assert said.getvalue() == "warmup: 0 s\nwindow: 3 s\n"
    assert on_terminal.getvalue() == ""


def test_a_calibration_is_announced_and_one_that_is_known_is_not(tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.INFO, logger="servebench")
    good = Level(variant="steady", users=4, delivered_ratio=1.0, cpu_ratio=0.1)
    monkeypatch.setattr(calibrate, "level", lambda variant, *_, **how: replace(good, variant=variant))
    said = ["calibrating the load generator for 4 users, once on this machine: 12 s, or minutes if that is too many"]
    for _ in range(2):
        assert calibrate.ensure(4, tmp_path).max_users == 4
        assert caplog.messages == said


def test_a_measurement_made_before_a_key_was_added_is_of_the_load_with_its_default() -> None:
    asked = Workload(window_s=3.0)
    before = {key: value for key, value in asked.to_dict().items() if key != "user_rate"}
    meta = load_meta((0, 1), workload=before, target=Address(url="http://x", model="m"))
    endpoint = Endpoint(url="http://x", model="m")
    assert load.is_of(meta, endpoint, asked, 1)
    assert not load.is_of(meta, endpoint, Workload(window_s=3.0, mode="open-users", user_rate=1.0), 1)


def test_one_user_is_one():
    assert [load.counted(count) for count in (1, 2)] == ["1 user", "2 users"]
    assert [load.counted(count, mode) for count, mode in ((1, "open"), (2, "trace"), (3, "open-users"))] == [
        *("1 connection", "2 connections", "3 users"),
    ]


def test_what_measures_the_clients_error_can_be_pasted():
    said = load.calibrating(None, 40, 3)
    assert said is not None
    command = said.split()
    assert command[:2] == ["servebench", "calibrate"]
    assert dict(zip(command[2::2], command[3::2], strict=True)) == {
        "--users": "40",
        "--processes": "3",
        "--out": "calibration",
    }
