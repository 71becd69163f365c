"""The page of `servebench compare` in a real browser: silent, offline, in two languages, sortable, accessible."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import synthetic
from servebench import tables
from servebench.report import comparison, comparison_page

CELLS = synthetic.quickstart_cells()
# The second experiment: another machine, twice the output with 4 users, one number of users less.
OTHER = [
    cell
    | {f"output_tok_s_{end}": (2 if cell["users"] == 4 else 1) * cell[f"output_tok_s_{end}"] for end in ("min", "max")}
    for cell in CELLS[:-1]
]


def experiment(name: str, cells: list[dict[str, Any]], machine: dict[str, Any]) -> comparison.Experiment:
    plan = synthetic.plan_of(cells, name)
    records = list(synthetic.records_of(cells, plan, 10, machine=machine))
    measured = tables.measurements(records, plan.line)
    made = {"measurements": measured, "settings": tables.settings(measured)}
    return comparison.Experiment(folder=Path("results") / name, plan=plan, tables=made)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    first = experiment("laptop", CELLS, synthetic.LAPTOP)
    second = experiment(
        "desktop", OTHER, synthetic.changed(synthetic.LAPTOP, cpu="Eight-core CPU", fingerprint="b-cpu")
    )
    written = tmp_path_factory.mktemp("compare") / "page.html"
    written.write_text(comparison_page.page(comparison.compare(first, second)), encoding="utf-8")
    return written


def test_it_is_silent_and_fetches_nothing(page, path, seen) -> None:
    assert page.locator("h1").inner_text() == "Compared: laptop (A) and desktop (B)"
    page.click("#theme")
    assert seen == {"errors": [], "requests": [path.as_uri()]}


def test_the_language_switch_turns_every_text(page) -> None:
    assert page.locator('span[lang="ja"]:visible').count() == 0
    page.click("#language")
    assert page.locator("html").get_attribute("lang") == "ja"
    assert page.locator("h1").inner_text() == "比較：laptop（A）と desktop（B）"
    assert page.locator('span[lang="en"]:visible').count() == 0


def test_what_differs_and_what_may_be_said_is_shown(page) -> None:
    conditions = page.locator("section[aria-labelledby=h-mixed]").inner_text()
    assert "Two-core CPU" in conditions and "Eight-core CPU" in conditions
    rows = [row.split("\t") for row in page.locator("table.values tbody tr").all_inner_texts()]
    assert len(rows) == 3 * (len(CELLS) - 1)
    for _, users, figure, _, _, ratio, verdict, _ in rows:
        twice = (users, figure) == ("4", "Output tok/s")
        assert verdict == "too few repeats to tell", "two rounds of so few measurements cannot rank"
        assert float(ratio) == pytest.approx(2 if twice else 1, rel=0.05)  # whole tokens in a short window
    page.fill("#filter", "np4-kv-unified")
    assert page.locator("table.values tbody tr:visible").count() == 6


def test_the_ratio_sorts_both_ways(page) -> None:
    button = page.locator("table.values thead button").nth(5)
    for sign in (1, -1):
        button.click()
        values = page.locator("table.values tbody tr > :nth-child(6)").evaluate_all(
            "cells => cells.map(cell => cell.dataset.sort)"
        )
        ratios = [float(value) for value in values if value]
        assert len(set(ratios)) > 1
        assert ratios == sorted(ratios, key=lambda ratio: sign * ratio)
