"""The page of `servebench load` in a real browser: its answer and curves, and what is left without JavaScript."""

from __future__ import annotations

from pathlib import Path

import pytest

import synthetic
from servebench.report import load_page
from servebench.tables import loaded


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("load")
    for users, ttft_s in ((1, 0.1), (4, 0.4), (16, 3.0)):
        synthetic.loaded(folder / f"users-{users}", users, "little", output_tok_s=40.0 * users, ttft_p95_s=ttft_s)
    plan, tables = loaded.read(folder, name=None)
    written = folder / "page.html"
    written.write_text(load_page.page(plan, tables), encoding="utf-8")
    return written


def test_the_answer_is_a_number_of_users_and_three_curves(page, draw_all) -> None:
    assert draw_all() == 3
    assert page.locator(".big b").inner_text() == "4"


@pytest.mark.parametrize("page", [{"java_script_enabled": False}], indirect=True)
def test_without_javascript_the_text_stands_and_says_what_lacks(page) -> None:
    assert "JavaScript" in page.locator("noscript").inner_text()
    assert page.locator("table.values tbody tr:visible").count() == 3


def test_a_browser_that_cannot_unpack_the_charts_says_so_and_keeps_text_and_tables(page, seen) -> None:
    assert page.locator("#undrawable").is_hidden()
    page.add_init_script("delete window.DecompressionStream")
    page.reload()
    page.wait_for_selector("html[data-ready]")
    assert "DecompressionStream" in page.locator("#undrawable").inner_text()
    assert page.locator("[data-chart]:visible").count() == 0
    page.locator("figure details summary").first.click()
    assert page.locator("figure details[open] tbody tr").count() == 3
    assert page.locator("table.values tbody tr:visible").count() == 3
    page.click("#language")
    assert page.locator("html").get_attribute("lang") == "ja" and seen["errors"] == []
