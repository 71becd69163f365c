"""One claim: what is concluded of what, how surely, and what weakens it. Data only; `servebench.words` says it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from servebench.marks import Mark

# Every kind with its verdicts, and the values each verdict has.
KINDS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "coverage": {
        "complete": ("planned", "discarded"),
        "unfinished": ("planned", "measured", "failed", "missing", "discarded"),
        "failures": ("planned", "measured", "failed", "missing", "discarded", "settings"),
    },
    "level": {
        "met": ("ttft_p95_s", "user_tok_s", "valid"),
        "missed": ("limits", "line", "ttft_p95_s", "user_tok_s", "failures", "requests", "valid"),
        "failed": ("failed", "rounds"),
        "few_requests": ("requests", "wanted", "lacking"),
        "few_rounds": ("measured", "rounds"),
        "not_measured": (),
    },
    "capacity": {
        "bracketed": ("met", "next", "next_verdict", "met_above", "valid"),
        "at_least": ("met", "valid"),
        "open": ("met", "next", "next_verdict", "met_above", "valid"),
        "none": ("next", "next_verdict", "met_above", "valid"),
        "unknown": ("next", "next_verdict", "met_above", "valid"),
    },
    "leader": {
        "ahead": ("first", "second", "ranges", "percent", "absent", "excluded", "valid"),
        "ahead_in_every_round": ("first", "second", "ranges", "percent", "rounds", "absent", "excluded", "valid"),
        "tied": ("first", "others", "ranges", "absent", "excluded", "valid"),
        "only_one": ("first", "ranges", "absent", "excluded", "valid"),
        "one_round": ("first", "ranges", "absent", "excluded", "valid"),
    },
    "pair": {
        "higher": ("first", "second", "differs", "ratio", "low", "high"),
        "lower": ("first", "second", "differs", "ratio", "low", "high"),
        "not_beyond_noise": ("first", "second", "differs", "ratio", "low", "high"),
        "too_few_repeats": ("first", "second", "differs", "ratio"),
    },
    "score": {
        "higher": ("target", "baseline", "measure", "points", "low", "high"),
        "lower": ("target", "baseline", "measure", "points", "low", "high"),
        "none_detected": ("target", "baseline", "measure", "points", "low", "high", "detectable"),
        "not_judged": ("target", "baseline", "measure", "reasons"),
        "nothing_evaluated": (),
    },
    "equivalence": {
        "within_margin": ("target", "baseline", "measure", "margin", "changed", "questions"),
        "not_shown": ("target", "baseline", "measure", "margin", "changed", "questions"),
    },
}


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the table `verdicts`.

    `subjects`: names of settings or targets; `rounds`, `requests`, `questions`: what it rests on, None where it does not
    rest on such; `confidence`: that the truth is as claimed, 0 to 1; `error_rate`: share of pages with a false claim of
    this kind; `caveats`: marks that weaken it; `rows`: "run/setting/users" of the rows it is from.
    """

    kind: str
    verdict: str
    run: str | None = None
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

    def row(self) -> dict[str, Any]:
        """The claim as a row of the table `verdicts`."""
        row = msgspec.structs.asdict(self)
        marks = [{"kind": mark.kind, "values": mark.text} for mark in self.caveats]
        values = json.dumps(self.values, ensure_ascii=False, allow_nan=False)
        return row | {"subjects": list(self.subjects), "rows": list(self.rows), "caveats": marks, "values": values}
