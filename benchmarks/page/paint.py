"""How large the page of the H200 experiment is, and how long Chromium takes to show it and to draw every chart.

The page is that of tests/browser: all 74 published cells in two rounds, evaluated answers, a price; all made up.

    python benchmarks/page/paint.py --repeat 5
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

TESTS = Path(__file__).resolve().parents[2] / "tests"
sys.path[:0] = [str(TESTS), str(TESTS / "browser")]

from test_page import page_of  # noqa: E402

import synthetic  # noqa: E402

DRAWN = "document.querySelectorAll('[data-chart]:not([data-drawn])').length === 0"


def opened(browser: Any, path: Path) -> tuple[float, float, float, int]:
    """Open the page afresh; return the seconds to its first paint, its script and its last chart, and their number."""
    page = browser.new_context(viewport={"width": 1200, "height": 900}, locale="en-US").new_page()
    page.add_init_script("window.print = () => dispatchEvent(new Event('beforeprint'))")
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-ready]")
    ready_s = page.evaluate("performance.now()") / 1000
    page.wait_for_function("performance.getEntriesByName('first-contentful-paint').length > 0")
    paint_s = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime") / 1000
    start = page.evaluate("performance.now()")
    page.click("#print-all")
    page.wait_for_function(DRAWN, polling=50)
    drawn_s = (page.evaluate("performance.now()") - start) / 1000
    count = page.locator("[data-chart] svg").count()
    page.context.close()
    return paint_s, ready_s, drawn_s, count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5)
    given = parser.parse_args()
    text, _ = page_of(synthetic.h200_cells(), "h200", 60)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = Path(folder) / "index.html"
        path.write_text(text, encoding="utf-8")
        print(f"{path.stat().st_size / 1e6:.2f} MB")
        print("| repeat | first paint, s | script ready, s | all charts, s | charts |\n|---|---|---|---|---|")
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for number in range(1, given.repeat + 1):
            paint_s, ready_s, drawn_s, count = opened(browser, path)
            print(f"| {number} | {paint_s:.2f} | {ready_s:.2f} | {drawn_s:.2f} | {count} |")


if __name__ == "__main__":
    main()
