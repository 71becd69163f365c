"""What may be said of answers: one family, both repeats in one test, no verdict where a side has no whole answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from judged import both, concluded, plan_of
from servebench import configuration
from servebench.claims import Claim
from servebench.plan import Plan
from servebench.tables.evaluated.comparisons import comparisons
from servebench.tables.evaluated.scores import scores
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


def test_scores_within_a_margin_are_not_called_equal_answers() -> None:
    """Both get 125 of 250 right, but 20 answers of each side are wrong in another way."""

    def other(n: int, repeat: int) -> Reply:
        return (
            Reply(text="答え: 9999", finish_reason="stop")
            if n % 2 and n < 42
            else (right(n) if n % 2 == 0 else wrong(n))
        )

    (score, equivalence) = claims(base=lambda n, _: right(n) if n % 2 == 0 else wrong(n), target=other)
    assert equivalence.verdict == "within_margin" and equivalence.values["changed"] == 21
    assert "scores" in said(equivalence)["en"] and "21 of 250 answers changed" in said(equivalence)["en"]
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
