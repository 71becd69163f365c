"""Fill the page's part on published figures and facts beside ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from servebench.report.fold import Fold
from servebench.tables.files import Row, rows_of
from servebench.words import spoken
from servebench.words.numbers import digits, span


def figures(tables: Mapping[str, pa.Table]) -> list[dict[str, Any]]:
    """Count, by run and figure, the published cells, those measured here, those with overlapping ranges; ratios."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows_of(tables, "reproduction"):
        found.setdefault((row["run"], row["figure"]), []).append(row)
    summary = []
    for (run, figure), rows in found.items():
        known = [row for row in rows if row["overlap"] is not None]
        ratios = [row["ratio"] for row in known if row["ratio"] is not None]
        summary.append(
            {
                "run": run,
                "figure": figure,
                "cells": len(rows),
                "measured": len(known),
                "overlap": sum(row["overlap"] for row in known),
                "ratios": span(min(ratios), max(ratios)) if ratios else "–",
            }
        )
    return summary


def cells(tables: Mapping[str, pa.Table]) -> list[Fold]:
    """List every cell of each run: the published range, ours, ours ÷ published, and whether the ranges overlap."""
    found: dict[str, dict[tuple[str, int], dict[str, str]]] = {}
    for row in rows_of(tables, "reproduction"):
        found.setdefault(row["run"], {}).setdefault((row["setting"], row["users"]), {})[row["figure"]] = _cell(row)
    folds = []
    for run, by_place in found.items():
        names = list(dict.fromkeys(name for figures_ in by_place.values() for name in figures_))
        folds.append(
            Fold(
                id=f"published-{run}",
                name=spoken("page.run", run=run),
                note=spoken("page.published.cell"),
                heads=[spoken("page.values.setting"), *(spoken(f"page.values.{name}") for name in names)],
                rows=[
                    (f"{setting} · {users}", *(told.get(name, "–") for name in names))
                    for (setting, users), told in by_place.items()
                ],
            )
        )
    return folds


def _cell(row: Row) -> str:
    published = span(row["published_min"], row["published_max"])
    if row["measured_min"] is None:
        return f"{published} → –"
    ratio = "" if row["ratio"] is None else f" ({digits(row['ratio'])} ×)"
    return f"{published} → {span(row['measured_min'], row['measured_max'])}{ratio}{' ≈' if row['overlap'] else ''}"


def expected(tables: Mapping[str, pa.Table]) -> dict[str, Any]:
    """Count the settings' facts that are as published, and list each that differs once, with our value."""
    rows = rows_of(tables, "expected")
    others = [tuple(row[n] for n in ("run", "setting", "what", "published", "found")) for row in rows if not row["met"]]
    names = ("run", "setting", "what", "published", "found")
    return {
        "facts": len(rows),
        "met": sum(row["met"] is True for row in rows),
        "others": [dict(zip(names, other, strict=True)) for other in dict.fromkeys(others)],
    }
