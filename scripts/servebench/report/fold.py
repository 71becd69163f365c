"""Hold a table of the page that opens on demand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Text = str | Mapping[str, str]  # untranslated, or per language


@dataclass(frozen=True, kw_only=True)
class Fold:
    """Hold a table that opens on demand: id on the page, name, note, heads, and rows of cells.

    The first cell of a row names it; a cell with a text per language is a sentence, any other a figure.
    """

    id: str
    name: Text
    note: Mapping[str, str] | None = None
    heads: Sequence[Text]
    rows: Sequence[Sequence[Text]]
    open: bool = False
