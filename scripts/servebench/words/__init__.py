"""Read the words of charts, pages and terminal output, in both languages, from labels.yaml."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

LANGUAGES: Final = ("en", "ja")
COMMA: Final = {"en": ", ", "ja": "、"}
_COUNTED = (
    *("user", "request", "round", "setting", "row", "combination", "measurement", "comparison", "pair", "condition"),
    *("prompt", "question", "target", "time", "fact", "minute", "hour", "core", "sample", "attempt", "answer", "turn"),
    *("score", "slot", "connection", "model"),
)


# Singular of each counted plural.
COUNTED = {f"{noun}s": noun for noun in _COUNTED} | {"replies": "reply", "people": "person"}
# A space beside full-width punctuation, which has its own: where a value that ends with a bracket is filled in.
_BESIDE_WIDE = re.compile("(?<=[（）「」、。：]) | (?=[（）「」、。：])")
_ONE = re.compile(rf"(?<![\d.,–-])1 ((?:target )?)({'|'.join(COUNTED)})\b")


@cache
def labels() -> Mapping[str, Any]:
    """Read all words in both languages from labels.yaml."""
    content = yaml.load((Path(__file__).parent / "labels.yaml").read_bytes(), Loader=yaml.CSafeLoader)
    return dict(content)


def words(key: str) -> Mapping[str, str]:
    """Return the entry of labels.yaml at a dotted key: a text per language. KeyError names the key."""
    value: Any = labels()
    for part in key.split("."):
        if not isinstance(value, Mapping) or part not in value:
            raise KeyError(f"labels.yaml: {key}: is missing; add it in both languages")
        value = value[part]
    return dict(value)


def spoken(key: str, **values: Any) -> dict[str, str]:
    """Format the words at `key` in each language with `{names}` filled in; English says "1 user".

    `rounds`, if given, is the experiment's number of rounds, which the words then name.
    """
    said = {}
    for language, text in words(key).items():
        rounds = _of_rounds(values["rounds"], language) if "rounds" in values else {}
        said[language] = polished(text.format(**rounds, **values))
    return said


def polished(text: str) -> str:
    """Replace "1 users" by "1 user", and likewise for every counted word; drop spaces beside full-width punctuation."""
    return _BESIDE_WIDE.sub("", _ONE.sub(lambda found: f"1 {found[1]}{COUNTED[found[2]]}", text))


def _of_rounds(rounds: int, language: str) -> dict[str, str]:
    form = {1: "one", 2: "two"}.get(rounds, "more")
    return {name: forms[form][language].format(rounds=rounds) for name, forms in labels()["rounds"].items()}
