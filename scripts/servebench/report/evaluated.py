"""Fill the page's part on evaluated answers: targets, comparisons, and the counts behind them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from servebench.plan import Plan, Setting
from servebench.report.fold import Fold, Text
from servebench.tables.files import Row, rows_of
from servebench.words import labels, spoken, words
from servebench.words.claims import measure, task
from servebench.words.numbers import digits

NUMBERS = ("characters_mean", "tokens_mean")
LEAKS = ("simplified_chinese", "english", "reasoning_replies")
NO_ANSWER = ("truncated", "empty", "refused", "unparsable", "reasoning_leaked")
FIVE_WAYS = ("exact", "fixed_with_extra_edits", "unchanged", "other_edit", "unparsable")


def targets(tables: Mapping[str, pa.Table], plan: Plan) -> list[dict[str, Any]]:
    """Fill the table of targets: engine and model file, share answered, remarks."""
    asked = plan.evaluations.targets if plan.evaluations else {}
    return [
        {name: row[name] for name in _TARGET} | {"notes": list(_target_notes(asked[row["target"]], plan))}
        for row in rows_of(tables, "targets")
    ]


_TARGET = (
    *("target", "baseline", "engine_kind", "engine_version", "model_name", "quantization", "model_sha256"),
    *("asked", "answered", "same_prompts", "marks", "reason"),
)


def _target_notes(target: Setting, plan: Plan) -> Iterator[tuple[str, Any]]:
    """Yield the notes on a target and its model, with those on the source of a requantized model."""
    if target.note:
        yield "note", target.note
    if target.model.note:
        yield "note", target.model.note
    elif target.model.requantize:
        source = plan.models[target.model.requantize["from"]]
        yield "requantized", f"{source.name} {source.quantization or ''}".strip()


def comparisons(tables: Mapping[str, pa.Table]) -> list[Fold]:
    """List each repeat's difference to the baseline, by measure, with the flips in both directions.

    What may be concluded from them are the claims of kind `score`.
    """
    heads = [_word(name) for name in ("target", "repeat", "difference", "p", "questions", "flips")]
    return [
        Fold(
            id=compared_id(name),
            name=measure(name),
            heads=heads,
            rows=[
                (row["target"], str(row["repeat"]), _points(row), digits(row["p_holm"]), digits(row["n"]), _flips(row))
                for row in rows
            ],
        )
        for name, rows in _by(rows_of(tables, "comparisons"), "measure").items()
    ]


def compared_id(name: str) -> str:
    """Return the id of a measure's comparisons on the page."""
    return f"compared-{name}"


def _points(row: Row) -> str:
    return f"{row['difference']:+.1f} ({row['low']:+.1f} – {row['high']:+.1f})"


def _flips(row: Row) -> Mapping[str, str]:
    """Say the flips in both directions, beside the baseline's own."""
    known = row["noise_first_only"] is not None
    flips = {"base_only": row["base_only"], "other_only": row["other_only"]}
    if known:
        flips |= {"first": row["noise_first_only"], "second": row["noise_second_only"]}
    return spoken(f"page.evaluated.{'flipped' if known else 'flipped_once'}", **flips)


def under_load(tables: Mapping[str, pa.Table]) -> list[dict[str, Any]]:
    """List each target beside users against itself on an idle server, by measure."""
    return [
        {name: row[name] for name in ("target", "n", "questions", "base_only", "other_only")}
        | {"measure": measure(row["measure"]), "difference": _points(row)}
        for row in rows_of(tables, "under_load")
    ]


def agreement(tables: Mapping[str, pa.Table]) -> Fold | None:
    """List, by task and target, how many questions got the same answer in both repeats."""
    rows = rows_of(tables, "agreement")
    if not rows:
        return None
    return Fold(
        id="agreement",
        name=_word("agreement"),
        heads=[_word(name) for name in ("task", "target", "same_answer", "same_text")],
        rows=[
            (
                task(row["task"]),
                row["target"],
                f"{100 * row['same_answer_share']:.1f} % ({row['same_answer']}/{row['n']})",
                f"{100 * row['same_text_share']:.1f} %",
            )
            for row in sorted(rows, key=lambda row: row["task"])
        ],
    )


def proofreading(tables: Mapping[str, pa.Table]) -> list[Fold]:
    """Count, for each category of sentences and target, how many ended in each of five ways; all sentences first."""
    by_category = _by(rows_of(tables, "proofreading"), "category")
    first = [name for name in ("all-errors", "all-clean") if name in by_category]
    return [
        Fold(
            id=f"proofread-{category}",
            name=labels()["categories"].get(category, category),
            heads=[_word(name) for name in ("target", "sentences", *FIVE_WAYS)],
            rows=list(_repeats(by_category[category], ("n", *FIVE_WAYS))),
            open=category in first,
        )
        for category in [*first, *(name for name in by_category if name not in first)]
    ]


def positions(tables: Mapping[str, pa.Table]) -> Fold | None:
    """List right answers and choices by the place of the right choice, for each target and repeat."""
    rows = rows_of(tables, "positions")
    if not rows:
        return None
    places = sorted({row["position"] for row in rows})
    lines: list[Sequence[Text]] = []
    for (target, repeat), own in _by(rows, "target", "repeat").items():
        at = {row["position"]: f"{row['correct']}/{row['gold']} ({row['chosen']})" for row in own}
        lines.append((target, str(repeat), *(at.get(place, "–") for place in places), digits(own[0]["p"])))
    heads: list[Text] = [_word("target"), _word("repeat"), *map(str, places), _word("chi_square")]
    return Fold(id="positions", name=task("jcommonsenseqa"), heads=heads, rows=lines)


def replies(tables: Mapping[str, pa.Table]) -> list[Fold]:
    """List, by measure and target, the replies' lengths, those without an answer, and other languages in them."""
    rows = [row for row in rows_of(tables, "scores") if row["headline"]]
    counted = ("n", *NUMBERS, *NO_ANSWER, *LEAKS)
    heads = [_word(name) for name in ("target", "answered", *counted[1:])]
    return [
        Fold(id=f"replies-{name}", name=measure(name), heads=heads, rows=list(_repeats(own, counted)))
        for name, own in _by(rows, "measure").items()
    ]


def _repeats(rows: Sequence[Row], figures: Sequence[str]) -> Iterator[Sequence[Text]]:
    """Make a line for each target with each figure of the repeats side by side; once where they are equal."""
    for target, own in _by(rows, "target").items():
        repeats = sorted(own, key=lambda row: row["repeat"])
        yield (target, *(" · ".join(dict.fromkeys(digits(row[figure]) for row in repeats)) for figure in figures))


def _by(rows: Sequence[Row], *columns: str) -> dict[Any, list[Row]]:
    """Group rows by the value of a column, or the values of several, in the order of the table."""
    found: dict[Any, list[Row]] = {}
    for row in rows:
        values = tuple(row[column] for column in columns)
        found.setdefault(values if len(columns) > 1 else values[0], []).append(row)
    return found


def _word(key: str) -> Mapping[str, str]:
    return words(f"page.evaluated.{key}")
