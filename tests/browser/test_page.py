"""The page in a real browser: silent, offline, in two languages, on a phone, for a screen reader, and on paper."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import synthetic
from servebench import report, tables

MIB = 2**20


def page_of(cells: list[dict[str, Any]], experiment: str, window_s: int) -> tuple[str, dict[str, Any]]:
    plan = synthetic.plan_of(cells, experiment)
    records = list(synthetic.records_of(cells, plan, window_s))
    records[1] = synthetic.failed(records[1], "out of memory")
    made = tables.make(records, [], plan)
    made["cost"] = tables.cost(made["settings"], 3.5)
    return report.page(made, plan), made


@pytest.fixture(scope="session", params=["quickstart", "h200"])
def written(request, tmp_path_factory) -> tuple[Path, dict[str, Any]]:
    cells = synthetic.quickstart_cells() if request.param == "quickstart" else synthetic.h200_cells()
    text, made = page_of(cells, request.param, 10 if request.param == "quickstart" else 60)
    path = tmp_path_factory.mktemp(request.param) / "index.html"
    path.write_text(text, encoding="utf-8")
    return path, made


@pytest.fixture
def path(written: tuple[Path, dict[str, Any]]) -> Path:
    return written[0]


def draw_all(page: Any) -> int:
    """Bring every chart near the view, wait until it is drawn; returns how many there are."""
    charts = page.locator("[data-chart]")
    for n in range(charts.count()):
        charts.nth(n).scroll_into_view_if_needed()
        charts.nth(n).locator("svg").wait_for()
    page.wait_for_function("document.querySelectorAll('[data-chart]:not([data-drawn])').length === 0")
    return int(charts.count())


def test_all_charts_are_drawn_without_an_error_or_a_request(page, written, seen) -> None:
    assert draw_all(page) >= 10
    assert seen["errors"] == []
    assert seen["requests"] == [written[0].as_uri()]
    assert written[0].stat().st_size < 6 * MIB


def test_the_language_switch_turns_texts_titles_and_charts(page) -> None:
    draw_all(page)
    assert page.locator("h2").first.inner_text() == "The answer"
    page.click("#language")
    assert page.locator("html").get_attribute("lang") == "ja"
    assert page.locator("h2").first.inner_text() == "結論"
    page.wait_for_function("document.querySelectorAll('[data-chart]:not([data-drawn=ja])').length === 0")
    assert "同時利用" in page.locator("[data-chart^=output_by_users] svg").first.text_content()
    assert "全体の出力" in page.locator("[data-chart^=output_by_users]").first.get_attribute("aria-label")
    visible = page.locator('span[lang="en"]:visible').count()
    assert visible == 0
    page.click("#language")
    assert page.locator("h2").first.inner_text() == "The answer"


def test_columns_sort_by_number_both_ways_with_the_missing_last(page) -> None:
    draw_all(page)  # a chart drawn between the aim and the click would move the table from under the pointer
    table = page.locator("table.values").first
    for column, _ in ((2, "output"), (5, "ttft p95")):
        button = table.locator("thead button").nth(column)
        cells = f"tbody tr > :nth-child({column + 1})"
        for direction, sign in (("ascending", 1), ("descending", -1)):
            button.click()
            head = table.locator("thead th").nth(column)
            assert head.get_attribute("aria-sort") == direction
            values = table.locator(cells).evaluate_all("cells => cells.map(cell => cell.dataset.sort)")
            numbers = [float(value) for value in values if value]
            assert numbers == sorted(numbers, key=lambda v: sign * v)
            assert "" not in values[: len(numbers)]


def test_the_filter_leaves_the_rows_that_have_all_words(page) -> None:
    page.fill("#filter", "llama-np4 8")
    rows = page.locator("table.values tbody tr:visible")
    assert rows.count() >= 1
    assert all("llama-np4" in text for text in rows.all_inner_texts())
    page.fill("#filter", "")
    assert page.locator("table.values tbody tr:visible").count() == page.locator("table.values tbody tr").count()


def test_drawn_ranges_and_table_are_the_smaller_and_larger_of_the_rounds(page, written) -> None:
    rows = {(r["setting"], r["users"]): r for r in written[1]["settings"].to_pylist()}
    data = json.loads(page.locator("#data").text_content())
    points = [
        p for rows_ in data["datasets"].values() for p in rows_ if {"setting", "low", "high", "trusted"} <= p.keys()
    ]
    figures = ("output_tok_s", "user_tok_s", "ttft_p95_s")
    ends = {key: {(row[f"{f}_min"], row[f"{f}_max"]) for f in figures} for key, row in rows.items()}
    for table in (written[1]["cost"],):
        for row in table.to_pylist():
            ends[row["setting"], row["users"]].add(
                (row["usd_per_million_tokens_min"], row["usd_per_million_tokens_max"])
            )
    assert len(points) > 3 * len(rows) - 10
    for point in points:
        pair = (point["low"], point["high"])
        assert any(
            pair == pytest.approx(known) for known in ends[point["setting"], point["users"]] if None not in known
        )
    for (setting, users), row in rows.items():
        cell = page.locator(f'[id="row-{row["run"]}-{setting}-{users}"] [data-figure=output_tok_s]')
        known = row["output_tok_s_min"]
        assert cell.get_attribute("data-sort") == ("" if known is None else str(known))


def test_every_link_inside_leads_somewhere(page) -> None:
    targets = page.locator('a[href^="#"]').evaluate_all(
        "links => links.map(link => link.getAttribute('href').slice(1))"
    )
    assert targets
    missing = page.evaluate("ids => ids.filter(id => !document.getElementById(id))", targets)
    assert missing == []


def test_marks_can_be_hovered_and_stand_in_the_table(page, written) -> None:
    marked = [row for row in written[1]["settings"].to_pylist() if row["marks"]]
    assert marked
    for row in marked:
        anchor = f"row-{row['run']}-{row['setting']}-{row['users']}"
        assert page.locator(f'.matrix a[href="#{anchor}"]').get_attribute("title") == "; ".join(row["marks"])
        evidence = row["marks"][0].rpartition(" → ")[2]
        assert evidence in page.locator(f'[id="{anchor}"] .why').text_content()


def test_what_failed_stands_on_the_page(page) -> None:
    assert "out of memory" in page.locator("section[aria-labelledby=h-missing]").inner_text()


@pytest.mark.parametrize("page", [{"viewport": {"width": 390, "height": 800}}], indirect=True)
def test_a_phone_never_scrolls_sideways(page, seen) -> None:
    draw_all(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert seen["errors"] == []


@pytest.mark.parametrize(
    "page",
    [
        {"color_scheme": "light"},
        {"color_scheme": "dark"},
        {"color_scheme": "light", "locale": "ja-JP"},
        {"viewport": {"width": 390, "height": 800}},
    ],
    indirect=True,
)
def test_axe_finds_nothing_serious(page, serious) -> None:
    draw_all(page)
    assert serious() == []


@pytest.mark.parametrize("page", [{"color_scheme": "dark"}], indirect=True)
def test_dark_charts_use_the_dark_colours_and_paper_is_light(page) -> None:
    draw_all(page)
    first = page.locator("[data-chart] svg").first
    assert "#6cb2ff" in first.evaluate("svg => svg.outerHTML")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.wait_for_function("document.documentElement.dataset.theme === 'light'")
    page.wait_for_function("!document.querySelector('[data-chart] svg').outerHTML.includes('#6cb2ff')")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    page.wait_for_function("document.documentElement.dataset.theme === 'dark'")


def test_paper_has_every_chart_and_every_mark(page, tmp_path) -> None:
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.wait_for_function(
        "document.querySelectorAll('[data-chart] svg').length === document.querySelectorAll('[data-chart]').length"
    )
    page.emulate_media(media="print")
    assert page.locator("nav").is_hidden()
    assert page.locator("details:not([open])").count() == 0
    assert page.pdf(path=tmp_path / "page.pdf", format="A4")[:5] == b"%PDF-"


def test_the_keyboard_reaches_the_content_first(page) -> None:
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("location.hash") == "#content"
