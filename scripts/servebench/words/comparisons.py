"""Say rows of the tables `comparisons` and `under_load` in both languages; the texts are in labels.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from servebench.words import LANGUAGES, labels


def said(row: Mapping[str, Any]) -> dict[str, str]:
    """Say in each language whether a target differs from its baseline.

    "Would have been missed" means in more than one of five such experiments (80 % power), after Holm.
    """
    kind = row["verdict"]
    if kind == "difference":
        kind = "higher" if row["difference"] > 0 else "lower"
    elif kind == "none_detected" and row["detectable"] is None:
        kind = "none_findable"
    texts = labels()["comparison"]
    values = {**row, "size": abs(row["difference"]), "discordant": row["base_only"] + row["other_only"]}
    sentence = {language: texts[kind][language].format(**values) for language in LANGUAGES}
    if row["equivalent"]:
        within = texts["equivalent"]
        sentence = {language: text + within[language].format(**values) for language, text in sentence.items()}
    return sentence
