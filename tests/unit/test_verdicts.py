"""What may be concluded: prepared tables that invite a lie get only true claims, said in both languages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

from judged import both, concluded, only, plan_of, row, tables_of
from servebench import claims, verdicts
from servebench.claims import KINDS, Claim
from servebench.load.objective import Objective
from servebench.marks import mark
from servebench.report import choice, first
from servebench.tables import derived
from servebench.tables.files import table
from servebench.verdicts.leaders import FIGURES, PAIRED
from servebench.verdicts.levels import enough_requests
from servebench.words import LANGUAGES, labels
from servebench.words.claims import said


def test_a_level_at_which_every_request_fails_is_failed_and_bounds_the_capacity() -> None:
    plan = plan_of({"llama-np16": (64, 128)})
    refused = {"failures": 60, "output_tok_s": None, "user_tok_s": None, "ttft_p50_s": None, "ttft_p95_s": None}
    for dead in (refused, {"status": "failed", "reason": [mark("failed", reason="the server died")]}):
        found = concluded(plan, [*both(plan, "llama-np16", 64), *both(plan, "llama-np16", 128, **dead)])
        assert only(found, "level", users=128).verdict == "failed"
        capacity = only(found, "capacity")
        assert (capacity.verdict, capacity.users, capacity.values["next"]) == ("bracketed", 64, 128)
        assert capacity.values["next_verdict"] == "failed"
        assert found[0].kind == "coverage" and found[0].verdict == "failures"
        assert not any("not been measured" in said(claim)["en"] for claim in found)


def test_too_few_requests_are_no_miss() -> None:
    plan = plan_of({"llama-np16": (1,)})
    found = concluded(plan, both(plan, "llama-np16", 1, target_requests=7))
    level = only(found, "level")
    assert level.verdict == "few_requests"
    assert {name: level.values[name] for name in ("requests", "wanted", "lacking")} == {
        "requests": 7,
        "wanted": 20,
        "lacking": 13,
    }
    assert only(found, "capacity").verdict == "unknown"


@pytest.mark.parametrize(
    ("mode", "step"),
    [("closed", "load_longer"), ("open", "load_longer"), ("count", "load_more"), ("trace", "load_more_of_trace")],
)
def test_the_step_to_enough_requests_is_one_that_the_mode_takes(mode: str, step: str) -> None:
    plan = plan_of({"llama-np16": (1,)})
    few = concluded(plan, both(plan, "llama-np16", 1, target_requests=7))
    assert enough_requests(few, mode) == {step: {"wanted": 20}}
    assert labels()["page"]["next"][step].keys() == set(LANGUAGES)
    assert enough_requests(concluded(plan, both(plan, "llama-np16", 1, target_requests=20)), mode) == {}


def test_few_requests_that_all_wait_far_too_long_are_a_miss() -> None:
    plan = plan_of({"llama-np16": (1,)})
    found = concluded(plan, both(plan, "llama-np16", 1, target_requests=7, ttft_p50_s=9.0, ttft_p95_s=20.0))
    assert only(found, "level").values["limits"] == ["ttft_p95_s"]
    assert only(found, "capacity").verdict == "none"


def test_a_gap_below_is_no_capacity_and_what_is_above_is_named() -> None:
    plan = plan_of({"llama-np16": (1, 2, 4, 8, 16)})
    rows = [*both(plan, "llama-np16", 4, ttft_p95_s=3.0)]
    rows += [r for users in (1, 2, 8, 16) for r in both(plan, "llama-np16", users)]
    capacity = only(concluded(plan, rows), "capacity")
    assert (capacity.verdict, capacity.users) == ("bracketed", 2)
    assert (capacity.values["next"], capacity.values["met_above"]) == (4, [8, 16])


def test_nothing_tried_above_is_at_least() -> None:
    plan = plan_of({"llama-np16": (1, 2)})
    capacity = only(concluded(plan, [*both(plan, "llama-np16", 1), *both(plan, "llama-np16", 2)]), "capacity")
    assert (capacity.verdict, capacity.users) == ("at_least", 2)


def test_confidence_is_exact_binomial_over_all_rounds() -> None:
    plan = plan_of({"llama-np16": (1,)})
    level = only(concluded(plan, both(plan, "llama-np16", 1, target_requests=30)), "level")
    assert level.requests == 60 and level.confidence == pytest.approx(1 - 0.95**60)


@pytest.mark.parametrize(
    "weakness",
    [
        {"failures": 30},
        {"valid": False, "invalid_reasons": [mark("device_throttled", throttles=120, samples=120)]},
        {"cached_share": 0.5},
    ],
    ids=["half refused", "throttled", "cached"],
)
def test_a_row_that_is_not_valid_leads_nothing(weakness: dict[str, Any]) -> None:
    plan = plan_of({"llama-np16": (8,), "llama-np64": (8,)})
    rows = [*both(plan, "llama-np16", 8, output_tok_s=900.0, **weakness), *both(plan, "llama-np64", 8)]
    leader = only(concluded(plan, rows), "leader", figure="output_tok_s")
    assert (leader.verdict, leader.values["first"], leader.values["excluded"]) == (
        "only_one",
        "llama-np64",
        ["llama-np16"],
    )


def test_a_cached_system_prompt_is_said_and_leads_all_the_same() -> None:
    plan = plan_of({"llama-np16": (8,), "llama-np64": (8,)})
    rows = [*both(plan, "llama-np16", 8, output_tok_s=900.0, cached_share=0.25), *both(plan, "llama-np64", 8)]
    leader = only(concluded(plan, rows), "leader", figure="output_tok_s")
    assert (leader.values["first"], leader.values["excluded"]) == ("llama-np16", [])
    assert mark("cached_prompts", percent=25.0) in leader.caveats


def test_rounds_on_two_machines_lead_nothing() -> None:
    plan = plan_of({"llama-np16": (8,), "llama-np64": (8,)})
    mixed = [
        row(plan, "llama-np16", 8, n, output_tok_s=900.0, fingerprint=machine)
        for n, machine in ((1, "m"), (2, "other"))
    ]
    leader = only(concluded(plan, [*mixed, *both(plan, "llama-np64", 8)]), "leader", figure="output_tok_s")
    assert leader.values["first"] == "llama-np64"


def test_where_nothing_is_valid_it_is_said() -> None:
    plan = plan_of({"llama-np16": (8,)})
    found = concluded(plan, both(plan, "llama-np16", 8, valid=False))
    for claim in (only(found, "capacity"), only(found, "leader", figure="output_tok_s")):
        assert claim.values["valid"] is False
        assert "valid" in said(claim)["en"] and "有効" in said(claim)["ja"]


def test_two_rounds_of_few_settings_rank_nothing_however_far_apart() -> None:
    plan = plan_of({"llama-np16": (8,), "llama-np64": (8,)})
    rows = [*both(plan, "llama-np16", 8, output_tok_s=300.0), *both(plan, "llama-np64", 8)]
    leader = only(concluded(plan, rows), "leader", figure="output_tok_s")
    assert leader.verdict == "ahead_in_every_round" and leader.error_rate is None


def test_one_round_ranks_nothing() -> None:
    plan = plan_of({"llama-np16": (8,), "llama-np64": (8,)}, rounds=1)
    rows = [row(plan, "llama-np16", 8, 1, output_tok_s=300.0), row(plan, "llama-np64", 8, 1)]
    found = concluded(plan, rows)
    assert only(found, "leader", figure="output_tok_s").verdict == "one_round"
    assert {claim.verdict for claim in found if claim.kind == "level"} == {"few_rounds"}


def test_a_figure_of_one_round_is_not_compared_as_if_in_two() -> None:
    plan = plan_of({"llama-np16": (8,), "llama-np64": (8,)})
    rows = [row(plan, "llama-np16", 8, 1, output_tok_s=300.0), *both(plan, "llama-np64", 8)]
    found = concluded(plan, rows)
    assert only(found, "leader", figure="output_tok_s").values["first"] == "llama-np64"
    assert only(found, "level", subjects=["llama-np16"]).verdict == "few_rounds"
    assert not [claim for claim in found if claim.kind == "pair"]


def test_a_clear_lead_of_many_cells_is_claimed_with_its_error_rate() -> None:
    users = tuple(range(1, 14))
    plan = plan_of({"llama-np16": users, "llama-np64": users})
    rows = [
        row(plan, name, n, round_, output_tok_s=base * n * (1 + 0.01 * round_ + 0.003 * (n % 3)))
        for name, base in (("llama-np16", 100.0), ("llama-np64", 150.0))
        for n in users
        for round_ in (1, 2)
    ]
    leader = only(concluded(plan, rows), "leader", figure="output_tok_s", users=8)
    assert (leader.verdict, leader.values["first"], leader.error_rate) == ("ahead", "llama-np64", 0.05)
    assert leader.values["percent"] == pytest.approx(50)
    pair = only(concluded(plan, rows), "pair", users=8, figure="output_tok_s")
    assert (pair.verdict, pair.values["ratio"], pair.values["differs"]) == ("higher", pytest.approx(1.5), ["slots"])


def test_another_model_is_not_ranked_among_the_others_and_no_pair_with_them() -> None:
    plan = plan_of({"llama-np16": (8,), "llama-np64": (8,), "llama-np4": (8,)})
    small = plan.settings["llama-np4"]
    other = msgspec.structs.replace(small, model=msgspec.structs.replace(small.model, key="small", name="Qwen3-0.6B"))
    plan = msgspec.structs.replace(plan, settings={**plan.settings, "llama-np4": other})
    rows = [*both(plan, "llama-np4", 8, output_tok_s=900.0), *both(plan, "llama-np16", 8), *both(plan, "llama-np64", 8)]
    found = concluded(plan, rows)
    assert only(found, "leader", figure="output_tok_s").values["excluded"] == ["llama-np4"]
    assert [c.subjects for c in found if c.kind == "pair"] == 3 * [["llama-np64", "llama-np16"]]


def test_settings_that_differ_in_several_things_are_no_pair() -> None:
    plan = plan_of({"llama-np16": (8,), "llama-np64": (8,)})
    more = msgspec.structs.replace(plan.settings["llama-np64"], args=("-ub", "2048"))
    plan = msgspec.structs.replace(plan, settings={**plan.settings, "llama-np64": more})
    rows = [*both(plan, "llama-np16", 8), *both(plan, "llama-np64", 8)]
    assert not [claim for claim in concluded(plan, rows) if claim.kind == "pair"]


def test_servers_that_make_other_prompts_differ_in_that_too_and_the_leader_says_so() -> None:
    plan = plan_of({"llama-np16": (8,), "llama-np64": (8,)})
    first = plan.settings["llama-np16"]
    ollama = msgspec.structs.replace(
        first, name="llama-np64", engine=msgspec.structs.replace(first.engine, key="ollama", kind="ollama")
    )
    plan = msgspec.structs.replace(plan, settings={**plan.settings, "llama-np64": ollama})
    rows = [*both(plan, "llama-np16", 8, output_tok_s=50.0), *both(plan, "llama-np64", 8)]

    def found(more: int) -> list[Claim]:
        lengths = [
            {"run": "main", "setting": name, "prompt_id": f"doc{n}", "requests": 1, "tokens_mean": 20.0 + n + added}
            for name, added in (("llama-np16", 0), ("llama-np64", more))
            for n in range(3)
        ]
        made = derived.settings(table("measurements", rows), plan.rounds, table("prompt_lengths", lengths))
        return concluded(plan, rows, settings=made)

    assert only(found(0), "pair", figure="ttft_p95_s").values["differs"] == ["engine"]
    other = mark("other_prompt_tokens", than="llama-np16", tokens=21.0)
    assert other not in only(found(0), "leader", figure="output_tok_s").caveats
    assert only(found(21), "pair", figure="ttft_p95_s").values["differs"] == ["engine", "prompt_tokens"]
    assert other in only(found(21), "leader", figure="output_tok_s").caveats
    assert other in only(found(21), "level", subjects=["llama-np64"]).caveats


def test_replies_of_other_lengths_are_said() -> None:
    plan = plan_of({"llama-np16": (8,), "llama-np64": (8,)})
    rows = [*both(plan, "llama-np16", 8, output_tokens_mean=3.0), *both(plan, "llama-np64", 8)]
    leader = only(concluded(plan, rows), "leader", figure="output_tok_s")
    assert "reply_lengths_differ" in {found.kind for found in leader.caveats}


def test_nothing_evaluated_is_said() -> None:
    plan = plan_of({"llama-np16": (8,)})
    assert only(concluded(plan, both(plan, "llama-np16", 8)), "score").verdict == "nothing_evaluated"


def test_claims_are_written_and_read_as_a_table(tmp_path: Path) -> None:
    plan = plan_of({"llama-np16": (8,), "llama-np64": (8, 16)})
    rows = [*both(plan, "llama-np16", 8), *both(plan, "llama-np64", 8), *both(plan, "llama-np64", 16, ttft_p95_s=9.0)]
    found = concluded(plan, rows)
    pq.write_table(claims.table(found), tmp_path / "verdicts.parquet")
    read = claims.read(pq.read_table(tmp_path / "verdicts.parquet"))
    assert [said(claim) for claim in read] == [said(claim) for claim in found]
    assert [claim.kind for claim in verdicts.headline(read)] == ["capacity", "leader", "score"]


@pytest.mark.parametrize(
    ("searched", "told"),
    [((), ("at_least", 8, None)), (("llama-np16",), ("open", 4, "near"))],
)
def test_a_capacity_that_was_searched_for_counts_what_the_search_is_sure_of(searched: Any, told: Any) -> None:
    """10.02 of at least 10 tokens/s in both rounds: met, but on another day it may be missed."""
    plan = msgspec.structs.replace(plan_of({"llama-np16": (4, 8)}), searched=searched)
    speeds = {4: 40.0, 8: 1.002 * plan.line.user_tok_s}
    rows = [row for n, speed in speeds.items() for row in both(plan, "llama-np16", n, user_tok_s=speed)]
    found = concluded(plan, rows)
    claim = only(found, "capacity")
    assert (claim.verdict, claim.users, claim.values.get("next_verdict")) == told
    if searched:
        assert (only(found, "objective").users, claim.values["next"]) == (claim.users, 8)
        assert "with 8 it is too near the limit" in said(claim)["en"]


@pytest.mark.parametrize("place", [(8, True), (16, False), (32, False)])
def test_an_answer_is_as_valid_as_the_measurements_at_its_ends(place: tuple[int, bool]) -> None:
    users, valid = place
    plan = plan_of({"llama-np16": (8, 16, 32)})
    plan = msgspec.structs.replace(plan, searched=("llama-np16",))
    rows = [row for n, ttft in ((8, 0.5), (16, 0.5), (32, 9.0)) for row in both(plan, "llama-np16", n, ttft_p95_s=ttft)]
    rows[[row["users"] for row in rows].index(users)]["valid"] = False
    claim = only(concluded(plan, rows), "objective")
    assert (claim.verdict, claim.users, claim.values["misses"]) == ("bracketed", 16, 32)
    assert claim.values["valid"] == valid
    assert ("not all valid" in said(claim)["en"]) == (not valid)


def test_the_first_screen_names_for_each_objective_the_setting_that_keeps_it_for_the_most_users() -> None:
    """One setting is quick with few users, the other keeps a loose limit for many."""
    plan = plan_of({"llama-np4": (4, 8, 16), "llama-np64": (4, 8, 16)})
    limits = {"quick": 0.3, "brisk": 0.6, "loose": 1.5, "patient": 5.0}
    objectives = {name: Objective(limits={"ttft_p95_s": limit}, min_targets=20) for name, limit in limits.items()}
    plan = msgspec.structs.replace(plan, objectives=objectives, searched=tuple(plan.settings))
    waits = {"llama-np4": (0.1, 2.6, 9.0), "llama-np64": (0.45, 1.0, 1.2)}
    rows = [
        row
        for name, own in waits.items()
        for users, ttft in zip((4, 8, 16), own, strict=True)
        for row in both(plan, name, users, ttft_p50_s=ttft / 2, ttft_p95_s=ttft, e2e_mean_s=5.0)
    ]
    found = concluded(plan, rows)
    told = {
        claim.values["objective"]: (claim.subjects, claim.users)
        for claim in verdicts.headline(found)
        if claim.kind == "objective"
    }
    assert told == {
        **{"line": (["llama-np64"], 16), "quick": (["llama-np4"], 4), "brisk": (["llama-np4"], 4)},
        **{"loose": (["llama-np64"], 16), "patient": (["llama-np64"], 16)},
    }
    shown = first.first({**tables_of(plan, rows), "verdicts": claims.table(found)}, plan, "main")
    (many,) = [answer["claims"] for answer in shown["answers"] if answer["question"] == "many"]
    assert [claim.kind for claim in many] == [*["objective"] * 5, "people"], "none is cut off"
    assert (many[0].values["objective"], many[-1].subjects, shown["number"]["users"]) == ("line", ["llama-np64"], 16)


@pytest.mark.parametrize(("open_", "most"), [([], True), ([4], True), ([12], False)])
def test_the_most_that_was_tried_is_said_only_of_the_most(open_: list[int], most: bool) -> None:
    values = {name: VALUES[name] for name in KINDS["objective"]["at_least"]} | {"most": 8, "open": open_}
    texts = said(Claim(kind="objective", verdict="at_least", subjects=["a"], users=8, values=values))
    assert ("the most that was tried" in texts["en"]) == most
    assert ("これより多い人数は試していません" in texts["ja"]) == most


def test_a_closed_and_an_open_loop_say_their_requests_per_second() -> None:
    """8 users who each send one request in 4 s are 2 requests a second, however many are replied to."""
    plan = plan_of({"llama-np4": (8,), "llama-np16": (8,)})
    own = plan.settings["llama-np16"]
    own = msgspec.structs.replace(own, workload={**own.workload, "mode": "open-users", "user_rate": 0.25})
    settings = {**plan.settings, "llama-np16": own}
    plan = msgspec.structs.replace(plan, settings=settings, searched=("llama-np4", "llama-np16"))
    rows = [*both(plan, "llama-np4", 8, requests_s=1.5), *both(plan, "llama-np16", 8, requests_s=1.9)]
    found = {claim.subjects[0]: claim for claim in concluded(plan, rows) if claim.kind == "objective"}
    told = {name: (claim.values["loop"], claim.values["requests_s"]) for name, claim in found.items()}
    assert told == {"llama-np4": ("closed", [1.5, 1.5]), "llama-np16": ("open", [2.0, 2.0])}
    assert "2.00 requests/s, whatever the server does" in said(found["llama-np16"])["en"]
    fold = choice.loops({"verdicts": claims.table(list(found.values()))}, plan)
    assert fold is not None and [(row[0], row[3], row[5]) for row in fold.rows] == [
        *(("llama-np4", "8", "1.50"), ("llama-np16", "8", "2.00")),
    ]
    assert choice.loops({"verdicts": claims.table([found["llama-np4"]])}, plan) is None


# A value of each name, as claims have them.
VALUES: Mapping[str, Any] = {
    **{"engine": "llama-server", "quantization": "Q4_K_M", "missed": ["b"], "parts": ["model", "prompts"]},
    **dict.fromkeys(("planned", "measured", "failed", "missing", "rounds", "met", "next", "requests"), 3),
    **dict.fromkeys(("wanted", "lacking", "failures", "questions", "changed", "replies"), 4),
    **{"band": [513, 530], **dict.fromkeys(("band_slow", "band_total", "other_slow", "other_total"), 7)},
    **{name: [0.5, 1.5] for name in ("ttft_p95_s", "user_tok_s")},
    **{"discarded": [["a", 8, 2], ["b", None, 1]], "mode": "open", "rate": 4.0},
    **dict.fromkeys(("ratio", "low", "high", "points", "detectable", "margin", "percent"), 1.25),
    **{
        "objective": "chat",
        "spans": [[1, 2], [8, 16]],
        **{"gaps": [4], "open": [17], "most": 16, "misses": 18, "unbroken": 2, "measurements": 22},
        "first": "a",
        "second": "b",
        "others": ["b"],
        "target": "a",
        "baseline": "b",
        "measure": "mgsm",
        "lower_is_better": True,
        "differs": ["-t", "slots"],
    },
    **{
        "parts": ["model", "prompts"],
        "targets": ["a"],
        "settings": ["a"],
        "absent": ["c"],
        "excluded": ["d"],
        "met_above": [8, 16],
        "valid": False,
    },
    **{"ranges": {"a": [1.0, 2.0], "b": [0.5, 0.9]}},
    "limits": ["ttft_p95_s", "user_tok_s", "failures", "no_speed", "backlog_grows", "warmup_failed"],
    **{"line": {"ttft_p95_s": 2.0, "user_tok_s": 10.0}, "next_verdict": "missed"},
    "reasons": [
        {"kind": "unanswered", "target": "a", "lost": 1, "asked": 5},
        *({"kind": kind, "target": "a"} for kind in ("other_prompts", "other_machine", "no_load", "load_failed")),
    ],
    **{
        name: [0.5, 1.5] for name in ("reply_s", "streams", "usd", "seconds", "joules", "ttft_p50_s", "base_ttft_p50_s")
    },
    **{"people": [[10, 100, 110], [30, 200, 220]], "think": "exp:30", "within": False, "memory": "nvml"},
    **{"choose": ["a", "b"], "beyond": ["c"], "unsure": ["d"], "by": "b", "at": [1, 4], "memory_compared": True},
    "means": {
        "a": {
            **{"output_tok_s": [1.0, 2.0], "gib": 5.1, "usd": [0.3, 0.4]},
            "answers": {"target": "Q4_0", "baseline": False, "differs": [["mgsm", -2.1]], "open": 0},
        },
        "b": {
            **{"output_tok_s": [1.0, 2.0], "gib": None, "usd": None},
            "answers": {"target": None, "baseline": False, "differs": [], "open": 0},
        },
    },
    **{"requests_s": [0.5, 1.5], "loop": "closed"},
    **{"persons": [[10, 1.5, 1.6], ["exp:30", 1.0, 1.0]], "hours": 730, "used_percent": 100.0},
    **{"percents": [50.0, 60.0], "stream_tok_s": 90.0, "gb_s": 300.0, "source": "copied"},
    **{"price": 1.42, "minutes": 10, "gib": 23.4, "slots": 16, "base_users": 16},
    "models": [["Qwen3-14B Q4_K_M"], ["Qwen3-0.6B Q8_0"]],
    **{"pairs": 4, "apart": 2, "round": 2, "output_tok_s": 120.0},
}


@pytest.mark.parametrize(("kind", "verdict"), [(kind, verdict) for kind, has in KINDS.items() for verdict in has])
def test_every_verdict_has_words_in_both_languages(kind: str, verdict: str) -> None:
    values = {name: VALUES[name] for name in KINDS[kind][verdict]}
    for figure in PAIRED if kind in ("pair", "size") else FIGURES:
        texts = said(Claim(kind=kind, verdict=verdict, subjects=["a"], users=8, figure=figure, values=values))
        assert set(texts) == set(LANGUAGES)
        for text in texts.values():
            assert text and not re.search(r"[{}]|None", text)
        assert not re.search(r"[぀-ヿ一-鿿]", texts["en"]) and re.search(r"[぀-ヿ一-鿿]", texts["ja"])


def test_every_verdict_of_the_labels_is_one_that_is_made() -> None:
    words = labels()["claims"]
    assert {kind: set(words[kind]) for kind in KINDS} == {kind: set(has) for kind, has in KINDS.items()}
