"""Say whether each target's answers differ from the baseline's. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from servebench.claims import Claim
from servebench.plan import Plan
from servebench.tables.files import Row, rows_of
from servebench.tasks.answers import FAILED
from servebench.verdicts.noise import LEVEL, rejected

UNANSWERED = 0.01  # a target with this share of its questions unanswered is not judged
_LOST = ("truncated", "empty", "reasoning_leaked")  # outcomes caused by the set-up, not by what the model answered
_APART = ("other_prompts", "other_machine")
_NO_LOAD = ("no_load", "load_failed")


def under_load(tables: Mapping[str, pa.Table]) -> Iterator[Claim]:
    """Yield a claim for each target × measure that was asked beside a load and of an idle server: one family (Holm)."""
    compared = [_together([row]) for row in rows_of(tables, "under_load")]
    replies = rows_of(tables, "answers") if compared else []
    reasons = [_not_judged_under_load(tables, replies, row) for row in compared]
    chances = [None if why else float(row["p"]) for row, why in zip(compared, reasons, strict=True)]
    for row, why, beyond in zip(compared, reasons, rejected(chances), strict=True):
        least = None if beyond or why else _detectable(row, 0.5, chances)
        yield _score(tables, row, why, beyond, least, kind="under_load")


def _not_judged_under_load(tables: Mapping[str, pa.Table], replies: Sequence[Row], row: Row) -> list[dict[str, Any]]:
    """Say why such a comparison says nothing: a side without answers, or a load of which requests failed."""
    why: list[dict[str, Any]] = []
    for name in (row["target"], row["baseline"]):
        own = [reply for reply in replies if reply["target"] == name]
        lost = sum(reply["outcome"] in (FAILED, *_LOST) for reply in own)
        if lost and lost >= UNANSWERED * len(own):
            why.append({"kind": "unanswered", "target": name, "lost": lost, "asked": len(own)})
    for target in rows_of(tables, "targets"):
        if row["target"].startswith(f"{target['target']} ("):
            kinds = [found.kind for found in target["marks"] if found.kind in _NO_LOAD]
            why += [{"kind": kind, "target": target["target"]} for kind in kinds]
    return why


def answers(tables: Mapping[str, pa.Table], plan: Plan) -> Iterator[Claim]:
    """Yield a claim for each target × measure: one test over both repeats, all of the experiment one family (Holm)."""
    if plan.evaluations is None:
        yield Claim(kind="score", verdict="nothing_evaluated")
        return
    yield from _silent(tables)
    compared = [_together(rows) for rows in _pairs(tables)]
    reasons = [_not_judged(tables, row, plan.evaluations.repeats) for row in compared]
    chances = [None if why else _chance(row) for row, why in zip(compared, reasons, strict=True)]
    for row, why, beyond in zip(compared, reasons, rejected(chances), strict=True):
        right = _right(tables, row) if not why else 0.5
        yield _score(tables, row, why, beyond, None if beyond or why else _detectable(row, right, chances))
        if row["margin"] is not None and not why:
            yield _equivalence(row)


def _silent(tables: Mapping[str, pa.Table]) -> Iterator[Claim]:
    """Yield that nothing was evaluated yet, or which targets gave no answers to compare."""
    answered = {row["target"] for row in rows_of(tables, "scores") if row["n"]}
    silent = {row["target"]: row for row in rows_of(tables, "targets") if row["target"] not in answered}
    baseline = next((name for name, row in silent.items() if row["baseline"]), None)
    if not answered and not silent:
        yield Claim(kind="score", verdict="not_evaluated_yet")
    elif baseline is not None:
        yield Claim(kind="score", verdict="no_baseline", subjects=[baseline], values={"baseline": baseline})
    elif silent:
        yield Claim(kind="score", verdict="no_answers", subjects=list(silent), values={"targets": list(silent)})


def _pairs(tables: Mapping[str, pa.Table]) -> list[list[Row]]:
    """Group the comparisons by target × measure: the repeats of each."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows_of(tables, "comparisons"):
        found.setdefault((row["target"], row["measure"]), []).append(row)
    return list(found.values())


def _together(repeats: Sequence[Row]) -> Row:
    """Take the repeats of a comparison together.

    The mean of the intervals is no narrower than that of the mean; the sides agree if they do in every repeat.
    """
    first = min(repeats, key=lambda row: row["repeat"])
    return first | {
        "low": sum(row["low"] for row in repeats) / len(repeats),
        "high": sum(row["high"] for row in repeats) / len(repeats),
        "changed": sum(row["changed"] for row in repeats),
        "replies": sum(row["n"] for row in repeats),
        "equivalent": all(row["equivalent"] for row in repeats),
    }


def _chance(row: Row) -> float:
    """Return the p-value of both repeats together, or of the only repeat."""
    return float(row["p"] if row["combined_p"] is None else row["combined_p"])


def _not_judged(tables: Mapping[str, pa.Table], row: Row, repeats: int) -> list[dict[str, Any]]:
    """List why a comparison is not judged: 1 % or more unanswered or cut off, or other prompts or another machine.

    A repeat without any reply has no row in `scores`, so what was asked is known from the plan.
    """
    why: list[dict[str, Any]] = []
    for name in (row["target"], row["baseline"]):
        own = [s for s in rows_of(tables, "scores") if (s["target"], s["measure"]) == (name, row["measure"])]
        asked = max((score["questions"] for score in own), default=0) * max(repeats, len(own))
        lost = asked - sum(score["n"] - sum(score[outcome] for outcome in _LOST) for score in own)
        if lost and lost >= UNANSWERED * asked:
            why.append({"kind": "unanswered", "target": name, "lost": lost, "asked": asked})
    for target in rows_of(tables, "targets"):
        if target["target"] == row["target"]:
            kinds = [found.kind for found in target["marks"] if found.kind in _APART]
            why += [{"kind": kind, "target": row["target"]} for kind in kinds]
    return why


def _right(tables: Mapping[str, pa.Table], row: Row) -> float:
    """Return the baseline's share in a comparison's measure; 0.5, where most is needed, if it is not known."""
    shares = (
        score["share"]
        for score in rows_of(tables, "scores")
        if (score["target"], score["measure"]) == (row["baseline"], row["measure"])
    )
    return next(shares, 0.5)


def _detectable(row: Row, right: float, chances: Sequence[float | None]) -> float | None:
    """Return the smallest difference, in points, that the family's test detects with 80 % power; None without one."""
    from servebench.tables.evaluated.statistics import detectable  # slow to import, and often not needed

    tested = sum(chance is not None for chance in chances)
    found = detectable(row["n"], right, LEVEL / tested)
    return None if found is None else 100 * found


def _score(
    tables: Mapping[str, pa.Table],
    row: Row,
    why: list[dict[str, Any]],
    beyond: bool,
    least: float | None,
    kind: str = "score",
) -> Claim:
    values: dict[str, Any] = {name: row[name] for name in ("target", "baseline", "measure")}
    points = row["difference"] if row["combined_difference"] is None else row["combined_difference"]
    if why:
        verdict = "not_judged"
        values["reasons"] = why
    elif not beyond and least is None:
        verdict = "too_few_questions"
        values["questions"] = row["questions"]
    else:
        verdict = "none_detected" if not beyond else "higher" if points > 0 else "lower"
        values |= {"points": points} | {name: row[name] for name in ("low", "high", "changed", "replies")}
        values |= {"lower_is_better": _lower_is_better(tables, row)} if beyond else {"detectable": least}
    return Claim(
        kind=kind,
        verdict=verdict,
        subjects=[row["target"], row["baseline"]],
        figure=row["measure"],
        values=values,
        questions=row["n"],
        error_rate=LEVEL if verdict in ("higher", "lower") else None,
    )


def _lower_is_better(tables: Mapping[str, pa.Table], row: Row) -> bool:
    return any(score["lower_is_better"] for score in rows_of(tables, "scores") if score["measure"] == row["measure"])


def _equivalence(row: Row) -> Claim:
    return Claim(
        kind="equivalence",
        verdict="within_margin" if row["equivalent"] else "not_shown",
        subjects=[row["target"], row["baseline"]],
        figure=row["measure"],
        values={name: row[name] for name in ("target", "baseline", "measure", "margin", "changed", "replies")},
        questions=row["n"],
    )
