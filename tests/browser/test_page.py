"""The page in a real browser: silent, offline, in two languages, on a phone, for a screen reader, and on paper."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

import synthetic
import synthetic_answers
from servebench import charts, claims, schema, tables, verdicts
from servebench.report import page as page_
from servebench.store.measurements import Discarded
from servebench.words import marks

ANSWERED = ("quality",)


def page_of(cells: list[dict[str, Any]], experiment: str, window_s: int) -> tuple[str, dict[str, Any]]:
    """A page with everything there can be: all tables, evaluated answers, a failed round, a discarded one, a price."""
    asked, answered = synthetic_answers.made()
    costs = {"price_per_hour": 3.5, "idle_after_min": 10}
    plan = synthetic.plan_of(cells, experiment)
    models = plan.models | {target.model.key: target.model for target in asked.targets.values()}
    plan = msgspec.structs.replace(plan, models=models, evaluations=asked, cost=costs)
    records = list(synthetic.records_of(cells, plan, window_s))
    records[1] = synthetic.failed(records[1], "out of memory")
    place = records[0].identity.place
    when = "2026-11-14T12:00:00+00:00"
    thrown_out = Discarded(file=Path("a"), place=place, why="a backup was running", discarded_at=when, metadata=None)
    made = synthetic.from_records(records, [thrown_out], plan) | answered
    made["cost"] = tables.cost(made["settings"], 3.5)
    made["paid_idle"] = tables.paid_idle(made["sessions"], 3.5, 10)
    if experiment == "h200":
        published = tables.read_reference(synthetic.REFERENCES / "h200-concurrency.csv")
        made["reproduction"] = tables.reproduction(made["settings"], published)
    made["verdicts"] = claims.table(verdicts.conclude(made, plan))
    return page_.page(made, plan), made


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


def unfold(page: Any) -> None:
    page.evaluate("document.querySelectorAll('details').forEach(details => { details.open = true; })")


def test_all_charts_are_drawn_without_an_error_or_a_request(page, written, seen, draw_all) -> None:
    count = draw_all()
    runs = set(written[1]["settings"]["run"].to_pylist())
    drawn = set(page.locator("[data-chart]").evaluate_all("charts => charts.map(chart => chart.dataset.chart)"))
    assert {f"{name}-main" for name in ANSWERED} < drawn
    assert drawn == {
        f"{name}-{run}"
        for name in charts.CHARTS
        for run in charts.runs_with_data(name, written[1], sorted(runs, reverse=True))
    }
    assert count == len(drawn) >= 10
    assert seen["errors"] == []
    assert seen["requests"] == [written[0].as_uri()]
    assert written[0].stat().st_size <= 3_000_000


def test_the_language_switch_turns_texts_titles_and_charts(page, draw_all) -> None:
    draw_all()
    assert page.locator("h2").first.inner_text() == "The answer"
    page.click("#language")
    assert page.locator("html").get_attribute("lang") == "ja"
    assert page.locator("h2").first.inner_text() == "結論"
    page.wait_for_function("document.querySelectorAll('[data-chart]:not([data-drawn=ja])').length === 0")
    assert "同時利用" in page.locator("[data-chart^=output_by_users] svg").first.text_content()
    assert "合計出力" in page.locator("[data-chart^=output_by_users]").first.get_attribute("aria-label")
    visible = page.locator('span[lang="en"]:visible').count()
    assert visible == 0
    page.click("#language")
    assert page.locator("h2").first.inner_text() == "The answer"


def test_columns_sort_by_number_both_ways_with_the_missing_last(page, draw_all) -> None:
    draw_all()  # a chart drawn between the aim and the click would move the table from under the pointer
    table = page.locator("table.values").first
    for column in (5, 8):  # output, TTFT p95
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
    page.fill("#filter", "no such words")
    assert page.locator("#none").is_visible() and page.locator("table.values tbody tr:visible").count() == 0
    page.fill("#filter", "")
    assert page.locator("#none").is_hidden()
    assert page.locator("table.values tbody tr:visible").count() == page.locator("table.values tbody tr").count()


def test_rows_are_filtered_by_engine_quantization_and_slots(page, written) -> None:
    rows = schema.rows(written[1]["settings"])
    for words, wanted in (("q8_0", "quantization"), ("llama-server", "engine_kind")):
        page.fill("#filter", words)
        shown = page.locator("table.values tbody tr:visible").evaluate_all("rows => rows.map(row => row.id)")
        assert set(shown) == {
            f"row-{row['run']}-{row['setting']}-{row['users']}" for row in rows if row[wanted].lower() == words
        }


def test_drawn_ranges_and_table_are_the_smaller_and_larger_of_the_rounds(page, written, data) -> None:
    rows = {(r["setting"], r["users"]): r for r in written[1]["settings"].to_pylist()}
    points = [
        p for rows_ in data["datasets"].values() for p in rows_ if {"setting", "low", "high", "trusted"} <= p.keys()
    ]
    figures = ("output_tok_s", "user_tok_s", "ttft_p95_s")
    ends = {key: {(row[f"{f}_min"], row[f"{f}_max"]) for f in figures} for key, row in rows.items()}
    assert len(points) > 3 * len(rows) - 10
    for point in points:
        if point["failed"]:
            assert point["low"] is point["high"] is None
            continue
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
    marked = marked_rows(written)
    for language in ("en", "ja"):
        for anchor, caveats in marked.items():
            told = page.locator(f'.heat a[href="#{anchor}"]').get_attribute("title")
            assert told.startswith(marks.told(caveats, language))
            shown = page.locator(f'[id="{anchor}"] .why').inner_text()
            assert all(marks.translated(mark)[language] in shown for mark in caveats)
        page.click("#language")


def marked_rows(written: tuple[Path, dict[str, Any]]) -> dict[str, Any]:
    """The caveats of each level that has some, by the place of its row on the page."""
    levels = [claim for claim in claims.of(written[1], kind="level") if claim.caveats]
    found = {f"row-{claim.rows[0].replace('/', '-')}": claim.caveats for claim in levels}
    assert found
    return found


@pytest.mark.parametrize("page", [{"locale": "ja-JP"}], indirect=True)
def test_what_is_pointed_at_is_told_in_japanese(page, written, draw_all) -> None:
    draw_all()
    rows = schema.rows(written[1]["settings"])
    row = max((r for r in rows if r["run"] == "main" and r["rounds"] == 2), key=lambda row: len(row["marks"]))
    place = page.locator("[data-chart=output_by_users-main] svg .mark-symbol path")
    names = place.evaluate_all("paths => paths.map(path => path.getAttribute('aria-label') || '')")
    at = next(n for n, name in enumerate(names) if f"設定: {row['setting']}; 同時利用: {row['users']};" in name)
    place.nth(at).dispatch_event("pointermove")  # itself: where two points meet, the later one is under the pointer
    page.wait_for_selector("#tip:visible")
    assert f"注意事項: {marks.told(row['marks'], 'ja')}" in page.locator("#tip").inner_text()


def test_a_link_to_what_is_folded_opens_it(page) -> None:
    fold = page.locator("#compared-mgsm")
    assert fold.get_attribute("open") is None
    page.evaluate("location.hash = '#compared-mgsm'")
    page.wait_for_function("document.getElementById('compared-mgsm').open")
    assert fold.locator("tbody tr").count() == 8
    assert "true only of the baseline" in fold.inner_text()


def test_the_first_screen_is_a_screen(page) -> None:
    """How many, with which setting, whether the answers are right and the facts are read without scrolling far."""
    for name in (".part.many", ".part.which", ".facts"):
        box = page.locator(name).bounding_box()
        assert box["y"] + box["height"] < 1000
    assert "users at once" in page.locator(".big").inner_text()
    page.locator(".big a").click()  # to how sure it is
    row = page.locator("tr:target")
    assert row.locator("td:nth-child(5)").inner_text() == page.locator(".big b").inner_text()
    assert re.search(r"\d\.\d\d", row.locator("td:has(> .sign)").inner_text())


def test_what_failed_stands_on_the_page(page) -> None:
    assert "out of memory" in page.locator("section[aria-labelledby=h-missing]").inner_text()
    assert "planned measurements failed" in page.locator(".alarm").first.inner_text()


@pytest.mark.parametrize("page", [{"viewport": {"width": 390, "height": 800}}], indirect=True)
def test_a_phone_never_scrolls_sideways(page, seen, draw_all) -> None:
    draw_all()
    unfold(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert seen["errors"] == []


@pytest.mark.parametrize(
    "page",
    [
        {"color_scheme": "light"},
        {"color_scheme": "dark", "locale": "ja-JP", "viewport": {"width": 390, "height": 800}},
    ],
    indirect=True,
)
def test_axe_finds_nothing(page, findings, draw_all) -> None:
    draw_all()
    unfold(page)
    assert findings() == []


@pytest.mark.parametrize("page", [{"color_scheme": "dark"}], indirect=True)
def test_dark_charts_use_the_dark_colours_and_paper_is_light(page, draw_all) -> None:
    draw_all()
    first = page.locator("[data-chart] svg").first
    assert "#5b9bff" in first.evaluate("svg => svg.outerHTML")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.wait_for_function("document.documentElement.dataset.theme === 'light'")
    page.wait_for_function("!document.querySelector('[data-chart] svg').outerHTML.includes('#5b9bff')")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    page.wait_for_function("document.documentElement.dataset.theme === 'dark'")


@pytest.mark.parametrize("page", [{"viewport": {"width": 718, "height": 1000}}], indirect=True)  # A4 and its margins
def test_no_table_is_wider_than_paper(page) -> None:
    page.emulate_media(media="print")
    unfold(page)
    for _ in ("en", "ja"):
        ends = page.locator("table").evaluate_all("tables => tables.map(table => table.getBoundingClientRect().right)")
        assert len(ends) > 20 and max(ends) <= 719
        page.evaluate("document.getElementById('language').click()")


# The headings on paper that nothing but another heading, or a note on what is folded, follows.
ALONE = """() => {
  const found = [];
  let heading = null;
  for (const element of document.querySelectorAll("main :is(h2, h3, p:not(.note), li, td, dd, svg, footer)")) {
    if (!element.checkVisibility()) continue;
    if (!/^H[23]$/.test(element.tagName) || element.closest("figure")) { heading = null; continue; }
    if (heading && !(heading.tagName === "H2" && element.tagName === "H3")) found.push(heading.innerText);
    heading = element;
  }
  return heading ? [...found, heading.innerText] : found;
}"""


def pages(pdf: Path) -> int:
    return len(re.findall(rb"/Type\s*/Page\b", pdf.read_bytes()))


def test_paper_has_what_is_open_in_twelve_pages_and_everything_when_asked(page, written, tmp_path) -> None:
    page.evaluate("window.print = () => dispatchEvent(new Event('beforeprint'))")
    page.click("#print")
    page.wait_for_function("document.querySelectorAll('[data-chart][data-drawn]').length >= 3")
    page.emulate_media(media="print")
    assert page.locator("nav").is_hidden() and page.locator(".screen-one").is_visible()
    assert page.pdf(path=tmp_path / "page.pdf", format="A4")[:5] == b"%PDF-"
    assert 2 <= pages(tmp_path / "page.pdf") <= 12
    assert page.evaluate(ALONE) == []
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    page.emulate_media(media="screen")
    page.click("#print-all")
    page.wait_for_function(
        "document.querySelectorAll('[data-chart] svg').length === document.querySelectorAll('[data-chart]').length"
    )
    page.emulate_media(media="print")
    assert page.locator("details:not([open])").count() == 0
    for anchor, caveats in marked_rows(written).items():
        shown = page.locator(f'[id="{anchor}"] .why').inner_text()
        assert all(marks.translated(mark)["en"] in shown for mark in caveats)
    for row in schema.rows(written[1]["targets"]):
        shown = page.locator("section[aria-labelledby=h-evaluated]").inner_text()
        assert all(marks.translated(mark)["en"] in shown for mark in row["marks"])
    assert page.locator("figure svg:visible").count() == page.locator("figure").count()


def test_arrow_keys_tell_the_points_of_a_chart(page) -> None:
    chart = page.locator("[data-chart=tradeoff-main]")
    chart.scroll_into_view_if_needed()
    page.wait_for_selector("[data-chart=tradeoff-main][data-drawn]")
    chart.focus()
    told = []
    for key in ("ArrowRight", "ArrowRight", "ArrowLeft"):
        page.keyboard.press(key)
        told.append(page.locator("#tip").inner_text())
    assert told[0] == told[2] != told[1]
    assert told[0].startswith("Setting: ") and "Users: " in told[0]
    page.keyboard.press("Escape")
    assert page.locator("#tip").is_hidden()


@pytest.mark.parametrize("page", [{"viewport": {"width": 390, "height": 800}, "has_touch": True}], indirect=True)
def test_a_touch_tells_a_point_and_another_hides_it(page) -> None:
    chart = page.locator("[data-chart=tradeoff-main]")
    chart.scroll_into_view_if_needed()
    page.wait_for_selector("[data-chart=tradeoff-main][data-drawn]")
    box = chart.locator(".mark-symbol path").first.bounding_box()
    page.touchscreen.tap(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_selector("#tip:visible")
    assert "Setting: " in page.locator("#tip").inner_text()
    whole = chart.bounding_box()
    page.touchscreen.tap(whole["x"] + whole["width"] - 3, whole["y"] + whole["height"] - 3)
    page.wait_for_selector("#tip", state="hidden")


def test_the_keyboard_reaches_the_content_first_and_moves_the_limits(page, data) -> None:
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("location.hash") == "#content"
    limits = data["limits"]
    ttft_s, speed = limits["line"]
    page.locator("#limit-ttft").focus()
    assert page.locator("#limit-ttft").get_attribute("aria-valuetext") == f"{ttft_s:g} s"
    for key, step in (("ArrowRight", 1), ("ArrowLeft", -1), ("Home", None)):
        page.keyboard.press(key)
        offered = limits["ttft"]
        ttft_s = offered[0] if step is None else offered[offered.index(ttft_s) + step]
        check_limits(page, limits, ttft_s, speed)


@pytest.mark.parametrize("page", [{"viewport": {"width": 390, "height": 800}, "has_touch": True}], indirect=True)
def test_a_touch_moves_the_limits(page, data) -> None:
    limits = data["limits"]
    chosen = dict(zip(("ttft", "speed"), limits["line"], strict=True))
    for name in ("speed", "ttft"):
        slider = page.locator(f"#limit-{name}")
        slider.scroll_into_view_if_needed()
        box = slider.bounding_box()
        for end, x in ((0, box["x"] + 1), (-1, box["x"] + box["width"] - 1)):
            page.touchscreen.tap(x, box["y"] + box["height"] / 2)
            chosen[name] = limits[name][end]
            told = re.compile(rf"^\s*{re.escape(f'{chosen[name]:g}')} ")
            page.locator(f"#limit-{name} + output").filter(has_text=told).wait_for()  # touches come a little later
            check_limits(page, limits, chosen["ttft"], chosen["speed"])


def check_limits(page, limits: dict[str, Any], ttft_s: float, speed: float) -> None:
    """Check both limits as the page tells them, and the users that each setting serves within them."""
    assert page.locator("#limit-ttft + output").inner_text() == f"{ttft_s:g} s"
    assert page.locator("#limit-speed + output").inner_text().split()[0] == f"{speed:g}"
    for run, settings in limits["runs"].items():
        cells = page.locator(f"table[data-limits={run}] tbody tr td:nth-child(2)").all_inner_texts()
        assert [cell.removesuffix(" ◌") for cell in cells] == [held(own["levels"], ttft_s, speed) for own in settings]


def held(levels: list[dict[str, Any]], ttft_s: float, speed: float) -> str:
    """The most users within both limits, with no gap below."""
    most = "–"
    for level in levels:
        if level["sign"] not in ("", "◌") or level["ttft"] > ttft_s or level["speed"] < speed:
            break
        most = str(level["users"])
    return most
