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
    settings_rows,
    shared,
)
from servebench.verdicts.levels import caveats, cells, is_valid, load_of

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
    one_cells, other_cells = cells(first), cells(second)
    merged = {("first", *place): rounds for place, rounds in one_cells.items()}
    merged |= {("second", *place): rounds for place, rounds in other_cells.items()}
    known = {figure: repeat_noise(merged, figure) for figure in PAIRED}
    settings = [settings_rows(tables) for tables in (first, second)]
    found: list[tuple[Matched, str, list[str], list[str], noise.Ratio | None, int, bool, list[Mark]]] = []
    for match, figure in ((own, name) for own in matched for name in comparable(own.one, own.other)):
        places = [(setting.run, setting.name, match.users) for setting in (match.one, match.other)]
        rows = [own.get(place, []) for own, place in zip((one_cells, other_cells), places, strict=True)]
        rounds = [rounds_of(own, figure) for own in rows]
        if not all(rounds):
            continue
        apart = [part for part in parts(match.one, match.other) if part not in asked]
        ratio = None if apart else noise.ratio(rounds[1], rounds[0], known[figure])
        named = differences(match.one, match.other)
        named += measured_differences(named, *rows)
        told = [caveats(own, marked.get(place)) for own, marked, place in zip(rows, settings, places, strict=True)]
        valid = all(map(is_valid, rows, told))
        weak = [*shared([*told[0], *told[1]]), *lengths_differ({"A": rows[0], "B": rows[1]})]
        found.append((match, figure, apart, named, ratio, min(map(len, rounds)), valid, weak))
    chances = [None if ratio is None or not valid else ratio.p for *_, ratio, _, valid, _ in found]
    for (match, figure, apart, named, ratio, count, valid, weak), beyond in zip(
        found, noise.rejected(chances), strict=True
    ):
        values: dict[str, Any] = {"first": match.other.name, "second": match.one.name}
        if ratio is None:
            verdict = "not_comparable"
            values["parts"] = apart
        else:
            values |= {"differs": named, "ratio": ratio.ratio, **load_of(match.one)}
            verdict = "too_few_repeats" if ratio.p is None else "not_valid"
            if ratio.p is not None and valid:
                values |= {"low": ratio.low, "high": ratio.high}
                verdict = "not_beyond_noise" if not beyond else "higher" if ratio.ratio > 1 else "lower"
        yield Claim(
            kind="pair",
            verdict=verdict,
            run=match.one.run,
            subjects=[match.other.name, match.one.name],
            users=match.users,
            figure=figure,
            values=values,
            rounds=count,
            error_rate=noise.LEVEL if verdict in BEYOND else None,
            caveats=weak,
        )


def sizes(found: Sequence[Claim]) -> Iterator[Claim]:
    """Yield by each figure how many times as large it is in the second, by the claims of `across`.

    That is said at the number of users where most settings are compared; schedules have connections, not users. A
    ratio of measurements that are not valid is no size, unless there is no other.
    """
    by_users = [claim for claim in found if "ratio" in claim.values and MODES[claim.values["mode"]].by_users]
    by_users = [claim for claim in by_users if claim.verdict != "not_valid"] or by_users
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
        yield Claim(
            kind="size",
            verdict=verdict if judged else "not_judged",
            subjects=[name for claim in own for name in claim.subjects[:1]],
            users=users,
            figure=figure,
            values={"low": min(ratios), "high": max(ratios), "pairs": len(own), "apart": apart},
            rounds=min(claim.rounds or 0 for claim in own),
            caveats=list(dict.fromkeys(weak for claim in own for weak in claim.caveats)),
        )
