"""Every mark that the code can make has words in Japanese: its kind and its evidence."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator, Mapping

import pytest

import synthetic
from servebench.tables.evaluated import targets
from servebench.words import marks

MADE_IN = (
    "load/figures.py",
    "tables/derived.py",
    "tables/measured.py",
    "tables/watched.py",
    "tables/evaluated/targets.py",
)
# What returns evidence alone, by the kind it is for.
EVIDENCE = {"no_reply": "no reply", "_foreign_known": "foreign use partly unknown"}

# What is yielded there and is no mark: the kinds of ratios.
OTHER = {"control", "engine", "slots", "quantization", "drift"}


def made() -> Iterator[str]:
    """The texts that are yielded or appended as marks, every number in them 7."""
    for name in MADE_IN:
        tree = ast.parse((synthetic.ROOT / "scripts" / "servebench" / name).read_text(encoding="utf-8"))
        for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
            known = assigned(function)
            for node in ast.walk(function):
                if isinstance(node, ast.Yield) and node.value is not None:
                    yield from texts(node.value, known)
                elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "append":
                    yield from texts(node.args[0], known)
                elif isinstance(node, ast.Return) and node.value is not None and function.name in EVIDENCE:
                    yield from (f"{EVIDENCE[function.name]}: {text}" for text in texts(node.value, known))


def assigned(function: ast.FunctionDef) -> Mapping[str, list[ast.expr]]:
    """What each name of the function may stand for, as far as that is text."""
    found: dict[str, list[ast.expr]] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found.setdefault(node.targets[0].id, []).append(node.value)
        elif isinstance(node, ast.For) and isinstance(node.target, ast.Name) and isinstance(node.iter, ast.Tuple):
            found.setdefault(node.target.id, []).extend(node.iter.elts)
    return found


def texts(node: ast.expr, known: Mapping[str, list[ast.expr]]) -> list[str]:
    """The texts an expression may be; none where it is no text."""
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else []
    if isinstance(node, ast.IfExp):
        return texts(node.body, known) + texts(node.orelse, known)
    if isinstance(node, ast.Name):
        return [text for value in known.get(node.id, ()) for text in texts(value, known)]
    if isinstance(node, ast.JoinedStr):
        pieces = [
            (texts(piece.value, known) or ["7"]) if isinstance(piece, ast.FormattedValue) else texts(piece, known)
            for piece in node.values
        ]
        return ["".join(parts) for parts in itertools.product(*pieces)]
    return []


FOUND = sorted({text for text in made() if re.match(r"[a-z][a-z0-9_ ]*(: |$)", text)} - OTHER)


def test_all_marks_are_found() -> None:
    kinds = {text.partition(": ")[0] for text in FOUND}
    assert kinds == marks.kinds(), "labels.yaml: marks has what the code makes, no more and no less"
    assert "unsteady window: no output in its first half" in FOUND and "engine_build: 7" in FOUND
    assert "no reply: all 7 target requests failed (7)" in FOUND


@pytest.mark.parametrize("mark", FOUND)
def test_a_mark_is_told_in_japanese_with_its_numbers(mark: str) -> None:
    told = marks.translated(mark)
    assert re.search("[ぁ-んァ-ヶ一-龠]", told["ja"])
    kept = re.sub("CPU", "", told["ja"])
    assert not re.search("[A-Za-z]{2,}", kept), told
    assert told["ja"].count("7") == told["en"].count("7") == mark.count("7")


def test_names_and_figures_in_a_mark() -> None:
    assert marks.translated("unstable pair: user_tok_s 2 → 3")["ja"] == (
        "巡によって 2 割以上違う: 1 人あたりの速さ（トークン/秒） 2 → 3"
    )
    two = marks.translated("cpu quota: kept from the CPUs in a window of 60 s: server 1.2 s, load generator 0.9 s")
    assert two["ja"].endswith("測る時間 60 秒の間に CPU を使えなかった時間：サーバー 1.2 s, 負荷の道具 0.9 s")
    replies = marks.translated("without_answer: mgsm: 7 of 500 replies (truncated 4, empty 3)")
    assert replies["ja"].endswith("mgsm：返事 500 件のうち 7 件（打ち切り 4, 空 3）")
    assert replies["en"].endswith("mgsm: 7 of 500 replies (cut off 4, empty 3)")
    both = "impossible usage: 3 replies with more cached than prompt tokens / something new"
    assert marks.translated(both)["ja"].endswith("とする返事 3 件 / something new")
    assert marks.translated("out of memory: 3 GiB") == dict.fromkeys(("en", "ja"), "out of memory: 3 GiB")
    assert marks.told([], "ja") == "–"
    assert marks.translated("reasoning seen: 1 replies")["en"] == "reasoning seen: 1 reply"
    assert marks.translated("for reference only: 1 target requests")["en"] == "for reference only: 1 target request"


@pytest.mark.parametrize(
    ("replies", "failures", "mark"),
    [
        (0, 0, None),
        (0, 3, "no_load: all 3 requests of the load failed: HTTP 400"),
        (5, 0, None),
        (5, 3, "load_failed: 3 of 8 requests: HTTP 400"),
    ],
)
def test_a_load_that_was_answered_has_not_failed_as_a_whole_whatever_was_asked_under_it(
    replies: int, failures: int, mark: str | None
) -> None:
    load = {"users": 3, "replies": replies, "failures": failures, "failed": "HTTP 400" if failures else None}
    sessions = [{}, {"load": load}, {"load": dict.fromkeys(("replies", "failures"), 0) | {"failed": None}}]
    assert list(targets._load_marks(sessions)) == ([mark] if mark else [])
