"""Say what the measured levels mean: people, cost, energy, memory, waiting, what was predicted of them. Pure.

These claims state measured ranges and arithmetic on them; none ranks settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import floor
from typing import Any

import pyarrow as pa

from servebench.claims import Claim
from servebench.engines import ADAPTERS
from servebench.load.modes import MODES
from servebench.plan import Plan
from servebench.tables.files import Row, rows_of
from servebench.verdicts.levels import Cell, cells, over_rounds, weighing

PAUSES_S = (10, 30, 60)  # between a reply and the next question
HOURS = 730  # of a month


def means(
    tables: Mapping[str, pa.Table], plan: Plan, judged: Sequence[Claim], capacity: Sequence[Claim]
) -> list[Claim]:
    """List what the levels in `judged` and the capacities mean; the same order as the experiment's settings."""
    levels = {(claim.run or "", claim.subjects[0], claim.users or 0): claim for claim in judged}
    shown = {place: level for place, level in levels.items() if level.verdict not in ("failed", "not_measured")}
    chosen = _chosen(plan, shown, capacity)
    return [
        *_costs(tables, plan, chosen),
        *_costs_of_people(plan, people(tables, plan, capacity)),
        *_energies(tables, chosen),
        *_memories(tables, plan),
        *_predictions(tables, shown),
        *_queues(tables, plan, shown),
    ]


def _chosen(plan: Plan, shown: Mapping[Cell, Claim], capacity: Sequence[Claim]) -> list[Claim]:
    """Choose each setting's level: the most users it serves within the target, else the fewest that were measured."""
    serves = {(claim.run, claim.subjects[0]): claim.users for claim in capacity}
    found = []
    for setting in plan.settings.values():
        own = sorted(users for run, name, users in shown if (run, name) == (setting.run, setting.name))
        if own:
            found.append(shown[setting.run, setting.name, serves.get((setting.run, setting.name)) or own[0]])
    return found


def people(tables: Mapping[str, pa.Table], plan: Plan, capacity: Sequence[Claim]) -> Iterator[Claim]:
    """Yield for each capacity of how many pausing people its streams are: N · (R + P) ÷ R, R a reply's mean duration.

    Where users pause by themselves (`think`), they are the people, and the streams are measured.
    """
    measured = cells(tables)
    for claim in capacity:
        if claim.users is None:
            continue
        workload = plan.settings[claim.subjects[0]].workload
        if not MODES[workload.get("mode", "closed")].in_turns:
            continue
        rounds = measured[claim.run or "", claim.subjects[0], claim.users]
        common = _about(claim) | {"kind": "people", "users": claim.users}
        valid = claim.values["valid"]
        if think := workload.get("think"):
            streams = _measured(rounds, "in_flight_mean")
            if streams:
                values = {"think": think, "streams": streams, "valid": valid}
                yield Claim(**common, verdict="measured", values=values)
        elif replies_s := _measured(rounds, "e2e_mean_s"):
            found = [[pause, *(_people(claim.users, r, pause) for r in reversed(replies_s))] for pause in PAUSES_S]
            yield Claim(**common, verdict="arithmetic", values={"reply_s": replies_s, "people": found, "valid": valid})


def _people(streams: int, reply_s: float, pause_s: float) -> int:
    return floor(streams * (reply_s + pause_s) / reply_s)


def _costs(tables: Mapping[str, pa.Table], plan: Plan, chosen: Sequence[Claim]) -> Iterator[Claim]:
    if plan.cost is None:
        yield Claim(kind="cost", verdict="no_price")
        return
    rows = {(row["run"], row["setting"], row["users"]): row for row in rows_of(tables, "cost")}
    price = plan.cost["price_per_hour"]
    for level in chosen:
        if row := rows.get(_place(level)):
            ends = [row["usd_per_million_tokens_min"], row["usd_per_million_tokens_max"]]
            values = _judged(level) | {"usd": ends, "price": price}
            yield Claim(**_about(level), kind="cost", verdict="per_token", users=level.users, values=values)
    for row in rows_of(tables, "paid_idle"):
        about = {"kind": "cost", "run": row["run"], "subjects": [row["setting"]]}
        if row["usd_start_min"] is not None:
            took, cost = ([row[f"{name}_min"], row[f"{name}_max"]] for name in ("first_token_s", "usd_start"))
            yield Claim(**about, verdict="start", values={"seconds": took, "usd": cost, "price": price})
        if row["usd_idle"] is not None:
            values = {"minutes": row["idle_after_min"], "usd": [row["usd_idle"]] * 2, "price": price}
            yield Claim(**about, verdict="idle", values=values)


def _costs_of_people(plan: Plan, served: Iterable[Claim]) -> Iterator[Claim]:
    """Yield what a machine that runs all month costs each of the people it serves: price · HOURS ÷ people · used share.

    The used share is that of the time in which a person uses it: so many more share the machine, not all at once.
    """
    if plan.cost is None:
        return
    used = float(plan.cost.get("used_share", 1.0))
    month = plan.cost["price_per_hour"] * HOURS * used
    for claim in served:
        values = claim.values
        measured = claim.verdict == "measured"
        counts = [[values["think"], claim.users, claim.users]] if measured else values["people"]
        persons = [[pause, month / most, month / fewest] for pause, fewest, most in counts]
        about = {"persons": persons, "price": plan.cost["price_per_hour"], "hours": HOURS, "valid": values["valid"]}
        about |= {"used_percent": 100 * used}
        yield Claim(**_about(claim), kind="cost", verdict="per_person", users=claim.users, values=about)


def _energies(tables: Mapping[str, pa.Table], chosen: Sequence[Claim]) -> Iterator[Claim]:
    measured = cells(tables)
    for level in chosen:
        if joules := _measured(measured[_place(level)], "joules_per_token"):
            values = _judged(level) | {"joules": joules}
            yield Claim(**_about(level), kind="energy", verdict="per_token", users=level.users, values=values)


def _memories(tables: Mapping[str, pa.Table], plan: Plan) -> Iterator[Claim]:
    """Yield each setting's largest memory; an engine that takes a share of the device shows no need of memory."""
    for row in rows_of(tables, "memory"):
        if row["measured_gib"] is None:
            continue
        setting = plan.settings[row["setting"]]
        fills = ADAPTERS[setting.engine.kind].fills_device and row["memory_kind"] == "nvml"
        values = {"gib": row["measured_gib"], "memory": row["memory_kind"] or "host"}
        yield Claim(
            kind="memory",
            verdict="share" if fills else "used",
            run=row["run"],
            subjects=[row["setting"]],
            values=values,
        )


def _predictions(tables: Mapping[str, pa.Table], shown: Mapping[Cell, Claim]) -> Iterator[Claim]:
    """Yield how much of the speed predicted at most each setting's streams reached at its fewest users."""
    fewest: dict[str, Row] = {}
    for row in sorted(rows_of(tables, "predicted"), key=lambda row: int(row["users"])):
        if row["user_share_min"] is not None and (row["run"], row["setting"], row["users"]) in shown:
            fewest.setdefault(row["setting"], row)
    for row in fewest.values():
        level = shown[row["run"], row["setting"], row["users"]]
        percents = [100 * row["user_share_min"], 100 * row["user_share_max"]]
        yield Claim(
            **_about(level),
            kind="predicted",
            verdict="beyond" if percents[0] > 100 else "reached",
            users=level.users,
            figure="user_tok_s",
            values={
                "percents": percents,
                "stream_tok_s": row["stream_tok_s"],
                "gib": row["weights_gib"],
                "gb_s": row["bandwidth_gb_s"],
                "source": row["bandwidth_from"],
                "valid": level.values.get("valid", False),
            }
            | {name: level.values[name] for name in ("mode", "rate")},
        )


def _queues(tables: Mapping[str, pa.Table], plan: Plan, shown: Mapping[Cell, Claim]) -> Iterator[Claim]:
    """Yield for each setting with users how long a first token took with as many users as slots, and with more."""
    rows = [row for row in rows_of(tables, "queueing") if row["ttft_p50_s_min"] is not None]
    equal = {(row["run"], row["setting"]): row for row in rows if row["multiple"] == 1}
    for row in rows:
        base = equal.get((row["run"], row["setting"]))
        place = (row["run"], row["setting"], row["users"])
        if base is None or row["multiple"] == 1 or plan.settings[row["setting"]].paced:
            continue
        both = [shown.get((row["run"], row["setting"], users)) for users in (base["users"], row["users"])]
        if None in both:
            continue
        levels = [level for level in both if level]
        values = {
            "slots": row["slots"],
            "ttft_p50_s": [row["ttft_p50_s_min"], row["ttft_p50_s_max"]],
            "base_users": base["users"],
            "base_ttft_p50_s": [base["ttft_p50_s_min"], base["ttft_p50_s_max"]],
            "valid": all(level.values.get("valid", False) for level in levels),
        }
        yield Claim(
            kind="queue",
            verdict="waited",
            run=row["run"],
            subjects=[row["setting"]],
            users=row["users"],
            figure="ttft_p50_s",
            values=values,
            rounds=min(level.rounds or 0 for level in levels),
            caveats=list(dict.fromkeys(found for level in levels for found in weighing(level.caveats))),
            rows=["/".join(map(str, place)), *(row for row in levels[0].rows)],
        )


def _place(level: Claim) -> Cell:
    return level.run or "", level.subjects[0], level.users or 0


def _about(claim: Claim) -> dict[str, Any]:
    """Return what a claim on the basis of another one takes from it."""
    names = ("run", "subjects", "rounds", "requests", "rows")
    return {name: getattr(claim, name) for name in names} | {"caveats": weighing(claim.caveats)}


def _judged(level: Claim) -> dict[str, Any]:
    within = {"met": True, "missed": False}.get(level.verdict)  # None: cannot be judged
    load = {name: level.values[name] for name in ("mode", "rate")}
    return load | {"within": within, "valid": level.values.get("valid", False)}


def _measured(rounds: Sequence[Row], figure: str) -> list[float] | None:
    return over_rounds([row for row in rounds if row["status"] == "ok"], figure)
