"""Requests as the server's own log tells them, from the log to the counts of slow prompt evaluations."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import synthetic
from servebench import engines, tables
from servebench.engines import llama_log
from servebench.store import measurements
from servebench.tables import served

CELLS = synthetic.h200_cells()
PUBLISHED = tables.read_reference(synthetic.REFERENCES / "h200-slow-prefills.csv")
CONTROL = "llama-np16-control"


def log_of(requests: list[tuple[int, float | None, int]]) -> str:
    """A log of requests (newly computed tokens, ms of the prompt or None, slots busy beside it), one after another."""
    lines = []
    for task, (tokens, took_ms, beside) in enumerate(requests):
        for slot in range(beside, -1, -1):  # its own slot, 0, is taken last
            name = f"id {slot:2d} | task {100 * task + slot} |"
            lines.append(f"0.00.{task:03d}.000 I slot launch_slot_: {name} processing task, is_child = 0")
        own = f"id  0 | task {100 * task} |"
        if took_ms is not None:
            lines.append(
                f"0.01.000.000 I slot print_timing: {own} prompt eval time = {took_ms:10.2f} ms / {tokens:5d} tokens"
            )
        for slot in range(beside + 1):
            name = f"id {slot:2d} | task {100 * task + slot} |"
            lines.append(f"0.01.000.100 I slot      release: {name} stop processing: n_tokens = 700, truncated = 0")
    return "\n".join(lines) + "\n"


def record_with(setting: str, log: str) -> measurements.Record:
    """The first measurement of the setting, with what the session would keep of this log."""
    cell = next(c for c in CELLS if c["setting"] == setting)
    first = next(iter(synthetic.records_of([cell], synthetic.plan_of(CELLS))))
    return replace(first, served=llama_log.served(log, ""))


def counted(*records: measurements.Record) -> dict[str, tuple[int, int]]:
    """(slow, total) by setting, as `slow_prefills` gives them with the control as the reference."""
    reference = record_with(CONTROL, "")
    bands = tables.prefill_bands([reference, *records], {"extra": CONTROL})
    assert bands["extra"] == (513, 530)
    rows = tables.slow_prefills(served(records), bands).to_pylist()
    return {row["setting"]: (row["slow"], row["total"]) for row in rows}


@pytest.mark.parametrize("published", PUBLISHED, ids=lambda row: row["setting"])
def test_the_published_counts_come_out_of_a_log_that_holds_them(published: dict[str, Any]) -> None:
    """The source's logs are not public: this one has the published numbers of such requests, and others beside them."""
    slow, fast = published["slow"], published["total"] - published["slow"]
    inside = [(513 + n % 18, 1000.5, n % 2) for n in range(slow)] + [(530 - n % 18, 999.5, 0) for n in range(fast)]
    outside = [(512, 2500.0, 0), (531, 2500.0, 1), (520, 2500.0, 2), (520, None, 0)]
    found = counted(record_with(published["setting"], log_of(outside + inside + outside)))
    assert found == {published["setting"]: (slow, published["total"])}


def test_exactly_one_second_is_not_slow_and_the_third_busy_slot_is_out() -> None:
    assert counted(record_with(CONTROL, log_of([(513, 1000.0, 1), (530, 1000.01, 1)]))) == {CONTROL: (1, 2)}
    assert counted(record_with(CONTROL, log_of([(513, 1500.0, 2)]))) == {CONTROL: (0, 0)}


def test_where_the_log_says_nothing_there_is_no_count() -> None:
    silent = record_with(CONTROL, "srv  update_slots: all slots are idle\n")
    assert silent.served == {}
    assert counted(silent) == {}
    assert counted(record_with(CONTROL, log_of([(520, None, 0)]))) == {}
    assert tables.slow_prefills(served([record_with(CONTROL, log_of([(520, 1.0, 0)]))]), {}).num_rows == 0


def test_the_band_is_the_references_for_all_settings_of_its_run() -> None:
    records = [record_with("llama-np16-ub2048", ""), record_with(CONTROL, "")]
    assert tables.prefill_bands(records, {"extra": CONTROL}) == {"extra": (513, 530)}
    assert tables.prefill_bands(records, {"extra": "llama-np16-ub2048"}) == {"extra": (2049, 2066)}


def test_what_a_server_says_is_kept_with_its_measurement(tmp_path: Path) -> None:
    written = record_with(CONTROL, log_of([(520, 1200.5, 1), (40, None, 0)]))
    measurements.write(written, tmp_path / "a.parquet")
    rows = served([measurements.read(tmp_path / "a.parquet")]).to_pylist()
    own = next(row for row in rows if row["prompt_ms"] is not None)
    assert (own["prompt_ms"], own["prompt_tokens"], own["busy_slots"], own["total_tokens"]) == (1200.5, 520, 2, 700)
    assert len(rows) == 3


def test_the_load_generators_own_request_before_the_load_is_left_out() -> None:
    log, probe = log_of([(520, 2000.0, 0), (521, 3.0, 0)]), log_of([(520, 2000.0, 0)])
    assert llama_log.served(log, probe)["prompt_tokens"] == [521]
    assert llama_log.served(log, "")["prompt_tokens"] == [520, 521], "none was asked for, or it never got there"
    assert llama_log.served(probe, probe) == {}


def test_a_request_before_the_load_that_was_given_up_is_left_out_and_busy_until_it_ends() -> None:
    probe = "0.00.000.000 I slot launch_slot_: id  0 | task 0 | processing task, is_child = 0\n"
    load = """\
0.00.900.000 I slot launch_slot_: id  1 | task 7 | processing task, is_child = 0
0.01.000.000 W srv          stop: cancel task, id_task = 0
0.01.000.100 I slot      release: id  0 | task 0 | stop processing: n_tokens = 700, truncated = 0
0.01.100.000 I slot launch_slot_: id  0 | task 9 | processing task, is_child = 0
"""
    found = llama_log.served(probe + load, probe)
    assert (found["task"], found["busy_slots"], found["cancelled"]) == ([7, 9], [2, 2], [False, False])


def test_the_log_of_a_measurement_is_what_was_written_during_it(tmp_path: Path) -> None:
    path = tmp_path / "engine.log"
    server = partial(engines.Server, url="", model="", extra={}, argv=[], env={}, pid=None, devices=(), version=None)
    server = partial(server, build=None, launched_ns=0, cold_start_s={}, facts={}, is_alive=bool, differences=list)
    found = server(log_path=path)
    assert (found.log_size(), found.log_since(0)) == (0, "")
    path.write_bytes(b"before \xff\n")
    start = found.log_size()
    assert found.log_since(start) == ""
    with path.open("ab") as file:
        file.write("während\n".encode() + b"not yet who")
    assert found.log_since(start) == "während\n"
