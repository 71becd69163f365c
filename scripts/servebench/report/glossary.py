"""Explain the page's terms, and link the first use of each to its explanation."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from markupsafe import Markup, escape

from servebench.words import LANGUAGES, labels

# A paragraph, definition or list item that begins with a text in both languages.
_TEXT = re.compile(r'(<(?:p|dd|li)(?: [^>]*)?>\s*)<span lang="en">([^<]*)</span><span lang="ja">([^<]*)</span>')


def terms() -> Mapping[str, Mapping[str, Mapping[str, str]]]:
    """Return each term with its explanation: `term` and `text`, per language."""
    return dict(labels()["page"]["terms"])


def linked(page: str, keys: Collection[str] | None = None) -> str:
    """Link the first use of each of these terms, or of all, in each language, to the glossary."""
    left = {
        language: {
            str(escape(own["term"][language])): key for key, own in terms().items() if keys is None or key in keys
        }
        for language in LANGUAGES
    }

    def link(text: str, language: str) -> str:
        def first(found: re.Match[str]) -> str:
            key = left[language].pop(found[0], None)
            return found[0] if key is None else f'<a class="term" href="#term-{key}">{found[0]}</a>'

        longest = sorted(left[language], key=len, reverse=True)
        edge = r"\b" if language == "en" else ""
        return re.sub(edge + f"(?:{'|'.join(map(re.escape, longest))})" + edge, first, text) if longest else text

    def both(found: re.Match[str]) -> str:
        en, ja = link(found[2], "en"), link(found[3], "ja")
        return f'{found[1]}<span lang="en">{en}</span><span lang="ja">{ja}</span>'

    body, mark, glossary = page.partition('<section aria-labelledby="h-terms"')
    return _TEXT.sub(both, body) + mark + glossary


def definitions(keys: Collection[str] | None = None) -> Markup:
    """Write these terms, or all, with their explanations, in both languages."""
    pair = Markup('<span lang="en">{}</span><span lang="ja">{}</span>')
    entries = (
        Markup('<dt id="term-{}">{}</dt><dd>{}</dd>').format(
            key, pair.format(*own["term"].values()), pair.format(*own["text"].values())
        )
        for key, own in terms().items()
        if keys is None or key in keys
    )
    return Markup("\n").join(entries)
