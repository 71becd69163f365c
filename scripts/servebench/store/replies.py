"""A target's replies as kept: a line each in a file that only grows, and a table of all of them with their origin.

A change of these structs raises FORMAT by one and adds a function to each `Format` that turns the content of the format
before into the new one.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from msgspec.structs import asdict, replace

from servebench.load.beside import Counts
from servebench.machine.identity import Machine
from servebench.marks import Mark
from servebench.store import parquet
from servebench.store.parquet import Damaged, Format, Newer
from servebench.store.records import ColdStart, Facts, ModelFile, as_marks
from servebench.tasks.answers import check

FORMAT = 1
REMEDY = "remove it, nothing is asked again for it"
Key = tuple[int, str]
"""(repeat, question_id)"""


class Answer(Facts, frozen=True, kw_only=True):
    """What a server answered to one request, as it gave it; with `failed`, why there is no answer, nothing else."""

    text: str | None = None
    reasoning: str | None = None
    finish_reason: str | None = None
    tokens: int | None = None
    prompt_tokens: int | None = None
    failed: str | None = None
    latency_s: float


class Reply(Answer, frozen=True, kw_only=True):
    """The answer to one question in one repeat, got in one session."""

    format: int = FORMAT
    repeat: int
    question_id: str
    session_id: str


class Difference(Facts, frozen=True, kw_only=True):
    """One thing of a server that was not as it was asked for (`engines.base.Difference`)."""

    what: str
    asked: Any = None
    got: Any = None


class AskingSession(Facts, frozen=True, kw_only=True, omit_defaults=True):
    """One launch of a server that was asked; None is not known, or not yet."""

    session_id: str
    started_at: str | None = None
    engine_version: str | None = None
    engine_build: str | None = None
    engine_pin: str | None = None
    argv: list[str] | None = None
    env: dict[str, str] | None = None
    cold_start_s: ColdStart | None = None
    facts: dict[str, Any] | None = None
    model: ModelFile | None = None
    machine: Machine | None = None
    prompt_tokens: dict[str, list[int] | None] | None = None  # ids of each task's first question
    differences: list[Difference] | None = None  # found after the last question
    load: Counts | None = None  # that ran beside the questions


class SessionLine(Facts, frozen=True, kw_only=True):
    """A line that says something of a session; what later lines say counts before what earlier ones do."""

    format: int = FORMAT
    session: AskingSession


class Evaluator(Facts, frozen=True, kw_only=True):
    """The servebench that asked."""

    version: str
    prompts: int


class EvaluationFacts(Facts, frozen=True, kw_only=True):
    """Which target answered, how far, and in which sessions, the oldest first. `setting` is its setting as asked."""

    format: int = FORMAT
    target: str
    digest: str
    status: str  # ok or failed
    reason: list[Mark]  # why its engine did not live through it
    asked: int
    answered: int
    failures: int
    setting: dict[str, Any]
    sessions: list[AskingSession]
    servebench: Evaluator


def _first(content: dict[str, Any]) -> dict[str, Any]:
    """Turn format 0 into format 1, which only adds the number."""
    return content


REPLY = Format(Reply, FORMAT, {0: _first})
SESSION = Format(SessionLine, FORMAT, {0: _first})
EVALUATION = Format(EvaluationFacts, FORMAT, {0: lambda content: content | {"reason": as_marks(content["reason"])}})


def merged(sessions: dict[str, AskingSession], more: AskingSession) -> None:
    """Add what `more` knows of its session."""
    known = {name: value for name, value in asdict(more).items() if value is not None}
    sessions[more.session_id] = replace(sessions.get(more.session_id, more), **known)


class Answers:
    """What is in a file of a target's replies to one task, a Reply or a SessionLine a line.

    A last line that was cut is dropped; a later line of a question counts before an earlier one.
    """

    def __init__(self, path: Path) -> None:
        """Read the file, where there is one. Raises Damaged for a damaged line that is not the last, and Newer."""
        self.path = path
        self.replies: dict[Key, Reply] = {}
        self.sessions: dict[str, AskingSession] = {}
        content = path.read_bytes() if path.exists() else b""
        whole = content[: content.rfind(b"\n") + 1]
        self.size, self.cut = len(whole), len(whole) < len(content)
        for number, line in enumerate(whole.split(b"\n")[:-1], 1):
            try:
                told = json.loads(line)
                self._take(SESSION.read(told) if "session" in told else REPLY.read(told))
            except Newer as error:
                raise Newer(f"{path}:{number}: {error}") from None
            except (ValueError, LookupError, AttributeError, TypeError) as error:
                raise Damaged(
                    f"{path}:{number}: is not a reply ({error!r}); remove the line, its question is asked again"
                ) from None

    def _take(self, line: Reply | SessionLine) -> None:
        if isinstance(line, SessionLine):
            merged(self.sessions, line.session)
        else:
            self.replies[line.repeat, line.question_id] = line


class AnswerFile(Answers):
    """The same, to be added to. Each line is with the kernel when `append` returns, so that only a reply in flight can
    be lost."""

    def __init__(self, path: Path) -> None:
        """Read the file as `Answers`; a last line that was cut goes."""
        path.parent.mkdir(parents=True, exist_ok=True)
        super().__init__(path)
        self._file = path.open("ab", buffering=0)
        if self.cut:
            self._file.truncate(self.size)

    def append(self, line: Reply | SessionLine) -> None:
        """Keep a reply, or something about a session."""
        self._file.write(parquet.encoded(line) + b"\n")
        self._take(line)

    def close(self) -> None:
        """Append nothing more."""
        self._file.close()

    def missing(self, repeat: int, question_id: str, *, retry_failed: bool) -> bool:
        """Whether the question is still to be asked."""
        reply = self.replies.get((repeat, question_id))
        return reply is None or (retry_failed and reply.failed is not None)


@dataclass(frozen=True, slots=True)
class Evaluated:
    """All that a target answered (the `answers` table) and where it comes from."""

    answers: pa.Table
    facts: EvaluationFacts


def write(evaluated: Evaluated, path: Path) -> None:
    """Write the table and its origin to `path`, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".parquet.part")
    with part.open("wb") as file:
        parquet.write(check(evaluated.answers), evaluated.facts, file)
    part.replace(path)


def read(path: Path) -> Evaluated:
    """Read what `write` wrote; StoreError names a file that is damaged, or newer than this code."""
    with parquet.named(path, REMEDY):
        answers, facts = parquet.read(path, EVALUATION)
        return Evaluated(check(answers), facts)


def read_facts(path: Path) -> EvaluationFacts:
    """Read the origin alone, without the table."""
    with parquet.named(path, REMEDY):
        return parquet.read_metadata(path, EVALUATION)
