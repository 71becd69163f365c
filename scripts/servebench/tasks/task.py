"""Define what all tasks share: questions, replies, extractions, outcomes, measures, and the reading of data files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from servebench.faults import Fault

Outcome = Literal["correct", "wrong", "unparsable", "truncated", "empty", "refused", "reasoning_leaked"]
# The sets that a configuration may name; any other name is a path.
FULL, SMALL = "full", "small"
OUTCOMES: tuple[Outcome, ...] = (
    "correct",
    "wrong",
    "unparsable",
    "truncated",
    "empty",
    "refused",
    "reasoning_leaked",
)


class DataError(Fault):
    """A line of a data or reply file cannot be used; the text names file, line, key, value and remedy."""

    def __init__(self, path: Path, line: int | None, key: str, problem: str) -> None:
        super().__init__(f"{path}{'' if line is None else f':{line}'}: {key}: {problem}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Hold one question of a data file.

    text: what is asked about (question, problem, sentence), verbatim. gold: the right answer as published
    (index "0".."4", number, reference sentence). accepted: further right answers (proofreading only).
    category: kind of error (proofreading only).
    """

    question_id: str
    text: str
    gold: str
    choices: tuple[str, ...] = ()
    accepted: tuple[str, ...] = ()
    category: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """Hold what a server replied. text: the message's content, None when null or absent.

    reasoning: text the server put beside the content (`reasoning`, `reasoning_content`).
    """

    text: str | None
    finish_reason: str | None = None
    reasoning: str | None = None


@dataclass(frozen=True, slots=True)
class Extraction:
    """Hold the answer read from a reply, in canonical form, and the name of the rule that read it; both may be None."""

    extracted: str | None = None
    rule: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """Hold a scored reply to a question: a row of the table `answers` with its question."""

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


def is_right(answer: Answer) -> bool:
    """Return whether the answer is correct, which most measures count."""
    return answer.correct


@dataclass(frozen=True, slots=True)
class Measure:
    """Define what is counted of a task's answers.

    holds: whether an answer counts. asked: whether a question belongs to the measure. headline: whether targets are
    compared by it; only then a margin may be configured for it.
    """

    name: str
    task: str
    holds: Callable[[Answer], bool] = is_right
    asked: Callable[[Question], bool] = lambda question: True
    headline: bool = False
    lower_is_better: bool = False


@dataclass(frozen=True, slots=True)
class Source:
    """Hold the address of a task's published data, its SHA-256 and its number of questions."""

    url: str
    sha256: str
    questions: int


@dataclass(frozen=True, slots=True)
class Task:
    """Define one evaluation. Each task's file ends with its Task; `servebench.tasks.TASKS` lists them.

    load: data file -> questions in file order. prompt: the one user turn. extract: (answer text without
    reasoning, question) -> Extraction. is_correct: (extracted, question) -> bool. strict_rules: rules that
    mean the requested format was kept. measures: what is counted of the answers. max_tokens: limit to ask for, output
    tokens. reply_tokens: output tokens that a model which keeps to the requested format needs, roughly. source: where
    the full set is published; None when it is our own. own: our own sets by name, as paths under `config/tasks/`.
    """

    name: str
    load: Callable[[Path], list[Question]]
    prompt: Callable[[Question], str]
    extract: Callable[[str, Question], Extraction]
    is_correct: Callable[[str, Question], bool]
    strict_rules: frozenset[str]
    measures: tuple[Measure, ...]
    max_tokens: int
    reply_tokens: int
    source: Source | None
    own: Mapping[str, str]


def require(record: dict[str, Any], key: str, kind: type, path: Path, line: int) -> Any:
    """Return `record[key]`; raises DataError when the key is missing or its value of another type."""
    if key not in record:
        raise DataError(path, line, key, f"missing; every line needs it as {kind.__name__}")
    value = record[key]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise DataError(path, line, key, f"{value!r} is not of type {kind.__name__}")
    return value


def text_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line number from 1, line) of a UTF-8 text file without its blank lines."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise DataError(path, None, "file", "does not exist; check the path") from None
    except UnicodeDecodeError as error:
        raise DataError(path, None, "file", f"is not UTF-8 ({error}); save it as UTF-8") from None
    for number, line in enumerate(text.split("\n"), 1):  # splitlines would break replies at U+2028
        if line.strip():
            yield number, line.removesuffix("\r")


def json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number from 1, object) of a JSON Lines file in UTF-8 without its blank lines."""
    for number, line in text_lines(path):
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise DataError(path, number, "line", f"is not JSON ({error}); write one object a line") from None
        if not isinstance(record, dict):
            raise DataError(path, number, "line", f"is a {type(record).__name__}; write one object a line")
        yield number, record


def unique(questions: Sequence[Question], path: Path) -> list[Question]:
    """Return the questions; raises DataError when there are none or an id occurs twice."""
    if not questions:
        raise DataError(path, None, "file", "holds no question")
    seen: set[str] = set()
    for position, question in enumerate(questions, 1):
        if question.question_id in seen:
            raise DataError(path, position, "question_id", f"{question.question_id!r} occurs twice; ids are unique")
        seen.add(question.question_id)
    return list(questions)
