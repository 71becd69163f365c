"""Compose documents of about the same length from paragraphs of one topic (docs/experiments.md)."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import ceil

MIN_CHARS = 760
MAX_CHARS = 840


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Hold one line of a set's paragraphs.jsonl, which makes sense without its neighbours."""

    id: str
    topic: str
    text: str


@dataclass(frozen=True, slots=True)
class Document:
    """Hold paragraphs of one topic in file order, one a line; `id` joins their ids with `+`."""

    id: str
    topic: str
    text: str


def documents(paragraphs: Sequence[Paragraph], count: int = 400, seed: int = 0) -> list[Document]:
    """Compose `count` different documents of MIN_CHARS to MAX_CHARS characters, line breaks included.

    Topics take turns, so their numbers of documents differ by one at most, and within a topic the paragraphs
    least used so far come first. The same input gives the same documents on every machine and Python; another
    `seed` chooses other combinations.

    Raises ValueError when ids or texts repeat, or when a topic has too few combinations of that length.
    """
    if count < 1:
        raise ValueError(f"count: {count} documents; ask for at least 1")
    for first, second in combinations(paragraphs, 2):
        if first.id == second.id or first.text == second.text:
            raise ValueError(f"paragraphs {first.id!r} and {second.id!r} have the same id or text: make each different")
    topics: defaultdict[str, list[Paragraph]] = defaultdict(list)
    for paragraph in paragraphs:
        topics[paragraph.topic].append(paragraph)
    if not topics:
        raise ValueError("no paragraphs to compose documents of")
    each, left_over = divmod(count, len(topics))
    by_topic = [
        _of_topic(topic, members, each + (index < left_over), seed)
        for index, (topic, members) in enumerate(topics.items())
    ]
    return [by_topic[i % len(topics)][i // len(topics)] for i in range(count)]


def _of_topic(topic: str, members: list[Paragraph], count: int, seed: int) -> list[Document]:
    candidates = sorted(_fitting(members), key=lambda parts: _lot(parts, seed))
    if len(candidates) < count:
        raise ValueError(
            f"topic {topic!r}: {len(candidates)} combinations of its {len(members)} paragraphs have {MIN_CHARS} to "
            f"{MAX_CHARS} characters, {count} are needed: add paragraphs or change their lengths"
        )
    uses: Counter[Paragraph] = Counter()
    chosen = []
    for _ in range(count):
        parts = min(candidates, key=lambda parts: (max(uses[p] for p in parts), sum(uses[p] for p in parts)))
        candidates.remove(parts)
        uses.update(parts)
        chosen.append(Document(_joined_ids(parts), topic, _text(parts)))
    return chosen


def _fitting(members: list[Paragraph]) -> Iterator[tuple[Paragraph, ...]]:
    # With its line break a paragraph takes its length + 1; other numbers of paragraphs cannot reach the length.
    longest, shortest = max(len(p.text) for p in members) + 1, min(len(p.text) for p in members) + 1
    for size in range(ceil((MIN_CHARS + 1) / longest), min((MAX_CHARS + 1) // shortest, len(members)) + 1):
        for parts in combinations(members, size):
            if MIN_CHARS <= len(_text(parts)) <= MAX_CHARS:
                yield parts


def _text(parts: tuple[Paragraph, ...]) -> str:
    return "\n".join(part.text for part in parts)


def _joined_ids(parts: tuple[Paragraph, ...]) -> str:
    return "+".join(part.id for part in parts)


def _lot(parts: tuple[Paragraph, ...], seed: int) -> bytes:
    """Return a sort key for a random order that does not depend on the version of Python's `random`."""
    return hashlib.sha256(f"{seed} {_joined_ids(parts)}".encode()).digest()
