"""What holds for each page: on a phone, in the dark, in both languages, by keyboard, by touch, on paper."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import synthetic
from servebench import claims, tables, verdicts
from servebench.report import comparison, comparison_page, load_page
from servebench.report import page as report_page
from servebench.tables import loaded


def load(folder: Path, workload: dict[str, Any] | None = None) -> str:
    for users, ttft_s in ((1, 0.1), (4, 0.4), (16, 3.0)):
        synthetic.loaded(
            folder / f"users-{users}", users, "little", workload or {}, output_tok_s=40.0 * users, ttft_p95_s=ttft_s
        )
    return load_page.page(*loaded.read(folder, name=None))


def compare(folder: Path) -> str:
    cells = synthetic.quickstart_cells()
    made = []
    for name in ("laptop", "desktop"):
        plan = synthetic.plan_of(cells, name)
        measured = tables.measurements(list(synthetic.records_of(cells, plan, 10)), plan.line)
        own = {"measurements": measured, "settings": tables.settings(measured)}
        made.append(comparison.Experiment(folder=folder / name, plan=plan, tables=own))
    return comparison_page.page(comparison.compare(*made))


def open_loop(folder: Path) -> str:
    cells = [cell for cell in synthetic.quickstart_cells() if cell["setting"] == "llama-np4"]
    plan = synthetic.plan_of(cells, "open")
    opened = {
        name: replace(one, workload=one.workload | {"mode": "open", "rate": 4.0}) for name, one in plan.settings.items()
    }
    plan = replace(plan, settings=opened)
    made = synthetic.from_records(list(synthetic.records_of(cells, plan, 10)), [], plan)
    return report_page.page(made | {"verdicts": claims.table(verdicts.conclude(made, plan))}, plan)


PAGES = {"load": load, "compare": compare, "open": open_loop}


@pytest.fixture(scope="module", params=PAGES)
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    written = tmp_path_factory.mktemp(request.param) / "page.html"
    written.write_text(PAGES[request.param](written.parent), encoding="utf-8")
    return written


PHONE = {"viewport": {"width": 390, "height": 800}}


@pytest.mark.parametrize(
    "page",
    [{}, PHONE | {"locale": "ja-JP"}, {"color_scheme": "dark", "locale": "ja-JP"}, PHONE | {"color_scheme": "dark"}],
    indirect=True,
    ids=["light", "phone-ja", "dark-ja", "phone-dark"],
)
def test_it_is_silent_accessible_and_no_wider_than_the_screen(page, path, seen, findings, draw_all) -> None:
    assert draw_all() >= 2
    assert findings() == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    other = "ja" if page.locator("html").get_attribute("lang") == "en" else "en"
    assert page.locator(f'span[lang="{other}"]:visible').count() == 0
    targets = page.locator('a[href^="#"]').evaluate_all("links => links.map(link => link.hash.slice(1))")
    assert page.evaluate("ids => ids.filter(id => !document.getElementById(id))", targets) == []
    assert seen == {"errors": [], "requests": [path.as_uri()]}


def marked(page: Any) -> Any:
    """The first chart that tells its points."""
    return page.locator("[data-chart][tabindex]").first


def test_arrow_keys_tell_the_points_of_a_chart(page, draw_all) -> None:
    draw_all()
    marked(page).focus()
    told = []
    for key in ("ArrowRight", "ArrowRight", "ArrowLeft"):
        page.keyboard.press(key)
        told.append(page.locator("#tip").inner_text())
    assert told[0] == told[2] != told[1] and ": " in told[0]
    page.keyboard.press("Escape")
    assert page.locator("#tip").is_hidden()


@pytest.mark.parametrize("page", [PHONE | {"has_touch": True}], indirect=True)
def test_a_touch_tells_a_point_and_another_hides_it(page, draw_all) -> None:
    draw_all()
    chart = marked(page)
    chart.scroll_into_view_if_needed()
    box = chart.locator("svg .mark-symbol path, svg .mark-line path, svg .mark-rect path").first.bounding_box()
    page.touchscreen.tap(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_selector("#tip:visible")
    assert ": " in page.locator("#tip").inner_text()
    whole = chart.bounding_box()
    page.touchscreen.tap(whole["x"] + 2, whole["y"] + 2)
    page.wait_for_selector("#tip", state="hidden")


@pytest.mark.parametrize("page", [{"color_scheme": "dark"}], indirect=True)
def test_paper_is_light_and_no_table_or_chart_is_wider(page, tmp_path) -> None:
    page.evaluate("window.print = () => dispatchEvent(new Event('beforeprint'))")
    page.click("#print")
    page.wait_for_function("document.documentElement.dataset.theme === 'light'")
    page.set_viewport_size({"width": 718, "height": 1000})  # A4 and its margins
    page.emulate_media(media="print")
    assert page.locator("nav:visible").count() == 0 and page.locator(".tools").is_hidden()
    ends = page.locator("table:visible").evaluate_all("all => all.map(one => one.getBoundingClientRect().right)")
    assert ends and max(ends) <= 719
    assert page.pdf(path=tmp_path / "page.pdf", format="A4")[:5] == b"%PDF-"


PEOPLE = {"en": r"\b(users?|people|person)\b", "ja": r"\d 人|人あたり|人数|利用者|同時利用"}
# Of the load generator, which is calibrated with simulated users whatever is measured; of charts that are not drawn.
APART = ("clock is known", "時刻の分かる", "load generator", "負荷生成", "Not drawn", "描いていない")


@pytest.mark.parametrize("path", ["open"], indirect=True)
@pytest.mark.parametrize("page", [{}, {"locale": "ja-JP"}], indirect=True)
def test_nothing_speaks_of_people_where_a_schedule_sends_the_requests(page, draw_all) -> None:
    draw_all()
    code = page.locator("html").get_attribute("lang")
    apart = ":not([aria-labelledby=h-terms] *):not([id^=chart-client_error] *)"
    shown = page.evaluate(
        "([spans, drawn]) => [...document.querySelectorAll(spans)].map(one => one.innerText)"
        ".concat([...document.querySelectorAll(drawn)].flatMap(one => [one.ariaLabel, one.textContent]))",
        [f'main span[lang="{code}"]{apart}', f"main [data-chart]{apart}, main [data-chart]{apart} svg text"],
    )
    shown = [text for text in shown if text]
    assert len(shown) > 100
    assert [text for text in shown if re.search(PEOPLE[code], text) and not any(of in text for of in APART)] == []
