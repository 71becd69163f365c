"""Say in sentences what the data shows; each is a key of labels.yaml with values, the same in both languages.

A sentence never claims more than the ranges allow: where ranges overlap it says that the rounds do not separate them.
No cause is ever stated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from servebench.charts.bars import usual_users
from servebench.plan import Plan
from servebench.report.content import anchor
from servebench.report.ranges import overlap, separated
from servebench.tables.files import Row, rows_of
from servebench.words.numbers import span

FEW, SOME = 2, 16  # most users that count as one person trying, and as a small group


@dataclass(frozen=True)
class Sentence:
    """Hold a text of labels.yaml under `page.` with its values; `rows`: (id, name) of the rows it is based on."""

    key: str
    values: Mapping[str, Any] = field(default_factory=dict)
    rows: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True)
class Card:
    """Hold a use, its candidate settings at a number of users, their evidence and their limits.

    Without candidates, the evidence says why.
    """

    use: str
    evidence: Sequence[Sentence]
    candidates: Sequence[str] = ()
    users: int | None = None
    limits: Sequence[Sentence] = ()


def answer(tables: Mapping[str, pa.Table], plan: Plan, run: str) -> list[Sentence]:
    """Write three sentences with their caveats: the highest output, where the line is met, the fastest for one user."""
    tried = rows_of(tables, "settings", run)
    rows = [row for row in tried if row["rounds"]]
    if not rows:
        return [Sentence("answer.failed", {"failed": len(tried)}) if tried else Sentence("answer.nothing")]
    users = usual_users(rows)
    fewest = min(row["users"] for row in rows)
    return [
        *_highest(rows, "output_tok_s", users, "answer.output"),
        *_line(rows, plan),
        *_highest(rows, "user_tok_s", fewest, "answer.speed"),
        *_caveats(rows, plan),
    ]


def _highest(rows: Sequence[Row], figure: str, users: int | None, key: str) -> Iterator[Sentence]:
    """Say which setting is ahead at this number of users, and from which others the rounds do not separate it."""
    there = [row for row in rows if row["users"] == users and row[f"{figure}_min"] is not None]
    if not there:
        return
    there.sort(key=lambda row: -(row[f"{figure}_min"] + row[f"{figure}_max"]))
    first = there[0]
    values = {"users": users, "setting": starred(first), "range": span_of(first, figure)}
    yield Sentence(key, values, sources(there[:1]))
    close = [row for row in there[1:] if not separated(first, row, figure)]
    near = [row for row in close if overlap(first, row, figure)]
    single = [row for row in close if row not in near]
    if near:
        yield Sentence("answer.not_separated", {"settings": named(near, figure)}, sources(near))
    if single:
        yield Sentence("answer.one_round", {"settings": named(single, figure)}, sources(single))
    if not close and len(there) > 1:
        values = {"setting": starred(there[1]), "range": span_of(there[1], figure)}
        yield Sentence("answer.next", values, sources(there[1:2]))
    weights = {row["quantization"] or "?" for row in (close or there[1:2])} - {first["quantization"] or "?"}
    if weights:
        yield Sentence("answer.weights", {"first": first["quantization"] or "?", "others": ", ".join(sorted(weights))})


def _line(rows: Sequence[Row], plan: Plan) -> Iterator[Sentence]:
    limits = {"ttft": f"{plan.line.ttft_p95_s:g}", "speed": f"{plan.line.user_tok_s:g}", "rounds": plan.rounds}
    met = [row for row in rows if row["meets_line_both_rounds"]]
    judged = [row for row in rows if row["meets_line_both_rounds"] is not None]
    if not met:
        yield Sentence("answer.line_nowhere", limits | {"judged": len(judged)})
        return
    best = met_at_most(rows)
    values = {"users": best[0]["users"], "settings": ", ".join(map(starred, best))}
    counts = {"met": len(met), "judged": len(judged)}
    yield Sentence("answer.line", limits | values | counts, sources(best))
    gaps = [name for name in dict.fromkeys(row["setting"] for row in met) if _has_gap(rows, name)]
    if gaps:
        yield Sentence("answer.gaps", {"settings": ", ".join(gaps)})


def met_at_most(rows: Sequence[Row]) -> list[Row]:
    """List the rows that meet the line at the largest number of users at which any row does."""
    met = [row for row in rows if row["meets_line_both_rounds"]]
    most = max((row["users"] for row in met), default=None)
    return [row for row in met if row["users"] == most]


def _has_gap(rows: Sequence[Row], setting: str) -> bool:
    """Return whether the setting misses the line at fewer users than those at which it meets the line."""
    own = sorted((row["users"], row["meets_line_both_rounds"]) for row in rows if row["setting"] == setting)
    most = max(users for users, met in own if met)
    return any(met is False for users, met in own if users < most)


def covered(plan: Plan) -> Sentence:
    """Say with what probability the range of the rounds holds the true median: 1 − 2^(1 − rounds)."""
    if plan.rounds == 1:
        return Sentence("charts.one_round")
    return Sentence("charts.covered", {"rounds": plan.rounds, "share": f"{100 - 200 / 2**plan.rounds:.3g}"})


def _caveats(rows: Sequence[Row], plan: Plan) -> Iterator[Sentence]:
    marked = sum(bool(row["marks"]) for row in rows)
    if marked:
        yield Sentence("answer.marked", {"marked": marked, "rows": len(rows)})
    if any(row["rounds"] < plan.rounds for row in rows):
        yield Sentence("answer.rounds", {"rounds": plan.rounds})


def cards(tables: Mapping[str, pa.Table], plan: Plan, run: str) -> list[Card]:
    """Fill a card each for one person, a small group and many: the settings that meet the line, or why none does."""
    rows = [row for row in rows_of(tables, "settings", run) if row["rounds"]]
    uses: list[tuple[str, str, Callable[[int], bool]]] = [
        ("one", "user_tok_s", lambda users: users < FEW),
        ("some", "output_tok_s", lambda users: FEW <= users <= SOME),
        ("many", "output_tok_s", lambda users: users > SOME),
    ]
    made = []
    for use, figure, fits in uses:
        there = [row for row in rows if fits(row["users"])]
        levels = [row["users"] for row in there if row["meets_line_both_rounds"]]
        made.append(_card(use, figure, max(levels), rows, plan) if levels else Card(use, [_without(there, plan)]))
    return made


def _without(rows: Sequence[Row], plan: Plan) -> Sentence:
    """Say why a use has no candidate among the measured settings."""
    judged = [row for row in rows if row["meets_line_both_rounds"] is not None]
    if judged:
        return Sentence("card.none_met", {"judged": len(judged), "rounds": plan.rounds})
    return Sentence("card.not_judged" if rows else "card.not_measured")


def _card(use: str, figure: str, users: int, rows: Sequence[Row], plan: Plan) -> Card:
    there = [row for row in rows if row["users"] == users and row["meets_line_both_rounds"]]
    there.sort(key=lambda row: -(row[f"{figure}_min"] + row[f"{figure}_max"]))
    chosen = [row for row in there if row is there[0] or not separated(there[0], row, figure)]
    evidence = [
        Sentence(
            "card.evidence",
            {
                "setting": starred(row),
                "users": users,
                "output": span_of(row, "output_tok_s"),
                "speed": span_of(row, "user_tok_s"),
                "ttft": span_of(row, "ttft_p95_s"),
            },
            sources([row]),
        )
        for row in chosen
    ]
    others = [row for row in there if row not in chosen]
    if others:
        evidence.append(Sentence("card.also", {"settings": named(others, figure)}, sources(others)))
    limits = [limit for row in chosen for limit in _limits(row, rows, plan)]
    return Card(use, evidence, [starred(row) for row in chosen], users, limits)


def _limits(row: Row, rows: Sequence[Row], plan: Plan) -> Iterator[Sentence]:
    """Say at how many more users the setting misses the line, and by what; or that no more users were measured."""
    beyond = [other for other in rows if other["setting"] == row["setting"] and other["users"] > row["users"]]
    missed = [other for other in beyond if other["meets_line_both_rounds"] is False]
    if not missed:
        most = max((other["users"] for other in beyond), default=row["users"])
        yield Sentence("card.not_beyond", {"setting": row["setting"], "users": most})
        return
    worse = missed[0]
    values, source = {"setting": starred(worse), "users": worse["users"]}, sources([worse])
    if worse["ttft_p95_s_max"] is not None and worse["ttft_p95_s_max"] > plan.line.ttft_p95_s:
        yield Sentence("card.ttft", values | {"range": span_of(worse, "ttft_p95_s")}, source)
    if worse["user_tok_s_min"] is not None and worse["user_tok_s_min"] < plan.line.user_tok_s:
        yield Sentence("card.speed", values | {"range": span_of(worse, "user_tok_s")}, source)
    if worse["failures_max"]:
        yield Sentence("card.failures", values | {"count": worse["failures_max"]}, source)
    if worse["reference_only"]:
        yield Sentence("card.few", values | {"count": worse["target_requests_min"]}, source)


def sources(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """List id and name of each row on the page."""
    return [(anchor(row), f"{row['setting']} · {row['users']}") for row in rows]


def starred(row: Row) -> str:
    """Name the row's setting, with the tables' star when the row has a mark."""
    return f"{row['setting']}*" if row["marks"] else str(row["setting"])


def named(rows: Sequence[Row], figure: str) -> str:
    """Join settings and ranges: `a (1–2), b* (3)`."""
    return ", ".join(f"{starred(row)} ({span_of(row, figure)})" for row in rows)


def span_of(row: Row, figure: str) -> str:
    """Write the range of one of the row's figures."""
    return span(row[f"{figure}_min"], row[f"{figure}_max"])
