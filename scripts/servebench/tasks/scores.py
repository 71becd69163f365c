"""From answers to scores: the measures, their counts, and what stands beside them. Pure over Arrow tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from servebench.faults import Fault
from servebench.tasks import TASKS, mgsm, proofreading
from servebench.tasks.schemas import FAILED, check
from servebench.tasks.scoring import score, without_reasoning
from servebench.tasks.task import Question, Reply

Questions = Mapping[str, Sequence[Question]]


"""Questions by name of task."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A row of the `answers` table with its question."""

    target: str
    task: str
    repeat: int
    question: Question
    reply: Reply
    extracted: str | None
    rule: str | None
    outcome: str
    correct: bool
    tokens: int | None


@dataclass(frozen=True, slots=True)
class Measure:
    """Something that is true or not of an answer. asked: whether a question belongs to it."""

    name: str
    task: str
    holds: Callable[[Answer], bool]
    asked: Callable[[Question], bool] = lambda question: True
    headline: bool = False
    lower_is_better: bool = False


def _correct(answer: Answer) -> bool:
    return answer.correct


def _as_asked_for(answer: Answer) -> bool:
    return answer.correct and answer.rule in TASKS[answer.task].strict_rules


def _leniently_right(answer: Answer) -> bool:
    text = without_reasoning(answer.reply.text or "")[0]
    return answer.outcome != "truncated" and proofreading.lenient(text or "", answer.question)[0]


def _erroneous(question: Question) -> bool:
    return not proofreading.is_clean(question)


MEASURES = (
    Measure("jcommonsenseqa", "jcommonsenseqa", _correct, headline=True),
    Measure("jcommonsenseqa_as_asked_for", "jcommonsenseqa", _as_asked_for),
    Measure("mgsm", "mgsm", _correct, headline=True),
    Measure("mgsm_as_asked_for", "mgsm", _as_asked_for),
    Measure("mgsm_undamaged", "mgsm", _correct, asked=lambda question: not mgsm.is_damaged(question)),
    Measure("proof_fixed", "proofreading", _correct, asked=_erroneous, headline=True),
    Measure("proof_fixed_lenient", "proofreading", _leniently_right, asked=_erroneous),
    Measure(
        "proof_rewritten",
        "proofreading",
        lambda answer: not answer.correct,
        asked=proofreading.is_clean,
        headline=True,
        lower_is_better=True,
    ),
    Measure(
        "proof_rewritten_lenient",
        "proofreading",
        lambda answer: not _leniently_right(answer),
        asked=proofreading.is_clean,
        lower_is_better=True,
    ),
)


def answer_row(
    target: str,
    task: str,
    repeat: int,
    question: Question,
    reply: Reply,
    *,
    tokens: int | None,
    latency_s: float | None,
) -> dict[str, Any]:
    """A scored reply as a row of the `answers` table."""
    scored = score(TASKS[task], question, reply)
    return {
        "target": target,
        "task": task,
        "repeat": repeat,
        "question_id": question.question_id,
        "text": reply.text,
        "reasoning": reply.reasoning,
        "extracted": scored.extracted,
        "rule": scored.rule,
        "outcome": scored.outcome,
        "reason": None,
        "correct": scored.correct,
        "tokens": tokens,
        "finish_reason": reply.finish_reason,
        "latency_s": latency_s,
    }


def failed_row(
    target: str, task: str, repeat: int, question_id: str, reason: str, latency_s: float | None
) -> dict[str, Any]:
    """A question that got no reply as a row of the `answers` table."""
    nothing = ("text", "reasoning", "extracted", "rule", "tokens", "finish_reason")
    return {
        "target": target,
        "task": task,
        "repeat": repeat,
        "question_id": question_id,
        **dict.fromkeys(nothing),
        "outcome": FAILED,
        "reason": reason,
        "correct": False,
        "latency_s": latency_s,
    }


def read_answers(answers: pa.Table, questions: Questions) -> list[Answer]:
    """The rows with their questions, without those that got no reply. Fault when a row has no question, or a
    question was answered twice in one repeat of a target."""
    known = {(task, question.question_id): question for task, asked in questions.items() for question in asked}
    seen: set[tuple[str, str, int, str]] = set()
    read = []
    for row in check("answers", answers).to_pylist():
        key = (row["target"], row["task"], row["repeat"], row["question_id"])
        if (question := known.get((row["task"], row["question_id"]))) is None:
            raise Fault(f"answers: question_id: {' '.join(map(str, key))}: no such question; give the data asked from")
        if key in seen:
            raise Fault(f"answers: question_id: {' '.join(map(str, key))}: answered twice; keep one row")
        seen.add(key)
        if row["outcome"] == FAILED:
            continue
        read.append(
            Answer(
                target=row["target"],
                task=row["task"],
                repeat=row["repeat"],
                question=question,
                reply=Reply(text=row["text"], finish_reason=row["finish_reason"], reasoning=row["reasoning"]),
                extracted=row["extracted"],
                rule=row["rule"],
                outcome=row["outcome"],
                correct=row["correct"],
                tokens=row["tokens"],
            )
        )
    return read
