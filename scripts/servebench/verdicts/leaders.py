"""Say which setting is ahead at each number of users, and by how much pairs of settings differ. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from servebench.claims import Claim
from servebench.marks import Mark, mark
from servebench.plan import Plan, Setting, canonical
from servebench.plan.differences import differences, measured_differences
from servebench.tables.files import Row
from servebench.verdicts import noise
from servebench.verdicts.levels import Cell, cells, compared_marks, is_valid, load_of, weighing
from servebench.verdicts.noise import Noise

FIGURES = ("output_tok_s", "user_tok_s")  # higher is better
PAIRED = (*FIGURES, "ttft_p95_s")  # figures by which two settings are compared
# Keys of a workload that say how the load is measured, not what it sends.
ONLY_MEASURED = ("window_s", "warmup_s", "min_targets", "keep_text", "tokenizer", "spread_s", "connect_timeout_s")
_SHARED = (
    "cached_prompts",
    "few_requests",
    "short_replies",
    "discarded_before",
)  # marks of one side that weaken a comparison
ALIKE = 1.2  # settings whose mean reply lengths differ by more than this factor did different work


def leaders(tables: Mapping[str, pa.Table], plan: Plan, judged: Sequence[Claim]) -> Iterator[Claim]:
    """Yield a claim for each figure, run and number of users; all of an experiment are tested as one family."""
    measured, marks = cells(tables), compared_marks(tables)
    missed = {(c.run, c.subjects[0], c.users) for c in judged if c.verdict in ("missed", "failed")}
    known = {figure: repeat_noise(measured, figure) for figure in FIGURES}
    fields = [
        _Field(run, users, figure, plan, measured, marks)
        for figure in FIGURES
        for run in plan.runs
        for users in sorted({users for s in plan.settings.values() if s.run == run for users in s.users})
    ]
    gaps = [noise.gap(one.rounds, known[one.figure]) if len(one.rounds) > 1 else None for one in fields]
    chances = [None if g is None or g.p is None else g.p if g.every_round else 1.0 for g in gaps]
    for field, gap, beyond in zip(fields, gaps, noise.rejected(chances), strict=True):
        if field.rounds:
            yield field.claim(gap, beyond, missed)


def repeat_noise(measured: Mapping[Any, Sequence[Row]], figure: str) -> Noise:
    """Estimate the noise of a figure's repeats over the whole experiment."""
    return noise.noise([own for rounds in measured.values() if len(own := rounds_of(rounds, figure)) > 1])


def rounds_of(rounds: Sequence[Row], figure: str) -> list[float]:
    """List a figure of the rounds that were measured."""
    return [row[figure] for row in rounds if row["status"] == "ok" and row[figure]]


class _Field:
    """Hold the settings of one run that compete at one number of users by one figure.

    Levels that are not valid or got too few requests compete only where no other can. Those of a schedule never do: it
    decides what a server puts out.
    """

    def __init__(
        self,
        run: str,
        users: int,
        figure: str,
        plan: Plan,
        measured: Mapping[Cell, Sequence[Row]],
        marks: Mapping[Cell, Sequence[Mark]],
    ) -> None:
        self.run, self.users, self.figure, self.wanted = run, users, figure, plan.rounds
        own = [setting for setting in plan.settings.values() if setting.run == run]
        there = {s.name: measured.get((run, s.name, users), []) for s in own if users in s.users}
        self.marks = {name: marks.get((run, name, users), []) for name in there}
        self.settings = {setting.name: setting for setting in own}
        complete = {
            name: found
            for name, found in there.items()
            if len(rounds_of(found, figure)) >= plan.rounds and not self.settings[name].paced
        }
        valid = {
            name: found
            for name, found in complete.items()
            if is_valid(found, self.marks[name]) and not any(noted.kind == "few_requests" for noted in self.marks[name])
        }
        self.valid = bool(valid)
        competing = self._of_one_job(own, valid or complete)
        self.measured = competing
        self.rounds = {name: rounds_of(found, figure) for name, found in competing.items()}
        # Settings left out of this level: not planned with so many users, or not fit to compete.
        self.absent = [setting.name for setting in own if users not in setting.users]
        self.excluded = [name for name in there if name not in competing]

    def _of_one_job(self, own: Sequence[Setting], found: Mapping[str, Sequence[Row]]) -> dict[str, Sequence[Row]]:
        """Keep the settings with the most common model, prompts and workload: another one is another job."""
        jobs = {setting.name: (setting.model.name, canonical(work(setting))) for setting in own}
        done = [jobs[name] for name in found]
        most = max(done, key=done.count, default=None)
        return {name: rounds for name, rounds in found.items() if jobs[name] == most}

    def claim(
        self, gap: noise.Gap | None, beyond: bool, missed: Container[tuple[str | None, str, int | None]]
    ) -> Claim:
        means = {name: sum(rounds) / len(rounds) for name, rounds in self.rounds.items()}
        order = sorted(means, key=lambda name: -means[name])
        rounds = min(map(len, self.rounds.values()))  # a search may measure more than the plan has
        values: dict[str, Any] = {
            "first": order[0],
            "ranges": {name: [min(self.rounds[name]), max(self.rounds[name])] for name in order},
            "missed": [name for name in order if (self.run, name, self.users) in missed],
            "absent": self.absent,
            "excluded": self.excluded,
            "valid": self.valid,
        }
        if gap is None:
            verdict = "only_one"
        elif self.wanted < 2:
            verdict = "one_round"
        elif beyond or (gap.every_round and gap.p is None):
            verdict = "ahead" if beyond else "ahead_in_every_round"
            values |= {"first": gap.first, "second": gap.second, "percent": 100 * (gap.ratio - 1)}
            values |= {} if beyond else {"rounds": rounds}
        else:
            verdict = "tied"
            low = min(self.rounds[order[0]])
            values["others"] = [name for name in order[1:] if max(self.rounds[name]) >= low] or order[1:2]
        first = self.settings[values["first"]]
        values |= {"engine": first.engine.kind, "quantization": first.model.quantization}
        return Claim(
            kind="leader",
            verdict=verdict,
            run=self.run,
            subjects=order,
            users=self.users,
            figure=self.figure,
            values=values,
            rounds=rounds,
            error_rate=noise.LEVEL if verdict == "ahead" else None,
            caveats=weakened(order, self.settings, self.measured, self.marks),
            rows=[f"{self.run}/{name}/{self.users}" for name in order],
        )


def weakened(
    order: Sequence[str],
    settings: Mapping[str, Setting],
    measured: Mapping[str, Sequence[Row]],
    marks: Mapping[str, Sequence[Mark]],
) -> list[Mark]:
    """List what weakens the lead of the first setting at one number of users.

    These are its own marks, and what else sets its measurements apart from those of the others in `order`.
    """
    found = weighing(marks[order[0]])
    found += [
        other
        for name in order[1:]
        for other in marks[name]
        if other.kind == "discarded_before" or (other.kind == "other_prompt_tokens" and other.values["than"] in order)
    ]
    own = {name: measured[name] for name in order}
    return [*found, *_measured_unlike(order, settings, own), *lengths_differ(own)]


def _measured_unlike(
    order: Sequence[str], settings: Mapping[str, Setting], measured: Mapping[str, Sequence[Row]]
) -> Iterator[Mark]:
    """Yield a mark for the settings whose measurements differ from the first's in what no setting says."""
    first = order[0]
    unlike: dict[tuple[str, ...], list[str]] = {}
    for name in order[1:]:
        named = differences(settings[first], settings[name])
        if found := measured_differences(named, measured[first], measured[name]):
            unlike.setdefault(tuple(found), []).append(name)
    for columns, names in unlike.items():
        yield mark("measured_unlike", first=first, others=names, differs=list(columns))


def lengths_differ(measured: Mapping[str, Sequence[Row]]) -> Iterator[Mark]:
    """Yield a mark if the replies of settings, by name, differ in length by more than ALIKE."""
    lengths = {
        name: sum(row["output_tokens_mean"] for row in found) / len(found)
        for name, found in measured.items()
        if found and all(row["output_tokens_mean"] for row in found)
    }
    if lengths and max(lengths.values()) > ALIKE * min(lengths.values()):
        shortest, longest = (pick(lengths, key=lambda name: lengths[name]) for pick in (min, max))
        yield mark(
            "reply_lengths_differ",
            **{"shortest": shortest, "shortest_tokens": lengths[shortest]},
            **{"longest": longest, "longest_tokens": lengths[longest]},
        )


def work(setting: Setting) -> dict[str, Any]:
    """Return what a setting's users send: prompts and workload, without what only says how they are measured."""
    sent = {key: value for key, value in setting.workload.items() if key not in ONLY_MEASURED}
    return sent | {"prompts_sha256": setting.prompts_sha256, "trace_sha256": setting.trace_sha256}


def pairs(tables: Mapping[str, pa.Table], plan: Plan) -> Iterator[Claim]:
    """Yield claims about each pair of settings planned to differ in one thing, at each common level, by each figure.

    All else in which their measurements differ is named too. Where requests come whatever the server does, they decide
    what it puts out, so output is not compared. All pairs and figures are tested as one family.
    """
    measured, marks = cells(tables), compared_marks(tables)
    known = {figure: repeat_noise(measured, figure) for figure in PAIRED}
    found = []
    for one, other in itertools.combinations(plan.settings.values(), 2):
        differs = differences(one, other)
        if one.run != other.run or len(differs) != 1 or differs == ["model"] or work(one) != work(other):
            continue
        for users, figure in itertools.product(sorted(set(one.users) & set(other.users)), comparable(one, other)):
            places = [(s.run, s.name, users) for s in (other, one)]
            fields = [_valid_rounds(measured.get(p, []), marks.get(p, []), figure, plan.rounds) for p in places]
            if all(fields):
                more = measured_differences(differs, *(measured[place] for place in reversed(places)))
                more += ["prompt_tokens"] if _prompts_differ(*(marks[place] for place in places)) else []
                ratio = noise.ratio(fields[0], fields[1], known[figure])
                found.append((one, other, users, figure, [*differs, *more], ratio))
    for (one, other, users, figure, named, ratio), beyond in zip(
        found, noise.rejected([ratio.p for *_, ratio in found]), strict=True
    ):
        values = {"first": other.name, "second": one.name, "differs": named, "ratio": ratio.ratio, **load_of(one)}
        if ratio.p is None:
            verdict = "too_few_repeats"
        else:
            values |= {"low": ratio.low, "high": ratio.high}
            verdict = "not_beyond_noise" if not beyond else "higher" if ratio.ratio > 1 else "lower"
        yield Claim(
            kind="pair",
            verdict=verdict,
            run=one.run,
            subjects=[other.name, one.name],
            users=users,
            figure=figure,
            values=values,
            rounds=plan.rounds,
            error_rate=noise.LEVEL if verdict in ("higher", "lower") else None,
            caveats=[
                *shared([weak for s in (other, one) for weak in marks[s.run, s.name, users]]),
                *lengths_differ({s.name: measured[s.run, s.name, users] for s in (other, one)}),
            ],
            rows=[f"{one.run}/{s.name}/{users}" for s in (other, one)],
        )


def comparable(one: Setting, other: Setting) -> tuple[str, ...]:
    """Return the figures of PAIRED that say something of both servers: a schedule decides what they put out."""
    return tuple(name for name in PAIRED if name != FIGURES[0] or not (one.paced or other.paced))


def shared(marks: Sequence[Mark]) -> list[Mark]:
    """List those marks of the sides of a comparison that weaken what is said of both."""
    return list(dict.fromkeys(found for found in weighing(marks) if found.kind in _SHARED))


def _prompts_differ(*both: Sequence[Mark]) -> bool:
    """Whether two settings' servers made different prompts of the same documents, by the marks of each."""
    tokens = ([found.values["tokens"] for found in marks if found.kind == "other_prompt_tokens"] for marks in both)
    one, other = (own[0] if own else 0 for own in tokens)
    return bool(one != other)


def _valid_rounds(found: Sequence[Row], marks: Sequence[Mark], figure: str, wanted: int) -> list[float]:
    """Return the rounds of a level; [] when the level is incomplete or not valid."""
    own = rounds_of(found, figure)
    return own if len(own) >= wanted and is_valid(found, marks) else []
