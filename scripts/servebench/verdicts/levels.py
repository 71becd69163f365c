"""Judge each setting at each planned number of users, and how many users it serves. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any

import pyarrow as pa

from servebench.capacity.search import answer
from servebench.claims import Claim
from servebench.load.modes import MODES
from servebench.load.objective import Objective, Outcome
from servebench.load.percentiles import line_confidence
from servebench.marks import Mark, mark
from servebench.plan import LINE, Plan, Setting
from servebench.tables.files import Row, rows_of

Cell = tuple[str, str, int]  # run, setting, users
# From the share CACHED of cached prompt tokens on, a level gets a mark; from WEIGHS_PERCENT on, every claim from it
# says so; from MOSTLY_CACHED_PERCENT on, it is another workload. What all prompts share (a system prompt) may be
# cached: a tenth of a prompt in the H200 experiment, a quarter in the quick start.
CACHED, WEIGHS_PERCENT, MOSTLY_CACHED_PERCENT = 0.05, 20, 50
SHORT = 16  # tokens of a reply (median) below which its speed, that of the tokens after the first, says little
MET_ONCE = "few_rounds"  # the verdict on a level that was met, but in one round only


def cells(tables: Mapping[str, pa.Table]) -> dict[Cell, list[Row]]:
    """Group the rounds by setting and number of users, in order."""
    found: dict[Cell, list[Row]] = defaultdict(list)
    for row in sorted(rows_of(tables, "measurements"), key=lambda row: int(row["round"])):
        found[row["run"], row["setting"], row["users"]].append(row)
    return found


def settings_rows(tables: Mapping[str, pa.Table]) -> dict[Cell, Row]:
    """Read the rows of the table `settings`, by run, setting and users."""
    return {(row["run"], row["setting"], row["users"]): row for row in rows_of(tables, "settings")}


def caveats(rounds: Sequence[Row], settings_row: Row | None) -> list[Mark]:
    """List what speaks against a level: the marks of its row in `settings`, cached prompts, and short replies."""
    marks = list(settings_row["marks"]) if settings_row else []
    cached = max((row["cached_share"] or 0.0 for row in rounds), default=0.0)
    if cached >= CACHED:
        marks.append(mark("cached_prompts", percent=100 * cached))
    shortest = min((row["output_tokens_p50"] for row in rounds if row["output_tokens_p50"] is not None), default=SHORT)
    if shortest < SHORT:
        marks.append(mark("short_replies", tokens=shortest))
    return marks


def compared_marks(tables: Mapping[str, pa.Table], side: str | None = None) -> dict[Cell, list[Mark]]:
    """List what speaks against each level in a comparison: its caveats, and that earlier measurements were discarded.

    side: how to name the setting whose measurements these were, if not by its name.
    """
    rows = settings_rows(tables)
    found = {place: caveats(rounds, rows.get(place)) for place, rounds in cells(tables).items()}
    thrown = Counter((row["run"], row["setting"], row["users"]) for row in rows_of(tables, "discarded"))
    for place, marks in found.items():
        if count := thrown[place]:
            marks.append(mark("discarded_before", setting=side or place[1], measurements=count))
    return found


def weighing(marks: Sequence[Mark]) -> list[Mark]:
    """Leave out cached prompts below WEIGHS_PERCENT: they are said of the level alone."""
    return [m for m in marks if m.kind != "cached_prompts" or m.values["percent"] >= WEIGHS_PERCENT]


def is_valid(rounds: Sequence[Row], marks: Sequence[Mark]) -> bool:
    """Return whether a level may compete.

    It may when every round is measured and valid, all rounds are alike, no request failed, and most of each prompt was
    computed.
    """
    return not any(map(_breaks, marks)) and all(row["valid"] and not row["failures"] for row in rounds)


def _breaks(found: Mark) -> bool:
    """Return whether a mark keeps a level out of rankings."""
    return found.kind == "missing_round" or is_unlike(found)


def is_unlike(found: Mark) -> bool:
    """Return whether a mark says that rounds are of several servers or machines, or most prompts cached."""
    if found.kind == "cached_prompts":
        return bool(found.values["percent"] >= MOSTLY_CACHED_PERCENT)
    return found.kind.startswith("mixed_")


def level(setting: Setting, users: int, rounds: Sequence[Row], plan: Plan, settings_row: Row | None) -> Claim:
    """Judge whether a setting met the line with this number of users, in every round."""
    line, wanted = plan.line, plan.rounds
    rounds = [row for row in rounds if not any(found.kind == "not_tried" for found in row["reason"] or ())]
    good = [row for row in rounds if row["status"] == "ok"]
    failed = [row for row in rounds if row["status"] != "ok" or row["failures"] == row["target_requests"] != 0]
    marks = caveats(good, settings_row)
    counts = [row["target_requests"] for row in good]
    unknown = None in counts
    load = load_of(setting)
    limits_of_line = {"ttft_p95_s": line.ttft_p95_s, "user_tok_s": line.user_tok_s}
    common: dict[str, Any] = {
        "kind": "level",
        "run": setting.run,
        "subjects": [setting.name],
        "users": users,
        "rounds": len(good),
        "requests": None if unknown else sum(counts),
        "caveats": marks,
        "rows": [f"{setting.run}/{setting.name}/{users}"],
    }
    if failed:
        return Claim(
            **common, verdict="failed", values=load | {"failed": len(failed), "rounds": max(wanted, len(rounds))}
        )
    if not good:
        return Claim(**common, verdict="not_measured", values=load)
    objective = Objective.of(line)
    limits = sorted({limit for row in good for limit in _missed(row, objective)})
    fewest = None if unknown else min(counts)
    if limits:
        values = {
            "limits": limits,
            "line": limits_of_line,
            "ttft_p95_s": over_rounds(good, "ttft_p95_s"),
            "user_tok_s": over_rounds(good, "user_tok_s"),
            "failures": sum(row["failures"] for row in good),
            "requests": common["requests"],
            "valid": is_valid(good, marks),
        }
        return Claim(**common, verdict="missed", values=load | values)
    if fewest is None or fewest < objective.requests:
        values = {
            "requests": fewest,
            "wanted": objective.requests,
            "lacking": None if fewest is None else objective.requests - fewest,
            "valid": is_valid(good, marks),
        }
        return Claim(**common, verdict="few_requests", values=load | values)
    if len(good) < max(wanted, 2):
        values = {"measured": len(good), "rounds": max(wanted, 2), "valid": is_valid(good, marks)}
        return Claim(**common, verdict="few_rounds", values=load | values)
    passes = sum(row["in_time_requests"] for row in good)
    return Claim(
        **common,
        verdict="met",
        confidence=line_confidence(passes, common["requests"]),
        values=load
        | {
            "line": limits_of_line,
            "ttft_p95_s": over_rounds(good, "ttft_p95_s"),
            "user_tok_s": over_rounds(good, "user_tok_s"),
            "valid": is_valid(good, marks),
        },
    )


def requests_wanted(found: Sequence[Claim]) -> int | None:
    """Return how many requests a window needs, if a level among these claims has too few to be judged; else None."""
    few = (claim for claim in found if claim.kind == "level" and claim.verdict == "few_requests")
    return next((int(claim.values["wanted"]) for claim in few), None)


def load_of(setting: Setting) -> dict[str, Any]:
    """Return how a setting is loaded: the mode, and the requests per second of an open loop."""
    return {"mode": setting.workload.get("mode", "closed"), "rate": setting.workload.get("rate")}


def _missed(row: Row, objective: Objective) -> Iterator[str]:
    """Yield what a round missed (`Outcome.missed`); a limit on a figure without a value as "no_speed"."""
    for name in objective.outcome(row).missed:
        yield "no_speed" if name in objective.limits and row[name] is None else name


def over_rounds(rounds: Sequence[Row], figure: str) -> list[float] | None:
    """Return [smallest, largest] of a figure over the rounds; None where a round lacks it."""
    found = [row[figure] for row in rounds]
    return None if None in found or not found else [min(found), max(found)]


def levels(tables: Mapping[str, pa.Table], plan: Plan) -> list[Claim]:
    """Make a claim for each planned setting and number of users, in the experiment's order."""
    measured = cells(tables)
    rows = settings_rows(tables)
    return [
        level(setting, users, measured.get(place, []), plan, rows.get(place))
        for setting in plan.settings.values()
        for users in setting.users
        for place in [(setting.run, setting.name, users)]
    ]


def discards(tables: Mapping[str, pa.Table], plan: Plan, run: str, setting: str | None = None) -> list[list[Any]]:
    """Count what was discarded of a run, or of one setting: [setting, users, count].

    users is None for the connections of a schedule.
    """
    places = Counter(
        (row["setting"], row["users"] if name not in plan.settings or not plan.settings[name].scheduled else None)
        for row in rows_of(tables, "discarded", run)
        for name in (row["setting"],)
        if setting in (None, name)
    )
    return [[*place, count] for place, count in places.items()]


def capacities(tables: Mapping[str, pa.Table], plan: Plan, found: Sequence[Claim]) -> list[Claim]:
    """Say how many users each setting serves within the line: the largest level with no gap below it.

    Where the capacity was searched for, only levels count that the search is sure of. A schedule's connections are no
    users: what it was asked and whether the line was met is said by its levels.
    """
    by_setting: dict[tuple[str | None, str], list[Claim]] = defaultdict(list)
    for claim in found:
        if not MODES[claim.values["mode"]].by_users:
            continue
        by_setting[claim.run, claim.subjects[0]].append(claim)
    sure = _sure(tables, plan)
    return [
        _capacity(own, discards(tables, plan, run or "", setting), sure.get(setting))
        for (run, setting), own in by_setting.items()
    ]


def _sure(tables: Mapping[str, pa.Table], plan: Plan) -> dict[str, Collection[int]]:
    """Map each setting whose capacity was searched for to the numbers of users at which it surely keeps the line."""
    evidence: dict[str, dict[int, dict[int, Outcome]]] = {name: {} for name in plan.searched}
    for (_, setting, users), rows in cells(tables).items():
        if setting in evidence:
            evidence[setting][users] = {row["round"]: plan.judged_by[LINE].outcome(row) for row in rows}
    return {name: answer(own, paced=plan.settings[name].paced).kept for name, own in evidence.items()}


def _capacity(own: Sequence[Claim], discarded: Sequence[Sequence[Any]], sure: Collection[int] | None) -> Claim:
    """State one setting's capacity. `sure`: the users that it surely serves, where they were searched for."""
    own = sorted(own, key=lambda claim: claim.users or 0)
    met = list(takewhile(lambda claim: claim.verdict == "met" and (sure is None or claim.users in sure), own))
    above = own[len(met) :]
    met_above = [claim.users for claim in above if claim.verdict == "met"]
    confidences = [claim.confidence for claim in met if claim.confidence is not None]
    # What is met and what bounds it must both be valid; a failure is a fact whatever else the round shows.
    valid = all(claim.values.get("valid", True) for claim in own[: len(met) + 1])
    values: dict[str, Any] = {"valid": valid, "discarded": discarded}
    if met:
        values["met"] = met[-1].users
    if above:
        after = "near" if above[0].verdict == "met" else above[0].verdict
        values |= {"next": above[0].users, "next_verdict": after, "met_above": met_above}
    if not above:
        verdict = "at_least"
    else:
        decided = above[0].verdict in ("missed", "failed")
        verdict = ("bracketed" if decided else "open") if met else ("none" if decided else "unknown")
    basis = met[-1] if met else own[0]
    return Claim(
        kind="capacity",
        verdict=verdict,
        run=basis.run,
        subjects=basis.subjects,
        users=met[-1].users if met else None,
        values=values,
        rounds=basis.rounds,
        requests=basis.requests,
        confidence=confidences[-1] if confidences else None,
        caveats=weighing(basis.caveats),
        rows=[row for claim in own for row in claim.rows],
    )


def once(plan: Plan, found: Sequence[Claim]) -> Claim:
    """Say what the only round of a load met, by its levels `found`: no capacity, which needs two rounds.

    Of users: the most that met the line with no miss below; of a rate or a trace: whether it was met.
    """
    (setting,) = plan.settings.values()
    own = sorted(found, key=lambda claim: claim.users or 0)
    common: dict[str, Any] = {"kind": "once", "run": setting.run, "subjects": [setting.name], "rounds": 1}
    common["rows"] = [row for claim in own for row in claim.rows]
    met = list(takewhile(lambda claim: claim.verdict == MET_ONCE, own))
    valid = {"valid": all(claim.values.get("valid", True) for claim in own[: len(met) + 1])}
    above = {"met_above": [claim.users for claim in own[len(met) + 1 :] if claim.verdict == MET_ONCE]}
    if setting.scheduled:
        verdict = "met" if own[0].verdict == MET_ONCE else own[0].verdict
        values = valid | load_of(setting) | {"next_verdict": verdict}
        return Claim(**common, verdict="scheduled", users=own[0].users, values=values)
    most = {"met": met[-1].users} if met else {}
    users = met[-1].users if met else None
    if len(met) == len(own):
        return Claim(**common, verdict="most_tried", users=users, values=valid | most)
    missed = own[len(met)]
    values = valid | most | above | {"next": missed.users, "next_verdict": missed.verdict}
    return Claim(**common, verdict="met" if met else "none", users=users, values=values)


def enough_requests(found: Sequence[Claim], mode: str) -> dict[str, dict[str, Any]]:
    """Name the step that gets a load of this mode enough requests for a judgement, and its values; {} where it has."""
    step = {"count": "load_more", "trace": "load_more_of_trace"}.get(mode, "load_longer")
    wanted = requests_wanted(found)
    return {step: {"wanted": wanted}} if wanted else {}
