"""What our rules conclude from the published figures of the H200 experiment (docs/experiments.md lists where less)."""

from __future__ import annotations

import pytest
from published import ROOT, conclude, plan, rows

from judged import only
from servebench.claims import Claim
from servebench.tables.files import read_reference
from servebench.words.claims import said


@pytest.fixture(scope="module")
def found() -> list[Claim]:
    return conclude()


def test_both_ends_of_every_published_range_are_a_round() -> None:
    assert len(list(rows(plan()))) == 148


def test_the_levels_that_met_the_line_are_the_published_ones(found: list[Claim]) -> None:
    cells = read_reference(ROOT / "config" / "references" / "h200-concurrency.csv")
    published = {(c["setting"], c["users"]) for c in cells if c["run"] == "main" and c["meets_line_both_rounds"]}
    met = {(c.subjects[0], c.users) for c in found if (c.kind, c.run, c.verdict) == ("level", "main", "met")}
    assert met == published


@pytest.mark.parametrize("users", [4, 8, 16, 32, 64])
def test_vllm_has_the_highest_output_from_four_users_on(found: list[Claim], users: int) -> None:
    leader = only(found, "leader", run="main", figure="output_tok_s", users=users)
    assert (leader.verdict, leader.values["first"]) == ("ahead", "vllm-bf16")


def test_nobody_leads_with_one_or_two_users_and_the_only_one_at_128_is_not_called_fastest(found: list[Claim]) -> None:
    assert {only(found, "leader", run="main", figure="output_tok_s", users=n).verdict for n in (1, 2)} == {"tied"}
    assert only(found, "leader", run="main", figure="output_tok_s", users=128).verdict == "only_one"


def test_a_gap_below_is_no_capacity(found: list[Claim]) -> None:
    capacity = only(found, "capacity", subjects=["llama-np16"])
    assert (capacity.verdict, capacity.users, capacity.values["met_above"]) == ("bracketed", 2, [8, 16])


def test_a_ratio_whose_interval_excludes_one_is_not_said_to_be_within_repeats(found: list[Claim]) -> None:
    """64 slots against 16 with 16 users: 0.46, but of a large family."""
    pair = only(found, "pair", subjects=["llama-np64", "llama-np16"], users=16, figure="output_tok_s")
    assert (pair.verdict, round(pair.values["ratio"], 2)) == ("not_beyond_noise", 0.46)
    assert pair.values["high"] < 1
    told = said(pair)
    assert "do not rule out chance" in told["en"] and "no more than" not in told["en"]
    assert "範囲内" not in told["ja"]
