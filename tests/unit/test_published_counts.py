"""Counts and ratios told in the source's text, from its own published numbers, through the code that ours go through.

What they do not determine is said in each test; nothing else is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

import synthetic
from servebench import tables
from servebench.load.line import Line
from servebench.load.records import CHUNKS_SCHEMA, REQUESTS_SCHEMA
from servebench.store import measurements

CELLS = tables.read_reference(synthetic.REFERENCES / "h200-concurrency.csv")
FULL = synthetic.h200_cells()
PLAN = synthetic.plan_of(FULL)
CONTROL = "llama-np16-control"
Cell = tuple[str, str, int]


@cache
def template() -> dict[str, Any]:
    """A row of `measurements` to be filled in."""
    return tables.measurements([next(iter(synthetic.records_of(FULL, PLAN)))], Line()).to_pylist()[0]


def measured(rounds: Mapping[Cell, Sequence[Mapping[str, float | None]]]) -> pa.Table:
    """`measurements` with these figures of each cell's rounds, all other figures unknown."""
    unknown = dict.fromkeys(tables.FIGURES)
    rows = []
    for rank, ((run, setting, users), figures) in enumerate(rounds.items()):
        place = {"run": run, "setting": setting, "users": users, "rank": rank}
        rows += [template() | unknown | place | {"round": n} | dict(f) for n, f in enumerate(figures, 1)]
    return tables.table("measurements", rows)


# Slow requests


def requests_like(record: measurements.Record, counts: Mapping[str, int]) -> measurements.Record:
    """The record with this many requests inside and outside of the published band, so many of each slow."""
    late_ns = record.loaded.load_start_ns + 6 * synthetic.S
    first = record.requests.to_pylist()[0]
    rows = []
    for kind, tokens in (("band", (580, 599)), ("other", (579, 600))):
        for n in range(counts[f"{kind}_total"]):
            ttft_ns = 1_000_000_001 if n < counts[f"{kind}_slow"] else 1_000_000_000
            place = {"request_id": len(rows), "sent_ns": late_ns + n, "first_token_ns": late_ns + n + ttft_ns}
            rows.append(first | place | {"phase": "window", "prompt_tokens": tokens[n % 2]})
    table = pa.Table.from_pylist(rows, schema=REQUESTS_SCHEMA)
    return replace(record, requests=table, chunks=CHUNKS_SCHEMA.empty_table())


def test_fifty_of_93_and_one_of_30_slow_requests() -> None:
    """At most 4 users, 580 to 599 tokens: 50 of 93 with the default micro-batch, 1 of 30 with `-ub 2048`."""
    published = tables.read_reference(synthetic.REFERENCES / "h200-slow-requests.csv")
    cells = {(cell["setting"], cell["users"]): cell for cell in FULL if cell["run"] == "extra"}
    records = []
    for row in (row for row in published if row["run"] == "extra"):
        record = next(iter(synthetic.records_of([cells[row["setting"], row["users"]]], PLAN)))
        records.append(requests_like(record, row))
    assert len(records) == 17
    slow = tables.slow_requests(records, {"extra": (580, 599)})
    names = ("setting", "users", "band_slow", "band_total", "other_slow", "other_total")
    assert sorted(tuple(row[n] for n in names) for row in slow.to_pylist()) == sorted(
        tuple(row[n] for n in names) for row in published if row["run"] == "extra"
    )
    rows = tables.slow_by_micro_batch(slow, tables.sessions(records)).to_pylist()
    found = {row["micro_batch"]: (row["band_slow"], row["band_total"], row["settings"]) for row in rows}
    assert found == {
        512: (50, 93, ["llama-np16-kv-unified", "llama-np8", "llama-np16-cache-ram0"]),
        2048: (1, 30, ["llama-np16-ub2048"]),
    }


# Unstable pairs

HALF = {"output_tok_s": 0.5, "user_tok_s": 0.05, "ttft_p95_s": 0.05}


def half(figure: str, value: float) -> float:
    """By how much a published value may be off: half of its last digit (some TTFTs have two decimals)."""
    return 0.005 if figure == "ttft_p95_s" and round(value, 1) != value else HALF[figure]


def behind(cell: Mapping[str, Any], apart: bool) -> list[dict[str, float | None]]:
    """Two rounds that round to the published range: as far apart as they can be and rising, or as near and falling."""
    rounds: list[dict[str, float | None]] = [{}, {}]
    for figure in HALF:
        low, high = cell[f"{figure}_min"], cell[f"{figure}_max"]
        if low is None:
            rounds[0][figure] = rounds[1][figure] = None
        elif apart:
            rounds[0][figure] = max(low - half(figure, low), 0.01) * (1 + 1e-9)
            rounds[1][figure] = high + half(figure, high)
        else:
            rounds[0][figure] = high - half(figure, high) if high > low else high
            rounds[1][figure] = low + half(figure, low) if high > low else low
    return rounds


def unstable(rounds: Mapping[Cell, Sequence[Mapping[str, float | None]]]) -> set[Cell]:
    """The cells whose rounds our code calls unstable."""
    return {(r["run"], r["setting"], r["users"]) for r in tables.unstable(measured(rounds)).to_pylist()}


@pytest.mark.parametrize(
    ("run", "cells", "surely", "published", "possibly"), [("main", 53, 12, 18, 37), ("extra", 21, 4, 6, 7)]
)
def test_the_published_number_of_unstable_pairs_can_be_had_from_the_published_ranges(
    run: str, cells: int, surely: int, published: int, possibly: int
) -> None:
    """18 of 53 and 6 of 21. The ranges are rounded, and do not say which round was which, so that they determine only
    which pairs are unstable whatever stands behind them (12, and 4) and which may be (37, and 7, without those of which
    the extra run's figures are not published). The published number lies between, and a choice of values has it."""
    ours = {(c["run"], c["setting"], c["users"]): c for c in CELLS if c["run"] == run}
    assert len(ours) == cells
    near = {place: behind(cell, apart=False) for place, cell in ours.items()}
    far = {place: behind(cell, apart=True) for place, cell in ours.items()}
    sure, possible = unstable(near), unstable(far)
    assert sure <= possible
    assert (len(sure), len(possible)) == (surely, possibly)
    chosen = sorted(possible - sure)[: published - len(sure)]
    assert len(unstable(near | {place: far[place] for place in chosen})) == published


def test_the_ten_published_pairs_are_unstable_whatever_stands_behind_their_ranges() -> None:
    pairs = tables.read_reference(synthetic.REFERENCES / "h200-unstable.csv")
    near = {(c["run"], c["setting"], c["users"]): behind(c, apart=False) for c in CELLS if c["run"] == "main"}
    assert {("main", pair["setting"], pair["users"]) for pair in pairs} <= unstable(near)


# Ratios

RATIOS = tables.read_reference(synthetic.REFERENCES / "h200-ratios.csv")
OUTPUT = {(c["run"], c["setting"], c["users"]): (c["output_tok_s_min"], c["output_tok_s_max"]) for c in CELLS}
DRIFT = (
    (CONTROL, "llama-np16", 16, 0.89, 0.95),
    (CONTROL, "llama-np16", 8, 0.87, 1.14),
    ("vllm-bf16-seqs256", "vllm-bf16", 128, 0.98, 0.99),
)


def ratios_of(kind: str, ours: Cell, theirs: Cell, crossed: bool) -> tuple[float, float, float]:
    """(smaller, larger, by how much the rounding of the speeds may have moved them), the rounds paired in order or
    crossed: the ranges do not say which value belongs to which round."""
    a, b = OUTPUT[ours], OUTPUT[theirs]
    pairs = {ours: a, theirs: b[::-1] if crossed else b}
    rounds = measured({place: [{"output_tok_s": float(v)} for v in values] for place, values in pairs.items()})
    found = tables.ratios(rounds, tables.settings(rounds), PLAN)
    (row,) = (row for row in found.to_pylist() if row["kind"] == kind and row["setting"] == ours[1])
    assert row["rounds"] == 2
    return row["ratio_min"], row["ratio_max"], row["ratio_max"] * (0.5 / a[0] + 0.5 / b[0])


def pairings(kind: str, ours: Cell, theirs: Cell, low: float, high: float) -> Iterator[bool]:
    """The pairings (crossed or not) whose ratios are the published ones within rounding."""
    for crossed in (False, True):
        smaller, larger, moved = ratios_of(kind, ours, theirs, crossed)
        if abs(smaller - low) <= 0.005 + moved and abs(larger - high) <= 0.005 + moved:
            yield crossed


def test_ratios_to_the_control_are_the_published_ones_within_rounding() -> None:
    """Six of the seven; the speeds of `llama-np16-ub2048` are not published."""
    told = [r for r in RATIOS if None not in OUTPUT["extra", r["setting"], r["users"]]]
    assert [(r["setting"], r["users"]) for r in RATIOS if r not in told] == [("llama-np16-ub2048", 16)]
    for row in told:
        ours, theirs = (("extra", name, row["users"]) for name in (row["setting"], CONTROL))
        assert list(pairings("control", ours, theirs, row["ratio_min"], row["ratio_max"])), row


@pytest.mark.parametrize(("setting", "baseline", "users", "low", "high"), DRIFT)
def test_drift_between_the_runs_is_the_published_one_within_rounding(
    setting: str, baseline: str, users: int, low: float, high: float
) -> None:
    published = tables.read_reference(synthetic.REFERENCES / "h200-ratios-main.csv")
    assert (low, high) in {(row["low"], row["high"]) for row in published if row["what"].startswith("extra")}
    assert list(pairings("drift", ("extra", setting, users), ("main", baseline, users), low, high))


def test_a_ratio_that_was_not_published_is_not_reproduced() -> None:
    ours, theirs = ("extra", "llama-np8", 8), ("extra", CONTROL, 8)
    assert not list(pairings("control", ours, theirs, 1.54, 1.62))
    assert not list(pairings("control", ours, theirs, 1.48, 1.58))


# Other counts


def test_four_cells_of_few_users_passed_the_line_in_a_round() -> None:
    """llama-server at 4 users or fewer with a TTFT p95 over 2 s: 4 cells of the main run."""
    passed = [
        (c["setting"], c["users"])
        for c in tables.settings(measured({("main", p["setting"], p["users"]): rounds_of(p) for p in LATE})).to_pylist()
        if c["ttft_p95_s_max"] > Line().ttft_p95_s
    ]
    assert passed == [("llama-np4", 1), ("llama-np4", 2), ("llama-np16", 4), ("llama-np64", 2)]


LATE = [c for c in CELLS if c["run"] == "main" and c["setting"].startswith("llama") and c["users"] <= 4]


def rounds_of(cell: Mapping[str, Any]) -> list[dict[str, float | None]]:
    return [{"ttft_p95_s": cell[f"ttft_p95_s_{end}"]} for end in synthetic.ENDS]
