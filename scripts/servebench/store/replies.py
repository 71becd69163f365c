"""Replies on disk: a line each in an append-only file, as they come; and the table of them with what it came from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from servebench.faults import Fault
from servebench.tasks.answers import check

METADATA_KEY = b"servebench"
Key = tuple[int, str]
"""(repeat, question_id)"""


class Answers:
    """What is in a file of a target's replies to one task.

    A line is a reply (`repeat, question_id, session_id`, and what `asking.complete` gives) or says something of a
    session (`session`). A last line that was cut is dropped; a later line of a question counts before an earlier one.
    """

    def __init__(self, path: Path) -> None:
        """Read what is there. Raises Fault for a damaged line that is not the last."""
        self.path = path
        self.replies: dict[Key, dict[str, Any]] = {}
        self.sessions: dict[str, dict[str, Any]] = {}
        content = path.read_bytes() if path.exists() else b""
        whole = content[: content.rfind(b"\n") + 1]
        self.size, self.cut = len(whole), len(whole) < len(content)
        for number, line in enumerate(whole.split(b"\n")[:-1], 1):
            try:
                self._take(json.loads(line))
            except (ValueError, KeyError, TypeError) as error:
                raise Fault(
                    f"{path}:{number}: is no reply ({error!r}); remove the line, it is then asked again"
                ) from None

    def _take(self, line: dict[str, Any]) -> None:
        if "session" in line:
            self.sessions.setdefault(line["session"]["session_id"], {}).update(line["session"])
        else:
            self.replies[line["repeat"], line["question_id"]] = line


class AnswerFile(Answers):
    """The same, to be added to. Each line is with the kernel when `append` returns, so that only a reply in flight can
    be lost."""

    def __init__(self, path: Path) -> None:
        """Read what is there, as `Answers`; a last line that was cut goes."""
        path.parent.mkdir(parents=True, exist_ok=True)
        super().__init__(path)
        self._file = path.open("ab", buffering=0)
        if self.cut:
            self._file.truncate(self.size)

    def append(self, line: Mapping[str, Any]) -> None:
        """Keep a reply, or something about a session."""
        self._file.write(json.dumps(line, ensure_ascii=False, allow_nan=False).encode() + b"\n")
        self._take(dict(line))

    def close(self) -> None:
        """Nothing more is appended."""
        self._file.close()

    def missing(self, repeat: int, question_id: str, *, retry_failed: bool) -> bool:
        """Whether the question is still to be asked."""
        reply = self.replies.get((repeat, question_id))
        return reply is None or (retry_failed and "failed" in reply)


@dataclass(frozen=True, slots=True)
class Evaluated:
    """All that a target answered (the `answers` table) and what is known of it: `facts`, JSON values."""

    answers: pa.Table
    facts: dict[str, Any]


def write(evaluated: Evaluated, path: Path) -> None:
    """Write it to `path`, whole or not at all."""
    text = json.dumps(evaluated.facts, ensure_ascii=False, allow_nan=False)
    content = check(evaluated.answers).replace_schema_metadata({METADATA_KEY: text.encode()})
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".parquet.part")
    pq.write_table(content, part, compression="zstd")
    part.replace(path)


def read(path: Path) -> Evaluated:
    """What `write` wrote; Fault when it is something else."""
    with _readable(path):
        content = pq.read_table(path)
        facts = json.loads(content.schema.metadata[METADATA_KEY])
    return Evaluated(check(content.replace_schema_metadata(None)), facts)


def read_facts(path: Path) -> dict[str, Any]:
    """Of `read`, the facts alone."""
    with _readable(path):
        return dict(json.loads(pq.read_schema(path).metadata[METADATA_KEY]))


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError) as error:
        raise Fault(f"{path}: is no readable evaluation ({error}); remove it, nothing is asked again for it") from error
