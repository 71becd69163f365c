"""Open one page in the system's Chromium; record its errors, requests and layout."""

from __future__ import annotations

import gzip
import json
import shutil
from base64 import b64decode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")  # Playwright holds an event loop: later modules must be free to run their own
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        pytest.skip("needs chromium")
    with playwright.sync_playwright() as running:
        opened = running.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def seen() -> dict[str, list[str]]:
    return {"errors": [], "requests": []}


@pytest.fixture
def page(browser: Any, path: Path, seen: dict[str, list[str]], request: pytest.FixtureRequest) -> Iterator[Any]:
    """The page in the file `path`, a fixture of the module; options of the browser's context as its parameter."""
    options = {"viewport": {"width": 1200, "height": 900}, "locale": "en-US", **getattr(request, "param", {})}
    context = browser.new_context(**options)
    opened = context.new_page()
    opened.on("console", lambda message: seen["errors"].append(message.text) if message.type == "error" else None)
    opened.on("pageerror", lambda error: seen["errors"].append(str(error)))
    opened.on("request", lambda asked: seen["requests"].append(asked.url))
    opened.goto(path.as_uri())
    if options.get("java_script_enabled", True):
        opened.wait_for_selector("html[data-ready]")
    yield opened
    context.close()


@pytest.fixture
def data(page: Any) -> dict[str, Any]:
    """The input of the page's script: charts, data sets, colours, limits."""
    unpacked: dict[str, Any] = json.loads(gzip.decompress(b64decode(page.locator("#data").text_content())))
    return unpacked


@pytest.fixture
def findings(page: Any) -> Callable[[], list[tuple[str, list[str]]]]:
    """What axe finds, with where."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe-playwright-python")

    def find() -> list[tuple[str, list[str]]]:
        found = axe.Axe().run(page).response["violations"]
        return [(v["id"], [n["html"][:90] for n in v["nodes"][:3]]) for v in found]

    return find


@pytest.fixture
def draw_all(page: Any) -> Callable[[], int]:
    """Unfold everything, bring every chart near the view, wait until it is drawn; returns how many there are."""

    def draw() -> int:
        page.evaluate("document.querySelectorAll('details').forEach(details => { details.open = true; })")
        charts = page.locator("[data-chart]")
        for n in range(charts.count()):
            charts.nth(n).scroll_into_view_if_needed()
            charts.nth(n).locator("svg").wait_for()
        page.wait_for_function("document.querySelectorAll('[data-chart]:not([data-drawn])').length === 0")
        return int(charts.count())

    return draw
