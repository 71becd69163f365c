"""Define claims: conclusions with their subjects, confidence and caveats.

`servebench.verdicts` makes them, and `servebench.words` says them in both languages.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from servebench import schema
from servebench.marks import Mark

_FIELD = ("engine", "quantization", "missed", "absent", "excluded", "valid")
_DIFFERENCE = ("target", "baseline", "measure", "points", "low", "high", "changed", "replies")
_COMPARED: Mapping[str, tuple[str, ...]] = {
    "higher": (*_DIFFERENCE, "lower_is_better"),
    "lower": (*_DIFFERENCE, "lower_is_better"),
    "none_detected": (*_DIFFERENCE, "detectable"),
    "too_few_questions": ("target", "baseline", "measure", "questions"),
    "not_judged": ("target", "baseline", "measure", "reasons"),
}
_LOAD = ("mode", "rate")  # of loading; requests per second in an open loop
_SEARCHED = ("objective", "spans", "gaps", "open", "measurements", "valid", "discarded")
_ANSWERED = ("met", "next", "next_verdict", "met_above", "valid", "discarded")
_TOLD = ("first", "second", "differs", "ratio", *_LOAD)
# parts: of `verdicts.across.PARTS`, those in which settings differ; models: [those of A, those of B], [] if the same.
_SIZE = ("low", "high", "pairs", "apart", "parts", "models")
# requests_s: a second with `most` users, due (loop: open) or replied to (closed), by the rounds.
_SERVED = ("most", "unbroken", "requests_s", "loop")
# means: by setting, its output, memory, USD for a million tokens and answers; beyond: those that surely miss the line.
_CHOICE = ("choose", "means", "beyond", "unsure", "absent")
# Every kind with its verdicts, and the names of each verdict's values.
KINDS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "coverage": {
        "complete": ("planned", "discarded"),
        "unfinished": ("planned", "measured", "failed", "missing", "discarded"),
        "failures": ("planned", "measured", "failed", "missing", "discarded", "settings"),
        "targets_failed": ("planned", "targets"),
    },
    "level": {
        "met": ("line", "ttft_p95_s", "user_tok_s", "valid", *_LOAD),
        "missed": ("limits", "line", "ttft_p95_s", "user_tok_s", "failures", "requests", "valid", *_LOAD),
        "failed": ("failed", "rounds", *_LOAD),
        "few_requests": ("requests", "wanted", "lacking", "valid", *_LOAD),
        "few_rounds": ("measured", "rounds", "valid", *_LOAD),
        "not_measured": _LOAD,
    },
    "capacity": {
        "bracketed": _ANSWERED,
        "at_least": ("met", "valid", "discarded"),
        "open": _ANSWERED,
        "none": _ANSWERED[1:],
        "unknown": _ANSWERED[1:],
    },
    # What the only round of a load met: next_verdict: of the level `next`, or of the schedule.
    "once": {
        "most_tried": ("met", "valid"),
        "met": ("met", "next", "next_verdict", "met_above", "valid"),
        "none": ("next", "next_verdict", "met_above", "valid"),
        "scheduled": ("next_verdict", "valid", *_LOAD),
    },
    # spans: lists of [first, last] number of users that keep the objective; gaps, open: between and beside them.
    "objective": {
        "bracketed": (*_SEARCHED, *_SERVED, "misses"),
        "at_least": (*_SEARCHED, *_SERVED),
        "none": (*_SEARCHED, "misses"),
        "unsure": _SEARCHED,
    },
    # The same of an open loop's requests per second, as searched for by `servebench load --find-capacity`.
    "rate": {
        "bracketed": (*_SEARCHED, "most", "misses"),
        "at_least": (*_SEARCHED, "most"),
        "none": (*_SEARCHED, "misses"),
        "unsure": _SEARCHED,
    },
    # Whether a rate or a trace is served within a named objective.
    "schedule": dict.fromkeys(("kept", "missed", "open"), ("objective", "measurements", "valid", "discarded", *_LOAD)),
    "people": {
        "arithmetic": ("reply_s", "people", "valid"),  # people: a list of [pause in seconds, fewest, most]
        "measured": ("think", "streams", "valid"),
    },
    "leader": {
        "ahead": ("first", "second", "ranges", "percent", *_FIELD),
        "ahead_in_every_round": ("first", "second", "ranges", "percent", "rounds", *_FIELD),
        "tied": ("first", "others", "ranges", *_FIELD),
        "only_one": ("first", "ranges", *_FIELD),
        "one_round": ("first", "ranges", *_FIELD),
    },
    "choice": {"recommended": _CHOICE, "not_told_apart": _CHOICE, "only_one": _CHOICE},
    # at: numbers of users at which both settings were measured.
    "outdone": {
        "fewer_users": ("by", "most", "misses", "at", "memory_compared"),
        "less_output": ("by", "at", "memory_compared"),
    },
    "pair": {
        "higher": (*_TOLD, "low", "high"),
        "lower": (*_TOLD, "low", "high"),
        "not_beyond_noise": (*_TOLD, "low", "high"),
        "too_few_repeats": _TOLD,
        "not_valid": _TOLD,
        "not_comparable": ("first", "second", "parts"),
    },
    # Of two experiments: the ratios, low to high, of so many pairs, and how many of these are apart beyond noise.
    "size": {"beyond_noise": _SIZE, "in_part": _SIZE, "not_beyond_noise": _SIZE, "not_judged": _SIZE},
    "highest": {"measured": ("output_tok_s", "round", "valid", *_LOAD)},
    "score": {
        **_COMPARED,
        "nothing_evaluated": (),
        "not_evaluated_yet": (),
        "no_baseline": ("baseline",),
        "no_answers": ("targets",),
    },
    "equivalence": {
        "within_margin": ("target", "baseline", "measure", "margin", "changed", "replies"),
        "not_shown": ("target", "baseline", "measure", "margin", "changed", "replies"),
    },
    "under_load": _COMPARED,
    "cost": {
        "per_token": ("usd", "price", "within", "valid", *_LOAD),
        # persons: a list of [pause, least, most USD a month]; used_percent: of the time in which a person uses it.
        "per_person": ("persons", "price", "hours", "used_percent", "valid"),
        "start": ("seconds", "usd", "price"),
        "idle": ("minutes", "usd", "price"),
        "no_price": (),
    },
    "energy": {"per_token": ("joules", "within", "valid", *_LOAD)},
    "memory": {
        "used": ("gib", "memory"),
        "share": ("gib", "memory"),
    },
    # percents: [slower, faster round] of what is predicted at most; source: of the bandwidth (`limits.Bandwidth`).
    "predicted": dict.fromkeys(
        ("reached", "beyond"), ("percents", "stream_tok_s", "gib", "gb_s", "source", "valid", *_LOAD)
    ),
    # band: the shortest and the longest prompt of it, in tokens
    "slow": {"counted": ("band", "band_slow", "band_total", "other_slow", "other_total", "valid")},
    "queue": {"waited": ("slots", "ttft_p50_s", "base_users", "base_ttft_p50_s", "valid")},
}


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """Hold one claim, a row of the table `verdicts`.

    `subjects`: names of settings or targets; `rounds`, `requests`, `questions`: how much evidence the claim rests on,
    None for other kinds of evidence; `several`: the experiment has several runs, so that
    sentences name this one; `confidence`: that the claim is true, 0 to 1; `error_rate`: share of pages with a
    false claim of this kind; `caveats`: marks that weaken the claim; `rows`: "run/setting/users" of the rows behind it.
    """

    kind: str
    verdict: str
    run: str | None = None
    several: bool = False
    subjects: Sequence[str] = ()
    users: int | None = None
    figure: str | None = None
    values: Mapping[str, Any] = {}
    rounds: int | None = None
    requests: int | None = None
    questions: int | None = None
    confidence: float | None = None
    error_rate: float | None = None
    caveats: Sequence[Mark] = ()
    rows: Sequence[str] = ()

    def __post_init__(self) -> None:
        if set(self.values) != set(KINDS[self.kind][self.verdict]):
            raise ValueError(f"{self.kind} {self.verdict}: {sorted(self.values)}: are not the values KINDS names")


SCHEMA = schema.schema("""
kind text! of those in docs/verdicts.md
verdict text! what is claimed: of each kind one of those in docs/verdicts.md
run text
several bool! the experiment has several runs
subjects texts! settings or targets it is about
users int number of users it is about
figure text figure or measure it is about
values text! JSON: what the verdict says, by name
rounds int rounds it rests on
requests int target requests it rests on
questions int questions it rests on
confidence real that it is so: for a level, that the true TTFT p95 is within the line
error_rate real share of pages with a false claim of this kind, among settings that are equal
caveats marks! what weakens it
rows texts! run/setting/users of the rows it is from
""")


def table(claims: Sequence[Claim]) -> pa.Table:
    """Make the table `verdicts` from the claims, in their order."""
    rows = [
        msgspec.structs.asdict(claim)
        | {"values": json.dumps(claim.values, ensure_ascii=False, allow_nan=False)}
        | {name: list(getattr(claim, name)) for name in ("subjects", "caveats", "rows")}
        for claim in claims
    ]
    return schema.table("verdicts", SCHEMA, rows)


def read(content: pa.Table) -> list[Claim]:
    """Read the claims of a table `verdicts`, in their order."""
    return [Claim(**row | {"values": json.loads(row["values"])}) for row in schema.rows(content)]


def of_schedules(tables: Mapping[str, pa.Table], run: str | None = None) -> set[str]:
    """Return the settings that a schedule loads, not users: their levels make no capacity (`verdicts.levels`)."""
    levels, capacities = ({claim.subjects[0] for claim in of(tables, run, kind)} for kind in ("level", "capacity"))
    return levels - capacities


def of(tables: Mapping[str, pa.Table], run: str | None = None, kind: str | None = None) -> list[Claim]:
    """List the claims among an experiment's tables, or those of one kind, or those about one run or about no run."""
    found = read(tables["verdicts"]) if "verdicts" in tables else []
    return [claim for claim in found if run in (None, claim.run) or claim.run is None if kind in (None, claim.kind)]
