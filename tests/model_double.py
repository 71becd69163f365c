"""Script the replies of five targets, asked everything twice, so that the published table comes out.

Which question is right in which repeat is chosen such that the shares, the discordant pairs and the agreement of
config/references/h200-quantization.csv and h200-sign-tests.csv hold exactly. What it says varies in form as real
replies do. For tests; no model was asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from servebench.tables.files import read_reference
from servebench.tasks.proofreading import is_clean
from servebench.tasks.task import Question, Reply

REFERENCES = Path(__file__).parents[1] / "config" / "references"
PUBLISHED = {row["target"]: row for row in read_reference(REFERENCES / "h200-quantization.csv")}
SIGN_TESTS = {(row["task"], row["target"]): row for row in read_reference(REFERENCES / "h200-sign-tests.csv")}
BASELINE = "Q8_0"
TARGETS = ("Q4_K_M", "Q5_K_M", "Q6_K", "BF16")
# Questions of each measure of which it is true for the baseline, in repeats 1 and 2. The source gives only the
# smaller and the larger; the order is the one that fits all its discordant pairs.
BASE_TRUE = {"jcommonsenseqa": (1056, 1056), "mgsm": (207, 209), "proof_fixed": (118, 118), "proof_rewritten": (6, 6)}
SIZE = {"jcommonsenseqa": 1119, "mgsm": 250, "proof_fixed": 200, "proof_rewritten": 100}
# True in (repeat 1, repeat 2).
PATTERNS = ((1, 1), (1, 0), (0, 1), (0, 0))


def disagreements(task: str, target: str) -> int:
    """Count the questions the target answered differently the second time, from the published share."""
    size, column = {"jcommonsenseqa": (1119, "jcommonsenseqa"), "mgsm": (250, "mgsm"), "proofreading": (300, "proof")}[
        task
    ]
    share = PUBLISHED[target][f"agree_{column}"]
    fitting = [n for n in range(size) if round(100 * (size - n) / size, 1) == share]
    assert len(fitting) == 1
    return fitting[0]


@dataclass(frozen=True)
class Script:
    """true[target]: questions × 2, whether the measure holds. changed[target]: questions that are false both
    times, but with two different wrong answers."""

    true: Mapping[str, np.ndarray]
    changed: Mapping[str, frozenset[int]]


def _targets_patterns(base: Sequence[int], discordant: Sequence[int]) -> np.ndarray | None:
    """How many questions of each base pattern get each of the target's patterns, with as few changes between the
    repeats as can be (16 numbers); None when there is no way. discordant: base only, target only, by repeat."""
    cells = [(b, t) for b in PATTERNS for t in PATTERNS]
    rows = [[int(b == pattern) for b, _ in cells] for pattern in PATTERNS]
    for repeat in (0, 1):
        rows.append([int(b[repeat] > t[repeat]) for b, t in cells])
        rows.append([int(b[repeat] < t[repeat]) for b, t in cells])
    cost = [int(t[0] != t[1]) + 0.001 * int(b != t) for b, t in cells]
    limits = [*base, *discordant]
    found = milp(cost, constraints=LinearConstraint(rows, limits, limits), integrality=np.ones(16), bounds=Bounds(0))
    return np.rint(found.x).astype(int) if found.success else None


def script(measure: str, most_changes: Mapping[str, int], *, fill: bool = True) -> Script:
    """The first way to fulfil everything published of a measure, by number of questions whose right answer the
    baseline lost from repeat to repeat. most_changes: by target; fill: use all of them."""
    first, second = BASE_TRUE[measure]
    for lost in range(max(0, first - second), most_changes[BASELINE] + 1):
        gained = lost + second - first
        base = [first - lost, lost, gained, SIZE[measure] - first - gained]
        ways = {}
        for target in TARGETS:
            row = SIGN_TESTS[measure, target]
            ways[target] = _targets_patterns(
                base, [row[f"run{run}_{side}_only"] for run in (1, 2) for side in ("base", "other")]
            )
        if lost + gained <= most_changes[BASELINE] and all(
            way is not None and _changes(way) <= most_changes[target] for target, way in ways.items()
        ):
            return _lay_out(measure, base, ways, most_changes if fill else {})
    raise AssertionError(f"{measure}: no way to fulfil the published figures")


def _changes(way: np.ndarray) -> int:
    return int(sum(n for n, t in zip(way, PATTERNS * 4, strict=True) if t[0] != t[1]))


def _lay_out(
    measure: str, base: Sequence[int], ways: Mapping[str, np.ndarray | None], most_changes: Mapping[str, int]
) -> Script:
    true = {BASELINE: np.array([p for p, n in zip(PATTERNS, base, strict=True) for _ in range(n)])}
    for target, way in ways.items():
        assert way is not None
        true[target] = np.array([p for p, n in zip(PATTERNS * 4, way, strict=True) for _ in range(n)])
    changed = {}
    for target, holds in true.items():
        # For the share of rewritten sentences "false" is the right answer, which there is only one of.
        wrong = holds.all(axis=1) if measure == "proof_rewritten" else ~holds.any(axis=1)
        more = most_changes[target] - int((holds[:, 0] != holds[:, 1]).sum()) if most_changes else 0
        changed[target] = frozenset(np.flatnonzero(wrong)[:more].tolist())
        assert len(changed[target]) == more
    return Script(true, changed)


def scripts() -> dict[str, Script]:
    """By measure. Proofreading's published changes are of both kinds of sentence together: clean ones take as few
    of them as their discordant pairs allow."""
    made = {
        task: script(task, {target: disagreements(task, target) for target in (BASELINE, *TARGETS)})
        for task in ("jcommonsenseqa", "mgsm")
    }
    all_changes = {target: disagreements("proofreading", target) for target in (BASELINE, *TARGETS)}
    made["proof_rewritten"] = script("proof_rewritten", all_changes, fill=False)
    left = {
        target: all_changes[target] - int((true[:, 0] != true[:, 1]).sum())
        for target, true in made["proof_rewritten"].true.items()
    }
    made["proof_fixed"] = script("proof_fixed", left)
    return made


def choice_reply(question: Question, place: int, right: bool, other: bool) -> Reply:
    index = (int(question.gold) + (0 if right else 2 if other else 1)) % 5
    choice = question.choices[index]
    forms = (f"{index}", f"{index}".translate(WIDE), f"{index}. {choice}", f"答えは{index}です。", f"「{index}」")
    return Reply(text=forms[place % len(forms)], finish_reason="stop")


WIDE = str.maketrans("0123456789,", "０１２３４５６７８９，")


def number_reply(question: Question, place: int, right: bool, other: bool, repeat: int) -> Reply:
    """Every third question is worded otherwise in the second repeat, whatever it answers."""
    value = int(question.gold.replace(",", "")) + (0 if right else 2 if other else 1)
    forms = (
        f"答え: {value}",
        f"答え：{value:,}".translate(WIDE),
        f"答え: {value:,} 円（1日あたり9個×2）",
        f"答えは{value}です。",
        f"よって 3 × 7 = 21 ではなく \\boxed{{{value}}}",
        f"**答え: {value}.00**",
    )
    thoughts = "まず 3 × 7 = 21 を求めます。" if place % 3 or repeat == 1 else "まず、3 かける 7 は 21 です。"
    return Reply(text=f"{thoughts}\n{forms[place % len(forms)]}", finish_reason="stop")


def unanswered(question: Question, place: int) -> Reply | None:
    """For questions that stay wrong: some of the ways to give no answer. None: a plain wrong answer."""
    return (
        Reply(text=None, finish_reason="stop"),
        Reply(text=f"<think>答え: {question.gold}", finish_reason="stop"),
        Reply(text=f"答え: {question.gold}", finish_reason="length"),
        Reply(text="申し訳ありませんが、お答えできません。", finish_reason="stop"),
        Reply(text="わかりません。", finish_reason="stop"),
        None,
    )[place % 6]


def sentence_reply(question: Question, right: bool, other: bool) -> Reply:
    if right:
        return Reply(text=question.gold, finish_reason="stop")
    if is_clean(question):
        return Reply(text=question.text + ("よ" if other else "ね"), finish_reason="stop")
    return Reply(text=question.text + ("ね" if other else ""), finish_reason="stop")


def replies(
    questions: Mapping[str, Sequence[Question]], made: Mapping[str, Script]
) -> Iterator[tuple[str, str, int, Question, Reply]]:
    """Yield (target, task, repeat, question, reply) for all targets, tasks, repeats and questions."""
    by_measure = {
        "jcommonsenseqa": questions["jcommonsenseqa"],
        "mgsm": questions["mgsm"],
        "proof_fixed": [q for q in questions["proofreading"] if not is_clean(q)],
        "proof_rewritten": [q for q in questions["proofreading"] if is_clean(q)],
    }
    for measure, asked in by_measure.items():
        assert len(asked) == SIZE[measure]
        plan = made[measure]
        for target, true in plan.true.items():
            for repeat in (1, 2):
                for place, question in enumerate(asked):
                    right = bool(true[place, repeat - 1]) is not (measure == "proof_rewritten")
                    other = repeat == 2 and place in plan.changed[target]
                    stays_wrong = not true[place].any() and place not in plan.changed[target]
                    if measure == "jcommonsenseqa":
                        reply = (unanswered(question, place) if stays_wrong else None) or choice_reply(
                            question, place, right, other
                        )
                    elif measure == "mgsm":
                        reply = (unanswered(question, place) if stays_wrong else None) or number_reply(
                            question, place, right, other, repeat
                        )
                    else:
                        reply = sentence_reply(question, right, other)
                    yield target, measure if "proof" not in measure else "proofreading", repeat, question, reply
