"""Compare targets with a baseline, question by question: the table `comparisons`. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from servebench.faults import Fault
from servebench.tables.evaluated import statistics
from servebench.tables.files import table
from servebench.tasks import MEASURES
from servebench.tasks.answers import Questions, read_answers
from servebench.tasks.task import Answer, Measure

ByQuestion = dict[str, Answer]
REPEATS = (1, 2)


def comparisons(
    answers: pa.Table, questions: Questions, baseline: str, margins: Mapping[str, float] | None = None
) -> pa.Table:
    """Compare every target with the baseline: one row per headline measure, target and repeat.

    margins: by measure, points, declared before the run; a measure without a margin gets no verdict of equivalence.
    Raises Fault when the baseline answered nothing, or when a margin is not of a headline measure.
    """
    read = read_answers(answers, questions)
    if baseline not in {answer.target for answer in read}:
        targets = ", ".join(dict.fromkeys(answer.target for answer in read))
        raise Fault(f"comparisons: baseline: {baseline!r} answered nothing; one of {targets}")
    headline = [measure for measure in MEASURES if measure.headline]
    if unknown := set(margins or {}) - {measure.name for measure in headline}:
        raise Fault(
            f"comparisons: margins: {min(unknown)!r} is not compared; {', '.join(m.name for m in headline)} are"
        )
    return table(
        "comparisons",
        [
            row
            for measure in headline
            for row in _of_measure(measure, read, questions, baseline, (margins or {}).get(measure.name))
        ],
    )


def _of_measure(
    measure: Measure, answers: Sequence[Answer], questions: Questions, baseline: str, margin: float | None
) -> Iterator[dict[str, Any]]:
    asked: dict[int, dict[str, ByQuestion]] = {repeat: {} for repeat in REPEATS}
    for answer in answers:
        if answer.task == measure.task and measure.asked(answer.question):
            if answer.repeat not in asked:
                raise Fault(f"answers: repeat: {answer.repeat} is neither 1 nor 2")
            asked[answer.repeat].setdefault(answer.target, {})[answer.question.question_id] = answer
    combined = _combined(measure, asked, baseline)
    noise = _noise(measure, asked, baseline)
    for repeat, by_target in asked.items():
        if baseline not in by_target:
            continue
        base = by_target[baseline]
        family = {
            target: Pairs(measure, base, other)
            for target, other in by_target.items()
            if target != baseline and base.keys() & other.keys()
        }
        adjusted = _family(list(family.values()))
        omnibus = _omnibus(measure, by_target)
        for (target, pairs), verdict in zip(family.items(), adjusted, strict=True):
            yield {
                "measure": measure.name,
                "target": target,
                "baseline": baseline,
                "repeat": repeat,
                "questions": sum(map(measure.asked, questions[measure.task])),
                **pairs.row(len(family), margin),
                **verdict,
                **noise,
                **combined[target],
                **omnibus,
            }


class Pairs:
    """Hold the answers of baseline and target to the same questions, by one measure."""

    def __init__(self, measure: Measure, base: ByQuestion, other: ByQuestion) -> None:
        pairs = [(answer, other[question_id]) for question_id, answer in base.items() if question_id in other]
        holds = [(measure.holds(one), measure.holds(two)) for one, two in pairs]
        self.n = len(pairs)
        self.base_only = sum(one and not two for one, two in holds)
        self.other_only = sum(two and not one for one, two in holds)
        self.changed = sum(one.extracted != two.extracted for one, two in pairs)
        self.base = sum(one for one, _ in holds)
        self.p = statistics.sign_test(self.base_only, self.other_only)

    @property
    def discordant(self) -> int:
        return self.base_only + self.other_only

    def row(self, family: int, margin: float | None) -> dict[str, Any]:
        counts = (self.other_only, self.base_only, self.n)
        low, high = statistics.tango_interval(*counts)
        narrow_low, narrow_high = statistics.tango_interval(*counts, 2 * statistics.ALPHA)
        share = self.discordant / self.n
        right = self.base / self.n
        detectable = statistics.detectable(self.n, right, statistics.ALPHA / family)
        alone = statistics.detectable(self.n, right)
        return {
            "n": self.n,
            "base_only": self.base_only,
            "other_only": self.other_only,
            "difference": 100 * (self.other_only - self.base_only) / self.n,
            "low": 100 * low,
            "high": 100 * high,
            "p": self.p,
            "p_mid": statistics.sign_test_mid_p(self.base_only, self.other_only),
            "comparisons": family,
            "detectable": None if detectable is None else 100 * detectable,
            "detectable_alone": None if alone is None else 100 * alone,
            "margin": margin,
            "equivalent": None if margin is None else statistics.is_equivalent(*counts, margin / 100),
            "equivalence_low": 100 * narrow_low,
            "equivalence_high": 100 * narrow_high,
            "provable_margin": 100 * statistics.provable_margin(self.n, share),
            "changed": self.changed,
        }


def _family(family: Sequence[Pairs]) -> list[dict[str, Any]]:
    p_values = [pairs.p for pairs in family]
    possible = statistics.can_be_significant([pairs.discordant for pairs in family], p_values)
    return [
        {
            "p_holm": p,
            "verdict": "difference"
            if p <= statistics.ALPHA
            else "none_detected"
            if reachable
            else "cannot_be_significant",
        }
        for p, reachable in zip(statistics.holm(p_values), possible, strict=True)
    ]


def _noise(measure: Measure, asked: Mapping[int, Mapping[str, ByQuestion]], baseline: str) -> dict[str, int | None]:
    """Count in how many questions the baseline's second repeat differs from its first."""
    first, second = (asked[repeat].get(baseline, {}) for repeat in REPEATS)
    if not first.keys() & second.keys():
        return {"noise_first_only": None, "noise_second_only": None, "noise_changed": None}
    pairs = Pairs(measure, first, second)
    return {
        "noise_first_only": pairs.base_only,
        "noise_second_only": pairs.other_only,
        "noise_changed": pairs.changed,
    }


def _combined(
    measure: Measure, asked: Mapping[int, Mapping[str, ByQuestion]], baseline: str
) -> dict[str, dict[str, Any]]:
    """Test both repeats together, by target; nulls for a target that was not asked twice."""
    targets = [t for t in dict.fromkeys([*asked[1], *asked[2]]) if t != baseline]
    rows: dict[str, dict[str, Any]] = {
        target: dict.fromkeys(("combined_n", "combined_difference", "combined_p", "combined_p_holm"))
        for target in targets
    }
    for target in targets:
        sides = [asked[repeat].get(side, {}) for repeat in REPEATS for side in (target, baseline)]
        common = [question_id for question_id in sides[0] if all(question_id in side for side in sides)]
        if common:
            held = np.array([[measure.holds(side[q]) for side in sides] for q in common], np.int64)
            differences = held @ np.array([1, -1, 1, -1])
            rows[target] |= {
                "combined_n": len(common),
                "combined_difference": 100 * float(differences.mean()) / len(REPEATS),
                "combined_p": statistics.sign_flip_test(differences),
            }
    twice = [row for row in rows.values() if row["combined_p"] is not None]
    for row, p in zip(twice, statistics.holm([row["combined_p"] for row in twice]), strict=True):
        row["combined_p_holm"] = p
    return rows


def _omnibus(measure: Measure, by_target: Mapping[str, ByQuestion]) -> dict[str, float | None]:
    """Compute Cochran's Q over the questions that all targets answered."""
    common = set.intersection(*(set(answers) for answers in by_target.values()))
    held = np.array([[measure.holds(answers[q]) for answers in by_target.values()] for q in sorted(common)], np.bool_)
    test = statistics.cochrans_q(held) if common else None
    return {"cochran_q": test.statistic if test else None, "cochran_p": test.p if test else None}
