"""Score a reply: take reasoning off, extract the answer, name the outcome. All but `correct` are wrong."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from servebench.tasks.task import OUTCOMES, DataError, Extraction, Outcome, Question, Reply, Task, json_lines


@dataclass(frozen=True, slots=True)
class Score:
    """Hold the score of one reply. extracted, rule: the answer and the rule that read it; both None without one."""

    extracted: str | None
    rule: str | None
    outcome: Outcome

    @property
    def correct(self) -> bool:
        return self.outcome == "correct"


_TAG = re.compile(r"<\s*(/?)\s*think(?:ing)?\s*>", re.IGNORECASE)
# Where a model declines rather than answers; looked for in the reply's beginning only.
_REFUSAL = re.compile(
    r"(?:お?答え|回答|解答|お手伝い|対応|判断)[はをがに]?[^。\n]{0,8}(?:できません|できかね|いたしかね|致しかね|しかねます|出来ません)"
    r"|\bI(?:'m| am) (?:sorry|unable)\b|\bI can(?:no|')t\b",
    re.IGNORECASE,
)
_REFUSAL_CHARACTERS = 120


def without_reasoning(text: str) -> tuple[str | None, bool]:
    """Split a text into (answer, whether it had reasoning).

    The answer follows the last `</think>`; it is None when a `<think>` was never closed, because then no answer was
    begun. An empty block is not reasoning.
    """
    tags = list(_TAG.finditer(text))
    if not tags:
        return text, False
    if not tags[-1][1]:
        return None, bool(text[tags[-1].end() :].strip()) or len(tags) > 1
    thought = _TAG.sub("", text[: tags[-1].start()])
    return text[tags[-1].end() :], bool(thought.strip())


def has_reasoning(reply: Reply) -> bool:
    """Tell whether the model wrote reasoning, in the content or beside it; none is wanted."""
    return bool((reply.reasoning or "").strip()) or without_reasoning(reply.text or "")[1]


def _refuses(answer: str, question: Question) -> bool:
    return bool(_REFUSAL.search(answer[:_REFUSAL_CHARACTERS])) and not _REFUSAL.search(question.text)


def score(task: Task, question: Question, reply: Reply) -> Score:
    """Score one reply: the first outcome of this list that applies.

    `refused` by a content filter; `reasoning_leaked` (reasoning never closed, or reasoning and no content); `empty`;
    `truncated` by the token limit, whatever the text; `refused` in words; `unparsable`; `correct` or `wrong`.
    """
    answer, reasoned = without_reasoning(reply.text or "")
    if reply.finish_reason == "content_filter":
        return Score(None, None, "refused")
    if answer is None:
        return Score(None, None, "reasoning_leaked")
    if not answer.strip():
        return Score(None, None, "reasoning_leaked" if reasoned or (reply.reasoning or "").strip() else "empty")
    found: Extraction = task.extract(answer, question)
    right = found.extracted is not None and task.is_correct(found.extracted, question)
    outcome: Outcome
    if reply.finish_reason == "length":
        outcome = "truncated"
    elif _refuses(answer, question) and not (right and found.rule in task.strict_rules):
        outcome = "refused"
    elif found.extracted is None:
        outcome = "unparsable"
    else:
        outcome = "correct" if right else "wrong"
    return Score(found.extracted, found.rule, outcome)


@dataclass(frozen=True, slots=True)
class Totals:
    """Hold the counts of one file of replies. outcomes and rules: how often each occurred."""

    task: str
    questions: int
    replies: int
    correct: int
    outcomes: Mapping[str, int]
    rules: Mapping[str, int]

    def __str__(self) -> str:
        share = f" ({100 * self.correct / self.replies:.1f} %)" if self.replies else ""
        parts = [f"{self.task}: {self.correct} of {self.replies} replies correct{share}"]
        if self.replies < self.questions:
            parts.append(f"{self.questions - self.replies} of {self.questions} questions have no reply")
        parts += [f"{name.replace('_', ' ')} {self.outcomes[name]}" for name in OUTCOMES[1:] if self.outcomes[name]]
        if self.rules:
            parts.append("rules " + ", ".join(f"{name} {count}" for name, count in sorted(self.rules.items())))
        return "; ".join(parts)


def _text(record: Mapping[str, object], key: str, path: Path, line: int) -> str | None:
    value = record.get(key)
    if value is not None and not isinstance(value, str):
        raise DataError(path, line, key, f"{value!r} is not text; give a string, or null for none")
    return value


def read_replies(path: Path) -> dict[str, tuple[int, Reply]]:
    """Read (line, reply) by question from a JSON Lines file.

    Each line has `question_id` and `reply` (null allowed), and may have `finish_reason` and `reasoning`; other keys are
    ignored. Raises DataError for a line of another form, or an empty file.
    """
    found: dict[str, tuple[int, Reply]] = {}
    for line, record in json_lines(path):
        question_id = record.get("question_id")
        if isinstance(question_id, bool) or not isinstance(question_id, str | int):
            raise DataError(path, line, "question_id", f"{question_id!r} is not an id; give a question's id")
        name = str(question_id)
        if name in found:
            problem = f"{name!r} was answered in line {found[name][0]} already; one file holds one repeat"
            raise DataError(path, line, "question_id", problem)
        if "reply" not in record:
            raise DataError(path, line, "reply", "missing; give the reply's text, or null when there was none")
        reply = Reply(
            text=_text(record, "reply", path, line),
            finish_reason=_text(record, "finish_reason", path, line),
            reasoning=_text(record, "reasoning", path, line),
        )
        found[name] = line, reply
    if not found:
        raise DataError(path, None, "file", "holds no reply; write one object a line")
    return found


def score_replies(task: Task, replies: Path, data: Callable[[], Path], out: Path) -> Totals:
    """Score a file of replies against the questions in the file that `data` returns, and return the counts.

    Writes `question_id, extracted, rule, correct, outcome` per reply to `out`, in the replies' order. `data` is called
    once the replies are read; nothing is written when either file is bad.
    """
    given = read_replies(replies)
    questions = {question.question_id: question for question in task.load(data())}
    for name, (line, _) in given.items():
        if name not in questions:
            some = ", ".join(list(questions)[:3])
            raise DataError(replies, line, "question_id", f"{name!r} is not among the questions ({some}, …)")
    scores = [(questions[name], score(task, questions[name], reply)) for name, (_, reply) in given.items()]
    lines = [
        json.dumps(
            {
                "question_id": question.question_id,
                "extracted": scored.extracted,
                "rule": scored.rule,
                "correct": scored.correct,
                "outcome": scored.outcome,
            },
            ensure_ascii=False,
        )
        for question, scored in scores
    ]
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return Totals(
        task=task.name,
        questions=len(questions),
        replies=len(scores),
        correct=sum(scored.correct for _, scored in scores),
        outcomes=Counter(scored.outcome for _, scored in scores),
        rules=Counter(scored.rule for _, scored in scores if scored.rule is not None),
    )
