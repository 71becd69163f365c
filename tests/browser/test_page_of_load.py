"""The page of `servebench load` in a real browser: on a phone, in the dark, in Japanese, by keyboard and on paper."""

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


@pytest.mark.parametrize(
    "page",
    [{}, {"viewport": {"width": 390, "height": 800}, "color_scheme": "dark", "locale": "ja-JP"}],
    indirect=True,
)
def test_it_is_silent_accessible_and_no_wider_than_the_screen(page, path, seen, findings, tmp_path) -> None:
    charts = page.locator("[data-chart]")
    for n in range(charts.count()):
        charts.nth(n).scroll_into_view_if_needed()
        charts.nth(n).locator("svg").wait_for()
    assert charts.count() == 3
    assert findings() == []
    assert seen == {"errors": [], "requests": [path.as_uri()]}
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.locator(".big b").inner_text() == "4"
    other = "ja" if page.locator("html").get_attribute("lang") == "en" else "en"
    assert page.locator(f'span[lang="{other}"]:visible').count() == 0
    charts.first.focus()
    page.keyboard.press("ArrowRight")
    assert "little" in page.locator("#tip").inner_text()
    assert page.pdf(path=tmp_path / "page.pdf", format="A4")[:5] == b"%PDF-"


@pytest.mark.parametrize("page", [{"java_script_enabled": False}], indirect=True)
def test_without_javascript_the_text_stands_and_says_what_lacks(page) -> None:
    assert "JavaScript" in page.locator("noscript").inner_text()
    assert page.locator("table.values tbody tr:visible").count() == 3
