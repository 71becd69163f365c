"""The page of `servebench load`: what one round of one server allows to say, and nothing more."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import synthetic
from servebench.load.line import Line
from servebench.report import load_page
from servebench.tables import loaded

MISSED = {"meets_line": False, "ttft_p95_s": 3.0}


def page(folder: Path, levels: dict[int, dict[str, Any]], workload: dict[str, Any] | None = None) -> str:
    for users, figures in levels.items():
        synthetic.loaded(folder / f"users-{users}", users, "little", workload or {}, **figures)
    plan, tables = loaded.read(folder, Line(), name=None)
    return load_page.page(plan, tables)


def lead(text: str) -> str:
    found = re.search(r'class="lead"><span lang="en">(.*?)</span>', text)
    assert found
    return re.sub("<[^>]*>", "", found[1])


@pytest.mark.parametrize(
    ("levels", "said", "number"),
    [
        ({4: {}}, "little met the target with 4 users, the most that was tried", "4"),
        ({1: {}, 4: {}, 16: MISSED, 32: {}}, "with 4 users; with 16 it missed the target", "4"),
        ({1: MISSED, 4: {}, 16: {}}, "the fewest that was tried. It met the target with 4, 16 users, though.", None),
        ({2: MISSED, 4: {}}, "little missed the target with 2 users, the fewest", None),
        ({1: {}, 4: {"target_requests": 3}}, "with 1 user; with 4 it cannot be judged: too few requests", "1"),
        ({1: {"failures": 60}}, "little failed with 1 user, the fewest", None),
    ],
)
def test_the_answer_is_the_most_users_with_no_miss_below(tmp_path, levels, said, number) -> None:
    text = page(tmp_path, levels)
    assert said in lead(text) and lead(text).startswith("In this one round")
    shown = re.search(r'class="big.*?<b>(\d+)</b>', text)
    assert (shown and shown[1]) == number


def test_an_open_loop_has_connections_and_no_number_of_users(tmp_path) -> None:
    text = page(tmp_path, {2: MISSED}, {"mode": "open", "rate": 4.0})
    assert "4 requests/s" in lead(text) and "missed" in lead(text) and "user" not in lead(text)
    assert "Connections" in text and 'class="big' not in text


def test_an_open_loop_of_users_has_users(tmp_path) -> None:
    text = page(tmp_path, {2: {}, 4: {}}, {"mode": "open-users", "user_rate": 0.5})
    assert "little met the target with 4 users" in lead(text) and "Connections" not in text


def test_a_round_that_is_not_valid_is_no_round_that_was_met(tmp_path) -> None:
    reasons = [{"kind": "beyond_calibration", "values": {"users": 4, "calibrated_users": 2}}]
    text = page(tmp_path, {4: {"valid": False, "invalid_reasons": reasons}})
    assert lead(text).endswith("Not all of its measurements are valid.")
    assert "◌" in text and "○" not in text


def test_terms_that_the_page_uses_are_explained_and_no_others(tmp_path) -> None:
    text = page(tmp_path, {1: {}, 4: {}})
    linked = set(re.findall(r'href="#term-(\w+)"', text))
    explained = set(re.findall(r'id="term-(\w+)"', text))
    assert linked <= explained and "micro_batch" not in explained
