"""The tables against what was published, and against what nothing may be: a guess where nothing was measured."""

from __future__ import annotations

import copy
import itertools
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from msgspec.structs import replace

import synthetic
from servebench import plan as planning
from servebench import schema, tables
from servebench.load.figures import measurement_figures
from servebench.load.line import Line
from servebench.marks import Mark, mark
from servebench.models.kv_cache import Cache, Layer
from servebench.outlook import inventory
from servebench.plan import ForeignUse, Plan
from servebench.plan.layout import Layout
from servebench.store import measurements
from servebench.store.measurements import Record
from servebench.store.records import ColdStart
from servebench.tables import make
from servebench.tables import measured as measured_
from servebench.tables.catalogue import TABLES, tables_of
from servebench.tables.cost import usd, usd_per_million_tokens
from servebench.tables.sources import Sources

CELLS = synthetic.h200_cells()
MAIN = [cell for cell in CELLS if cell["run"] == "main"]
QWEN3_14B = Cache((Layer(kv_heads=8, key_size=128, value_size=128),) * 40, all_layers=40)


@cache
def h200() -> tuple[pa.Table, pa.Table]:
    measured = tables.measurements(list(synthetic.records_of(CELLS, synthetic.plan_of(CELLS))), Line())
    return measured, tables.settings(measured)


def settings_of(cells: list[dict]) -> list[dict]:
    records = list(synthetic.records_of(cells, synthetic.plan_of(cells)))
    return tables.settings(tables.measurements(records, Line())).to_pylist()


def tabulated(results: Path, plan: Plan) -> list[dict[str, Any]]:
    """The table `settings`, made of what is in the folder, for this plan."""
    (results / "plan.json").write_text(planning.canonical(planning.reported(plan)), encoding="utf-8")
    make.run(results)
    return tables.read(results / "tables" / "settings.parquet").to_pylist()


@pytest.fixture
def measured(tmp_path: Path) -> Plan:
    """The plan of an experiment that is measured in tmp_path."""
    places = [("llama-np16", 1), ("llama-np4", 1), ("llama-np4", 4)]
    cells = [cell for cell in MAIN if (cell["setting"], cell["users"]) in places]
    plan = synthetic.plan_of(cells)
    sessions = {(session.setting.name, session.round): session for session in plan.sessions()}
    for record in synthetic.records_of(cells, plan):
        place = record.identity
        session, users = sessions[place.setting, place.round], place.users
        digest = inventory.stored_path(plan, tmp_path, session, users).stem
        path = Layout(tmp_path).measurement(session.setting, session.round, users)
        measurements.write(synthetic.changed(record, identity={"digest": digest}), path)
    return plan


def test_settings_stand_in_the_order_they_have_now_whatever_it_was_when_they_were_measured(
    tmp_path: Path, measured: Plan
) -> None:
    for names in (["llama-np4", "llama-np16"], ["llama-np16", "llama-np4"]):
        now = msgspec.structs.replace(measured, settings={name: measured.settings[name] for name in names})
        rows = tabulated(tmp_path, now)
        assert list(dict.fromkeys(row["setting"] for row in rows)) == names
        assert len(rows) == 3


def test_what_was_measured_as_configured_otherwise_is_not_tabulated_under_this_configuration(
    tmp_path: Path, measured: Plan
) -> None:
    changed = msgspec.structs.replace(measured.settings["llama-np4"], slots=5)
    now = msgspec.structs.replace(measured, settings={**measured.settings, "llama-np4": changed})
    file = tmp_path / "measurements/main/llama-np4/round1/users001.parquet"
    with pytest.raises(make.Outdated, match=f"^{file}: .*move it away"):
        tabulated(tmp_path, now)


def test_published_json_of_what_the_experiment_has_no_more_is_removed(tmp_path: Path, measured: Plan) -> None:
    left = [tmp_path / "tables" / name for name in ("extra_concurrency.json", "quantization.json")]
    left[0].parent.mkdir()
    for path in left:
        path.write_text("{}", encoding="utf-8")
    tabulated(tmp_path, measured)
    assert [path.name for path in (tmp_path / "tables").glob("*.json")] == ["concurrency.json"]


def test_every_figure_of_a_measurement_is_a_column() -> None:
    record = next(iter(synthetic.records_of(MAIN[:1], synthetic.plan_of(MAIN[:1]))))
    found = measurement_figures(record.requests, record.chunks, record.loaded, Line())
    row = schema.rows(tables.measurements([record], Line()))[0]
    assert {name: row[name] for name in found} == found


def test_figures_of_the_synthetic_records_are_the_published_ones() -> None:
    rows = {(r["setting"], r["users"]): r for r in h200()[1].to_pylist() if r["run"] == "main"}
    assert len(rows) == 53
    for cell in MAIN:
        row = rows[cell["setting"], cell["users"]]
        for figure in ("user_tok_s", "target_requests"):
            assert row[f"{figure}_min"] == pytest.approx(cell[f"{figure}_min"], rel=1e-6)
            assert row[f"{figure}_max"] == pytest.approx(cell[f"{figure}_max"], rel=1e-6)
        if cell["ttft_p95_s_max"] >= 0.05:
            assert row["ttft_p95_s_max"] == pytest.approx(cell["ttft_p95_s_max"], rel=1e-6)


def test_the_line_is_met_in_both_rounds_exactly_where_published() -> None:
    met = [
        (r["setting"], r["users"]) for r in h200()[1].to_pylist() if r["run"] == "main" and r["meets_line_both_rounds"]
    ]
    published = [(c["setting"], c["users"]) for c in MAIN if c["meets_line_both_rounds"]]
    assert met == published
    assert len(met) == 33


def met(cells: list[dict], changed: dict[str, float]) -> list[bool | None]:
    """Whether each cell, so changed, meets the line. Its rounds are its smaller and its larger values: the output is
    a little off, as the published pair of an unstable cell would take their place."""
    off = [cell | {"output_tok_s_max": cell["output_tok_s_max"] + 0.01} | changed for cell in cells]
    return [row["meets_line_both_rounds"] for row in settings_of(off)]


@pytest.mark.parametrize("changed", [{"ttft_p95_s_max": 2.1}, {"user_tok_s_min": 9.9}, {"target_requests_min": 19}])
def test_each_cell_pushed_across_the_line_in_one_round_loses_its_mark(changed: dict[str, float]) -> None:
    within = [cell for cell in MAIN if cell["meets_line_both_rounds"]]
    assert met(within, {}) == [True] * 33
    assert met(within, changed) == [False] * 33


def test_each_cell_pulled_within_the_line_gains_its_mark() -> None:
    outside = [cell for cell in MAIN if not cell["meets_line_both_rounds"]]
    pulled = {"ttft_p50_s_min": 1.0, "ttft_p50_s_max": 1.0, "ttft_p95_s_min": 1.9, "ttft_p95_s_max": 2.0}
    pulled |= {"user_tok_s_min": 10.1, "user_tok_s_max": 10.1, "target_requests_min": 20}
    assert met(outside, {}) == [False] * 20
    assert met(outside, pulled) == [True] * 20


def test_a_failed_or_missing_round_leaves_the_line_empty_and_says_so() -> None:
    cell = next(c for c in MAIN if (c["setting"], c["users"]) == ("llama-np16", 16))
    first, second = synthetic.records_of([cell], synthetic.plan_of([cell]))
    missing = schema.rows(tables.settings(tables.measurements([first], Line())))[0]
    lost = synthetic.failed(second, "CUDA out of memory")
    broken = schema.rows(tables.settings(tables.measurements([first, lost], Line())))[0]
    for row in (missing, broken):
        assert row["meets_line_both_rounds"] is None
        assert row["unstable"] is None
        assert row["rounds"] == 1
        assert row["marks"] == [mark("missing_round", measured=1, rounds=2)]
    out_of_memory = mark("failed", reason="CUDA out of memory")
    assert (missing["failure"], broken["failure"]) == ([], [out_of_memory])
    lost_too = synthetic.failed(first, "asked 4, got 2; no more")
    nothing = schema.rows(tables.settings(tables.measurements([lost_too, lost], Line())))[0]
    assert nothing["output_tok_s_min"] is None
    assert nothing["reference_only"] is None
    assert nothing["failure"] == [mark("failed", reason="asked 4, got 2; no more"), out_of_memory]


def test_a_round_without_a_reply_is_none_and_its_reason_is_the_rows() -> None:
    cell = next(c for c in MAIN if (c["setting"], c["users"]) == ("llama-np16", 16))
    first, second = synthetic.records_of([cell], synthetic.plan_of([cell]))
    targets = sum(phase == "window" for phase in second.requests["phase"].to_pylist())
    rows = tables.measurements([first, synthetic.unanswered(second)], Line())
    known, silent = schema.rows(rows)
    why = mark("all_failed", requests=targets, statuses={"http_error": targets})
    assert (silent["status"], silent["valid"], silent["invalid_reasons"]) == ("ok", False, [why])
    assert [silent[n] for n in ("output_tok_s", "requests_s", "ttft_p95_s", "user_tok_s")] == [None] * 4
    row = schema.rows(tables.settings(rows))[0]
    assert (row["rounds"], row["meets_line_both_rounds"], row["failures_max"]) == (1, False, targets)
    assert row["output_tok_s_min"] == row["output_tok_s_max"] == known["output_tok_s"]
    assert (row["marks"], row["failure"]) == ([mark("missing_round", measured=1, rounds=2)], [why])
    both = schema.rows(tables.settings(tables.measurements(map(synthetic.unanswered, (first, second)), Line())))[0]
    assert (both["rounds"], both["output_tok_s_max"], both["unstable"]) == (0, None, None)
    assert {reason.kind for reason in both["failure"]} == {"all_failed"}


UNSTABLE_PAIRS = tables.read_reference(synthetic.REFERENCES / "h200-unstable.csv")
UNSTABLE = [(row["setting"], row["users"]) for row in UNSTABLE_PAIRS]
HALF = {"output_tok_s": 0.5, "user_tok_s": 0.05, "ttft_p95_s": 0.05}


def change_within_rounding(pair: dict) -> tuple[float, float]:
    """Smallest and largest value that the largest |ratio − 1| can have, the figures being rounded as published."""
    lows, highs = [], []
    for figure, half in HALF.items():
        a, b = pair[f"{figure}_r1"], pair[f"{figure}_r2"]
        low, high = (b - half) / (a + half), (b + half) / (a - half)
        lows.append(0.0 if low <= 1 <= high else min(abs(low - 1), abs(high - 1)))
        highs.append(max(abs(low - 1), abs(high - 1)))
    return max(lows), max(highs)


def pair_with_change(pair: dict, wanted: float) -> dict:
    """A pair that rounds to the published one and whose largest |ratio − 1| is `wanted` (found by bisection)."""
    figure = max(HALF, key=lambda f: abs(pair[f"{f}_r2"] / pair[f"{f}_r1"] - 1))
    a, b, half = pair[f"{figure}_r1"], pair[f"{figure}_r2"], HALF[figure]
    up = 1 if b > a else -1
    low, high = -1.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        ratio = (b + up * middle * half) / (a - up * middle * half)
        low, high = (middle, high) if abs(ratio - 1) < wanted else (low, middle)
    return pair | {f"{figure}_r1": a - up * low * half, f"{figure}_r2": b + up * low * half}


def order_of(pairs: list[dict]) -> list[tuple[str, int]]:
    """What `unstable` makes of these pairs, given to it in the order of the experiment."""
    template = h200()[0].slice(0, 1).to_pylist()[0]
    rows = []
    for rank, pair in enumerate(sorted(pairs, key=lambda p: (p["setting"], p["users"]))):
        for number in (1, 2):
            figures = {f: float(pair[f"{f}_r{number}"]) for f in HALF}
            rows.append(template | figures | {"rank": rank, "setting": pair["setting"], "users": pair["users"]})
            rows[-1]["round"] = number
    result = tables.unstable(tables.table("measurements", rows)).to_pylist()
    return [(row["setting"], row["users"]) for row in result]


def test_the_ten_published_pairs_are_unstable_whatever_their_rounding() -> None:
    assert all(change_within_rounding(pair)[0] >= 0.2 for pair in UNSTABLE_PAIRS)
    assert sorted(order_of(UNSTABLE_PAIRS)) == sorted(UNSTABLE)


def test_the_published_order_is_ours_for_values_that_round_to_the_published() -> None:
    """One decimal does not decide the order (3.3 ÷ 6.4 against 1.5 ÷ 1.0): some values behind the rounding must."""
    largest = float("inf")
    behind = []
    for pair in UNSTABLE_PAIRS:
        low, high = change_within_rounding(pair)
        largest = min(high, largest) - 1e-6
        assert low <= largest, f"{pair['setting']} at {pair['users']} users cannot stand where it is published"
        own = max(abs(pair[f"{f}_r2"] / pair[f"{f}_r1"] - 1) for f in HALF)
        largest = min(largest, max(own, low))
        behind.append((pair, largest))
    # From below: each at least as large as the one after it.
    wanted, floor = [], 0.0
    for pair, value in reversed(behind):
        floor = max(floor + 1e-4, min(value, change_within_rounding(pair)[1]))
        wanted.append(pair_with_change(pair, floor))
    assert order_of(wanted) == UNSTABLE


def test_two_rounds_of_the_same_are_stable_and_the_edges_are_not() -> None:
    rates = (100, 119.9, 120, 80.1, 80)
    steady = {f"{figure}_r{number}": 1 for figure in HALF for number in (1, 2)}
    pairs = [
        steady | {"setting": "np4", "users": users, "output_tok_s_r1": 100, "output_tok_s_r2": rate}
        for users, rate in enumerate(rates)
    ]
    assert sorted(rates[users] for _, users in order_of(pairs)) == [80, 120]


def test_a_ratio_has_the_marks_of_both_of_its_rows() -> None:
    measured, ranges = h200()
    rows = schema.rows(ranges)
    a, b, c = mark("mixed_machines"), mark("no_output"), mark("few_requests", requests=7)
    for name, marks in (("llama-np16-control", [a, b]), ("llama-np16-t8", [b, c])):
        next(row for row in rows if row["setting"] == name and row["users"] == 8)["marks"] = marks
    ratios = schema.rows(tables.ratios(measured, tables.table("settings", rows), synthetic.plan_of(CELLS)))
    of_t8 = {row["users"]: row["marks"] for row in ratios if row["setting"] == "llama-np16-t8"}
    assert set(of_t8[8]) == {a, b, c} and a not in of_t8[16]


def test_ratios_to_the_control_are_within_a_round() -> None:
    measured, _ = h200()
    rows = tables.ratios(measured, tables.settings(measured), synthetic.plan_of(CELLS)).to_pylist()
    by = {(r["kind"], r["setting"], r["baseline"], r["users"], r["figure"]): r for r in rows}
    unified = by["control", "llama-np16-kv-unified", "llama-np16-control", 8, "output_tok_s"]
    assert unified["rounds"] == 2
    # 293–298 over 173–184, round by round: the synthetic rounds are smaller first.
    assert (unified["ratio_min"], unified["ratio_max"]) == pytest.approx((298 / 184, 293 / 173), rel=0.02)
    engine = [r for r in rows if r["kind"] == "engine" and r["users"] == 1 and r["figure"] == "user_tok_s"]
    assert sorted((r["setting"], r["baseline"]) for r in engine) == [
        ("llama-np16", "ollama-p16"),
        ("llama-np4", "ollama-p4"),
        ("llama-np64", "ollama-p64"),
    ]
    assert min(r["ratio_min"] for r in engine) == pytest.approx(1.58, abs=0.005)
    slots = [by["slots", f"{a}64", f"{a}16", u, "output_tok_s"] for a in ("llama-np", "ollama-p") for u in (16, 32)]
    assert all(0.4 <= r["ratio_min"] <= r["ratio_max"] <= 0.6 for r in slots)
    drift = by["drift", "llama-np16-control", "llama-np16", 16, "output_tok_s"]
    assert (drift["baseline_run"], drift["run"]) == ("main", "extra")
    assert all(r["run"] == r["baseline_run"] for r in rows if r["kind"] != "drift")


def test_quantization_is_compared_only_where_nothing_else_differs() -> None:
    rows = tables.ratios(*h200(), synthetic.plan_of(CELLS)).to_pylist()
    pairs = {(r["setting"], r["baseline"]) for r in rows if r["kind"] == "quantization"}
    assert pairs == {("llama-np16-q8_0", "llama-np16")}
    speed = next(r for r in rows if r["kind"] == "quantization" and r["users"] == 1 and r["figure"] == "user_tok_s")
    assert (speed["ratio_min"], speed["ratio_max"]) == pytest.approx((0.91, 0.92), abs=0.01)


def test_the_band_is_where_it_was_published() -> None:
    assert measured_.band(512, 67) == (580, 599)
    records = list(synthetic.records_of(CELLS[:1] + MAIN[-16:-14], synthetic.plan_of(CELLS)))
    assert tables.reference_bands(records, {}) == {"main": (580, 599)}


def test_slow_requests_count_once_in_the_band_or_outside_of_it() -> None:
    cell = next(c for c in MAIN if (c["setting"], c["users"]) == ("llama-np16", 32))
    records = list(synthetic.records_of([cell], synthetic.plan_of([cell])))
    row = tables.slow_requests(records, {"main": (580, 599)}).to_pylist()[0]
    sent_late = sum(
        s > r.loaded.load_start_ns + 5 * synthetic.S for r in records for s in r.requests["sent_ns"].to_pylist()
    )
    assert row["band_total"] + row["other_total"] == sent_late
    assert row["band_slow"] == row["band_total"] > 0  # everybody queued for seconds
    without = tables.slow_requests(records, {}).to_pylist()[0]
    assert without["band_total"] is None
    assert without["other_total"] == sent_late


def test_prices_are_the_published_ones() -> None:
    price = next(r["value"] for r in tables.read_reference(synthetic.REFERENCES / "l4-cloud-facts.csv"))
    published = [r for r in tables.read_reference(synthetic.REFERENCES / "l4-cloud.csv") if r["usd_per_million_tokens"]]
    assert len(published) == 3
    for row in published:
        ours = usd_per_million_tokens(price, row["output_tok_s"])
        assert round(ours, 2) == row["usd_per_million_tokens"]


FACTS = {r["what"]: r["value"] for r in tables.read_reference(synthetic.REFERENCES / "l4-cloud-facts.csv")}


def test_paid_idle_of_the_published_starts() -> None:
    """Arithmetic on published seconds and price: 381 s of a second instance and 10 minutes to zero at $1.42 an hour."""
    records = list(synthetic.records_of(CELLS[:1], synthetic.plan_of(CELLS[:1])))
    minutes = (FACTS["cold_start_min_ollama"], FACTS["cold_start_min_vllm"])
    records = [
        synthetic.changed(record, session={"cold_start_s": {"first_token_s": 60.0 * start_min}})
        for record, start_min in zip(records, minutes, strict=True)
    ]
    price, idle_min = FACTS["price_usd_per_hour"], FACTS["scale_to_zero_after_min"]
    (row,) = tables.paid_idle(tables.sessions(records), price, idle_min).to_pylist()
    assert [round(row[n], 4) for n in ("usd_start_min", "usd_start_max", "usd_idle")] == [0.1065, 0.1657, 0.2367]
    assert round(usd(price, FACTS["second_instance_ready_s"]), 2) == 0.15
    records = [synthetic.changed(record, session={"cold_start_s": ColdStart()}) for record in records]
    (row,) = tables.paid_idle(tables.sessions(records), price, None).to_pylist()
    assert [row[n] for n in ("usd_start_min", "usd_start_max", "usd_idle")] == [None, None, None]


def test_a_server_at_a_url_has_no_start_though_it_answers() -> None:
    made = synthetic.records_of(CELLS[:1], synthetic.plan_of(CELLS[:1]))
    records = [synthetic.changed(record, identity={"engine_kind": "url"}) for record in made]
    sessions = tables.sessions(records)
    assert None not in sessions["first_token_s"].to_pylist()
    (row,) = tables.paid_idle(sessions, 3.6, 10).to_pylist()
    assert [row[n] for n in ("first_token_s_min", "usd_start_min", "usd_start_max")] == [None, None, None]
    assert row["usd_idle"] == pytest.approx(0.6)


def test_energy_of_a_token_is_power_over_speed_and_unknown_with_any_sample_of_it() -> None:
    cell = next(c for c in MAIN if (c["setting"], c["users"]) == ("vllm-bf16", 16))
    records = list(synthetic.records_of([cell], synthetic.plan_of([cell])))
    for record, watts in zip(records, (600.0, 700.0), strict=True):
        times, start_ns = record.telemetry["time_ns"], record.loaded.window_start_ns
        record.telemetry["power_w"] = [watts if time_ns >= start_ns else 5000.0 for time_ns in times]
        record.telemetry["utilisation"] = [0.75 if time_ns >= start_ns else 0.1 for time_ns in times]
    measured = tables.measurements(records, Line())
    assert measured["utilisation"].to_pylist() == [0.75, 0.75]
    speeds = measured["output_tok_s"].to_pylist()
    wanted = [600 / speeds[0], 700 / speeds[1]]
    assert measured["joules_per_token"].to_pylist() == pytest.approx(wanted)
    (row,) = tables.cost(tables.settings(measured), 4.0).to_pylist()
    assert (row["joules_per_token_min"], row["joules_per_token_max"]) == pytest.approx((min(wanted), max(wanted)))
    for record in records:
        record.telemetry["power_w"][-1] = None
    unknown = tables.measurements(records, Line())
    assert unknown["power_w"].to_pylist() == unknown["joules_per_token"].to_pylist() == [None, None]
    (row,) = tables.cost(tables.settings(unknown), 4.0).to_pylist()
    assert row["joules_per_token_min"] is None
    assert row["usd_per_million_tokens_min"] > 0


def test_tokens_for_a_dollar() -> None:
    template = h200()[1].to_pylist()[0]
    settings = tables.table("settings", [template | {"output_tok_s_min": 1200.0, "output_tok_s_max": 1235.0}])
    (row,) = tables.cost(settings, 1.42).to_pylist()
    assert row["tokens_per_s_per_usd_h_max"] == pytest.approx(1235 / 1.42)
    assert round(row["usd_per_million_tokens_min"], 2) == 0.32


def test_queueing_starts_where_users_fill_the_slots() -> None:
    rows = tables.queueing(h200()[1]).to_pylist()
    assert {r["multiple"] for r in rows if r["setting"] == "llama-np16"} == {1, 2, 4}
    assert all(r["users"] >= r["slots"] for r in rows)


def test_memory_is_split_only_where_all_of_it_is_known() -> None:
    plan = synthetic.plan_of(CELLS)
    records = list(synthetic.records_of(CELLS[:9], plan))
    sessions, measured = tables.sessions(records), tables.measurements(records, Line())
    known = tables.memory(sessions, measured, {"qwen3-14b-q4_k_m": QWEN3_14B}, plan.settings).to_pylist()[0]
    assert known["kv_cache_gib"] == pytest.approx(4096 * 160 * 1024 / 2**30)
    assert known["rest_gib"] == pytest.approx(known["measured_gib"] - known["weights_gib"] - known["kv_cache_gib"])
    unknown = tables.memory(sessions, measured.slice(0, 0), {}, plan.settings).to_pylist()[0]
    assert [unknown[name] for name in ("kv_cache_gib", "rest_gib", "request_tokens", "requests_fit")] == [None] * 4


def test_sliding_windows_bound_each_slot_and_a_pool_with_them_is_not_known() -> None:
    """As `servebench kv-cache` has it: 24 of 32 layers keep 1024 tokens of a slot, and a layer takes 4 KiB a token."""
    windows = Cache((Layer(8, 128, 128, window=1024),) * 24 + (Layer(8, 128, 128),) * 8, all_layers=32)
    caches = {"qwen3-14b-q4_k_m": windows, "qwen3-14b-bf16": windows}

    def gib(setting: str, **facts: Any) -> float | None:
        cell = next(c for c in MAIN if c["setting"] == setting)
        plan = synthetic.plan_of([cell])
        records = [with_facts(r, **facts) for r in synthetic.records_of([cell], plan)]
        measured = tables.measurements(records, Line())
        (row,) = tables.memory(tables.sessions(records), measured, caches, plan.settings).to_pylist()
        return row["kv_cache_gib"]  # type: ignore[no-any-return]

    slot = 4096 * (24 * 1024 + 8 * 4096) / 2**30
    assert gib("llama-np4") == pytest.approx(4 * slot)
    assert gib("llama-np16") == pytest.approx(16 * slot)
    assert gib("llama-np4", kv_cache_tokens=4 * 512) == pytest.approx(4 * 4096 * 32 * 512 / 2**30)
    assert gib("vllm-bf16", kv_cache_tokens=122_160) is None


@pytest.mark.parametrize(
    ("setting", "asked", "share"),
    [  # of two bytes an element
        ("llama-np4", {}, 1),
        ("llama-np4", {"args": ("-ctk", "q8_0", "--cache-type-v=q4_0")}, (34 + 18) / 2 / 32 / 2),
        ("llama-np4", {"args": ("-ctk", "f16", "-ctk", "f32")}, (4 + 2) / 2 / 2),
        ("llama-np4", {"env": {"LLAMA_ARG_CACHE_TYPE_K": "q5_1"}}, (24 / 32 + 2) / 2 / 2),
        ("llama-np4", {"args": ("-ctk", "q2_k")}, None),
        ("ollama-p4", {"env": {"OLLAMA_KV_CACHE_TYPE": "q8_0"}}, 34 / 32 / 2),
        ("ollama-p4", {"env": {"OLLAMA_KV_CACHE_TYPE": "q3"}}, None),
        ("vllm-bf16", {}, 1),
        ("vllm-bf16", {"args": ("--kv-cache-dtype", "fp8")}, 1 / 2),
        ("vllm-bf16", {"args": ("--kv-cache-dtype=fp8_e5m2", "--dtype", "float32")}, 1 / 2),
        ("vllm-bf16", {"args": ("--kv-cache-dtype", "auto", "--dtype", "float32")}, 2),
        ("vllm-bf16", {"args": ("--kv-cache-dtype", "nvfp4")}, None),
    ],
)  # fmt: skip
def test_the_kv_cache_is_predicted_in_the_types_it_was_given(setting: str, asked: dict[str, Any], share: Any) -> None:
    cell = next(c for c in MAIN if c["setting"] == setting)
    plan = synthetic.plan_of([cell])
    records = [with_facts(r, kv_cache_tokens=16_384) for r in synthetic.records_of([cell], plan)]
    settings = {setting: msgspec.structs.replace(plan.settings[setting], **asked)}
    caches = dict.fromkeys(("qwen3-14b-q4_k_m", "qwen3-14b-bf16"), QWEN3_14B)
    measured = tables.measurements(records, Line())
    (row,) = tables.memory(tables.sessions(records), measured, caches, settings).to_pylist()
    assert row["kv_cache_gib"] == (None if share is None else pytest.approx(2.5 * share))  # 16,384 × 160 KiB


def predicted(plan: Plan, records: list[Record], bandwidth_gb_s: float | None = None) -> dict[str, Any]:
    """Return the only row of the table `predicted`."""
    settings = tables.settings(tables.measurements(records, Line()), 2)
    needs = synthetic.needs_of(plan)
    return tables.predicted(settings, records, needs, plan.settings, bandwidth_gb_s).to_pylist()[0]


def test_what_is_predicted_follows_from_the_weights_and_the_data_sheet() -> None:
    """9 GB of weights at 4,800 GB/s are 533.3 tokens/s; with 4 slots 16 users get 4 times that, not 16 times."""
    cell = next(c for c in MAIN if (c["setting"], c["users"]) == ("llama-np4", 16))
    plan = synthetic.plan_of([cell])
    row = predicted(plan, list(synthetic.records_of([cell], plan)))
    assert (row["bandwidth_gb_s"], row["bandwidth_from"]) == (4800, "data_sheet")
    assert row["stream_tok_s"] == pytest.approx(4800 / 9)
    assert row["output_tok_s"] == pytest.approx(4 * 4800 / 9)
    assert row["output_share_max"] == pytest.approx(cell["output_tok_s_max"] * 9 / 4800 / 4, rel=0.02)
    assert row["slots_fit"] == int((139.8 - 9e9 / 2**30) * 4)


@pytest.mark.parametrize(
    ("configured", "copied", "source"), [(20, 10.0, "configured"), (None, 10.0, "copied"), (None, None, None)]
)
def test_a_cpus_bandwidth_is_configured_or_copied_or_not_known(configured: Any, copied: Any, source: Any) -> None:
    cell = next(c for c in MAIN if (c["setting"], c["users"]) == ("llama-np4", 1))
    plan = synthetic.plan_of([cell])
    machine = msgspec.structs.replace(synthetic.LAPTOP, copied_gb_s=copied)
    row = predicted(plan, list(synthetic.records_of([cell], plan, machine=machine)), configured)
    assert row["bandwidth_from"] == source
    assert row["stream_tok_s"] == (None if source is None else pytest.approx((configured or copied) / 9))


def with_facts(record: Record, **facts: Any) -> Record:
    return synthetic.changed(record, session={"facts": facts})


def test_requests_that_fit_vllms_cache_are_the_published_156() -> None:
    assert tables.requests_fit(122_160, 780) == 156
    cell = next(c for c in MAIN if c["setting"] == "vllm-bf16")
    plan = synthetic.plan_of([cell])
    records = [with_facts(r, kv_cache_tokens=122_160) for r in synthetic.records_of([cell], plan)]
    measured, caches = tables.measurements(records, Line()), {"qwen3-14b-bf16": QWEN3_14B}
    row = tables.memory(tables.sessions(records), measured, caches, plan.settings).to_pylist()[0]
    each = [m["prompt_tokens_p50"] + m["output_tokens_mean"] for m in measured.to_pylist()]
    assert row["request_tokens"] == pytest.approx(sum(each) / 2)
    assert row["requests_fit"] == int(122_160 / row["request_tokens"])
    assert round(row["kv_cache_gib"], 2) == 18.64  # what the server says it has, and not context times 256 slots


def test_a_launch_and_its_measurements_say_which_build_it_was() -> None:
    plan = synthetic.plan_of(CELLS[:1])
    built = {"engine": {"pin": "sha256:4f27"}}
    records = [synthetic.changed(record, provenance=built) for record in synthetic.records_of(CELLS[:1], plan)]
    for made in (tables.sessions(records), tables.measurements(records, Line())):
        assert set(made["engine_pin"].to_pylist()) == {"sha256:4f27"}
        assert set(made["engine_version"].to_pylist()) == {"0.40.16"}


def test_published_facts_stand_beside_what_a_server_said() -> None:
    cell = next(c for c in MAIN if c["setting"] == "llama-np16")
    plan = synthetic.plan_of([cell])
    asked = msgspec.structs.replace(
        plan.settings["llama-np16"], expect={"n_ctx_slot": 4096, "threads": 96, "kv_unified": False, "build": "3b4d6"}
    )
    plan = msgspec.structs.replace(plan, settings={"llama-np16": asked})
    first = next(iter(synthetic.records_of([cell], plan)))
    sessions = tables.sessions([with_facts(first, n_ctx_slot=4096, threads=8, cpus=[0, 1, 2, 3], kv_unified=False)])
    rows = tables.expected(sessions, plan).to_pylist()
    assert [(r["what"], r["published"], r["found"], r["met"]) for r in rows] == [
        ("n_ctx_slot", "4096", "4096", True),
        ("threads", "96", "8", False),
        ("kv_unified", "false", "false", True),
        ("build", "3b4d6", None, None),
    ]
    assert [(r["cpus"], r["threads"]) for r in sessions.to_pylist()] == [(4, 8)]


def test_reproduction_tells_inside_from_outside_and_from_not_measured() -> None:
    published = tables.read_reference(synthetic.REFERENCES / "h200-concurrency.csv")
    rows = tables.reproduction(h200()[1], published).to_pylist()
    speed = [r for r in rows if r["figure"] == "user_tok_s" and r["run"] == "main"]
    assert len(speed) == 53
    assert all(r["ratio"] == pytest.approx(1, abs=1e-6) for r in speed)
    assert all(r["overlap"] for r in speed if r["published_min"] < r["published_max"])
    off = copy.deepcopy(published[:1])
    off[0] |= {"user_tok_s_min": 200.0, "user_tok_s_max": 201.0}
    assert not next(r for r in tables.reproduction(h200()[1], off).to_pylist() if r["figure"] == "user_tok_s")[
        "overlap"
    ]
    absent = tables.reproduction(h200()[1].slice(0, 0), published[:1]).to_pylist()
    assert all(r["measured_min"] is None and r["overlap"] is None and r["ratio"] is None for r in absent)


def test_rounds_on_two_machines_are_marked() -> None:
    plan = synthetic.plan_of(MAIN[:1])
    first = next(iter(synthetic.records_of(MAIN[:1], plan)))
    second = list(synthetic.records_of(MAIN[:1], plan, machine=synthetic.LAPTOP))[1]
    row = schema.rows(tables.settings(tables.measurements([first, second], Line())))[0]
    assert mark("mixed_machines") in row["marks"]


@pytest.mark.parametrize(
    ("part", "key", "column", "kind"),
    [
        ("session", "engine_version", "engine_version", "mixed_engine_versions"),
        ("session", "engine_build", "engine_build", "mixed_engine_builds"),
        ("engine", "pin", "engine_pin", "mixed_engine_pins"),
        ("model", "sha256", "model_sha256", "mixed_model_files"),
    ],
)
def test_rounds_of_two_servers_are_marked(part: str, key: str, column: str, kind: str) -> None:
    first, second = itertools.islice(synthetic.records_of(MAIN[:1], synthetic.plan_of(MAIN[:1])), 2)

    def marks(*records: Record) -> list[Mark]:
        return schema.rows(tables.settings(tables.measurements(records, Line())))[0]["marks"]

    first, second = (synthetic.changed(record, session={"engine_version": "0.10.2"}) for record in (first, second))
    assert marks(first, second) == []
    before = tables.measurements([first], Line()).to_pylist()[0]
    change = {"session": {key: "0.11.0"}} if part == "session" else {"provenance": {part: {key: "0.11.0"}}}
    assert marks(first, synthetic.changed(second, **change)) == [mark(kind, found=[before[column], "0.11.0"])]


def test_foreign_use_in_two_samples_makes_a_measurement_invalid() -> None:
    first = next(iter(synthetic.records_of(MAIN[:1], synthetic.plan_of(MAIN[:1]))))
    assert tables.measurements([first], Line()).to_pylist()[0]["foreign_samples"] == 0
    blind = replace(first, telemetry={"foreign_utilisation": [None, None]})
    assert tables.measurements([blind], Line()).to_pylist()[0]["foreign_samples"] is None
    first.telemetry["foreign_utilisation"][:3] = [0.049, 0.05, 0.6]
    row = schema.rows(tables.measurements([first], Line()))[0]
    assert row["foreign_samples"] == 2
    assert not row["valid"]
    assert row["invalid_reasons"] == [mark("foreign_use", samples=2, share_percent=5.0)]
    seconds = {row["second"]: row["foreign_utilisation"] for row in tables.timeline([first]).to_pylist()}
    assert max(value for value in seconds.values() if value is not None) == pytest.approx(60.0)
    first = replace(first, foreign_use=ForeignUse(share=0.25, samples=2, action="mark"))
    row = tables.measurements([first], Line()).to_pylist()[0]
    assert (row["foreign_samples"], row["valid"]) == (1, True)


def test_timeline_adds_up_to_the_tokens_of_the_window() -> None:
    record = next(iter(synthetic.records_of(MAIN[:1], synthetic.plan_of(MAIN[:1]))))
    rows = tables.timeline([record]).to_pylist()
    figures = tables.measurements([record], Line()).to_pylist()[0]
    inside = [row for row in rows if 0 <= row["second"] < 60]
    assert len(inside) == 60
    assert sum(row["output_tok_s"] for row in inside) / 60 == pytest.approx(figures["output_tok_s"])
    assert sum(row["running"] for row in inside) / 60 == pytest.approx(figures["in_flight_mean"], rel=1e-6)


def test_written_tables_read_back_the_same_and_wrong_ones_are_refused(tmp_path) -> None:
    measured, settings = h200()
    tables.write(tmp_path, {"measurements": measured, "settings": settings})
    again = tables.read_all(tmp_path)
    assert again["measurements"].equals(measured)
    assert set(again) == {"measurements", "settings"}
    with pytest.raises(tables.TableError, match=r"settings: users: .*make the tables again"):
        tables.check("settings", settings.drop_columns("users"))
    with pytest.raises(tables.TableError, match=r"settings: engine: .*1 nulls"):
        tables.table("settings", [settings.to_pylist()[0] | {"engine": None}])
    with pytest.raises(tables.TableError, match="settings: speed: is only in the row"):
        tables.table("settings", [settings.to_pylist()[0] | {"speed": 1}])
    nan = settings.to_pylist()[0] | {"user_tok_s_min": float("nan")}
    with pytest.raises(tables.TableError, match="user_tok_s_min: NaN"):
        tables.table("settings", [nan])
    (tmp_path / "settings.parquet").write_bytes(b"cut")
    with pytest.raises(tables.TableError, match="is not a readable table"):
        tables.read(tmp_path / "settings.parquet")


def test_a_table_that_an_experiment_has_no_more_is_removed(tmp_path) -> None:
    """Such as of evaluations that are taken out of it: the page would still show them."""
    measured, settings = h200()
    tables.write(tmp_path, {"measurements": measured, "settings": settings, "cost": tables.cost(settings, 3.5)})
    assert set(tables.read_all(tmp_path)) == {"measurements", "settings", "cost"}
    tables.write(tmp_path, {"measurements": measured, "settings": settings})
    assert set(tables.read_all(tmp_path)) == {"measurements", "settings"}


def due_earlier(seconds: int, mode: str) -> tuple[Record, Record]:
    """A measurement, and the same one with requests that were due so many seconds before they were sent."""
    good = next(iter(synthetic.records_of(MAIN[:1], synthetic.plan_of(MAIN[:1]))))
    names = good.requests.schema.names
    due = pa.compute.subtract(good.requests["sent_ns"], seconds * 10**9)
    late = good.requests.set_column(names.index("scheduled_ns"), good.requests.schema.field("scheduled_ns"), due)
    return good, synthetic.changed(good, requests=late, meta={"mode": mode})


@pytest.mark.parametrize(("mode", "later_s"), [("open", 3.0), ("trace", 3.0), ("closed", 0.0)])
def test_ttft_counts_from_when_a_request_was_due_where_the_schedule_decides(mode: str, later_s: float) -> None:
    good, record = due_earlier(3, mode)
    row, before = tables.ttft([record]).to_pylist()[0], tables.ttft([good]).to_pylist()[0]
    assert row["ttft_s"] == pytest.approx([seconds + later_s for seconds in before["ttft_s"]])
    p95_s = row["ttft_s"][-(-95 * len(row["ttft_s"]) // 100) - 1]
    assert p95_s == pytest.approx(tables.measurements([record], Line())["ttft_p95_s"][0].as_py())


@pytest.mark.parametrize(
    ("mode", "column"), [("open", "scheduled_ns"), ("trace", "scheduled_ns"), ("closed", "sent_ns")]
)
def test_slow_requests_count_from_when_they_were_due_where_the_schedule_decides(mode: str, column: str) -> None:
    _, record = due_earlier(3, mode)
    after_ns = record.loaded.load_start_ns + 5 * synthetic.S
    counted = [row for row in record.requests.to_pylist() if row[column] > after_ns]
    slow = [row for row in counted if row["first_token_ns"] - row[column] > synthetic.S]
    row = tables.slow_requests([record], {}).to_pylist()[0]
    assert (row["other_slow"], row["other_total"]) == (len(slow), len(counted))
    assert len(slow) == (len(counted) if column == "scheduled_ns" else 0)  # nobody waited 1 s from sending on


def test_a_machine_that_was_calibrated_again_has_its_last_calibration() -> None:
    cells = [cell for cell in MAIN if cell["setting"] == "llama-np4"][:1]
    first, second = itertools.islice(synthetic.records_of(cells, synthetic.plan_of(cells)), 2)
    level = synthetic.CALIBRATION.levels[0]
    later = {"created_at": "2026-11-14T09:00:00+00:00", "levels": [replace(level, ttft_error_p99_s=0.5)]}
    first = synthetic.changed(first, provenance={"calibration": later})  # measured again after the others
    found = tables.calibration([first, second]).to_pylist()
    again = [row for row in found if (row["variant"], row["users"]) == (level.variant, level.users)]
    assert [(row["created_at"], row["ttft_error_p99_s"]) for row in again] == [(later["created_at"], 0.5)]
    assert len(found) == len(synthetic.CALIBRATION.levels)


def test_a_price_and_a_reference_bring_their_tables() -> None:
    cells = synthetic.quickstart_cells()
    plan = synthetic.plan_of(cells, "quickstart")
    priced = replace(plan, cost={"price_per_hour": 3.6, "idle_after_min": 10}, reference="h200")
    assert {table.name for table in tables_of(priced)} - {table.name for table in tables_of(plan)} == {
        *("cost", "paid_idle", "reproduction"),
    }
    place = {"run": "main", "setting": cells[0]["setting"], "users": cells[0]["users"]}
    published = [place | {"output_tok_s_min": 1.0, "output_tok_s_max": 2.0}]
    made = Sources(plan=priced, records=list(synthetic.records_of(cells, plan)), published=published).tables(
        tables_of(priced)
    )
    assert {row["price_per_hour"] for row in made["cost"].to_pylist()} == {3.6}
    assert {row["idle_after_min"] for row in made["paid_idle"].to_pylist()} == {10}
    assert [row["published_max"] for row in made["reproduction"].to_pylist()] == [2.0]


def test_a_table_stands_below_the_tables_it_is_made_from() -> None:
    names = [table.name for table in TABLES]
    for place, table in enumerate(TABLES):
        assert not set(table.of) & set(names[place:]), table.name
