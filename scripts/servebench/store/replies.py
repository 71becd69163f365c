"""Keep a target's replies: one line each in a file that only grows, and a table of all replies with their origin.

A change of these structs raises FORMAT by one and adds a function to each `Format` that converts content of the
previous format to the new one.
"""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from msgspec.structs import asdict, replace

from servebench.load.beside import Counts
from servebench.machine.identity import Machine
from servebench.marks import Mark
from servebench.store import parquet
from servebench.store.parquet import Damaged, Format, Newer
from servebench.store.records import ColdStart, Facts, ModelFile, as_marks
from servebench.tasks.answers import check

FORMAT = 2
_DIGEST = b', "sha256": "%b"}'  # ends a line
REMEDY = "remove it; no question is asked again for that"
log = logging.getLogger("servebench")
Key = tuple[int, str]
"""(repeat, question_id)"""


class Answer(Facts, frozen=True, kw_only=True):
    """Hold a server's unchanged answer to one request, or in `failed` why it has none, and nothing else."""

    text: str | None = None
    reasoning: str | None = None
    finish_reason: str | None = None
    tokens: int | None = None
    prompt_tokens: int | None = None
    failed: str | None = None
    latency_s: float


class Reply(Answer, frozen=True, kw_only=True):
    """Hold the answer to one question in one repeat, received in one session."""

    format: int = FORMAT
    repeat: int
    question_id: str
    session_id: str


class Difference(Facts, frozen=True, kw_only=True):
    """Hold one property of a server that differed from the request (`engines.base.Difference`)."""

    what: str
    asked: Any = None
    got: Any = None


class AskingSession(Facts, frozen=True, kw_only=True, omit_defaults=True):
    """Describe one launch of a server that was asked questions; None is unknown so far."""

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
    load: Counts | None = None  # the load that ran beside the questions


class SessionLine(Facts, frozen=True, kw_only=True):
    """Hold facts of a session in one line; later lines override earlier ones."""

    format: int = FORMAT
    session: AskingSession


class Evaluator(Facts, frozen=True, kw_only=True):
    """Describe the servebench that asked."""

    version: str
    prompts: int


class EvaluationFacts(Facts, frozen=True, kw_only=True):
    """Describe the target that answered, the outcome, and its sessions, oldest first; `setting` as it was asked.

    `prompt_lengths`: the prompt tokens that the server counted, by task and question; {} in files of earlier versions.
    """

    format: int = FORMAT
    target: str
    digest: str
    status: str  # ok or failed
    reason: list[Mark]  # why the engine failed
    asked: int
    answered: int
    failures: int
    setting: dict[str, Any]
    prompt_lengths: dict[str, dict[str, int]] = msgspec.field(default_factory=dict)
    sessions: list[AskingSession]
    servebench: Evaluator


def _first(content: dict[str, Any]) -> dict[str, Any]:
    """Convert format 0 to format 1, which only adds the format number."""
    return content


def _second(content: dict[str, Any]) -> dict[str, Any]:
    """Convert format 1 to format 2, which adds a digest to each line and each file."""
    return content


REPLY = Format(Reply, FORMAT, {0: _first, 1: _second}, digest_since=2)
SESSION = Format(SessionLine, FORMAT, {0: _first, 1: _second}, digest_since=2)
EVALUATION = Format(
    EvaluationFacts,
    FORMAT,
    {0: lambda content: content | {"reason": as_marks(content["reason"])}, 1: _second},
    digest_since=2,
)


def merged(sessions: dict[str, AskingSession], more: AskingSession) -> None:
    """Merge the facts of `more` into its session."""
    known = {name: value for name, value in asdict(more).items() if value is not None}
    sessions[more.session_id] = replace(sessions.get(more.session_id, more), **known)


def _encoded(line: Reply | SessionLine) -> bytes:
    text = parquet.encoded(line)
    return text[:-1] + _DIGEST % hashlib.sha256(text).hexdigest()[:16].encode() + b"\n"


def _decoded(line: bytes) -> Reply | SessionLine:
    told = json.loads(line)
    digest = told.pop("sha256", None)
    if digest is not None or told.get("format", 0) in range(REPLY.digest_since, FORMAT + 1):
        text = line[: -len(_DIGEST % (b"0" * 16))] + b"}"
        if line != text[:-1] + _DIGEST % hashlib.sha256(text).hexdigest()[:16].encode():
            raise ValueError("it does not match its digest")
    return SESSION.read(told) if "session" in told else REPLY.read(told)


class Answers:
    """Read a file of a target's replies to one task, with a Reply or a SessionLine in each line.

    An incomplete last line is dropped; a question's later line overrides its earlier ones. A line ends with a digest of
    what stands before it; lines of older formats have none.
    """

    def __init__(self, path: Path) -> None:
        """Read the file if it exists. Raises Damaged for a damaged line before the last, and Newer."""
        self.path = path
        self._read(path.read_bytes() if path.exists() else b"")
        for number, _, why in self.damaged:
            raise Damaged(f"{path}:{number}: is not a reply ({why}); the next run asks its question again")

    def _read(self, content: bytes) -> None:
        self.replies: dict[Key, Reply] = {}
        self.sessions: dict[str, AskingSession] = {}
        self.damaged: list[tuple[int, bytes, str]] = []  # (line number, line, why)
        whole = content[: content.rfind(b"\n") + 1]
        self.size, self.cut = len(whole), len(whole) < len(content)
        for number, line in enumerate(whole.split(b"\n")[:-1], 1):
            try:
                self._take(_decoded(line))
            except Newer as error:
                raise Newer(f"{self.path}:{number}: {error}") from None
            except (ValueError, LookupError, AttributeError, TypeError, ArithmeticError, RecursionError) as error:
                self.damaged.append((number, line, f"{type(error).__name__}: {error}"))

    def _take(self, line: Reply | SessionLine) -> None:
        if isinstance(line, SessionLine):
            merged(self.sessions, line.session)
        else:
            self.replies[line.repeat, line.question_id] = line


class AnswerFile(Answers):
    """Append replies to the file.

    Each line has reached the kernel when `append` returns, so that only a reply in flight can be lost.
    """

    def __init__(self, path: Path) -> None:
        """Read the file, remove an incomplete last line, and move damaged lines to a file beside it, PATH.damaged."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        content = path.read_bytes() if path.exists() else b""
        self._read(content)
        if self.damaged:
            self._mend(content[: self.size].split(b"\n")[:-1])
        self._file = path.open("ab", buffering=0)
        if self.cut and not self.damaged:
            self._file.truncate(self.size)

    def _mend(self, lines: list[bytes]) -> None:
        aside = self.path.with_name(f"{self.path.name}.damaged")
        with aside.open("ab") as file:
            file.writelines(line + b"\n" for _, line, _ in self.damaged)
        bad = {number for number, _, _ in self.damaged}
        part = self.path.with_name(f"{self.path.name}.part")
        part.write_bytes(b"".join(line + b"\n" for number, line in enumerate(lines, 1) if number not in bad))
        part.replace(self.path)
        log.warning("%s: %d damaged lines are moved to %s; their questions are asked again", self.path, len(bad), aside)

    def append(self, line: Reply | SessionLine) -> None:
        """Append a reply, or facts of a session."""
        self._file.write(_encoded(line))
        self._take(line)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def missing(self, repeat: int, question_id: str, *, retry_failed: bool) -> bool:
        """Return whether the question still has to be asked."""
        reply = self.replies.get((repeat, question_id))
        return reply is None or (retry_failed and reply.failed is not None)


@dataclass(frozen=True, slots=True)
class Evaluated:
    """Hold all answers of a target (the `answers` table) and their origin."""

    answers: pa.Table
    facts: EvaluationFacts


def write(evaluated: Evaluated, path: Path) -> None:
    """Write the table and its origin to `path` atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".parquet.part")
    with part.open("wb") as file:
        parquet.write(check(evaluated.answers), evaluated.facts, file)
    part.replace(path)


def read(path: Path) -> Evaluated:
    """Read what `write` wrote. Raises StoreError for a file that is damaged or newer than this code."""
    with parquet.named(path, REMEDY):
        answers, facts = parquet.read(path, EVALUATION)
        return Evaluated(check(answers), facts)


def read_facts(path: Path) -> EvaluationFacts:
    """Read the origin alone, without the table."""
    with parquet.named(path, REMEDY):
        return parquet.read_metadata(path, EVALUATION)
