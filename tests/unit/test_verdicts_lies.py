"""Data that invite a lie get only true sentences, in both languages: each test states what must not be said."""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import floor
from typing import Any

import msgspec
import pytest

import synthetic
from judged import both, concluded, only, plan_of, row, tables_of
from servebench import claims, verdicts
from servebench.claims import Claim
from servebench.load.objective import Objective
from servebench.marks import mark
from servebench.plan import Plan
from servebench.report import content, first
from servebench.report.page import page
from servebench.tables import derived
from servebench.tables.catalogue import SCHEMAS
from servebench.tables.files import table
from servebench.verdicts.objectives import at_rates, stated
from servebench.words.claims import said
from servebench.words.marks import translated

USERS = tuple(range(1, 14))
TICK = {"second": 0, "running": 1.0, "output_tok_s": 1.0}
NAMES = ("llama-np16", "llama-np64")


def texts(found: Iterable[Claim]) -> tuple[str, str]:
    told = [said(claim) for claim in found]
    return "\n".join(t["en"] for t in told), "\n".join(t["ja"] for t in told)


def many(plan: Plan, output: dict[str, float], **figures: Any) -> list[dict[str, Any]]:
    """26 cells whose rounds are about 1 % apart, so that a true lead is found."""
    return [
        row(plan, name, n, r, output_tok_s=base * n * (1 + 0.01 * r + 0.003 * (n % 3)), **figures)
        for name, base in output.items()
        for n in USERS
        for r in (1, 2)
    ]


def changed(plan: Plan, name: str, **changes: Any) -> Plan:
    new = msgspec.structs.replace(plan.settings[name], **changes)
    return msgspec.structs.replace(plan, settings={**plan.settings, name: new})


def test_the_same_setting_twice_under_two_names_is_no_lead_though_its_ranges_do_not_overlap() -> None:
    """Every cell of one is 0.5 % above the other, which repeats at 2 %."""
    plan = plan_of(dict.fromkeys(NAMES, USERS))
    rows = [
        row(plan, name, n, r, output_tok_s=100.0 * n * (1 + shift + 0.02 * ((n + r) % 2)))
        for name, shift in zip(NAMES, (0.0, 0.005), strict=True)
        for n in USERS
        for r in (1, 2)
    ]
    found = concluded(plan, rows)
    assert {claim.verdict for claim in found if claim.kind == "leader"} == {"tied"}
    assert {claim.verdict for claim in found if claim.kind == "pair"} == {"not_beyond_noise"}
    english, japanese = texts(found)
    assert "highest total output" not in english and "最大" not in japanese.replace("最大人数", "")


def test_the_fastest_that_misses_the_target_is_not_named_without_saying_so() -> None:
    plan = plan_of(dict.fromkeys(NAMES, USERS))
    rows = many(plan, {"llama-np16": 100.0}) + many(plan, {"llama-np64": 200.0}, ttft_p95_s=9.0, ttft_p50_s=8.0)
    found = concluded(plan, rows)
    leader = only(found, "leader", figure="output_tok_s", users=8)
    assert (leader.verdict, leader.values["first"], leader.values["missed"]) == ("ahead", "llama-np64", ["llama-np64"])
    assert "The target was missed there by llama-np64" in said(leader)["en"]
    assert "応答目標を満たさなかった設定：llama-np64" in said(leader)["ja"]


def test_the_first_screen_prefers_a_level_at_which_the_leader_met_the_target() -> None:
    plan = plan_of(dict.fromkeys(NAMES, USERS))
    rows = many(plan, {"llama-np16": 100.0, "llama-np64": 200.0})
    late = [r | {"ttft_p95_s": 9.0, "meets_line": False} if r["users"] == 13 else r for r in rows]
    (leader,) = [claim for claim in verdicts.headline(concluded(plan, late)) if claim.kind == "leader"]
    assert (leader.users, leader.values["missed"]) == (12, [])
    assert "llama-np64 (llama-server, Q4_K_M)" in said(leader)["en"], "engine and quantization are named"


def test_a_lead_by_short_replies_is_said_with_their_lengths() -> None:
    plan = plan_of(dict.fromkeys(NAMES, USERS))
    rows = many(plan, {"llama-np16": 100.0}) + many(plan, {"llama-np64": 300.0}, output_tokens_mean=3.0)
    found = concluded(plan, rows)
    for claim in (
        only(found, "leader", figure="output_tok_s", users=8),
        only(found, "pair", users=8, figure="output_tok_s"),
    ):
        assert "reply_lengths_differ" in {caveat.kind for caveat in claim.caveats}
        assert "Warnings: " in said(claim)["en"] and "注意事項：" in said(claim)["ja"]


def test_replies_that_differ_by_less_than_a_fifth_are_alike() -> None:
    plan = plan_of(dict.fromkeys(NAMES, USERS))
    rows = many(plan, {"llama-np16": 100.0}) + many(plan, {"llama-np64": 300.0}, output_tokens_mean=115.0)
    assert not only(concluded(plan, rows), "pair", users=8, figure="output_tok_s").caveats


def test_another_workload_is_another_job_and_no_faster_server() -> None:
    plan = plan_of({**dict.fromkeys(NAMES, USERS), "llama-np4": USERS})
    short = plan.settings["llama-np64"].workload | {"max_tokens": 16}
    plan = changed(plan, "llama-np64", workload=short, slots=16)
    rows = many(plan, {"llama-np16": 100.0, "llama-np64": 300.0, "llama-np4": 90.0})
    found = concluded(plan, rows)
    leader = only(found, "leader", figure="output_tok_s", users=8)
    assert leader.values["first"] == "llama-np16" and leader.values["excluded"] == ["llama-np64"]
    assert all("llama-np64" not in claim.subjects for claim in found if claim.kind == "pair")


def test_another_model_is_no_other_quantization_however_it_is_called() -> None:
    plan = plan_of(dict.fromkeys(NAMES, USERS))
    model = msgspec.structs.replace(
        plan.settings["llama-np64"].model, key="small", name="Qwen3-0.6B", quantization="Q8_0"
    )
    plan = changed(plan, "llama-np64", model=model, slots=16)
    found = concluded(plan, many(plan, {"llama-np16": 100.0, "llama-np64": 350.0}))
    assert not [claim for claim in found if claim.kind == "pair"]
    english, japanese = texts(found)
    assert "quantization" not in english and "量子化" not in japanese and "3.5" not in english


def test_three_changes_at_once_are_no_single_change() -> None:
    plan = plan_of(dict.fromkeys(NAMES, USERS))
    plan = changed(plan, "llama-np64", args=("-ub", "2048"), context=8192)
    found = concluded(plan, many(plan, {"llama-np16": 100.0, "llama-np64": 300.0}))
    assert not [claim for claim in found if claim.kind == "pair"]
    assert "they differ in" not in texts(found)[0]


def test_the_only_setting_of_a_level_is_not_the_fastest_there() -> None:
    plan = plan_of({"llama-np16": (8,), "llama-np64": (8, 64)})
    rows = [*both(plan, "llama-np16", 8), *both(plan, "llama-np64", 8), *both(plan, "llama-np64", 64)]
    leader = only(concluded(plan, rows), "leader", figure="user_tok_s", users=64)
    assert leader.verdict == "only_one"
    told = said(leader)
    assert "fastest" not in told["en"] and "no other setting" in told["en"] and "最速" not in told["ja"]
    assert "llama-np16" in told["en"], "that it was not planned there is said"


def test_a_gap_that_nobody_could_judge_is_no_capacity_above_it() -> None:
    """4 users got 7 requests: 8 and 16 may be fine, but the number served is 2, and open."""
    plan = plan_of({"llama-np16": (1, 2, 4, 8, 16)})
    rows = [r for users in (1, 2, 8, 16) for r in both(plan, "llama-np16", users)]
    rows += both(plan, "llama-np16", 4, target_requests=7)
    capacity = only(concluded(plan, rows), "capacity")
    assert (capacity.verdict, capacity.users) == ("open", 2)
    english, _ = texts([capacity])
    assert "at least 16" not in english


def test_a_server_that_dies_in_one_of_two_rounds_serves_less() -> None:
    plan = plan_of({"llama-np16": (8, 16)})
    died = row(plan, "llama-np16", 16, 2, status="failed", reason=[mark("failed", reason="the server died")])
    found = concluded(plan, [*both(plan, "llama-np16", 8), row(plan, "llama-np16", 16, 1), died])
    assert (only(found, "level", users=16).verdict, only(found, "capacity").users) == ("failed", 8)
    assert found[0].verdict == "failures"
    assert "1 of 4 planned measurements failed" in texts(found)[0]


def test_one_failed_request_of_sixty_misses_the_target_and_is_counted() -> None:
    plan = plan_of({"llama-np16": (8,)})
    found = concluded(plan, [row(plan, "llama-np16", 8, 1), row(plan, "llama-np16", 8, 2, failures=1)])
    level = only(found, "level")
    assert (level.verdict, level.values["limits"]) == ("missed", ["failures"])
    english, japanese = texts([level])
    assert "1 of 120 requests failed" in english and "依頼 120 件のうち 1 件が失敗" in japanese


def test_a_round_that_fell_behind_or_failed_to_warm_up_did_not_meet_the_target_whatever_its_figures() -> None:
    plan = plan_of({"llama-np16": (8,)})
    for why in (mark("backlog_grows", start=1, end=9, due=40), mark("warmup_failed", failures=3, requests=4)):
        bad = row(plan, "llama-np16", 8, 2, invalid_reasons=[why], valid=False)
        found = concluded(plan, [row(plan, "llama-np16", 8, 1), bad])
        assert (only(found, "level").verdict, only(found, "level").values["limits"]) == ("missed", [why.kind])
        assert only(found, "capacity").verdict == "none"


def test_a_level_met_on_few_requests_in_all_is_not_called_certain() -> None:
    """20 of 20 in each of two rounds: 40 passes give 87 %, not 95 %."""
    plan = plan_of({"llama-np16": (8,)})
    level = only(concluded(plan, both(plan, "llama-np16", 8, target_requests=20)), "level")
    assert level.verdict == "met" and level.confidence == pytest.approx(1 - 0.95**40)
    assert level.confidence < 0.95


def test_a_throttled_machine_serves_nobody_without_a_word() -> None:
    plan = plan_of({"llama-np16": (8, 16)})
    weak = {"valid": False, "invalid_reasons": [mark("device_throttled", throttles=120, samples=120)]}
    found = concluded(plan, [r for n in (8, 16) for r in both(plan, "llama-np16", n, e2e_mean_s=8.0, **weak)])
    for kind in ("capacity", "people"):
        claim = only(found, kind)
        assert claim.values["valid"] is False
        assert "not all valid" in said(claim)["en"] and "有効でない" in said(claim)["ja"]


def test_a_miss_on_a_throttled_machine_bounds_nothing_without_a_word() -> None:
    """The fewest users missed the target while the clock was lowered: that is no verdict on the setting."""
    plan = plan_of({"llama-np16": (1,)})
    weak = {"valid": False, "invalid_reasons": [mark("device_throttled", throttles=120, samples=120)]}
    rows = both(plan, "llama-np16", 1, ttft_p95_s=9.0, ttft_p50_s=8.0, **weak)
    capacity = only(concluded(plan, rows), "capacity")
    assert (capacity.verdict, capacity.values["valid"]) == ("none", False)
    assert "not all valid" in said(capacity)["en"] and "有効でない" in said(capacity)["ja"]


@pytest.mark.parametrize(
    "weakness",
    [{"cached_share": 0.98}, {"engine_version": ("b1", "b2")}, {"engine_build": ("x", "y")}],
    ids=["98 % cached", "two versions", "two builds"],
)
def test_work_that_was_not_done_or_not_by_one_engine_leads_nothing(weakness: dict[str, Any]) -> None:
    plan = plan_of(dict.fromkeys(NAMES, (8,)))
    ((column, value),) = weakness.items()
    odd = [
        row(
            plan,
            "llama-np64",
            8,
            n,
            output_tok_s=900.0,
            **{column: value[n - 1] if isinstance(value, tuple) else value},
        )
        for n in (1, 2)
    ]
    found = concluded(plan, [*both(plan, "llama-np16", 8), *odd])
    leader = only(found, "leader", figure="output_tok_s")
    assert (leader.values["first"], leader.values["excluded"]) == ("llama-np16", ["llama-np64"])
    assert only(found, "capacity", subjects=["llama-np64"]).values["valid"] is False


def test_nothing_measured_at_all_is_not_nothing_served() -> None:
    plan = plan_of({"llama-np16": (1, 8)})
    found = concluded(plan, [])
    assert (found[0].verdict, found[0].values["missing"]) == ("unfinished", 4)
    assert only(found, "capacity").verdict == "unknown"
    english, japanese = texts(found)
    assert "missed" not in english and "満たし" not in japanese
    assert not [claim for claim in found if claim.kind in ("leader", "people", "queue", "energy", "memory")]


@pytest.mark.parametrize("rounds", [1, 2])
def test_settings_that_are_equal_to_the_digit_are_not_one_above_the_other(rounds: int) -> None:
    plan = plan_of(dict.fromkeys(NAMES, (8,)), rounds=rounds)
    found = concluded(plan, [*both(plan, "llama-np16", 8), *both(plan, "llama-np64", 8)])
    leaders = [claim for claim in found if claim.kind == "leader"]
    assert {claim.verdict for claim in leaders} == {"one_round" if rounds == 1 else "tied"}
    english, japanese = texts(leaders)
    assert "more than" not in english and "the most" not in english and "every round" not in english
    assert not [word for word in ("最大", "最速", "どの回も") if word in japanese]


def test_a_level_met_above_one_that_missed_is_not_beyond_the_most_users() -> None:
    plan = plan_of({"llama-np16": (2, 4, 16)})
    rows = [*both(plan, "llama-np16", 2), *both(plan, "llama-np16", 4, ttft_p95_s=9.0), *both(plan, "llama-np16", 16)]
    told = said(only(concluded(plan, rows), "capacity"))
    assert told["en"].endswith("It met the target with 16 users, though.")
    assert "最大" not in told["ja"] and told["ja"].endswith("16 人では満たしました。")


def test_what_was_never_met_is_not_met_again() -> None:
    plan = plan_of({"llama-np16": (2, 4)})
    rows = [*both(plan, "llama-np16", 2, ttft_p95_s=9.0), *both(plan, "llama-np16", 4)]
    told = said(only(concluded(plan, rows), "capacity"))
    assert "again" not in told["en"] and "再び" not in told["ja"]


def test_one_valid_round_of_two_is_missing_a_round_and_not_invalid() -> None:
    plan = plan_of({"llama-np16": (8,)})
    found = concluded(plan, [row(plan, "llama-np16", 8, 1)])
    for kind in ("level", "capacity", "leader"):
        told = [said(claim) for claim in found if claim.kind == kind]
        for text in told:
            assert not [lie for lie in ("not valid", "No measurement", "all valid") if lie in text["en"]]
            assert "有効ではありません" not in text["ja"] and "有効でない" not in text["ja"]
    assert "Not every round is there and valid." in said(only(found, "level"))["en"]
    assert "有効な回がそろっていません" in said(only(found, "level"))["ja"]


def test_the_speed_for_a_user_is_said_to_be_a_median() -> None:
    plan = plan_of({"llama-np16": (8,)})
    found = concluded(plan, both(plan, "llama-np16", 8))
    for claim in (only(found, "level"), only(found, "leader", figure="user_tok_s")):
        assert "median" in said(claim)["en"] and "中央値" in said(claim)["ja"]


def test_a_gap_below_is_no_denial_of_the_miss_above() -> None:
    claim = Claim(
        kind="objective",
        verdict="bracketed",
        subjects=["llama-np16"],
        values={
            **{"objective": "line", "spans": [[1, 2], [8, 16]], "gaps": [4], "open": [], "unbroken": 2},
            **{"requests_s": None, "loop": "closed"},
            **{"most": 16, "misses": 18, "measurements": 12, "valid": True, "discarded": []},
        },
    )
    assert "not with more" not in said(claim)["en"] and "misses the target with 4 users." in said(claim)["en"]
    assert "4 人では応答目標を満たしません" in said(claim)["ja"]


def opened(names: Iterable[str], users: Iterable[int], **changes: Any) -> Plan:
    plan = plan_of({name: tuple(users) for name in names})
    for name in names:
        plan = changed(plan, name, workload=plan.settings[name].workload | {"mode": "open", "rate": 4.0} | changes)
    return plan


def test_an_open_loop_is_asked_requests_a_second_and_serves_no_users() -> None:
    """The schedule decides the output, so nobody leads; twice the connections are no queue and no capacity."""
    plan = msgspec.structs.replace(opened(NAMES, (16, 32)), cost={"price_per_hour": 3.6})
    plan = msgspec.structs.replace(plan, objectives={"chat": Objective(limits={"ttft_p95_s": 2.0}, min_targets=20)})
    output = {"llama-np16": 400.0, "llama-np64": 401.0}
    rows = [
        one
        for name in NAMES
        for n in (16, 32)
        for one in both(plan, name, n, output_tok_s=output[name], e2e_mean_s=5.0, joules_per_token=2.0)
    ]
    found = concluded(plan, rows)
    assert {claim.kind for claim in found} == {"coverage", "level", "schedule", "pair", "cost", "energy", "score"}
    assert {claim.figure for claim in found if claim.kind == "pair"} == {"user_tok_s", "ttft_p95_s"}
    assert {claim.verdict for claim in found if claim.kind == "level"} == {"met"}
    english, japanese = texts(found)
    assert english.count("At 4 requests/s (16 connections at the start)") == 10 and "user" not in english
    assert japanese.count("毎秒 4 件の依頼（開始時の接続 16 本）で") == 10 and " 人" not in japanese
    assert {claim.kind for claim in verdicts.headline(found)} == {"level", "schedule", "score"}


def test_a_rate_and_a_trace_say_of_each_objective_whether_it_is_kept_and_never_speak_of_users() -> None:
    limits = {"chat": {"ttft_p95_s": 2.0}, "strict": {"ttft_p95_s": 0.5}, "near": {"ttft_p95_s": 1.01}}
    objectives = {name: Objective(limits=limit, min_targets=20) for name, limit in limits.items()}
    for mode, rate, words in (("open", 4.0, "At 4 requests/s"), ("trace", None, "Replaying its trace")):
        plan = msgspec.structs.replace(opened(NAMES[:1], (16,), mode=mode, rate=rate), objectives=objectives)
        found = concluded(plan, both(plan, "llama-np16", 16))  # TTFT p95 1 s in both rounds
        told = {c.values["objective"]: c for c in found if c.kind == "schedule"}
        assert {name: claim.verdict for name, claim in told.items()} == {
            **{"chat": "kept", "strict": "missed", "near": "open"},
        }
        assert (told["chat"].confidence, told["near"].confidence) == (0.95, None)
        for claim in told.values():
            assert said(claim)["en"].startswith(f"{words} (16 connections at the start), ")
            assert "user" not in said(claim)["en"] and " 人" not in said(claim)["ja"]
        few = concluded(plan, both(plan, "llama-np16", 16, target_requests=7))
        assert {claim.verdict for claim in few if claim.kind == "schedule"} == {"open"}, "7 of 20 requests"
        weak = {"valid": False, "invalid_reasons": [mark("device_throttled", throttles=120, samples=120)]}
        (chat, *_) = [c for c in concluded(plan, both(plan, "llama-np16", 16, **weak)) if c.kind == "schedule"]
        assert chat.values["valid"] is False and "not all valid" in said(chat)["en"]


def test_a_search_by_rate_is_answered_in_requests_a_second() -> None:
    """Steps of a sixteenth of 0.5 requests/s: 16 is 0.5; 18 next to 24, which misses, is not sure."""
    plan = opened(NAMES[:1], (16,), rate=0.5)
    rows = [*both(plan, "llama-np16", 16), *both(plan, "llama-np16", 18)]
    rows += both(plan, "llama-np16", 24, ttft_p95_s=9.0, ttft_p50_s=8.0)
    claim = stated(plan.settings["llama-np16"], "line", Objective.of(plan.line), rows, discarded=())
    rate = at_rates(claim, lambda step: 0.5 * step / 16)
    assert (rate.kind, rate.verdict, rate.users) == ("rate", "bracketed", None)
    told = {name: rate.values[name] for name in ("most", "misses", "spans", "open")}
    assert told == {"most": 0.5, "misses": 0.75, "spans": [[0.5, 0.5]], "open": [0.5625]}
    assert "keeps the target at 0.5 requests/s; at 0.75 it misses it" in said(rate)["en"]
    assert said(rate)["en"].endswith("Not sure at 0.5625 requests/s.")
    assert "毎秒 0.5 件" in said(rate)["ja"] and "user" not in said(rate)["en"] and " 人" not in said(rate)["ja"]


def test_users_who_send_whatever_the_server_does_decide_the_output_and_wait_for_no_slot() -> None:
    plan = opened(NAMES, (16, 32), mode="open-users", rate=None, user_rate=0.1)
    rows = many(plan, {"llama-np16": 100.0, "llama-np64": 150.0})
    rows += [one for name in NAMES for n in (16, 32) for one in both(plan, name, n)]
    found = concluded(plan, rows)
    assert {claim.kind for claim in found} & {"leader", "queue", "people"} == set()
    assert {claim.figure for claim in found if claim.kind == "pair"} == {"user_tok_s", "ttft_p95_s"}
    assert only(found, "capacity", subjects=["llama-np16"]).users == 32


def test_a_trace_that_misses_is_no_miss_by_users() -> None:
    plan = opened(NAMES[:1], (16,), mode="trace", rate=None)
    found = concluded(plan, both(plan, "llama-np16", 16, ttft_p95_s=9.0, user_tok_s=2.0))
    assert (only(found, "level").verdict, only(found, "level").values["mode"]) == ("missed", "trace")
    english, japanese = texts(found)
    assert "user" not in english and "trace" in english and " 人" not in japanese


def test_all_else_in_which_the_rows_of_a_pair_differ_is_named() -> None:
    plan = plan_of(dict.fromkeys(NAMES, USERS))
    old = {"engine_version": "b4000", "engine_build": "old", "model_sha256": "a" * 64, "protocol": 1, "device": "n1/0"}
    new = {"engine_version": "b9000", "engine_build": "new", "model_sha256": "b" * 64, "protocol": 2, "device": "n2/7"}
    rows = many(plan, {"llama-np16": 100.0}, **old) + many(plan, {"llama-np64": 150.0}, **new)
    pair = only(concluded(plan, rows), "pair", users=8, figure="output_tok_s")
    assert pair.values["differs"] == ["slots", "engine_version", "model_sha256", "device", "protocol"]
    told = said(pair)
    assert "the number of slots, the version of the server software, the content of the model file" in told["en"]
    assert "サーバーソフトのバージョン" in told["ja"] and "測定手順のバージョン" in told["ja"]
    leader = only(concluded(plan, rows), "leader", users=8, figure="output_tok_s")
    differs = [name for name in pair.values["differs"] if name != "slots"]
    assert mark("measured_unlike", first="llama-np64", others=["llama-np16"], differs=differs) in leader.caveats
    assert "the version of the load protocol" in said(leader)["en"] and "測定手順のバージョン" in said(leader)["ja"]


def test_other_cpus_are_a_difference_and_with_other_slots_no_pair() -> None:
    plan = plan_of(dict.fromkeys(NAMES, USERS))
    plan = changed(plan, "llama-np64", cpus={"server": 32, "load": 2})
    plan = changed(plan, "llama-np16", cpus={"server": 2, "load": 2})
    found = concluded(plan, many(plan, {"llama-np16": 100.0, "llama-np64": 150.0}))
    assert not [claim for claim in found if claim.kind == "pair"]
    plan = changed(plan, "llama-np64", slots=16)
    pair = only(
        concluded(plan, many(plan, {"llama-np16": 100.0, "llama-np64": 150.0})), "pair", users=8, figure="output_tok_s"
    )
    assert pair.values["differs"] == ["cpus.server"] and "the CPUs of the server" in said(pair)["en"]


def test_a_handful_of_requests_leads_nothing_where_others_have_enough() -> None:
    plan = plan_of(dict.fromkeys(NAMES, USERS))
    few = [r | {"target_requests": 3, "reference_only": True} for r in many(plan, {"llama-np64": 300.0})]
    leader = only(concluded(plan, many(plan, {"llama-np16": 100.0}) + few), "leader", figure="output_tok_s", users=8)
    assert (leader.values["first"], leader.values["excluded"]) == ("llama-np16", ["llama-np64"])
    alone = only(concluded(plan, few), "leader", figure="output_tok_s", users=8)
    assert alone.values["valid"] is False and "enough requests" in said(alone)["en"]


@pytest.mark.parametrize(("share", "told"), [(0.45, True), (0.1, False)])
def test_a_lead_with_cached_prompts_says_so(share: float, told: bool) -> None:
    plan = msgspec.structs.replace(plan_of(dict.fromkeys(NAMES, USERS)), cost={"price_per_hour": 3.6})
    rows = many(plan, {"llama-np16": 100.0})
    rows += many(plan, {"llama-np64": 300.0}, cached_share=share, e2e_mean_s=5.0)
    found = concluded(plan, rows)
    about = {"subjects": ["llama-np64"]}
    for claim in (
        only(found, "leader", figure="output_tok_s", users=8),
        only(found, "pair", users=8, figure="output_tok_s"),
        only(found, "capacity", **about),
        only(found, "people", **about),
        only(found, "cost", verdict="per_token", **about),
    ):
        texts_of = said(claim)
        assert ("prompts from the server's cache: 45 %" in texts_of["en"]) is told
        assert ("キャッシュ" in texts_of["ja"]) is told


def test_how_sure_a_level_is_stands_in_its_sentence() -> None:
    """40 of 40 in time: 1 - 0.95^40 is 87 %; 57 of 60 twice is a coin flip and no more."""
    plan = plan_of({"llama-np16": (8,)})
    found = concluded(plan, both(plan, "llama-np16", 8, target_requests=20))
    assert "(87 % sure to be within the limit)" in said(only(found, "level"))["en"]
    assert "信頼度 87%" in said(only(found, "capacity"))["ja"] and "87 % sure" in said(only(found, "capacity"))["en"]
    flip = concluded(plan, both(plan, "llama-np16", 8, in_time_requests=57))
    level = only(flip, "level")
    assert level.verdict == "met" and level.confidence is not None and level.confidence < 0.8
    assert f"TTFT p95 {floor(100 * level.confidence)} % sure" in said(only(flip, "capacity"))["en"]
    certain = concluded(plan, both(plan, "llama-np16", 8, target_requests=500))
    assert "over 99 % sure" in said(only(certain, "level"))["en"]


def test_a_figure_beside_a_limit_never_reads_as_the_limit() -> None:
    plan = plan_of({"llama-np16": (8, 16)})
    rows = both(plan, "llama-np16", 8, ttft_p95_s=1.9996, user_tok_s=10.001)
    found = concluded(plan, rows + both(plan, "llama-np16", 16, ttft_p95_s=2.004, user_tok_s=9.998))
    met, missed = (said(only(found, "level", users=n)) for n in (8, 16))
    assert "1.9996 s" in met["en"] and "10.001 tokens/s" in met["en"] and "1.9996 秒" in met["ja"]
    assert "2.004 s (at most 2)" in missed["en"] and "9.998 tokens/s for a user (median; at least 10)" in missed["en"]
    assert "2.004 秒（上限 2 秒）" in missed["ja"] and "1 人あたり（中央値、下限 10）9.998 トークン/秒" in missed["ja"]


def test_of_two_runs_every_sentence_names_its_own() -> None:
    cells = [{"run": run, "setting": name, "users": 8} for run, name in zip(("main", "extra"), NAMES, strict=True)]
    plan = msgspec.structs.replace(synthetic.plan_of(cells), rounds=2, runs={"main": {}, "extra": {}})
    rows = [r | {"run": plan.settings[name].run} for name in NAMES for r in both(plan, name, 8)]
    told = [said(claim) for claim in concluded(plan, rows) if claim.run is not None]
    assert len(told) > 6
    assert all(t["en"].startswith(("Run “main”: ", "Run “extra”: ")) for t in told)
    assert all(t["ja"].startswith(("「main」の測定：", "「extra」の測定：")) for t in told)
    one = plan_of({"llama-np16": (8,)})
    assert "Run" not in texts(concluded(one, both(one, "llama-np16", 8)))[0]


def test_what_was_discarded_is_named_with_the_first_claims() -> None:
    plan = plan_of({"llama-np16": (8, 16)})
    thrown = [
        dict.fromkeys(SCHEMAS["discarded"].names)
        | {"run": "main", "setting": "llama-np16", "users": 16, "round": 1 + n % 2, "why": "TTFT looked too high"}
        | {"discarded_at": "2026-11-30T10:00:00+00:00"}
        for n in range(6)
    ]
    rows = [r for n in (8, 16) for r in both(plan, "llama-np16", n)]
    (first, *_) = verdicts.headline(concluded(plan, rows, discarded=table("discarded", thrown)))
    assert (first.verdict, first.values["discarded"]) == ("complete", [["llama-np16", 16, 6]])
    assert "Discarded on record: llama-np16 with 16 users (6)." in said(first)["en"]
    assert "llama-np16 16 人（6 件）" in said(first)["ja"]
    assert verdicts.headline(concluded(plan, rows))[0].kind != "coverage"
    plan = msgspec.structs.replace(plan, searched=("llama-np16",))
    found = concluded(plan, rows, discarded=table("discarded", thrown))
    for claim in (only(found, "capacity"), only(found, "objective")):  # what it says of the setting says that too
        assert claim.values["discarded"] == [["llama-np16", 16, 6]]
        assert "Discarded on record: llama-np16 with 16 users (6)." in said(claim)["en"]
    assert only(concluded(plan, rows), "capacity").values["discarded"] == []


def test_a_pair_of_equal_outputs_may_differ_in_what_a_user_waits_and_says_which_figure_it_is_about() -> None:
    plan = plan_of(dict.fromkeys(NAMES, USERS))
    slow = {"ttft_p95_s": 1.5, "ttft_p50_s": 0.8}
    rows = many(plan, {"llama-np16": 100.0}) + many(plan, {"llama-np64": 100.0}, **slow)
    found = concluded(plan, rows)
    output, wait = (only(found, "pair", users=8, figure=name) for name in ("output_tok_s", "ttft_p95_s"))
    assert (output.verdict, wait.verdict, wait.values["ratio"]) == ("not_beyond_noise", "higher", pytest.approx(1.5))
    assert "the TTFT p95 of llama-np64 was 1.50 times that of llama-np16" in said(wait)["en"]
    assert "最初の文字までの時間" in said(wait)["ja"] and "output" not in said(wait)["en"]
    assert "times the output of" in said(output)["en"] and "合計出力" in said(output)["ja"]


def test_the_course_that_is_shown_is_of_the_highest_valid_measurement() -> None:
    plan = plan_of(dict.fromkeys(NAMES, (8,)))
    weak = {"valid": False, "invalid_reasons": [mark("device_throttled", throttles=120, samples=120)]}
    rows = [*both(plan, "llama-np16", 8), *both(plan, "llama-np64", 8, output_tok_s=900.0, **weak)]
    names = SCHEMAS["timeline"].names
    seconds = [
        dict.fromkeys(names) | {name: one[name] for name in ("run", "setting", "users", "round")} | TICK for one in rows
    ]
    claim = only(concluded(plan, rows, timeline=table("timeline", seconds)), "highest")
    assert (claim.subjects, claim.values["valid"], claim.values["output_tok_s"]) == (["llama-np16"], True, 100.0)
    assert not [claim for claim in concluded(plan, rows) if claim.kind == "highest"]


def test_one_user_one_request_and_one_person_are_said_in_the_singular() -> None:
    plan = plan_of({"llama-np16": (1,)})
    found = concluded(plan, [row(plan, "llama-np16", 1, n, e2e_mean_s=90.0) for n in (1, 2)])
    told = said(only(found, "people"))["en"]
    assert "the requests of 1 user without pauses are as many as those of 1 person with pauses of 10 s" in told
    failed = row(plan, "llama-np16", 1, 1, status="failed", reason=[mark("failed", reason="the server died")])
    english, _ = texts(concluded(plan, [failed]))
    assert "made: 0, missing: 1" in english
    assert not re.search(r"\b1 (are|were|who pause\b|users|requests|people)", english)


def test_rounds_that_differ_are_marked_with_numbers_for_people() -> None:
    told = translated(mark("unstable_rounds", figure="output_tok_s", first=1234.5, second=4321.0))
    assert "1,234 → 4,321" in told["en"] or "1,235 → 4,321" in told["en"]
    assert "e+" not in told["en"] + told["ja"]


def test_the_page_of_an_open_loop_counts_connections_and_draws_nothing_by_users() -> None:
    plan = opened(NAMES, (16, 32))
    rows = [one for name in NAMES for n in (16, 32) for one in both(plan, name, n, e2e_mean_s=5.0)]
    measured = table("measurements", rows)
    made = {"measurements": measured, "settings": derived.settings(measured, plan.rounds)}
    made["verdicts"] = claims.table(verdicts.conclude(made, plan))
    text = page(made, plan)
    drawn = set(re.findall(r'id="chart-(\w+?)(?:-main)?"', text))
    assert not drawn & {"tradeoff", "output_bars", "output_by_users", "user_by_users", "ttft_by_users"}
    shown = re.sub(r"<script.*?</script>|<style.*?</style>", "", text, flags=re.DOTALL)
    assert not re.search(r"\d+ users|\d+ 人(?!あたり)", shown)
    assert "4 requests/s" in shown and "Connections" in shown and "Users or connections" not in shown
    assert "How many users at once?" not in shown and "Does it keep up with the requests?" in shown


def test_with_a_gap_every_sentence_speaks_of_the_same_number_below_it() -> None:
    """4 users met the target, 8 missed it, 16 met it: people, costs and the first screen are of 4."""
    plan = msgspec.structs.replace(plan_of({"llama-np16": (4, 8, 16)}), cost={"price_per_hour": 3.6})
    rows = [*both(plan, "llama-np16", 4, e2e_mean_s=5.0), *both(plan, "llama-np16", 16, e2e_mean_s=5.0)]
    rows += both(plan, "llama-np16", 8, ttft_p95_s=9.0, ttft_p50_s=8.0, e2e_mean_s=9.0)
    found = concluded(plan, rows)
    capacity = only(found, "capacity")
    assert (capacity.verdict, capacity.users, capacity.values["met_above"]) == ("bracketed", 4, [16])
    about = [*(c for c in found if c.kind == "people"), *(c for c in found if c.kind == "cost")]
    assert {(claim.kind, claim.verdict, claim.users) for claim in about} == {
        *(("people", "arithmetic", 4), ("cost", "per_token", 4), ("cost", "per_person", 4)),
    }
    made = tables_of(plan, rows) | {"verdicts": claims.table(found)}
    shown = first.first(made, plan, "main")
    assert shown["number"]["users"] == 4
    assert [row["serves"] for row in content.heatmap(made, plan, "main")["rows"]] == [4]
    assert "16 users" not in " ".join(said(c)["en"] for c in about)


def four(plan: Plan, name: str, output: float, **figures: Any) -> list[dict[str, Any]]:
    """Four rounds with 8 users that repeat within 1 %."""
    return [row(plan, name, 8, n, output_tok_s=output * (1 + 0.005 * (n % 3)), **figures) for n in range(1, 5)]


def test_rounds_of_a_search_on_two_versions_or_machines_are_not_valid_for_the_answer() -> None:
    """Each row is valid by itself; one round was made at another hour, with another driver or version."""
    plan = msgspec.structs.replace(plan_of({"llama-np16": (8, 16)}), searched=("llama-np16",))
    late = {"ttft_p95_s": 9.0, "ttft_p50_s": 8.0}
    for odd in ({"engine_version": "b2"}, {"fingerprint": "another driver"}):
        kept = [row(plan, "llama-np16", 8, n, **({"engine_version": "b1"} | (odd if n == 2 else {}))) for n in (1, 2)]
        claim = only(concluded(plan, [*kept, *both(plan, "llama-np16", 16, **late)]), "objective")
        assert (claim.verdict, claim.values["valid"]) == ("bracketed", False)
        assert "not all valid" in said(claim)["en"] and "有効でない" in said(claim)["ja"]


def test_a_server_replaced_during_a_search_has_no_capacity_of_its_own() -> None:
    """With 8 users one version kept the target, with 16 the next one missed it: the rounds of each number agree."""
    plan = msgspec.structs.replace(plan_of({"llama-np16": (8, 16)}), searched=("llama-np16",))
    late = {"ttft_p95_s": 9.0, "ttft_p50_s": 8.0}
    kept, missed = both(plan, "llama-np16", 8, engine_version="b1"), both(plan, "llama-np16", 16, **late)
    claim = only(concluded(plan, [*kept, *(row | {"engine_version": "b2"} for row in missed)]), "objective")
    assert (claim.verdict, claim.values["valid"]) == ("bracketed", False)
    assert "not all valid" in said(claim)["en"] and "several versions of the engine: b1 / b2" in said(claim)["en"]
    assert "エンジンのバージョンの混在：b1 / b2" in said(claim)["ja"]
    same = [*kept, *(row | {"engine_version": "b1"} for row in missed)]
    assert only(concluded(plan, same), "objective").values["valid"] is True


def test_what_weakens_a_lead_weakens_a_recommendation_and_what_is_said_of_the_outdone() -> None:
    plan = plan_of(dict.fromkeys(NAMES, (8,)), rounds=4)
    rows = four(plan, "llama-np16", 100.0, engine_version="b1")
    short = {"output_tokens_mean": 3.0, "cached_share": 0.45, "engine_version": "b2"}
    found = concluded(plan, rows + four(plan, "llama-np64", 200.0, **short))
    choice, outdone = only(found, "choice"), only(found, "outdone")
    assert (choice.verdict, choice.values["choose"], outdone.subjects[0]) == (
        "recommended",
        ["llama-np64"],
        "llama-np16",
    )
    for claim in (choice, outdone):
        assert {m.kind for m in claim.caveats} >= {"reply_lengths_differ", "cached_prompts", "measured_unlike"}
        assert "Warnings: " in said(claim)["en"] and "注意事項：" in said(claim)["ja"]


def test_the_only_sure_choice_names_those_that_were_not_measured_there() -> None:
    """One setting was measured with 4 users and not with 8, another nowhere."""
    plan = plan_of(dict.fromkeys((*NAMES, "llama-np4"), (4, 8)))
    rows = [*both(plan, "llama-np16", 4), *both(plan, "llama-np16", 8), *both(plan, "llama-np64", 4)]
    claim = only(concluded(plan, rows), "choice", users=8)
    assert (claim.verdict, claim.values["unsure"]) == ("only_one", ["llama-np64", "llama-np4"])
    assert "llama-np4" in said(claim)["en"] and "未測定" in said(claim)["ja"]


def test_a_miss_while_the_device_was_throttled_is_no_sure_miss_and_outdoes_nobody() -> None:
    plan = plan_of(dict.fromkeys(NAMES, (4, 8)))
    weak = {"valid": False, "invalid_reasons": [mark("device_throttled", throttles=120, samples=120)]}
    rows = [*both(plan, "llama-np16", 4), *both(plan, "llama-np16", 8), *both(plan, "llama-np64", 4)]
    late = {"ttft_p95_s": 9.0, "ttft_p50_s": 8.0}
    found = concluded(plan, [*rows, *both(plan, "llama-np64", 8, **late, **weak)])
    assert not [claim for claim in found if claim.kind == "outdone"]
    choice = only(found, "choice", users=8)
    assert (choice.values["beyond"], choice.values["unsure"]) == ([], ["llama-np64"])
    failing = {
        "valid": False,
        "failures": 9,
        "invalid_reasons": [mark("requests_failed", failures=9, requests=60, statuses="500")],
    }
    found = concluded(plan, [*rows, *both(plan, "llama-np64", 8, **failing)])
    assert only(found, "choice", users=8).values["beyond"] == ["llama-np64"], "failures are the server's own"
    assert only(found, "outdone").verdict == "fewer_users"


def test_replies_of_three_tokens_lead_and_serve_nobody_without_a_word() -> None:
    plan = plan_of(dict.fromkeys(NAMES, USERS))
    found = concluded(plan, many(plan, {"llama-np16": 100.0, "llama-np64": 300.0}, output_tokens_p50=3.0))
    for claim in (
        only(found, "level", users=8, subjects=["llama-np64"]),
        only(found, "capacity", subjects=["llama-np64"]),
        only(found, "leader", users=8, figure="output_tok_s"),
        only(found, "choice", users=8),
        only(found, "outdone"),
        only(found, "pair", users=8, figure="user_tok_s"),
    ):
        assert mark("short_replies", tokens=3.0) in claim.caveats
        assert "short replies: 3 tokens" in said(claim)["en"] and "応答が短い：3 トークン" in said(claim)["ja"]
    long = concluded(plan, many(plan, {"llama-np16": 100.0, "llama-np64": 300.0}, output_tokens_p50=16.0))
    assert not [claim for claim in long for caveat in claim.caveats if caveat.kind == "short_replies"]


def test_a_setting_measured_on_a_faster_machine_than_the_run_began_on_leads_and_outdoes_nobody() -> None:
    plan = plan_of(dict.fromkeys(NAMES, USERS))
    rows = many(plan, {"llama-np16": 100.0}) + many(plan, {"llama-np64": 300.0}, fingerprint="faster", machine="B200")
    found = concluded(plan, rows)
    assert not [claim for claim in found if claim.kind in ("pair", "outdone")]
    leader, choice = only(found, "leader", users=8, figure="output_tok_s"), only(found, "choice", users=8)
    assert (leader.verdict, leader.values["first"], leader.values["excluded"]) == (
        *("only_one", "llama-np16"),
        ["llama-np64"],
    )
    assert (choice.verdict, choice.values["choose"]) == ("only_one", ["llama-np16"])
    level = only(found, "level", users=8, subjects=["llama-np64"])
    assert level.values["valid"] is False and "mixed machines" in said(level)["en"]


@pytest.mark.parametrize("whose", NAMES)
def test_a_lead_after_measurements_were_discarded_says_whose(whose: str) -> None:
    """Whether the slow rounds of the first were discarded or the fast ones of the other, nobody can tell any more."""
    plan = plan_of(dict.fromkeys(NAMES, USERS))
    thrown = [
        dict.fromkeys(SCHEMAS["discarded"].names)
        | {"run": "main", "setting": whose, "users": 8, "round": 1, "why": "not as expected"}
        | {"discarded_at": "2026-11-30T10:00:00+00:00"}
        for _ in range(3)
    ]
    rows = many(plan, {"llama-np16": 100.0, "llama-np64": 300.0})
    found = concluded(plan, rows, discarded=table("discarded", thrown))
    for claim in (
        only(found, "leader", users=8, figure="output_tok_s"),
        only(found, "choice", users=8),
        only(found, "outdone"),
        only(found, "pair", users=8, figure="output_tok_s"),
    ):
        assert mark("discarded_before", setting=whose, measurements=3) in claim.caveats
        assert f"3 earlier measurements of {whose}" in said(claim)["en"]
        assert f"破棄した測定：{whose} の同じ条件の測定 3 件" in said(claim)["ja"]
    elsewhere = only(found, "leader", users=4, figure="output_tok_s")
    assert "discarded_before" not in {caveat.kind for caveat in elsewhere.caveats}


def test_more_output_outdoes_nobody_while_a_speed_is_not_known() -> None:
    """Every reply of the second round came in one piece: who has twice the output may be slower for each user."""
    plan = plan_of(dict.fromkeys(NAMES, USERS))
    rows = many(plan, {"llama-np16": 100.0, "llama-np64": 200.0})
    whole = [r | {"user_tok_s": None} if (r["setting"], r["round"]) == ("llama-np64", 2) else r for r in rows]
    assert only(concluded(plan, rows), "outdone").subjects == ["llama-np16", "llama-np64"]
    found = concluded(plan, whole)
    assert not [claim for claim in found if claim.kind == "outdone"]
    speed = only(found, "leader", users=8, figure="user_tok_s")
    assert (speed.verdict, speed.values["excluded"]) == ("only_one", ["llama-np64"])


def test_a_machine_that_warms_up_from_round_to_round_makes_no_leader() -> None:
    """All settings gain 30 % from the first round to the second; one seems 5 % ahead in each."""
    plan = plan_of(dict.fromkeys(NAMES, USERS))
    rows = [
        row(plan, name, n, r, output_tok_s=base * n * (1, 1.3)[r - 1])
        for name, base in zip(NAMES, (100.0, 105.0), strict=True)
        for n in USERS
        for r in (1, 2)
    ]
    found = concluded(plan, rows)
    assert {claim.verdict for claim in found if claim.kind == "leader"} == {"tied"}
    assert {claim.verdict for claim in found if claim.kind == "pair"} == {"not_beyond_noise"}
    assert "unstable_rounds" in {m.kind for m in only(found, "level", users=8, subjects=["llama-np16"]).caveats}


def test_more_rounds_than_planned_are_counted_as_they_are() -> None:
    """A search for a capacity measures what it is not sure of more often than the plan says."""
    plan = plan_of(dict.fromkeys(NAMES, (8,)))
    died = [
        row(plan, "llama-np16", 8, n, status="failed", reason=[mark("failed", reason="the server died")])
        for n in (1, 2, 3)
    ]
    level = only(concluded(plan, [*died, row(plan, "llama-np16", 8, 4)]), "level", subjects=["llama-np16"])
    assert (level.verdict, level.values["failed"], level.values["rounds"]) == ("failed", 3, 4)
    rows = [
        row(plan, name, 8, n, output_tok_s=base + n)
        for name, base in zip(NAMES, (100.0, 200.0), strict=True)
        for n in (1, 2, 3)
    ]
    leader = only(concluded(plan, rows), "leader", figure="output_tok_s")
    assert (leader.verdict, leader.rounds, leader.values["rounds"]) == ("ahead_in_every_round", 3, 3)
