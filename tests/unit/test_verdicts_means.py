"""What the levels mean: people, cost, energy, memory, waiting, answers under load. By hand."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pytest

from judged import both, concluded, only, plan_of
from servebench import verdicts
from servebench.marks import mark
from servebench.plan import Plan
from servebench.tables.catalogue import SCHEMAS
from servebench.tables.files import table
from servebench.words.claims import said

MISSED = {"ttft_p95_s": 9.0, "ttft_p50_s": 8.0}


def served() -> tuple[Plan, list[dict[str, Any]]]:
    """16 users within the target, 32 not."""
    plan = plan_of({"llama-np16": (16, 32)})
    return plan, [
        *both(plan, "llama-np16", 16, e2e_mean_s=10.0),
        *both(plan, "llama-np16", 32, e2e_mean_s=20.0, **MISSED),
    ]


def priced(plan: Plan) -> Plan:
    return msgspec.structs.replace(plan, cost={"price_per_hour": 3.6, "idle_after_min": 10})


def test_people_are_streams_times_reply_and_pause_over_reply() -> None:
    """16 streams with replies of 10 s: 16 · 20 ÷ 10 = 32 people with pauses of 10 s, 64 with 30 s, 112 with 60 s."""
    plan, rows = served()
    claim = only(concluded(plan, rows), "people")
    assert (claim.verdict, claim.users, claim.values["reply_s"]) == ("arithmetic", 16, [10.0, 10.0])
    assert claim.values["people"] == [[10, 32, 32], [30, 64, 64], [60, 112, 112]]
    assert "32 people with pauses of 10 s" in said(claim)["en"] and "not measured" in said(claim)["en"]
    assert "測定値ではありません" in said(claim)["ja"]


def test_rounds_with_other_durations_give_a_range_of_people_rounded_down() -> None:
    plan = plan_of({"llama-np16": (16,)})
    rows = both(plan, "llama-np16", 16)
    rows[0]["e2e_mean_s"], rows[1]["e2e_mean_s"] = 7.0, 8.0
    claim = only(concluded(plan, rows), "people")
    assert claim.values["people"][0] == [10, 36, 38]  # 16 · 18 ÷ 8 = 36, 16 · 17 ÷ 7 = 38.9


@pytest.mark.parametrize("figures", [MISSED, {"target_requests": 7}, {"failures": 60}], ids=["missed", "few", "failed"])
def test_no_capacity_no_people(figures: dict[str, Any]) -> None:
    plan = plan_of({"llama-np16": (16,)})
    found = concluded(plan, both(plan, "llama-np16", 16, e2e_mean_s=10.0, **figures))
    assert not [claim for claim in found if claim.kind == "people"]


def test_users_who_pause_are_the_people_and_their_streams_are_measured() -> None:
    plan = plan_of({"llama-np16": (16,)})
    own = plan.settings["llama-np16"]
    pausing = msgspec.structs.replace(own, workload={**own.workload, "think": "exp:30"})
    plan = msgspec.structs.replace(plan, settings={"llama-np16": pausing})
    found = concluded(plan, both(plan, "llama-np16", 16, e2e_mean_s=10.0, in_flight_mean=4.0))
    claim = only(found, "people")
    assert (claim.verdict, claim.values["streams"], claim.values["think"]) == ("measured", [4.0, 4.0], "exp:30")
    assert "30 s on average" in said(claim)["en"] and "平均 30 秒" in said(claim)["ja"]


def test_people_of_a_level_that_is_not_valid_are_not_valid() -> None:
    plan = plan_of({"llama-np16": (16,)})
    weak = {"valid": False, "invalid_reasons": [mark("device_throttled", throttles=120, samples=120)]}
    claim = only(concluded(plan, both(plan, "llama-np16", 16, e2e_mean_s=10.0, **weak)), "people")
    assert claim.values["valid"] is False
    assert "not all valid" in said(claim)["en"] and "有効でない" in said(claim)["ja"]


def test_cost_is_that_of_the_most_users_within_the_target() -> None:
    """3.60 USD an hour and 100 tokens/s: 0.001 USD a second, so 10 USD for a million tokens."""
    plan, rows = served()
    claim = only(concluded(priced(plan), rows), "cost", verdict="per_token")
    assert claim.users == 16 and claim.values["usd"] == [pytest.approx(10), pytest.approx(10)]
    assert (claim.values["within"], claim.values["valid"]) == (True, True)


def test_a_person_costs_the_month_of_the_machine_over_the_people_it_serves() -> None:
    """3.60 USD an hour are 2,628 USD in 730 hours; 16 users are 32, 64 and 112 people (above)."""
    plan, rows = served()
    claim = only(concluded(priced(plan), rows), "cost", verdict="per_person")
    assert claim.users == 16 and [pause for pause, *_ in claim.values["persons"]] == [10, 30, 60]
    assert "pauses of 10 s" in said(claim)["en"] and "間隔 10 秒" in said(claim)["ja"]
    assert [ends for _, *ends in claim.values["persons"]] == [[pytest.approx(2628 / n)] * 2 for n in (32, 64, 112)]
    assert "82.1 USD a month with pauses of 10 s" in said(claim)["en"] and "計算値" in said(claim)["ja"]
    assert not [c for c in concluded(plan, rows) if c.verdict == "per_person"]


def test_at_real_use_more_people_share_the_machine() -> None:
    """Who uses it a tenth of the time pays a tenth: 2,628 USD ÷ 32 people ÷ 10."""
    plan, rows = served()
    plan = msgspec.structs.replace(plan, cost={"price_per_hour": 3.6, "used_share": 0.1})
    claim = only(concluded(plan, rows), "cost", verdict="per_person")
    assert claim.values["persons"][0] == [10, pytest.approx(8.2125), pytest.approx(8.2125)]
    assert claim.values["used_percent"] == pytest.approx(10)
    assert "10.0 % of the time" in said(claim)["en"] and "10.0%" in said(claim)["ja"]


def test_cost_where_the_target_is_not_met_says_so() -> None:
    plan = priced(plan_of({"llama-np16": (16, 32)}))
    rows = [r for users in (16, 32) for r in both(plan, "llama-np16", users, **MISSED)]
    claim = only(concluded(plan, rows), "cost", verdict="per_token")
    assert (claim.users, claim.values["within"]) == (16, False)
    assert "It missed the target there." in said(claim)["en"] and "応答目標を満たしませんでした" in said(claim)["ja"]


def test_cost_where_too_few_requests_tell_says_that_the_target_is_not_shown_to_be_met() -> None:
    plan = priced(plan_of({"llama-np16": (16,)}))
    claim = only(concluded(plan, both(plan, "llama-np16", 16, target_requests=7)), "cost", verdict="per_token")
    assert "is not shown" in said(claim)["en"] and "示されていません" in said(claim)["ja"]


def test_no_price_no_cost_and_a_failed_level_costs_nothing_it_is_not_measured() -> None:
    plan = plan_of({"llama-np16": (16,)})
    assert only(concluded(plan, both(plan, "llama-np16", 16)), "cost").verdict == "no_price"
    assert not [c for c in concluded(priced(plan), both(plan, "llama-np16", 16, failures=60)) if c.kind == "cost"]


def test_energy_needs_the_power_of_every_round() -> None:
    plan = plan_of({"llama-np16": (16,)})
    rows = both(plan, "llama-np16", 16, joules_per_token=0.5)
    assert only(concluded(plan, rows), "energy").values["joules"] == [0.5, 0.5]
    rows[0]["joules_per_token"] = None
    assert not [claim for claim in concluded(plan, rows) if claim.kind == "energy"]


@pytest.mark.parametrize(
    ("setting", "kind", "verdict"),
    [("llama-np16", "nvml", "used"), ("vllm-bf16", "nvml", "share"), ("vllm-bf16", "host", "used")],
)
def test_an_engine_that_fills_its_share_shows_no_need_of_memory(setting: str, kind: str, verdict: str) -> None:
    plan = plan_of({setting: (16,)})
    empty: dict[str, Any] = dict.fromkeys(SCHEMAS["memory"].names)
    own = plan.settings[setting]
    empty |= {"run": "main", "setting": setting, "rank": 0, "engine": own.engine.key, "engine_kind": own.engine.kind}
    empty |= {"model": own.model.key, "model_name": own.model.name, "slots": own.slots}
    memory = table("memory", [empty | {"measured_gib": 31.0, "memory_kind": kind}])
    claim = only(concluded(plan, both(plan, setting, 16), memory=memory), "memory")
    assert (claim.verdict, claim.values["gib"]) == (verdict, 31.0)


def test_waiting_is_told_beside_as_many_users_as_slots() -> None:
    plan = plan_of({"llama-np16": (8, 16, 64)})
    rows = [*both(plan, "llama-np16", 8), *both(plan, "llama-np16", 16), *both(plan, "llama-np16", 64, **MISSED)]
    claim = only(concluded(plan, rows), "queue")
    assert (claim.users, claim.values["slots"], claim.values["base_users"]) == (64, 16, 16)
    assert (claim.values["ttft_p50_s"], claim.values["base_ttft_p50_s"]) == ([8.0, 8.0], [0.5, 0.5])
    assert claim.values["valid"] is True


def test_waiting_without_the_level_of_as_many_users_as_slots_is_not_told() -> None:
    plan = plan_of({"llama-np16": (8, 64)})
    rows = [*both(plan, "llama-np16", 8), *both(plan, "llama-np16", 64, **MISSED)]
    assert not [claim for claim in concluded(plan, rows) if claim.kind == "queue"]


def test_waiting_beside_an_invalid_level_is_marked_and_a_failed_one_gives_none() -> None:
    plan = plan_of({"llama-np16": (16, 64)})
    weak = {"valid": False, "invalid_reasons": [mark("device_throttled", throttles=120, samples=120)]}
    slow = both(plan, "llama-np16", 64, **MISSED)
    assert only(concluded(plan, [*both(plan, "llama-np16", 16, **weak), *slow]), "queue").values["valid"] is False
    assert not [c for c in concluded(plan, [*both(plan, "llama-np16", 16, failures=60), *slow]) if c.kind == "queue"]


def test_the_first_claims_name_people_beside_the_capacity_they_are_from() -> None:
    plan, rows = served()
    found = verdicts.headline(concluded(plan, rows))
    assert [claim.kind for claim in found] == ["capacity", "people", "leader", "score"]


def beside_load(**figures: Any) -> dict[str, Any]:
    """One target asked 100 questions of an idle server and beside 16 users; 10 were right only when idle."""
    counts = {
        "base_only": 10,
        "other_only": 0,
        "changed": 10,
        "difference": -10.0,
        "low": -17.0,
        "high": -5.0,
        "p": 0.002,
    }
    names = {"measure": "mgsm", "target": "Q8_0 (16 users)", "baseline": "Q8_0 (idle)"}
    row: dict[str, Any] = dict.fromkeys(SCHEMAS["under_load"].names)
    for field in SCHEMAS["under_load"]:
        if not field.nullable:
            row[field.name] = 0 if pa.types.is_integer(field.type) else 0.0 if pa.types.is_floating(field.type) else ""
    return row | {"repeat": 1, "n": 100, "questions": 100, "verdict": "none_detected"} | names | counts | figures


def about_load(row: dict[str, Any], **others: pa.Table) -> Any:
    plan = plan_of({"llama-np16": (16,)})
    rows = both(plan, "llama-np16", 16)
    return only(concluded(plan, rows, under_load=table("under_load", [row]), **others), "under_load")


def test_answers_under_load_are_compared_with_those_of_the_idle_server() -> None:
    claim = about_load(beside_load())
    assert (claim.verdict, claim.subjects, claim.values["points"]) == ("lower", ["Q8_0 (16 users)", "Q8_0 (idle)"], -10)
    none = about_load(beside_load(base_only=0, other_only=0, changed=0, difference=0.0, p=1.0))
    assert none.verdict == "none_detected", "100 equal answers detect a difference of about 20 points"
    assert none.values["detectable"] == pytest.approx(20, abs=2)


def test_answers_beside_a_load_that_failed_are_not_compared() -> None:
    marks = [mark("no_load", requests=40, reason="HTTP 503")]
    targets = synthetic_targets("Q8_0", marks)
    claim = about_load(beside_load(), targets=targets)
    assert (claim.verdict, claim.values["reasons"]) == ("not_judged", [{"kind": "no_load", "target": "Q8_0"}])
    assert "under no load" in said(claim)["en"]


def synthetic_targets(name: str, marks: list[Any]) -> pa.Table:
    row: dict[str, Any] = dict.fromkeys(SCHEMAS["targets"].names)
    for field in SCHEMAS["targets"]:
        if not field.nullable:
            row[field.name] = 0 if pa.types.is_integer(field.type) else []
            row[field.name] = "" if pa.types.is_string(field.type) else row[field.name]
    return table("targets", [row | {"target": name, "status": "ok", "baseline": False, "marks": marks, "reason": []}])


@pytest.mark.parametrize(("share", "verdict"), [(0.5, "reached"), (1.25, "beyond")])
def test_what_a_stream_reached_of_the_prediction_is_said_at_the_fewest_users(share: float, verdict: str) -> None:
    plan, rows = served()
    place = {"run": "main", "setting": "llama-np16"}
    limit = {"bandwidth_gb_s": 300.0, "bandwidth_from": "data_sheet", "weights_gib": 8.0, "stream_tok_s": 35.0}
    reached = {"user_share_min": share, "user_share_max": share}
    row = dict.fromkeys(SCHEMAS["predicted"].names) | place | limit | reached
    predicted = table("predicted", [row | {"users": users} for users in (32, 16)])
    claim = only(concluded(plan, rows, predicted=predicted), "predicted")
    assert (claim.verdict, claim.users, claim.values["percents"]) == (verdict, 16, [100 * share] * 2)
    for language in ("en", "ja"):
        assert f"{100 * share:.0f}" in said(claim)[language] and "35" in said(claim)[language]
    assert "predicted" in said(claim)["en"] and "予測" in said(claim)["ja"]
