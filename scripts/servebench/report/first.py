"""Fill the first screen: what a reader needs first, what weakens it, what to try next, and what was measured.

Nothing is concluded here: every sentence is a claim of `servebench.verdicts`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from servebench import claims, verdicts
from servebench.claims import Claim
from servebench.plan import Plan, Setting
from servebench.report import content
from servebench.tables.files import Row, rows_of
from servebench.verdicts.levels import requests_wanted
from servebench.words.marks import phrase
from servebench.words.numbers import span

# The questions of the first screen with the kinds of claims that answer them, and where on the page the rest is.
QUESTIONS = (
    ("many", ("capacity", "objective", "people")),
    ("asked", ("level", "schedule")),
    ("which", ("choice", "leader")),
    ("right", ("score",)),
)
WHERE = {"many": "h-line", "asked": "h-line", "which": "h-compared", "right": "h-evaluated"}
CHOSEN = "h-choice"  # where the rest of an answer is that says which setting to run for how many users
VERDICTS = ("lower", "higher", "none_detected", "too_few_questions", "not_judged")  # of scores, as they are told
# Verdicts that leave open which setting is ahead.
RANKLESS = {"leader": ("tied", "ahead_in_every_round", "one_round"), "choice": ("not_told_apart",)}
MOST = 3  # claims of a kind on the first screen; of objectives each is answered


def first(tables: Mapping[str, pa.Table], plan: Plan, run: str) -> dict[str, Any]:
    """Fill the first screen of a run."""
    found = claims.of(tables, run)
    leading = verdicts.headline(found)
    # Where capacities were searched for, which setting to run for how many users stands first.
    chosen = any(claim.kind == "choice" for claim in leading)
    questions = sorted(QUESTIONS, key=lambda question: chosen and question[0] != "which")
    return {
        "failures": [claim for claim in leading if claim.kind == "coverage" and claim.verdict != "complete"],
        "discarded": [claim for claim in leading if claim.kind == "coverage" and claim.verdict == "complete"],
        "number": next((number(tables, claim) for claim in leading if claim.kind in ("capacity", "objective")), None),
        "answers": [_answer(name, [claim for claim in leading if claim.kind in kinds]) for name, kinds in questions],
        "named": _named(leading, plan),
        "scores": scores(tables, found),
        "weak": weak(found),
        "next": steps(found, leading),
        "facts": facts(tables, plan, run),
    }


def number(tables: Mapping[str, pa.Table], claim: Claim) -> dict[str, Any]:
    """Return the largest number of users within the target: `at_least` where more may be, `users` None where none.

    `anchor`: the id of the row of all values that says how sure it is; None without one.
    """
    users = claim.values.get("most") if claim.kind == "objective" else claim.users
    rows = (row for row in rows_of(tables, "settings", claim.run) if row["users"] == users)
    return {
        "users": users,
        "anchor": next((content.anchor(row) for row in rows if row["setting"] in claim.subjects), None),
        "at_least": claim.verdict in ("at_least", "open"),
        "valid": claim.values.get("valid", True),
    }


def _answer(name: str, own: Sequence[Claim]) -> dict[str, Any]:
    chosen = any(claim.kind == "choice" for claim in own)
    kinds = [claim.kind for claim in own]
    few = [
        claim for place, claim in enumerate(own) if claim.kind == "objective" or kinds[:place].count(claim.kind) < MOST
    ]
    return {"question": name, "claims": few, "where": CHOSEN if chosen else WHERE[name]}


def scores(tables: Mapping[str, pa.Table], found: Sequence[Claim]) -> dict[str, Any] | None:
    """Return the share of each target × measure over both repeats, with the verdict on it; None without scores."""
    rows = [row for row in rows_of(tables, "scores") if row["headline"] and row["n"]]
    if not rows:
        return None
    judged = {
        (claim.subjects[0], claim.figure): claim.verdict for claim in found if claim.kind == "score" and claim.figure
    }
    counts: dict[str, int] = {}
    for verdict in judged.values():
        counts[verdict] = counts.get(verdict, 0) + 1
    shares: dict[tuple[str, str], tuple[int, int]] = {}
    for row in rows:
        count, n = shares.get((row["target"], row["measure"]), (0, 0))
        shares[row["target"], row["measure"]] = count + row["count"], n + row["n"]
    measures = _once(row["measure"] for row in rows)
    lower = {row["measure"] for row in rows if row["lower_is_better"]}
    questions = {row["measure"]: row["questions"] for row in rows}
    baseline = next((row["target"] for row in rows_of(tables, "targets") if row["baseline"]), None)
    targets = sorted(_once(row["target"] for row in rows), key=lambda target: target != baseline)
    return {
        "measures": [(measure, measure in lower, questions[measure]) for measure in measures],
        "counts": [(verdict, counts[verdict]) for verdict in VERDICTS if verdict in counts],
        "all": len(judged),
        "baseline": baseline,
        "rows": [
            (target, [(shares.get((target, measure)), judged.get((target, measure))) for measure in measures])
            for target in targets
        ],
    }


def _named(leading: Iterable[Claim], plan: Plan) -> list[Setting]:
    """List the settings that the first screen speaks of, each once."""
    names: list[str] = []
    for claim in leading:
        if claim.kind in ("capacity", "objective"):
            names += claim.subjects
        elif claim.kind == "choice":
            names += claim.values["choose"]
        elif claim.kind == "leader":
            names += [claim.values["first"], *(claim.values.get("others") or [claim.values.get("second")])]
    return [plan.settings[name] for name in dict.fromkeys(names) if name in plan.settings]


def weak(found: Sequence[Claim]) -> dict[str, Any]:
    """Count the levels with marks, and the levels of each kind of mark, most frequent first."""
    measured = [claim for claim in found if claim.kind == "level" and claim.rounds]
    counts: dict[str, int] = {}
    for claim in measured:
        for kind in {mark.kind for mark in claim.caveats}:
            counts[kind] = counts.get(kind, 0) + 1
    return {
        "marked": sum(bool(claim.caveats) for claim in measured),
        "rows": len(measured),
        "kinds": [(phrase(kind), counts[kind]) for kind in sorted(counts, key=lambda kind: -counts[kind])],
    }


def steps(found: Sequence[Claim], leading: Sequence[Claim]) -> list[tuple[str, Mapping[str, Any]]]:
    """List what to try next, as keys under `page.next` with values: what each leading claim leaves open, once."""
    return list({key: (key, values) for key, values in _steps(found, leading)}.values())


def _steps(found: Sequence[Claim], leading: Sequence[Claim]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for claim in leading:
        if claim.kind == "coverage" and claim.verdict != "complete":
            yield claim.verdict, {}
        elif claim.kind == "capacity" and claim.verdict == "at_least":
            yield "more_users", {"users": claim.users}
        elif claim.kind == "capacity" and claim.verdict == "bracketed":
            yield "between", {"users": claim.users, "next": claim.values["next"]}
        elif claim.kind == "capacity" and claim.verdict == "none":
            yield "fewer_users", {"next": claim.values["next"]}
        elif claim.verdict in RANKLESS.get(claim.kind, ()):
            yield "more_rounds", {}
        elif claim.kind == "score" and claim.verdict in ("nothing_evaluated", "too_few_questions", "not_judged"):
            yield claim.verdict, {}
        elif claim.kind == "score" and claim.verdict == "not_evaluated_yet":
            yield "unfinished", {}
    if wanted := requests_wanted(found):
        yield "few_requests", {"wanted": wanted}
    if any(claim.values.get("valid") is False for claim in leading):
        yield "not_valid", {}


def facts(tables: Mapping[str, pa.Table], plan: Plan, run: str) -> dict[str, Any]:
    """Return what was measured: machines, engines with versions, models, dates, tokens, rounds and window."""
    sessions = rows_of(tables, "sessions", run)
    rows = [row for row in rows_of(tables, "settings", run) if row["rounds"]]
    own = [setting for setting in plan.settings.values() if setting.run == run]
    days = sorted({row["launched_at"][:10] for row in sessions if row["launched_at"]})
    windows = sorted({setting.workload["window_s"] for setting in own if setting.workload.get("window_s")})
    return {
        "machines": content.machines(tables, run),
        "engines": _once(f"{row['engine_kind']} {row['engine_version'] or ''}".strip() for row in sessions),
        "models": _once(f"{s.model.name} {s.model.quantization or ''}".strip() for s in own),
        "dates": span_of_days(days),
        "prompt_tokens": _over(rows, "prompt_tokens_p50"),
        "reply_tokens": _over(rows, "output_tokens_mean"),
        "rounds": plan.rounds,
        "window_s": " / ".join(f"{window:g}" for window in windows) or None,
    }


def span_of_days(days: Sequence[str]) -> str:
    """Write days as `2026-11-15 – 2026-11-16`, as one where they are the same."""
    return " – ".join(dict.fromkeys((days[0], days[-1]))) if days else "–"


def _once(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))


def _over(rows: Sequence[Row], figure: str) -> str:
    """Write the range of a figure over all rows, in whole numbers."""
    known = [row for row in rows if row[f"{figure}_min"] is not None]
    ends = [round(pick(row[f"{figure}_{end}"] for row in known)) for end, pick in (("min", min), ("max", max)) if known]
    return span(*ends) if ends else "–"
