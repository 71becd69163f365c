"""Derive tables from `measurements`: ranges over the rounds, the line, what is unstable. Pure functions.

Every comparison stays within one run.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any

import pyarrow as pa

from servebench import schema
from servebench.engines import ADAPTERS
from servebench.marks import Mark, mark
from servebench.tables.catalogue import COMPARED, FIGURES, SCHEMAS, SETTING
from servebench.tables.files import Row, table
from servebench.tables.groups import PLACE, groups, span_of

STABLE_FROM, STABLE_TO = 0.8, 1.2
MOST_SLOW_USERS = 4
_ENERGY = ("joules_per_token_min", "joules_per_token_max")
# The mark of each column that must not vary between the rounds of a setting or the sessions of a target.
MIXED = {
    "engine_version": "mixed_engine_versions",
    "engine_build": "mixed_engine_builds",
    "engine_pin": "mixed_engine_pins",
    "model_sha256": "mixed_model_files",
}


def settings(measurements: pa.Table, rounds: int = 2, prompt_lengths: pa.Table | None = None) -> pa.Table:
    """Make one row per run × setting × users: smaller and larger of the rounds, the line in all of them, marks.

    `rounds` is the number the experiment plans; with a round missing or failed, `meets_line_both_rounds` is null. By
    `prompt_lengths` a setting whose server makes other prompts than that of the run's first setting is marked.
    Ranges cover the rounds that were measured; a round without output does not count as a round, but as a missed line.
    """
    machines = _machine_of_run(measurements)
    other = _other_prompts(measurements, prompt_lengths) if prompt_lengths else {}
    return table("settings", (_setting_row(rows, rounds, machines, other) for rows in groups(measurements, PLACE)))


def _other_prompts(measurements: pa.Table, prompt_lengths: pa.Table) -> dict[tuple[str, str], Mark]:
    """Mark settings (run, setting) whose prompts have other numbers of tokens than those of the run's first setting.

    A server adds its chat template to each document. The same template gives the same number of tokens, but for number
    lines, whose digits some tokenizers join: their differences have a median of 0.
    """
    lengths: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for row in prompt_lengths.to_pylist():
        lengths[row["run"], row["setting"]][row["prompt_id"]] = row["tokens_mean"]
    found, first = {}, dict[str, str]()
    for run, setting in dict.fromkeys(zip(*(measurements[name].to_pylist() for name in PLACE[:2]), strict=True)):
        own, than = lengths.get((run, setting)), first.get(run, setting)
        if not own:
            continue
        first[run] = than
        theirs = lengths[run, than]
        more = [tokens - theirs[prompt] for prompt, tokens in own.items() if prompt in theirs]
        if more and abs(median(more)) >= 1:
            found[run, setting] = mark("other_prompt_tokens", than=than, tokens=median(more))
    return found


def _setting_row(
    rows: Sequence[Row],
    rounds: int,
    machines: Mapping[str, str | None],
    other_prompts: Mapping[tuple[str, str], Mark],
) -> Row:
    first, measured = rows[0], [row for row in rows if row["status"] == "ok"]
    good = [row for row in measured if row["output_tok_s"] is not None]
    change, met = largest_change(good), [row["meets_line"] for row in measured]
    failures = [reason for row in rows if row not in good for reason in row["reason"] or row["invalid_reasons"]]
    result: Row = {name: first[name] for name in (*SETTING, "users")}
    for figure in FIGURES:
        result[f"{figure}_min"], result[f"{figure}_max"] = span_of(row[figure] for row in measured)
    unstable = None if len(good) < 2 else change is not None and _is_unstable(change["ratio"])
    return result | {
        "rounds": len(good),
        "memory_gib_max": span_of(row["memory_gib"] for row in good)[1],
        "meets_line_both_rounds": all(met) if len(measured) >= rounds else None,
        **dict(zip(_ENERGY, span_of(row["joules_per_token"] for row in good), strict=True)),
        "line_confidence_min": span_of(row["line_confidence"] for row in measured)[0],
        "unstable": unstable,
        "largest_change": change and change["change"],
        "reference_only": any(row["reference_only"] for row in good) if good else None,
        "marks": [
            *dict.fromkeys(_marks(good, rounds, change, machines)),
            *filter(None, [other_prompts.get((first["run"], first["setting"]))]),
        ],
        "failure": list(dict.fromkeys(failures)),
    }


def _marks(good: Sequence[Row], rounds: int, change: Row | None, machines: Mapping[str, str | None]) -> Iterator[Mark]:
    """Yield the reasons not to trust a row fully."""
    if good and len(good) < rounds:
        yield mark("missing_round", measured=len(good), rounds=rounds)
    if any(row["reference_only"] for row in good):
        yield mark("few_requests", requests=min(row["target_requests"] for row in good))
    if change and _is_unstable(change["ratio"]):
        yield mark("unstable_rounds", **{name: change[name] for name in ("figure", "first", "second")})
    if any(row["fingerprint"] != machines[row["run"]] for row in good):
        yield mark("mixed_machines")
    devices = list(dict.fromkeys(row["device"] for row in good if row["device"]))
    if len(devices) > 1:
        yield mark("mixed_devices", devices=devices)
    for column, kind in MIXED.items():
        served = list(dict.fromkeys(row[column] for row in good))
        if len(served) > 1:
            yield mark(kind, found=served)
            break  # a change of version changes the build and the pin as well
    # Of a server that servebench did not start it is never known; the page says so once, under the conditions.
    if any(row["foreign_samples"] is None and row["engine_kind"] != "url" for row in good):
        yield mark("foreign_use_unknown")
    for row in filter(_partly_unknown, good):
        samples = row["telemetry_samples"]
        yield mark("foreign_use_partly_unknown", known=samples - row["foreign_unknown"], samples=samples)
    for row in good:
        yield from row["invalid_reasons"]


def _partly_unknown(row: Row) -> bool:
    """Return whether the unknown samples could make the measurement invalid, where other samples are known."""
    return row["foreign_samples"] is not None and row["foreign_unknown"] >= row["foreign_limit"]


def _machine_of_run(measurements: pa.Table) -> dict[str, str | None]:
    """Find the machine each run began on."""
    started = sorted(measurements.to_pylist(), key=lambda row: row["started_at"] or "")
    return {row["run"]: row["fingerprint"] for row in reversed(started)}


def largest_change(rounds: Sequence[Row]) -> Row | None:
    """Find the figure that changed most between rounds: `figure, first, second, ratio, change`, or None.

    Of output tok/s, user tok/s and TTFT p95, the one with the largest |later ÷ earlier − 1| over all pairs of rounds.
    """
    changes = []
    for n, earlier in enumerate(rounds):
        for later in rounds[n + 1 :]:
            for figure in COMPARED:
                first, second = earlier[figure], later[figure]
                if first and second is not None:
                    ratio = second / first
                    changes.append(
                        {"figure": figure, "first": first, "second": second, "ratio": ratio, "change": abs(ratio - 1)}
                    )
    return max(changes, key=lambda change: change["change"], default=None)


def _is_unstable(ratio: float) -> bool:
    return ratio <= STABLE_FROM or ratio >= STABLE_TO


def unstable(measurements: pa.Table) -> pa.Table:
    """List the pairs of rounds in which a figure is at most 0.8 or at least 1.2 times the earlier, largest first."""
    rows = []
    for group in groups(measurements, PLACE):
        good = [row for row in group if row["status"] == "ok"]
        change = largest_change(good)
        if change and _is_unstable(change["ratio"]):
            place = {name: group[0][name] for name in PLACE}
            rows.append({**place, **change, "target_requests_min": span_of(r["target_requests"] for r in good)[0]})
    return table("unstable", sorted(rows, key=lambda row: -row["change"]))


def queueing(settings_table: pa.Table) -> pa.Table:
    """List TTFT where the users are as many as the slots, or more."""
    columns = SCHEMAS["queueing"].names
    rows = [row | {"multiple": row["users"] / row["slots"]} for row in schema.rows(settings_table)]
    return table("queueing", ({name: row[name] for name in columns} for row in rows if row["multiple"] >= 1))


def slow_by_micro_batch(slow_requests: pa.Table, sessions: pa.Table) -> pa.Table:
    """Count the slow requests of at most 4 users by the server's micro-batch, in the runs that have a band.

    More users queue behind each other's prompts, which is a different effect. Servers with an unknown micro-batch are
    left out.
    """
    told: dict[tuple[str, str], tuple[str, int]] = {}
    for launch in sessions.to_pylist():
        size = (json.loads(launch["facts"]) if launch["facts"] else {}).get("n_ubatch")
        if size is None and launch["argv"]:
            size = ADAPTERS[launch["engine_kind"]].micro_batch(launch["argv"])
        if size is not None:
            told[launch["run"], launch["setting"]] = launch["engine_kind"], size
    groups: dict[tuple[str, str, int], list[Row]] = defaultdict(list)
    for row in slow_requests.to_pylist():
        if (row["run"], row["setting"]) in told and row["band_low"] is not None and row["users"] <= MOST_SLOW_USERS:
            groups[row["run"], *told[row["run"], row["setting"]]].append(row)
    counts = ("band_slow", "band_total", "other_slow", "other_total")
    return table(
        "slow_by_micro_batch",
        (
            {"run": run, "engine_kind": kind, "micro_batch": size, "users_most": MOST_SLOW_USERS}
            | {"settings": list(dict.fromkeys(row["setting"] for row in rows))}
            | {name: sum(row[name] for row in rows) for name in counts}
            for (run, kind, size), rows in groups.items()
        ),
    )


def reproduction(settings_table: pa.Table, published: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Put our ranges beside those of `published`: rows of `run, setting, users`, `<figure>_min`, `<figure>_max`."""
    ours = {tuple(row[n] for n in PLACE): row for row in settings_table.to_pylist()}
    rows = []
    for cell in published:
        mine = ours.get((cell["run"], cell["setting"], cell["users"]), {})
        for figure in FIGURES:
            low, high = cell.get(f"{figure}_min"), cell.get(f"{figure}_max")
            if low is None or high is None:
                continue
            a, b = mine.get(f"{figure}_min"), mine.get(f"{figure}_max")
            known = a is not None and b is not None
            rows.append(
                {name: cell[name] for name in PLACE}
                | {
                    "figure": figure,
                    "published_min": low,
                    "published_max": high,
                    "measured_min": a,
                    "measured_max": b,
                    "ratio": (a + b) / (low + high) if known and low + high else None,
                    "overlap": a <= high and low <= b if known else None,
                }
            )
    return table("reproduction", rows)
