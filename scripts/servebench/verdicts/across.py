"""Compare settings of two experiments: claims of kind `pair`. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from servebench.claims import Claim
from servebench.load.modes import MODES
from servebench.marks import Mark
from servebench.plan import Setting
from servebench.plan.differences import differences, measured_differences
from servebench.verdicts import noise
from servebench.verdicts.leaders import (
    ONLY_MEASURED,
    PAIRED,
    comparable,
    lengths_differ,
    repeat_noise,
    rounds_of,
    shared,
)
from servebench.verdicts.levels import cells, compared_marks, is_valid, load_of

# What makes two measurements different work; a ratio across it is only given when it is asked for by name.
PARTS = ("model", "prompts", "workload")
BEYOND = ("higher", "lower")  # verdicts on a difference beyond repeat noise
_PROMPTS = ("prompts", "system", "instruction", "shared_prefix_tokens", "trace", "prompt_tokens")


@dataclass(frozen=True)
class Matched:
    """Hold a setting of the first experiment, that of the second, and the number of users of both."""

    one: Setting
    other: Setting
    users: int


def parts(one: Setting, other: Setting) -> list[str]:
    """List which of PARTS differ between two settings."""
    unlike = set(differences(one, other))
    found = {"model"} if unlike & {"model", "model_file", "quantization"} else set()
    if one.model.sha256 and other.model.sha256 and one.model.sha256 != other.model.sha256:
        found.add("model")
    keys = {name.removeprefix("workload.") for name in unlike if name.startswith("workload.")}
    files = [(setting.prompts_sha256, setting.trace_sha256) for setting in (one, other)]
    if keys & set(_PROMPTS) or files[0] != files[1]:
        found.add("prompts")
    if keys - set(_PROMPTS) - set(ONLY_MEASURED):
        found.add("workload")
    return [part for part in PARTS if part in found]


@dataclass(frozen=True, kw_only=True)
class _Compared:
    """Hold one figure of a match: in what it differs, its ratio, and what weakens that.

    `apart`: the PARTS that differ without having been asked for, with which there is no `ratio`; `rounds`: the fewer.
    """

    match: Matched
    figure: str
    apart: Sequence[str]
    differs: Sequence[str]
    ratio: noise.Ratio | None
    rounds: int
    valid: bool
    marks: Sequence[Mark]

    @property
    def chance(self) -> float | None:
        """Return the chance of such a ratio between equals; None where nothing may be concluded."""
        return self.ratio.p if self.ratio and self.valid else None

    def claim(self, beyond: bool) -> Claim:
        """Say what the ratio shows; `beyond`: it is beyond repeat noise."""
        one, other = self.match.one, self.match.other
        values: dict[str, Any] = {"first": other.name, "second": one.name}
        if self.ratio is None:
            verdict = "not_comparable"
            values["parts"] = self.apart
        else:
            values |= {"differs": self.differs, "ratio": self.ratio.ratio, **load_of(one)}
            verdict = "too_few_repeats" if self.ratio.p is None else "not_valid"
            if self.chance is not None:
                values |= {"low": self.ratio.low, "high": self.ratio.high}
                verdict = "not_beyond_noise" if not beyond else "higher" if self.ratio.ratio > 1 else "lower"
        return Claim(
            kind="pair",
            verdict=verdict,
            run=one.run,
            subjects=[other.name, one.name],
            users=self.match.users,
            figure=self.figure,
            values=values,
            rounds=self.rounds,
            error_rate=noise.LEVEL if verdict in BEYOND else None,
            caveats=self.marks,
        )


def across(
    first: Mapping[str, pa.Table],
    second: Mapping[str, pa.Table],
    matched: Sequence[Matched],
    asked: Collection[str] = (),
) -> Iterator[Claim]:
    """Yield a claim for each match that both measured, by each figure: second over first, all as one family (Holm).

    Where model, prompts or workload differ no ratio is given, except across the PARTS in `asked`. Nothing is concluded
    from a level that is not valid (`levels.is_valid`); its ratio is given. Marks name the experiments A and B.
    """
    found = list(_compared(first, second, matched, asked))
    for one, beyond in zip(found, noise.rejected([own.chance for own in found]), strict=True):
        yield one.claim(beyond)


def _compared(
    first: Mapping[str, pa.Table], second: Mapping[str, pa.Table], matched: Sequence[Matched], asked: Collection[str]
) -> Iterator[_Compared]:
    both = cells(first), cells(second)
    # What both experiments took from the same store was repeated once, not twice.
    repeats = {
        tuple((row["digest"] or (side, *place), *map(row.get, PAIRED)) for row in rounds): rounds
        for side, own in enumerate(both)
        for place, rounds in own.items()
    }
    known = {figure: repeat_noise(repeats, figure) for figure in PAIRED}
    marks = compared_marks(first, "A"), compared_marks(second, "B")
    for match, figure in ((own, name) for own in matched for name in comparable(own.one, own.other)):
        places = [(setting.run, setting.name, match.users) for setting in (match.one, match.other)]
        rows = [own.get(place, []) for own, place in zip(both, places, strict=True)]
        rounds = [rounds_of(own, figure) for own in rows]
        if not all(rounds):
            continue
        apart = [part for part in parts(match.one, match.other) if part not in asked]
        named = differences(match.one, match.other)
        told = [own.get(place, []) for own, place in zip(marks, places, strict=True)]
        yield _Compared(
            match=match,
            figure=figure,
            apart=apart,
            differs=[*named, *measured_differences(named, *rows)],
            ratio=None if apart else noise.ratio(rounds[1], rounds[0], known[figure]),
            rounds=min(map(len, rounds)),
            valid=all(map(is_valid, rows, told)),
            marks=[*shared([*told[0], *told[1]]), *lengths_differ({"A": rows[0], "B": rows[1]})],
        )


def sizes(found: Sequence[Claim], matched: Sequence[Matched]) -> Iterator[Claim]:
    """Yield by each figure how many times as large it is in the second, by the claims of `across` on these matches.

    That is said at the number of users where most settings are compared; schedules have connections, not users. A
    ratio of measurements that are not valid is no size, unless there is no other. In which of PARTS the settings differ
    is named, and the models where these do.
    """
    by_users = [claim for claim in found if "ratio" in claim.values and MODES[claim.values["mode"]].by_users]
    by_users = [claim for claim in by_users if claim.verdict != "not_valid"] or by_users
    settings = {(match.one.run, match.one.name): match for match in matched}
    for figure in PAIRED:
        known = [claim for claim in by_users if claim.figure == figure]
        levels = [claim.users or 0 for claim in known]
        users = max(levels, key=lambda level: (levels.count(level), level), default=None)
        own = [claim for claim in known if claim.users == users]
        if not own:
            continue
        ratios = [claim.values["ratio"] for claim in own]
        apart = sum(claim.verdict in BEYOND for claim in own)
        judged = any("low" in claim.values for claim in own)
        verdict = "beyond_noise" if apart == len(own) else "in_part" if apart else "not_beyond_noise"
        pairs = [settings[claim.run or "", claim.values["second"]] for claim in own]
        unlike = {part for match in pairs for part in parts(match.one, match.other)}
        yield Claim(
            kind="size",
            verdict=verdict if judged else "not_judged",
            subjects=[name for claim in own for name in claim.subjects[:1]],
            users=users,
            figure=figure,
            values={
                **{"low": min(ratios), "high": max(ratios), "pairs": len(own), "apart": apart},
                **{"parts": [part for part in PARTS if part in unlike]},
                "models": _models(pairs) if "model" in unlike else [],
            },
            rounds=min(claim.rounds or 0 for claim in own),
            caveats=list(dict.fromkeys(weak for claim in own for weak in claim.caveats)),
        )


def _models(matched: Sequence[Matched]) -> list[list[str]]:
    """Name the models of the first experiment's settings and of the second's, by their files if only these differ."""
    both = [[match.one.model for match in matched], [match.other.model for match in matched]]
    named = [list(dict.fromkeys(" ".join(filter(None, (m.name, m.quantization))) for m in own)) for own in both]
    if named[0] != named[1]:
        return named
    return [list(dict.fromkeys(f"{m.name} ({(m.sha256 or '–')[:12]})" for m in own)) for own in both]
