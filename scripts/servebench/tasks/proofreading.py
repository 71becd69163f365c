"""Proofreading: one business sentence, corrected and nothing else (our own 300 sentences)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from servebench.tasks.task import DataError, json_lines, require

# How many sentences of each kind the full set has. The proportions follow the error kinds of Japanese
# Wikipedia revisions (JWTD v2); the names are ours.
ERROR_CATEGORIES: Mapping[str, int] = {
    "same-reading": 60,
    "near-reading": 16,
    "missing": 30,
    "extra": 20,
    "repeated": 14,
    "substitution": 24,
    "transposition": 12,
    "particle": 14,
    "agreement": 10,
}
CLEAN_CATEGORIES: Mapping[str, int] = {"clean": 60, "clean-hard": 40}


@dataclass(frozen=True, slots=True)
class Edit:
    """Replacing the characters [start, end) of the text by `replacement` corrects it."""

    start: int
    end: int
    replacement: str


@dataclass(frozen=True, slots=True)
class Sentence:
    """One line of `sentences.jsonl`."""

    id: str
    category: str
    text: str
    reference: str
    accepted: tuple[str, ...]
    edit: Edit | None


def read_sentences(path: Path) -> list[Sentence]:
    """The sentences of a JSON Lines file, in order. DataError names the first line that has no such form."""
    sentences = []
    fields = ("id", "category", "text", "reference", "accepted", "edit")
    for line, record in json_lines(path):
        if unknown := sorted(record.keys() - set(fields)):
            raise DataError(path, line, unknown[0], f"is no field of a sentence; they are {', '.join(fields)}")
        accepted = require(record, "accepted", list, path, line)
        if not all(isinstance(other, str) for other in accepted):
            raise DataError(path, line, "accepted", f"{accepted!r} is not a list of sentences")
        if "edit" not in record:
            raise DataError(path, line, "edit", "missing; give start, end, replacement, or null when clean")
        edit = None
        if record["edit"] is not None:
            span = require(record, "edit", dict, path, line)
            edit = Edit(
                start=require(span, "start", int, path, line),
                end=require(span, "end", int, path, line),
                replacement=require(span, "replacement", str, path, line),
            )
        sentences.append(
            Sentence(
                id=require(record, "id", str, path, line),
                category=require(record, "category", str, path, line),
                text=require(record, "text", str, path, line),
                reference=require(record, "reference", str, path, line),
                accepted=tuple(accepted),
                edit=edit,
            )
        )
    return sentences
