"""Say marks in both languages; the texts are in labels.yaml."""

from __future__ import annotations

import json
import string
from collections.abc import Iterable, Mapping
from typing import Any

from servebench.marks import Mark
from servebench.words import COMMA, LANGUAGES, labels, polished
from servebench.words.numbers import digits


class _Texts(string.Formatter):
    """Fill in texts; a number without a format of its own is written for people."""

    def format_field(self, value: Any, format_spec: str) -> str:
        return digits(value) if isinstance(value, float) and not format_spec else format(value, format_spec)


_TEXTS = _Texts()
_BETWEEN = {"en": "; ", "ja": "。"}


def translated(mark: Mark) -> dict[str, str]:
    """Say a mark in each language; names such as versions and devices stay untranslated."""
    texts, values = _texts(mark.kind), mark.values
    if "fewer" in texts:  # "300 tokens fewer", not "-300 tokens"
        texts = texts["fewer" if values["tokens"] < 0 else "more"]
        values = {**values, "tokens": abs(values["tokens"])}
    return {
        language: polished(
            _TEXTS.vformat(texts[language], (), {n: _said(value, n, language) for n, value in values.items()})
        )
        for language in LANGUAGES
    }


def phrase(kind: str) -> dict[str, str]:
    """Say a kind of mark in each language, without the values of a single mark: its text up to the colon."""
    texts = _texts(kind)
    texts = texts.get("more", texts)
    return {language: text.split("：" if language == "ja" else ": ")[0] for language, text in texts.items()}


def _texts(kind: str) -> Mapping[str, Any]:
    texts: Mapping[str, Any] = labels()["marks"][kind]
    return texts


def told(marks: Iterable[Mark], language: str) -> str:
    """Say all marks of a row in one line; `–` where it has none."""
    return _BETWEEN[language].join(translated(mark)[language] for mark in marks) or "–"


def starred(name: str, marks: Iterable[Mark]) -> str:
    """Append a star to a name that has marks."""
    return f"{name} *" if list(marks) else name


def _said(value: Any, name: str, language: str) -> Any:
    """Return a number unchanged, for the template to format, and anything else as text."""
    if value is None:
        return "–"
    if isinstance(value, str):
        texts = labels()["named"].get(name, {}).get(value)
        return texts[language] if texts else value
    if isinstance(value, Mapping):
        return COMMA[language].join(f"{_said(key, name, language)} {count}" for key, count in value.items())
    if isinstance(value, list):
        return " / ".join(str(_said(item, name, language)) for item in value)
    return json.dumps(value) if isinstance(value, bool) else value
