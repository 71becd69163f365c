"""What may be said of answers: one family, both repeats in one test, no verdict where a side has no whole answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from judged import both, concluded, only, plan_of
from servebench import configuration
from servebench.claims import Claim
from servebench.plan import Plan
from servebench.tables.catalogue import SCHEMAS
from servebench.tables.evaluated.comparisons import comparisons
from servebench.tables.evaluated.scores import scores
from servebench.tables.files import table as table_of
from servebench.tasks.answers import answer_row, failed_row, table
from servebench.tasks.task import Question, Reply
from servebench.words.claims import said
from synthetic import ROOT

ASKED = [Question(question_id=str(n), text=f"問{n}", gold=str(n)) for n in range(1, 251)]
QUESTIONS = {"mgsm": ASKED}
Given = Callable[[int, int], Reply | None]


def evaluated() -> Plan:
    plan = plan_of({"llama-np16": (8,)})
    quick = configuration.read([ROOT / "config" / "config.yaml"]).evaluations
    return msgspec.structs.replace(plan, evaluations=quick)


def right(n: int) -> Reply:
    return Reply(text=f"答え: {n}", finish_reason="stop")


def wrong(n: int) -> Reply:
    return Reply(text=f"答え: {n + 1000}", finish_reason="stop")


def some(share: float, seed: int) -> Given:
    """A side that gets each question right with this chance, the same in both repeats."""
    drawn = np.random.default_rng(seed).random(len(ASKED) + 1) < share
    return lambda n, repeat: right(n) if drawn[n] else wrong(n)


def claims(**sides: Given) -> list[Claim]:
    """Compare the sides with the first, `base`."""
    rows: list[dict[str, Any]] = []
    for target, given in sides.items():
        for repeat in (1, 2):
            for question in ASKED:
                reply = given(int(question.question_id), repeat)
                place = (target, "mgsm", repeat)
                if reply is None:
                    rows.append(failed_row(*place, question.question_id, "HTTP 500", 0.1))
                else:
                    rows.append(answer_row(*place, question, reply, tokens=5, latency_s=0.1))
    answers = table(rows)
    made: dict[str, pa.Table] = {"comparisons": comparisons(answers, QUESTIONS, "base", {"mgsm": 5.0})}
    made["scores"] = scores(answers, QUESTIONS)
    plan = evaluated()
    found = concluded(plan, both(plan, "llama-np16", 8), **made)
    return [claim for claim in found if claim.kind in ("score", "equivalence") and claim.figure == "mgsm"]


def test_a_target_that_failed_exactly_what_the_baseline_got_wrong_is_not_judged() -> None:
    """190 of 190 against 76 %: the questions left are those that both can answer."""
    base = some(0.76, 1)

    def target(n: int, repeat: int) -> Reply | None:
        return right(n) if base(n, repeat) == right(n) else None

    (score,) = claims(base=base, target=target)
    assert score.verdict == "not_judged"
    (reason,) = score.values["reasons"]
    assert (reason["kind"], reason["target"], reason["asked"]) == ("unanswered", "target", 500)
    assert "whole answer" in said(score)["en"] and "比較しません" in said(score)["ja"]


def test_a_side_that_is_cut_off_in_a_fifth_is_not_judged() -> None:
    def target(n: int, repeat: int) -> Reply:
        return Reply(text="まず", finish_reason="length") if n % 5 == 0 else right(n)

    (score,) = claims(base=lambda n, _: right(n), target=target)
    assert score.verdict == "not_judged"


def test_a_difference_in_every_fifth_answer_is_found_with_its_direction() -> None:
    (score, _) = claims(base=lambda n, _: right(n), target=lambda n, _: wrong(n) if n % 5 == 0 else right(n))
    assert (score.verdict, score.values["points"], score.error_rate) == ("lower", -20.0, 0.05)


def test_equal_answers_are_no_difference_and_say_what_would_have_been_seen() -> None:
    """A baseline with 76 % of 250 right: about 11 points would have been detected, whatever the two answered."""
    base = some(0.76, 1)
    (score, equivalence) = claims(base=base, target=base)
    assert (score.verdict, score.values["points"]) == ("none_detected", 0.0)
    assert score.values["detectable"] == pytest.approx(11, abs=1)
    assert (equivalence.verdict, equivalence.values["changed"]) == ("within_margin", 0)


def test_a_repeat_without_any_reply_is_asked_and_lost() -> None:
    """All 250 of the second repeat failed: the first says nothing of a server that then broke down."""
    (score,) = claims(base=lambda n, _: right(n), target=lambda n, repeat: right(n) if repeat == 1 else None)
    assert score.verdict == "not_judged"
    assert score.values["reasons"] == [{"kind": "unanswered", "target": "target", "lost": 250, "asked": 500}]
    assert "target left 250 of 500 replies without a whole answer" in said(score)["en"]
    assert "応答 500 件中 250 件で回答が得られなかった" in said(score)["ja"]


def test_agreement_within_a_margin_is_judged_on_both_repeats() -> None:
    """The first repeat is identical; in the second, 60 of 250 answers are wrong, so 24 points lower."""

    def target(n: int, repeat: int) -> Reply:
        return wrong(n) if repeat == 2 and n <= 60 else right(n)

    (score, equivalence) = claims(base=lambda n, _: right(n), target=target)
    assert (score.verdict, score.values["points"]) == ("lower", -12.0)
    assert score.values["low"] < -12 < score.values["high"] < 0
    assert equivalence.verdict == "not_shown"
    assert (equivalence.values["changed"], equivalence.values["replies"]) == (60, 500)
    assert "12.0 points below base" in said(score)["en"] and "12.0 ポイント低く" in said(score)["ja"]


def test_mistakes_that_cancel_are_said_as_changed_answers_with_the_interval() -> None:
    """Each side alone is right in 60 of 250: the same score by other answers, and no margin is needed to say so."""
    (score, _) = claims(
        base=lambda n, _: right(n) if n > 60 else wrong(n),
        target=lambda n, _: right(n) if n <= 60 or n > 120 else wrong(n),
    )
    assert (score.verdict, score.values["changed"], score.values["replies"]) == ("none_detected", 240, 500)
    english, japanese = said(score)["en"], said(score)["ja"]
    assert "240 of 500 answers changed" in english and "500 件中 240 件" in japanese
    assert "would have been found in 4 of 5 such experiments" in english and "5 回のうち 4 回" in japanese


def test_scores_within_a_margin_are_not_called_equal_answers() -> None:
    """Both get 125 of 250 right, but 20 answers of each side are wrong in another way."""

    def other(n: int, repeat: int) -> Reply:
        return (
            Reply(text="答え: 9999", finish_reason="stop")
            if n % 2 and n < 42
            else (right(n) if n % 2 == 0 else wrong(n))
        )

    (score, equivalence) = claims(base=lambda n, _: right(n) if n % 2 == 0 else wrong(n), target=other)
    assert equivalence.verdict == "within_margin" and equivalence.values["changed"] == 42
    assert "scores" in said(equivalence)["en"] and "42 of 500 answers changed" in said(equivalence)["en"]
    assert "得点" in said(equivalence)["ja"]
    assert score.verdict == "none_detected"


def test_one_p_under_five_hundredths_of_eight_comparisons_is_no_difference() -> None:
    """13 questions against 4: p is 0.049 alone, and 0.39 among eight."""
    base = lambda n, _: right(n) if n > 100 else wrong(n)  # noqa: E731

    def unlucky(n: int, repeat: int) -> Reply:
        return wrong(n) if 101 <= n <= 113 else right(n) if n > 96 else wrong(n)

    equal = {f"t{n}": base for n in range(7)}
    found = [claim for claim in claims(base=base, unlucky=unlucky, **equal) if claim.kind == "score"]
    assert len(found) == 8
    assert {claim.verdict for claim in found} == {"none_detected"}


def blank(name: str) -> dict[str, Any]:
    """Make a row of this table that says nothing."""
    zeros = {pa.int64(): 0, pa.float64(): 0.0, pa.bool_(): False, pa.string(): ""}
    return {field.name: None if field.nullable else zeros.get(field.type, []) for field in SCHEMAS[name]}


def about(plan: Plan, **made: pa.Table) -> Claim:
    return only(concluded(plan, both(plan, "llama-np16", 8), **made), "score")


def answered(*targets: str) -> pa.Table:
    replies = [answer_row(name, "mgsm", 1, ASKED[0], right(1), tokens=5, latency_s=0.1) for name in targets]
    return scores(table(replies), QUESTIONS)


def test_a_planned_evaluation_without_answers_is_said_to_be_missing_or_without_its_baseline() -> None:
    plan = evaluated()
    rows = ({"target": name, "status": "ok", "baseline": name == "BF16"} for name in ("BF16", "Q4", "Q5"))
    asked = table_of("targets", [blank("targets") | row for row in rows])
    yet = about(plan)
    without = about(plan, targets=asked, scores=answered("Q4", "Q5"))
    silent = about(plan, targets=asked, scores=answered("BF16", "Q5"))
    assert (yet.verdict, without.verdict, silent.verdict) == ("not_evaluated_yet", "no_baseline", "no_answers")
    assert "not evaluated yet" in said(yet)["en"] and "まだ評価していません" in said(yet)["ja"]
    assert "the baseline BF16 gave none" in said(without)["en"] and "基準 BF16 の回答が" in said(without)["ja"]
    assert "of Q4 are not compared" in said(silent)["en"] and "Q4 は回答がないため" in said(silent)["ja"]


def test_a_rise_where_lower_is_better_is_called_worse() -> None:
    """Correct sentences that were changed: 40 of 100 more than the baseline's."""
    names = {"measure": "proof_rewritten", "target": "Q4", "baseline": "BF16"}
    figures = {"n": 100, "questions": 100, "other_only": 40, "difference": 40.0, "low": 31.0, "high": 50.0, "p": 1e-12}
    compared = table_of("comparisons", [blank("comparisons") | names | figures | {"repeat": 1, "changed": 40}])
    plan = evaluated()
    assert plan.evaluations is not None
    once = msgspec.structs.replace(plan, evaluations=msgspec.structs.replace(plan.evaluations, repeats=1))
    side = {"measure": "proof_rewritten", "lower_is_better": True, "repeat": 1, "n": 100, "questions": 100}
    sides = table_of("scores", [blank("scores") | side | {"target": name} for name in ("BF16", "Q4")])
    worse = about(once, comparisons=compared, scores=sides)
    assert "40.0 points above BF16 (worse)" in said(worse)["en"] and "ポイント高く（悪化）" in said(worse)["ja"]
