"""Write words in both languages as HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape

from servebench.claims import Claim
from servebench.marks import Mark
from servebench.plan.types import UnderLoad
from servebench.words import COMMA, LANGUAGES, claims, marks, spoken, words

HERE = Path(__file__).parent


def both(key: str, **values: Any) -> Markup:
    """Write the words at `page.<key>` in both languages; the page shows the chosen language."""
    return _spans(spoken(f"page.{key}", **values))


def _spans(texts: Mapping[str, str]) -> Markup:
    return Markup("").join(Markup('<span lang="{}">{}</span>').format(code, texts[code]) for code in LANGUAGES)


def attribute(name: str, key: str, **values: Any) -> Markup:
    """Write an attribute in English that the script turns into the chosen language."""
    return _attribute(name, spoken(f"page.{key}", **values))


def _attribute(name: str, texts: Mapping[str, str]) -> Markup:
    return Markup('{}="{}" data-{}-en="{}" data-{}-ja="{}"').format(
        Markup(name), texts["en"], Markup(name), texts["en"], Markup(name), texts["ja"]
    )


def own_text(text: str | Mapping[str, str]) -> Markup:
    """Write a text of the configuration, untranslated or per language, in English where a language is absent."""
    if isinstance(text, str):
        return escape(text)
    return _spans({language: text.get(language, text["en"]) for language in LANGUAGES})


def claim(said: Claim) -> Markup:
    """Write a claim in both languages."""
    return _spans(claims.said(said))


def pair(said: Claim | None) -> Markup:
    """Write in a few words, in both languages, what a claim about a pair says."""
    return _spans(claims.said_pair(said))


def mark(said: Mark) -> Markup:
    """Write a mark in both languages; once where they say the same."""
    texts = marks.translated(said)
    return escape(texts["en"]) if texts["en"] == texts["ja"] else _spans(texts)


def hover(said: Sequence[Mark]) -> Markup:
    """Write the tooltip of a row with these marks, in English until the script changes the language."""
    return _attribute("title", {language: marks.told(said, language) for language in LANGUAGES})


def counted(what: Mapping[str, str], count: int) -> Markup:
    """Write how many rows something is true of, in both languages."""
    texts = words("page.weak.kind")
    return _spans({language: texts[language].format(what=what[language], count=count) for language in LANGUAGES})


def scored(found: Mapping[str, Any]) -> Markup:
    """Write how many scores differ from the baseline's, in both languages."""
    texts = {}
    for language in LANGUAGES:
        parts = (
            words("page.answer.count")[language].format(verdict=words(f"page.score.{verdict}")[language], count=count)
            for verdict, count in found["counts"]
        )
        texts[language] = words("page.answer.scored")[language].format(
            all=found["all"], baseline=found["baseline"], counts=COMMA[language].join(parts)
        )
    return _spans(texts)


def under_load_note(load: UnderLoad) -> Markup:
    """Write how the answers under load were asked, in both languages."""
    names = claims.task(load.task)
    return _spans(
        {
            language: spoken(
                "page.evaluated.under_load_note", questions=load.questions, users=load.users, task=names[language]
            )[language]
            for language in LANGUAGES
        }
    )
