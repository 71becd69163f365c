"""Marks in both languages. Tables have them in English, as `kind` or `kind: evidence / evidence`; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache

from servebench.words import LANGUAGES, labels, singular


def translated(mark: str) -> dict[str, str]:
    """A mark in each language; what of it labels.yaml does not know (names, versions) stays as it is."""
    kind, colon, evidence = mark.partition(": ")
    kinds = labels()["marks"].get(kind)
    if kinds is None:
        return dict.fromkeys(LANGUAGES, mark)
    parts = [_evidence(part) for part in evidence.split(" / ")]
    return {code: kinds[code] + colon + " / ".join(part[code] for part in parts) for code in LANGUAGES}


def told(marks: Iterable[str], language: str) -> str:
    """All marks of a row in one line; `–` where there is none."""
    return "; ".join(translated(mark)[language] for mark in marks) or "–"


def starred(name: str, marks: Iterable[str]) -> str:
    """The name, with a star where there are marks."""
    return f"{name} *" if list(marks) else name


def _evidence(text: str) -> Mapping[str, str]:
    for pattern, texts in _patterns():
        if found := pattern.fullmatch(text):
            return {code: singular(texts[code].format(**_spoken(found.groupdict(), code))) for code in LANGUAGES}
    return {code: _named(text, "figures", code) for code in LANGUAGES}


def _spoken(values: Mapping[str, str], language: str) -> dict[str, str]:
    return {
        name: _named(value, "said", language) if name in ("who", "how") else value for name, value in values.items()
    }


def _named(text: str, kind: str, language: str) -> str:
    for name, texts in labels()[kind].items():
        text = text.replace(name, texts[language])
    return text


@cache
def _patterns() -> list[tuple[re.Pattern[str], Mapping[str, str]]]:
    """The English of each evidence as a pattern, those with the most words first."""
    found = sorted(labels()["evidence"].values(), key=lambda texts: -len(re.sub(r"{\w+}", "", texts["en"])))
    return [
        (re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>.+)", re.escape(texts["en"])), re.DOTALL), texts) for texts in found
    ]


def kinds() -> set[str]:
    """The kinds of marks that there are words for."""
    return set(labels()["marks"])
