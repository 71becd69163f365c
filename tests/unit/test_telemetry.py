"""What the samples of the machine tell: a table of them, and marks where the machine was held back or not seen."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import synthetic
from servebench import schema, tables
from servebench.load.line import Line
from servebench.machine import gpu, host, watcher
from servebench.marks import Mark, mark
from servebench.plan import ForeignUse
from servebench.store.measurements import Record
from servebench.tables import watched

GIB = 2**30
CELLS = [cell for cell in synthetic.h200_cells() if (cell["setting"], cell["users"]) == ("llama-np16", 16)]


def both_rounds() -> list[Record]:
    return list(synthetic.records_of(CELLS, synthetic.plan_of(CELLS)))


def with_column(record: Record, name: str, values: list[Any]) -> Record:
    """The record with these values of its 120 samples in the window; the 30 of the warm-up have the first."""
    assert len(values) == 120
    assert len(record.telemetry["time_ns"]) == 150
    return replace(record, telemetry={**record.telemetry, name: values[:1] * 30 + values})


def row_of(record: Record) -> dict[str, Any]:
    (row,) = schema.rows(tables.measurements([record], Line()))
    return row


def marks_of(*records: Record) -> list[Mark]:
    (row,) = schema.rows(tables.settings(tables.measurements(records, Line())))
    return list(row["marks"])


def test_every_sample_of_every_good_measurement_is_a_row_with_all_that_it_tells() -> None:
    first, second = both_rounds()
    told: dict[str, list[Any]] = {
        name: [n] * 150 for n, name in enumerate(watcher.TELEMETRY_SCHEMA.names) if name != "time_ns"
    }
    told |= {"throttle": ["power_cap,sw_thermal"] * 150, "device_memory_bytes": [3 * GIB] * 149 + [None]}
    full = replace(first, telemetry={**told, "time_ns": first.telemetry["time_ns"]})
    rows = tables.telemetry([second, synthetic.failed(second, "no"), full]).to_pylist()
    assert [row["round"] for row in rows] == [1] * 150 + [2] * 150
    assert (rows[0]["second"], rows[30]["second"], rows[149]["second"]) == (-15.0, 0.0, 59.5)
    assert {**rows[0], **dict.fromkeys(("memory_gib", "host_memory_gib"))} == {
        **{name: told[name][0] for name in told if not name.endswith("_bytes")},
        **{"run": "main", "setting": "llama-np16", "users": 16, "round": 1, "second": -15.0},
        **{"memory_gib": None, "device_memory_gib": 3.0, "host_memory_gib": None},
    }
    assert rows[0]["memory_gib"] == 1 / GIB
    assert rows[149]["device_memory_gib"] is None
    unknown = {name for name, value in rows[-1].items() if value is None}
    known = {"run", "setting", "users", "round", "second", "memory_gib", "foreign_utilisation"}
    assert unknown == rows[0].keys() - known, "what was never sampled is unknown, not 0"


@pytest.mark.parametrize(
    ("throttle", "throttles", "samples"),
    [
        ([""] * 120, {}, 120),
        ([None] * 120, {}, 0),
        (["power_cap"] * 120, {}, 120),  # a GPU's usual state under full load
        (["sw_thermal"] + [""] * 100 + [None] * 19, {"sw_thermal": 1}, 101),
        (
            ["power_cap,hw_slowdown,hw_power_brake"] * 2 + ["hw_thermal"] * 118,
            {"hw_slowdown": 2, "hw_power_brake": 2, "hw_thermal": 118},
            120,
        ),
    ],
)
def test_a_device_that_was_slowed_by_heat_or_a_power_brake_is_marked(
    throttle: list[Any], throttles: dict[str, int], samples: int
) -> None:
    first, second = both_rounds()
    record = with_column(first, "throttle", throttle)
    said = [mark("device_throttled", throttles=throttles, samples=samples)] if throttles else []
    row = row_of(record)
    assert (row["invalid_reasons"], row["valid"]) == (said, not said)
    assert [found for found in marks_of(record, second) if found.kind == "device_throttled"] == said


def test_every_reason_that_slows_clocks_is_one_the_driver_is_asked_for() -> None:
    assert set(watched.SLOWING) == set(gpu.THROTTLES) - {"power_cap"}


def test_what_slowed_the_device_before_the_window_is_no_mark() -> None:
    first, _ = both_rounds()
    throttle = ["hw_thermal"] * 30 + [""] * 120
    assert row_of(replace(first, telemetry={**first.telemetry, "throttle": throttle}))["valid"]


def test_new_memory_errors_are_marked_and_old_ones_are_not() -> None:
    first, _ = both_rounds()
    assert row_of(with_column(first, "ecc_errors", [7] * 120))["valid"]
    row = row_of(with_column(first, "ecc_errors", [7] * 60 + [9] * 60))
    assert row["invalid_reasons"] == [mark("memory_errors", errors=2)]


def ramp(start_s: float, grown_s: float) -> list[float]:
    return [start_s + grown_s * n / 119 for n in range(120)]


def test_a_quota_that_kept_server_or_load_generator_from_their_cpus_for_over_1_percent_is_marked() -> None:
    first, _ = both_rounds()
    assert row_of(with_column(first, "cpu_throttled_s", ramp(500, 0.5)))["valid"]
    slowed = with_column(first, "cpu_throttled_s", ramp(500, 0.7))
    server_mark = mark("server_kept_from_cpus", kept_s=pytest.approx(0.7), window_s=60.0)
    assert row_of(slowed)["invalid_reasons"] == [server_mark]
    both = with_column(slowed, "client_cpu_throttled_s", [None, *ramp(0, 11.9)[1:]])
    client_mark = mark("client_kept_from_cpus", kept_s=pytest.approx(11.8), window_s=60.0)
    assert row_of(both)["invalid_reasons"] == [server_mark, client_mark]
    client = with_column(first, "client_cpu_throttled_s", ramp(0.1, 11.8))
    assert marks_of(client) == [mark("missing_round", measured=1, rounds=2), client_mark]


@pytest.mark.parametrize(
    ("unknown", "marks"),
    [
        (0, []),
        (1, []),
        (2, [mark("foreign_use_partly_unknown", known=148, samples=150)]),
        (149, [mark("foreign_use_partly_unknown", known=1, samples=150)]),
        (150, [mark("foreign_use_unknown")]),
    ],
)
def test_foreign_use_that_is_not_known_often_enough_to_decide_is_marked(unknown: int, marks: list[Mark]) -> None:
    first, second = both_rounds()
    first.telemetry["foreign_utilisation"][:unknown] = [None] * unknown
    row = row_of(first)
    assert (row["foreign_unknown"], row["telemetry_samples"]) == (unknown, 150)
    assert [found for found in marks_of(first, second) if found.kind.startswith("foreign")] == marks


def test_of_a_server_at_a_url_nothing_is_marked_that_can_never_be_known() -> None:
    records = [
        replace(
            record,
            identity=replace(record.identity, engine_kind="url"),
            telemetry={**record.telemetry, "foreign_utilisation": [None] * 150},
        )
        for record in both_rounds()
    ]
    assert row_of(records[0])["foreign_samples"] is None
    assert marks_of(*records) == []


def test_how_often_is_enough_is_the_rule_it_was_measured_by() -> None:
    first, second = both_rounds()
    first.telemetry["foreign_utilisation"][:9] = [None] * 9
    for limit in (9, 10):
        first, second = (replace(record, foreign_use=ForeignUse(samples=limit)) for record in (first, second))
        told = [found for found in marks_of(first, second) if found.kind.startswith("foreign")]
        assert told == ([mark("foreign_use_partly_unknown", known=141, samples=150)] if limit == 9 else [])
        assert row_of(first)["foreign_limit"] == limit


def test_each_round_with_unknown_samples_is_told() -> None:
    first, second = both_rounds()
    first.telemetry["foreign_utilisation"][:9] = [None] * 9
    second.telemetry["foreign_utilisation"][:30] = [None] * 30
    assert marks_of(first, second) == [
        mark("foreign_use_partly_unknown", known=known, samples=150) for known in (141, 120)
    ]


def test_a_quota_counts_wherever_it_stands_above_the_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(host, "CGROUPS", tmp_path)
    (tmp_path / "a" / "b").mkdir(parents=True)
    for group, said in {"": "", "a": "throttled_usec 2500000\n", "a/b": "throttled_usec 500000\n"}.items():
        (tmp_path / group / "cpu.stat").write_text("usage_usec 5\n" + said, encoding="ascii")
    assert host.throttled_s("a/b") == 3.0
    assert host.throttled_s("a") == 2.5
    assert host.throttled_s("") is None  # the root has no quota to tell of
    assert host.throttled_s("gone") is None
    assert host.throttled_s("../elsewhere") is None


def test_the_throttling_of_both_sides_is_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "cgroup_throttled_s", {1: 3.5, 2: 0.25}.get)
    found = host.Sampler(1, 2).sample()
    assert (found["cpu_throttled_s"], found["client_cpu_throttled_s"]) == (3.5, 0.25)
    assert set(found) <= set(watcher.TELEMETRY_SCHEMA.names)
