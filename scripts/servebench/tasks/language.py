"""Detect replies that leave Japanese: simplified Chinese characters, English sentences."""

from __future__ import annotations

import re

_ENGLISH = re.compile(r"[A-Za-z]{2,}(?:[ ,;:'’-]+[A-Za-z]{1,}){4,}")
_LATEX = re.compile(r"\\[a-zA-Z]+|\$[^$]*\$")


def _in(character: str, encoding: str) -> bool:
    try:
        character.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


def has_simplified_chinese(text: str) -> bool:
    """Tell whether the text has a character of China's standard set that Japan's (JIS X 0208) lacks."""
    return any(
        "\u4e00" <= character <= "\u9fff" and _in(character, "gb2312") and not _in(character, "cp932")
        for character in set(text)
    )


def has_english(text: str, question: str) -> bool:
    """Tell whether the text has five English words in a row that the question lacks; LaTeX is not English."""
    return any(match[0] not in question for match in _ENGLISH.finditer(_LATEX.sub(" ", text)))
