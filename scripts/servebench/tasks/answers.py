"""Make rows of the table `answers` from scored replies, and answers from its rows. Null means not measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from servebench import schema
from servebench.faults import Fault
from servebench.tasks import TASKS
from servebench.tasks.scoring import score
from servebench.tasks.task import OUTCOMES, Answer, Question, Reply

Questions = Mapping[str, Sequence[Question]]
"""Questions by name of task."""

# Outcome of a question that got no reply, or an error; it counts as not answered.
FAILED = "failed"

COLUMNS = f"""
target text! engine and model file that answered
task text! jcommonsenseqa, mgsm or proofreading
repeat int! 1 or 2: everything is asked twice
question_id text! as in the data file
text text content of the message, raw; null when it was null
reasoning text reasoning that the server sent beside the content
extracted text the answer read from the text; null when no rule found an answer
rule text the rule that found the answer
outcome text! {", ".join(OUTCOMES)}; or {FAILED}: no reply came
reason text why it failed
correct bool! outcome is correct
tokens int output tokens as the server counts them
finish_reason text as the server sent it
latency_s real from sending to the end of the reply
"""
_SCHEMA = schema.schema(COLUMNS)


def table(rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Make the `answers` table from rows, as `schema.table`."""
    return schema.table("answers", _SCHEMA, rows)


def check(answers: pa.Table) -> pa.Table:
    """Return the table itself; raises TableError as `schema.check`."""
    return schema.check("answers", _SCHEMA, answers)


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
    """Score a reply and make it a row of the `answers` table."""
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
    """Make a row of the `answers` table for a question that got no reply."""
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
    """Join the rows that have a reply with their questions.

    Raises Fault when a row's question is unknown, or a target answered a question twice in one repeat.
    """
    known = {(task, question.question_id): question for task, asked in questions.items() for question in asked}
    seen: set[tuple[str, str, int, str]] = set()
    read = []
    for row in check(answers).to_pylist():
        key = (row["target"], row["task"], row["repeat"], row["question_id"])
        if (question := known.get((row["task"], row["question_id"]))) is None:
            where = " ".join(map(str, key))
            raise Fault(f"answers: question_id: {where}: no such question; give the file that was asked from")
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
