"""Which setting to run for how many users, and which are outdone. By hand."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from judged import both, concluded, only, plan_of, row, tables_of
from servebench import verdicts
from servebench.claims import KINDS, Claim
from servebench.marks import mark
from servebench.plan import Evaluations, Plan
from servebench.tables.catalogue import SCHEMAS
from servebench.tables.files import table
from servebench.verdicts.choices import choices, worth_more_rounds
from servebench.words.claims import said

MISSED = {"ttft_p95_s": 9.0, "ttft_p95_all_s": 9.0, "ttft_p50_s": 8.0}
NEAR = (0.99, 1.0, 1.01, 1.0)  # four rounds that repeat within 1 %


def scattered(plan: Plan, setting: str, users: int, **figures: Any) -> list[dict[str, Any]]:
    """Four rounds of a level, whose output scatters as NEAR."""
    output = figures.pop("output_tok_s", 100.0)
    return [row(plan, setting, users, n, **figures, output_tok_s=output * share) for n, share in enumerate(NEAR, 1)]


def choice(found: list[Claim], users: int) -> Claim:
    return only(found, "choice", users=users)


def test_of_two_settings_that_surely_serve_the_one_ahead_beyond_noise_is_recommended() -> None:
    plan = plan_of({"llama-np4": (4,), "llama-np16": (4,)}, rounds=4)
    rows = [*scattered(plan, "llama-np4", 4), *scattered(plan, "llama-np16", 4, output_tok_s=150.0)]
    claim = choice(concluded(plan, rows), 4)
    assert (claim.verdict, claim.values["choose"], claim.error_rate) == ("recommended", ["llama-np16"], 0.05)
    assert claim.values["means"]["llama-np16"]["output_tok_s"] == [pytest.approx(148.5), pytest.approx(151.5)]


@pytest.mark.parametrize("searched", [(), ("llama-np4", "llama-np16")])
def test_where_capacities_were_searched_for_the_choice_for_the_most_users_leads(searched: tuple[str, ...]) -> None:
    plan = msgspec.structs.replace(plan_of({"llama-np4": (4, 8), "llama-np16": (4, 8)}, rounds=4), searched=searched)
    rows = [found for name in plan.settings for users in (4, 8) for found in scattered(plan, name, users)]
    leading = [(claim.kind, claim.users) for claim in verdicts.headline(concluded(plan, rows))]
    if searched:
        assert leading[0] == ("choice", 8) and "leader" not in {kind for kind, _ in leading}
    else:
        assert ("leader", 8) in leading and "choice" not in {kind for kind, _ in leading}


def test_two_settings_within_noise_are_not_told_apart() -> None:
    plan = plan_of({"llama-np4": (4,), "llama-np16": (4,)}, rounds=4)
    rows = [*scattered(plan, "llama-np4", 4), *scattered(plan, "llama-np16", 4, output_tok_s=100.5)]
    claim = choice(concluded(plan, rows), 4)
    assert (claim.verdict, claim.error_rate) == ("not_told_apart", None)
    assert claim.values["choose"] == ["llama-np16", "llama-np4"]


@pytest.mark.parametrize(("output", "more"), [((150.0, 151.0), True), ((99.5, 151.0), False)])
def test_more_rounds_are_worth_it_only_where_every_round_so_far_was_above(
    output: tuple[float, float], more: bool
) -> None:
    """Of 100 and 101 tokens/s, 99.5 and 151 overlap, and will whatever a third round gives."""
    plan = plan_of({"llama-np4": (4,), "llama-np16": (4,)})
    rows = [row(plan, "llama-np4", 4, n, output_tok_s=value) for n, value in ((1, 100.0), (2, 101.0))]
    rows += [row(plan, "llama-np16", 4, n, output_tok_s=value) for n, value in enumerate(output, 1)]
    found = concluded(plan, rows)
    assert choice(found, 4).verdict == "not_told_apart"
    claim = worth_more_rounds(found, plan, "main")
    assert (claim is not None and claim.users == 4) == more
    assert worth_more_rounds(found, plan, "another run") is None


def test_what_is_told_apart_needs_no_more_rounds_and_four_rounds_of_two_cells_suffice() -> None:
    """Beside cells of two rounds, as a search leaves them: equal settings are so apart in 2 of 70 cases."""
    plan = plan_of({"llama-np4": (2, 4), "llama-np16": (2, 4)})
    rows = [*both(plan, "llama-np4", 2), *both(plan, "llama-np16", 2)]
    rows += [*scattered(plan, "llama-np4", 4), *scattered(plan, "llama-np16", 4, output_tok_s=150.0)]
    found = concluded(plan, rows)
    assert choice(found, 4).verdict == "recommended"
    assert worth_more_rounds(found, plan, "main") is None


def test_two_rounds_of_few_cells_recommend_nothing_however_far_apart() -> None:
    plan = plan_of({"llama-np4": (4,), "llama-np16": (4,)})
    found = concluded(plan, [*both(plan, "llama-np4", 4), *both(plan, "llama-np16", 4, output_tok_s=900.0)])
    assert choice(found, 4).verdict == "not_told_apart"


def test_a_faster_setting_that_misses_the_target_is_not_a_choice() -> None:
    plan = plan_of({"llama-np4": (4, 8), "llama-np16": (4, 8), "vllm-bf16": (4,)})
    rows = [*both(plan, "llama-np4", 4), *both(plan, "llama-np4", 8, **MISSED, output_tok_s=900.0)]
    rows += [*both(plan, "llama-np16", 4), *both(plan, "llama-np16", 8)]
    claim = choice(concluded(plan, [*rows, *both(plan, "vllm-bf16", 4)]), 8)
    assert (claim.verdict, claim.values["choose"], claim.values["beyond"]) == (
        "only_one",
        ["llama-np16"],
        ["llama-np4"],
    )


@pytest.mark.parametrize(
    "figures",
    [
        {"ttft_p95_s": 1.99, "ttft_p95_all_s": 1.99},  # a level within 5 % of its limit is never sure
        {"valid": False, "invalid_reasons": [mark("device_throttled", throttles=120, samples=120)]},
    ],
    ids=["near", "not valid"],
)
def test_a_level_that_is_not_sure_or_not_valid_is_no_choice_and_is_named(figures: dict[str, Any]) -> None:
    plan = plan_of({"llama-np4": (4,), "llama-np16": (4,)})
    claim = choice(concluded(plan, [*both(plan, "llama-np4", 4), *both(plan, "llama-np16", 4, **figures)]), 4)
    assert (claim.verdict, claim.values["unsure"]) == ("only_one", ["llama-np16"])


def test_other_jobs_and_single_settings_leave_no_choice() -> None:
    plan = plan_of({"llama-np4": (4,), "llama-np16": (4,)})
    other = msgspec.structs.replace(plan.settings["llama-np16"], prompts_sha256="f" * 64)
    plan = msgspec.structs.replace(plan, settings={**plan.settings, "llama-np16": other})
    found = concluded(plan, [*both(plan, "llama-np4", 4), *both(plan, "llama-np16", 4)])
    assert not [claim for claim in found if claim.kind in ("choice", "outdone")]


def remembered(plan: Plan, **gib: float) -> Any:
    """The table of memory, by setting."""
    rows = []
    for rank, (name, own) in enumerate(plan.settings.items()):
        empty: dict[str, Any] = dict.fromkeys(SCHEMAS["memory"].names)
        about = {"run": "main", "setting": name, "rank": rank, "engine": own.engine.key, "slots": own.slots}
        about |= {"engine_kind": own.engine.kind, "model": own.model.key, "model_name": own.model.name}
        rows.append(empty | about | {"measured_gib": gib[name.replace("-", "_")], "memory_kind": "nvml"})
    return table("memory", rows)


def scored(target: str, verdict: str, points: float) -> Claim:
    names = KINDS["score"][verdict]
    values = dict.fromkeys(names) | {"target": target, "baseline": "base", "measure": "mgsm", "points": points}
    return Claim(kind="score", verdict=verdict, subjects=[target, "base"], figure="mgsm", values=values)


@pytest.mark.parametrize(
    ("verdict", "differs", "words"),
    [("lower", [["mgsm", -4.0]], "-4.0 points"), ("none_detected", [], "no difference in its answers was detected")],
)
def test_what_a_choice_costs_in_money_memory_and_answers_is_said(verdict: str, differs: Any, words: str) -> None:
    """3.60 USD an hour and 100 tokens/s: 10 USD for a million tokens."""
    plan = plan_of({"llama-np16-q8_0": (4,), "llama-np16": (4,)})
    targets = {"base": plan.settings["llama-np16-q8_0"], "other": plan.settings["llama-np16"]}
    asked = Evaluations(baseline="base", concurrency=1, repeats=2, seed=0, tasks={}, targets=targets)
    plan = msgspec.structs.replace(plan, cost={"price_per_hour": 3.6}, evaluations=asked)
    made = tables_of(plan, [*both(plan, "llama-np16-q8_0", 4), *both(plan, "llama-np16", 4)])
    made["memory"] = remembered(plan, llama_np16_q8_0=19.0, llama_np16=9.0)
    (claim,) = [c for c in choices(made, plan, [scored("other", verdict, -4.0)]) if c.kind == "choice"]
    one, other = claim.values["means"]["llama-np16-q8_0"], claim.values["means"]["llama-np16"]
    assert (one["usd"], one["gib"], other["gib"]) == ([pytest.approx(10), pytest.approx(10)], 19.0, 9.0)
    assert one["answers"]["baseline"] and not other["answers"]["baseline"]
    assert (other["answers"]["differs"], other["answers"]["open"]) == (differs, 0)
    assert words in said(claim)["en"] and "9.00 GiB" in said(claim)["en"]


def outdone(found: list[Claim]) -> list[tuple[str, str, str]]:
    return [(claim.verdict, *claim.subjects) for claim in found if claim.kind == "outdone"]


def four(plan: Plan, misses: str, slower: float = 1.0) -> list[dict[str, Any]]:
    """At 8 users the setting `misses` misses; at 4 both serve, `misses` with `slower` times the output."""
    other = next(name for name in plan.settings if name != misses)
    good = [*both(plan, other, 4), *both(plan, other, 8)]
    return [*good, *both(plan, misses, 4, output_tok_s=100.0 * slower), *both(plan, misses, 8, **MISSED)]


def test_a_setting_that_serves_fewer_and_is_better_in_nothing_is_outdone() -> None:
    plan = plan_of({"llama-np4": (4, 8), "llama-np16": (4, 8)})
    found = concluded(plan, four(plan, "llama-np4"))
    claim = only(found, "outdone")
    assert (claim.verdict, claim.subjects) == ("fewer_users", ["llama-np4", "llama-np16"])
    assert (claim.values["most"], claim.values["misses"], claim.values["at"]) == (8, 8, [4, 8])
    assert claim.values["memory_compared"] is False and "memory" not in said(claim)["en"]


def test_what_is_faster_or_sooner_somewhere_or_needs_less_memory_is_not_outdone() -> None:
    plan = plan_of({"llama-np4": (4, 8), "llama-np16": (4, 8)})
    assert outdone(concluded(plan, four(plan, "llama-np4", slower=1.2))) == []
    late = [row | ({"ttft_p95_s": 1.6} if row["setting"] == "llama-np16" else {}) for row in four(plan, "llama-np4")]
    assert outdone(concluded(plan, late)) == []
    less = remembered(plan, llama_np4=9.0, llama_np16=19.0)
    assert outdone(concluded(plan, four(plan, "llama-np4"), memory=less)) == []
    more = remembered(plan, llama_np4=19.0, llama_np16=19.0)
    claim = only(concluded(plan, four(plan, "llama-np4"), memory=more), "outdone")
    assert claim.values["memory_compared"] is True and "at most 5 % more memory" in said(claim)["en"]


def test_another_file_whose_answers_were_not_compared_is_not_outdone() -> None:
    plan = plan_of({"llama-np16-q8_0": (4, 8), "llama-np16": (4, 8)})
    assert plan.settings["llama-np16-q8_0"].model.key != plan.settings["llama-np16"].model.key
    assert outdone(concluded(plan, four(plan, "llama-np16-q8_0"))) == []


def test_a_setting_with_less_output_beyond_noise_is_outdone_where_both_serve_as_many() -> None:
    plan = plan_of({"llama-np4": (4,), "llama-np16": (4,)}, rounds=4)
    rows = [*scattered(plan, "llama-np4", 4), *scattered(plan, "llama-np16", 4, output_tok_s=150.0)]
    assert outdone(concluded(plan, rows)) == [("less_output", "llama-np4", "llama-np16")]
    equal = [*scattered(plan, "llama-np4", 4), *scattered(plan, "llama-np16", 4)]
    assert outdone(concluded(plan, equal)) == []


def test_where_requests_come_whatever_the_server_does_output_chooses_nothing() -> None:
    plan = plan_of({"llama-np4": (4,), "llama-np16": (4,)}, rounds=4)
    asked = {"mode": "open-users", "user_rate": 0.5}
    settings = {
        name: msgspec.structs.replace(own, workload={**own.workload, **asked}) for name, own in plan.settings.items()
    }
    plan = msgspec.structs.replace(plan, settings=settings)
    rows = [*scattered(plan, "llama-np4", 4), *scattered(plan, "llama-np16", 4, output_tok_s=150.0)]
    found = concluded(plan, rows)
    assert choice(found, 4).verdict == "not_told_apart"
    assert sorted(choice(found, 4).values["choose"]) == ["llama-np16", "llama-np4"]
    assert outdone(found) == []
