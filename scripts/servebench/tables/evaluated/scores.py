"""Score each target's replies per measure, compare its repeats, and list where its answers stood. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean, median
from typing import Any

import pyarrow as pa

from servebench.tables.evaluated import statistics
from servebench.tables.files import table
from servebench.tasks import MEASURES, proofreading
from servebench.tasks.answers import FAILED, Questions, answer_row, check, read_answers
from servebench.tasks.edits import character_edits, distance
from servebench.tasks.jcommonsenseqa import CHOICES
from servebench.tasks.language import has_english, has_simplified_chinese
from servebench.tasks.scoring import has_reasoning, without_reasoning
from servebench.tasks.task import OUTCOMES, Answer


def rescored(answers: pa.Table, questions: Questions) -> pa.Table:
    """Score the answers from their raw texts by the present rules.

    The scores in `evaluations/TARGET.parquet` are those of the rules on the day it was written.
    """
    replied = iter(read_answers(answers, questions))
    return table(
        "answers",
        (
            row
            if row["outcome"] == FAILED
            else answer_row(
                (read := next(replied)).target,
                read.task,
                read.repeat,
                read.question,
                read.reply,
                tokens=read.tokens,
                latency_s=row["latency_s"],
            )
            for row in check(answers).to_pylist()
        ),
    )


def grouped(answers: Iterable[Answer]) -> dict[tuple[str, str, int], list[Answer]]:
    """Group answers by (task, target, repeat), in the order of first occurrence."""
    groups: dict[tuple[str, str, int], list[Answer]] = {}
    for answer in answers:
        groups.setdefault((answer.task, answer.target, answer.repeat), []).append(answer)
    return groups


def scores(answers: pa.Table, questions: Questions) -> pa.Table:
    """Make the table `scores`: counts and shares of every measure per target and repeat."""
    groups = grouped(read_answers(answers, questions))
    return table("scores", _score_rows(groups, questions))


def _score_rows(groups: dict[tuple[str, str, int], list[Answer]], questions: Questions) -> Iterator[dict[str, Any]]:
    for measure in MEASURES:
        for (task, target, repeat), group in groups.items():
            asked = [answer for answer in group if task == measure.task and measure.asked(answer.question)]
            if not asked:
                continue
            count = sum(map(measure.holds, asked))
            low, high = statistics.share_interval(count, len(asked))
            outcomes = Counter(answer.outcome for answer in asked)
            texts = [(answer.reply.text, answer.question.text) for answer in asked if answer.reply.text]
            tokens = [answer.tokens for answer in asked if answer.tokens is not None]
            yield {
                "target": target,
                "task": task,
                "measure": measure.name,
                "headline": measure.headline,
                "lower_is_better": measure.lower_is_better,
                "repeat": repeat,
                "n": len(asked),
                "questions": sum(map(measure.asked, questions[task])),
                "count": count,
                "share": count / len(asked),
                "low": low,
                "high": high,
                **{outcome: outcomes[outcome] for outcome in OUTCOMES},
                "reasoning_replies": sum(has_reasoning(answer.reply) for answer in asked),
                "simplified_chinese": sum(has_simplified_chinese(text) for text, _ in texts),
                "english": sum(has_english(text, question) for text, question in texts),
                "characters_mean": fmean(len(text) for text, _ in texts) if texts else None,
                "tokens_mean": fmean(tokens) if tokens else None,
            }


def both_repeats(answers: Iterable[Answer]) -> dict[tuple[str, str], list[tuple[Answer, Answer]]]:
    """Pair each question's answers of the first and second repeat, by (task, target); none without two repeats."""
    found: dict[tuple[str, str], dict[str, dict[int, Answer]]] = {}
    for answer in answers:
        by_question = found.setdefault((answer.task, answer.target), {})
        by_question.setdefault(answer.question.question_id, {})[answer.repeat] = answer
    return {
        key: [(pair[1], pair[2]) for pair in by_question.values() if pair.keys() >= {1, 2}]
        for key, by_question in found.items()
    }


def agreement(answers: pa.Table, questions: Questions) -> pa.Table:
    """Make the table `agreement`: the second repeat compared with the first, a row per target and task with both."""
    return table("agreement", _agreement_rows(read_answers(answers, questions)))


def _agreement_rows(answers: Iterable[Answer]) -> Iterator[dict[str, Any]]:
    for (task, target), pairs in both_repeats(answers).items():
        if not pairs:
            continue
        same = sum(one.extracted == other.extracted for one, other in pairs)
        texts = [(one.reply.text or "", other.reply.text or "") for one, other in pairs]
        places = [place for text, other in texts if (place := statistics.first_difference(text, other)) is not None]
        low, high = statistics.share_interval(same, len(pairs))
        yield {
            "target": target,
            "task": task,
            "n": len(pairs),
            "same_answer": same,
            "same_answer_share": same / len(pairs),
            "low": low,
            "high": high,
            "both_unanswered": sum(one.extracted is None and other.extracted is None for one, other in pairs),
            "same_text": len(pairs) - len(places),
            "same_text_share": 1 - len(places) / len(pairs),
            "first_difference_median": float(median(places)) if places else None,
        }


def proofreading_outcomes(answers: pa.Table, questions: Questions) -> pa.Table:
    """Make the table `proofreading`: counts of the sentences' outcomes per category."""
    rows = []
    for (task, target, repeat), group in grouped(read_answers(answers, questions)).items():
        if task != proofreading.TASK.name:
            continue
        categories: dict[str, list[Answer]] = {}
        for answer in group:
            total = "all-clean" if proofreading.is_clean(answer.question) else "all-errors"
            for category in (total, answer.question.category or ""):
                categories.setdefault(category, []).append(answer)
        rows += [
            {"target": target, "repeat": repeat, "category": category, **_proofread(of_category)}
            for category, of_category in sorted(categories.items())
        ]
    return table("proofreading", rows)


def _proofread(answers: Sequence[Answer]) -> dict[str, Any]:
    sentences = [answer.extracted if answer.outcome in ("correct", "wrong") else None for answer in answers]
    compared = [proofreading.compare(s, a.question) for s, a in zip(sentences, answers, strict=True)]
    splits = Counter(split for split, _ in compared)
    edits = [counts for _, counts in compared if counts is not None]
    total = proofreading.EditCounts(
        sum(e.made for e in edits), sum(e.wanted for e in edits), sum(e.shared for e in edits)
    )
    precision, recall, f05 = proofreading.f_beta(total)
    came_back = [(s, a.question) for s, a in zip(sentences, answers, strict=True) if s is not None]
    distances = [distance(character_edits(question.text, sentence)) for sentence, question in came_back]
    replies = [(without_reasoning(answer.reply.text or "")[0] or "", answer.question) for answer in answers]
    return {
        "n": len(answers),
        **{split: splits[split] for split in proofreading.SPLITS},
        "precision": precision,
        "recall": recall,
        "f05": f05,
        "edit_distance_mean": fmean(distances) if distances else None,
        "form_only": sum(
            proofreading.touches_form_only(sentence, question) and not proofreading.is_correct(sentence, question)
            for sentence, question in came_back
        ),
        "format_violations": sum(proofreading.lenient(text, question)[1] for text, question in replies),
    }


def positions(answers: pa.Table, questions: Questions) -> pa.Table:
    """Make the table `positions`: JCommonsenseQA by place of the answer, with a chi-square for a preferred place."""
    rows = []
    for (task, target, repeat), group in grouped(read_answers(answers, questions)).items():
        if task != "jcommonsenseqa":
            continue
        chosen = Counter(answer.extracted for answer in group)
        gold = Counter(answer.question.gold for answer in group)
        right = Counter(answer.question.gold for answer in group if answer.correct)
        places = [str(place) for place in range(CHOICES)]
        # The test needs every place among the right answers; a handful of questions may not have every place.
        test = (
            statistics.position_test([chosen[p] for p in places], [gold[p] for p in places])
            if all(gold[p] for p in places)
            else None
        )
        rows += [
            {
                "target": target,
                "repeat": repeat,
                "position": int(place),
                "gold": gold[place],
                "correct": right[place],
                "chosen": chosen[place],
                "chi_square": test.statistic if test else None,
                "p": test.p if test else None,
            }
            for place in places
        ]
    return table("positions", rows)
