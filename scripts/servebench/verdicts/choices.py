"""Say which setting to run for how many users, what it costs, and which settings another one outdoes. Pure.

A setting may be chosen for a number of users where it is sure to keep the line (`capacity.judging`). Of several, the
one with the most output costs the least for each token; it is recommended only if it is ahead by more than repeat
noise.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from servebench.capacity.judging import DRIFT
from servebench.capacity.search import Answer, answer
from servebench.claims import Claim
from servebench.load.objective import Objective
from servebench.marks import Mark
from servebench.plan import Plan, Setting, canonical
from servebench.tables.files import Row, rows_of
from servebench.verdicts import noise
from servebench.verdicts.leaders import repeat_noise, rounds_of, weakened, work
from servebench.verdicts.levels import cells, compared_marks, is_unlike, is_valid, over_rounds

FIGURE = "output_tok_s"
# A setting that outdoes another is nowhere worse by more than DRIFT; of TTFT, less is better.
_FASTER, _SOONER = (FIGURE, "user_tok_s"), "ttft_p95_s"


@dataclass(frozen=True, kw_only=True)
class _Option:
    """Hold one setting: for how many users it is sure to keep the line, its valid levels by users, its costs.

    `misses`: the numbers of users with which it surely misses the line by valid measurements, or by what the server
    itself did: failures, a failed warm-up, a backlog that grew.
    """

    setting: Setting
    answer: Answer
    levels: Mapping[int, Sequence[Row]]
    marks: Mapping[int, Sequence[Mark]]
    misses: Collection[int]
    memory: Row | None
    usd: Mapping[int, Row]
    answers: Mapping[str, Any]

    @property
    def name(self) -> str:
        return self.setting.name

    def serves(self, users: int) -> bool:
        """Return whether it is sure to keep the line with so many users, by valid measurements in every round."""
        return users in self.answer.kept and users in self.levels

    def due(self, users: int) -> bool:
        """Return whether it was to be measured, or was, with so many users."""
        return users in self.setting.users or users in self.marks

    def means(self, users: int) -> dict[str, Any]:
        """Return what it gives and costs with so many users."""
        cost = self.usd.get(users)
        return {
            FIGURE: over_rounds(self.levels[users], FIGURE),
            "gib": self.memory["measured_gib"] if self.memory else None,
            "usd": [cost["usd_per_million_tokens_min"], cost["usd_per_million_tokens_max"]] if cost else None,
            "answers": self.answers,
        }


def choices(tables: Mapping[str, pa.Table], plan: Plan, scores: Sequence[Claim]) -> list[Claim]:
    """List, for each number of users that some setting is sure to serve, which to run; then the settings outdone.

    Only settings of one run that do the same job (model and workload) are compared. `scores`: the claims of that kind.
    """
    jobs = _jobs(tables, plan, scores)
    known = repeat_noise(cells(tables), FIGURE)
    fields = [
        (job, users, [option for option in job if option.serves(users)])
        for job in jobs
        for users in sorted({users for option in job for users in option.answer.kept if option.serves(users)})
    ]
    gaps = [
        noise.gap({option.name: _rounds(option, users) for option in able}, known) if len(able) > 1 else None
        for _, users, able in fields
    ]
    # Where requests come whatever the server does, they decide the output, and nobody is ahead by it.
    chances = [
        None if gap is None or gap.p is None or able[0].setting.paced else gap.p if gap.every_round else 1.0
        for gap, (_, _, able) in zip(gaps, fields, strict=True)
    ]
    found = [
        _choice(job, users, able, gap, beyond, plan)
        for (job, users, able), gap, beyond in zip(fields, gaps, noise.rejected(chances), strict=True)
    ]
    return [*found, *_outdone(jobs, known, plan)]


def worth_more_rounds(found: Sequence[Claim], plan: Plan, run: str) -> Claim | None:
    """Return the choice for the most users in a run, if more rounds may tell which setting is ahead there; else None.

    They may only where every round of the first was above each round of the others: rounds that overlap once always
    will, and nobody is ahead by them.
    """
    own = (claim for claim in found if claim.kind == "choice" and claim.run == run)
    chosen = max(own, key=lambda claim: claim.users or 0, default=None)
    if chosen is None or chosen.verdict != "not_told_apart" or plan.settings[chosen.subjects[0]].paced:
        return None
    first, *others = (chosen.values["means"][name][FIGURE] for name in chosen.subjects)
    return chosen if min(first) > max(max(other) for other in others) else None


def _jobs(tables: Mapping[str, pa.Table], plan: Plan, scores: Sequence[Claim]) -> list[list[_Option]]:
    """Group the settings that have users to vary by what they are asked; a job of one setting leaves no choice."""
    measured, line = cells(tables), Objective.of(plan.line)
    noted = compared_marks(tables)
    memories = {(row["run"], row["setting"]): row for row in rows_of(tables, "memory")}
    costs: dict[tuple[str, str], dict[int, Row]] = defaultdict(dict)
    for row in rows_of(tables, "cost"):
        costs[row["run"], row["setting"]][row["users"]] = row
    jobs: dict[tuple[str, str, str], list[_Option]] = defaultdict(list)
    for setting in plan.settings.values():
        own = {users: found for (*place, users), found in measured.items() if place == [setting.run, setting.name]}
        if setting.scheduled:
            continue
        evidence = {users: {row["round"]: line.outcome(row) for row in found} for users, found in own.items()}
        marks = {n: noted[setting.run, setting.name, n] for n in own}
        found_at = answer(evidence, paced=setting.paced)
        option = _Option(
            setting=setting,
            answer=found_at,
            levels={
                users: found
                for users, found in own.items()
                if len(rounds_of(found, FIGURE)) >= max(plan.rounds, 2) and is_valid(found, marks[users])
            },
            marks=marks,
            misses=[users for users in found_at.missed if _truly_missed(own[users], line, marks[users])],
            memory=memories.get((setting.run, setting.name)),
            usd=costs[setting.run, setting.name],
            answers=_answers(plan, setting, scores),
        )
        jobs[setting.run, setting.model.name, canonical(work(setting))].append(option)
    return [job for job in jobs.values() if sum(bool(option.marks) for option in job) > 1]  # measured anywhere


def _truly_missed(rounds: Sequence[Row], line: Objective, marks: Sequence[Mark]) -> bool:
    """Return whether a miss is the setting's own: by valid measurements, or by what the server failed at."""
    alike = not any(map(is_unlike, marks))
    return all((row["valid"] and alike) or set(line.outcome(row).missed) - line.limits.keys() for row in rounds)


def _answers(plan: Plan, setting: Setting, scores: Sequence[Claim]) -> dict[str, Any]:
    """Return what is concluded of the answers of a setting's model file.

    `target`: the evaluated target with this file, None without one; `baseline`: whether it is what others are compared
    with; `differs`: [measure, points] of the scores that differ by more than chance; `open`: measures not judged.
    """
    targets = plan.evaluations.targets if plan.evaluations else {}
    same = [name for name, target in targets.items() if target.model.key == setting.model.key]
    same.sort(key=lambda name: targets[name].engine.key != setting.engine.key)
    if not same or not plan.evaluations:
        return {"target": None, "baseline": False, "differs": [], "open": 0}
    own = [claim for claim in scores if claim.subjects and claim.subjects[0] == same[0]]
    baseline = same[0] == plan.evaluations.baseline
    return {
        "target": same[0],
        "baseline": baseline,
        "differs": [[c.figure, c.values["points"]] for c in own if c.verdict in ("higher", "lower")],
        "open": sum(c.verdict in ("too_few_questions", "not_judged") for c in own) if own or baseline else 1,
    }


def _choice(
    job: Sequence[_Option], users: int, able: Sequence[_Option], gap: noise.Gap | None, beyond: bool, plan: Plan
) -> Claim:
    """Say which of the settings that are sure to serve so many users to run."""
    order = sorted(able, key=lambda option: -sum(_rounds(option, users)) / len(option.levels[users]))
    if gap is not None and beyond:
        verdict, told = "recommended", [next(option for option in able if option.name == gap.first)]
    elif gap is not None:
        low = min(_rounds(order[0], users))
        near = [option for option in order[1:] if max(_rounds(option, users)) >= low or option.setting.paced]
        verdict, told = "not_told_apart", [order[0], *(near or order[1:2])]
    else:
        verdict, told = "only_one", list(able)
    names = {option.name for option in able}
    values: dict[str, Any] = {
        "choose": [option.name for option in told],
        "means": {option.name: option.means(users) for option in order},
        "beyond": [option.name for option in job if users in option.misses],
        "unsure": [o.name for o in job if o.name not in names and o.due(users) and users not in o.misses],
        "absent": [option.name for option in job if users not in option.setting.users],
    }
    by = {option.name: option for option in [*told, *order]}
    return Claim(
        kind="choice",
        verdict=verdict,
        run=job[0].setting.run,
        subjects=[option.name for option in order],
        users=users,
        figure=FIGURE,
        values=values,
        rounds=plan.rounds,
        error_rate=noise.LEVEL if verdict == "recommended" else None,
        caveats=_weakened(list(by.values()), users),
        rows=[f"{option.setting.run}/{option.name}/{users}" for option in order],
    )


def _outdone(jobs: Sequence[Sequence[_Option]], known: noise.Noise, plan: Plan) -> Iterator[Claim]:
    """Yield each setting that another outdoes: better in something beyond chance, and worse in nothing compared.

    Better: it surely serves more users than the other surely fails at, or its output is higher at some number of users;
    all ratios of outputs are tested as one family.
    """
    pairs = [(one, other) for job in jobs for one, other in itertools.permutations(job, 2)]
    tests = [
        (one.name, other.name, noise.ratio(_rounds(one, users), _rounds(other, users), known))
        for one, other in pairs
        if one.name < other.name and not one.setting.paced
        for users in _shared(one, other)
    ]
    ahead = set()
    for (first, second, ratio), beyond in zip(tests, noise.rejected([ratio.p for *_, ratio in tests]), strict=True):
        if beyond:
            ahead.add((first, second) if ratio.ratio > 1 else (second, first))
    better: dict[str, list[tuple[_Option, _Option, bool]]] = defaultdict(list)
    for one, other in pairs:
        one_most, other_misses = one.answer.lower, other.answer.upper
        sure = one_most in one.levels and other_misses in other.misses  # by valid measurements; None never is
        more = sure and one_most is not None and other_misses is not None and one_most >= other_misses
        faster = (one.name, other.name) in ahead
        shared = _shared(one, other)
        if (more or faster) and shared and (other.name, one.name) not in ahead and _worse_in_nothing(one, other):
            better[other.name].append((one, other, more))
    for found in better.values():
        one, other, more = max(found, key=lambda pair: (pair[2], pair[0].answer.lower or 0))
        shared = _shared(one, other)
        values = {"by": one.name, "most": one.answer.lower, "misses": other.answer.upper, "at": shared}
        memory = _gib(one) is not None
        yield Claim(
            kind="outdone",
            verdict="fewer_users" if more else "less_output",
            run=other.setting.run,
            subjects=[other.name, one.name],
            values=(values if more else {"by": one.name, "at": values["at"]}) | {"memory_compared": memory},
            rounds=plan.rounds,
            error_rate=noise.LEVEL,
            caveats=list(
                {(m.kind, m.values.get("setting")): m for at in shared for m in _weakened([one, other], at)}.values()
            ),
            rows=[f"{o.setting.run}/{o.name}/{users}" for o in (other, one) for users in sorted(o.levels)],
        )


def _weakened(order: Sequence[_Option], users: int) -> list[Mark]:
    """List what weakens what is said for the first of these options against the others, with so many users."""
    named = {option.name: option for option in order}
    return weakened(
        list(named),
        {name: option.setting for name, option in named.items()},
        {name: option.levels[users] for name, option in named.items()},
        {name: option.marks[users] for name, option in named.items()},
    )


def _rounds(option: _Option, users: int) -> list[float]:
    return rounds_of(option.levels[users], FIGURE)


def _shared(one: _Option, other: _Option) -> list[int]:
    return sorted(one.levels.keys() & other.levels.keys())


def _worse_in_nothing(one: _Option, other: _Option) -> bool:
    """Return whether nothing speaks for the other: neither speed, TTFT, memory nor answers that may be better.

    A figure that some round of either lacks may be better.
    """
    for users, figure in itertools.product(_shared(one, other), (*_FASTER, _SOONER)):
        levels = [option.levels[users] for option in (one, other)]
        rounds = [rounds_of(level, figure) for level in levels]
        if list(map(len, rounds)) != list(map(len, levels)):
            return False
        less, more = map(_mean, rounds if figure in _FASTER else reversed(rounds))
        if less < more / (1 + DRIFT):
            return False
    needs, needed = _gib(one), _gib(other)
    if needs is None or needed is None:
        if needs is not needed:
            return False
    elif needs > needed * (1 + DRIFT):
        return False
    if one.setting.model.key == other.setting.model.key:
        return True
    # Whether more of a measure is better is its task's to say: any difference keeps both.
    return all(o.answers["target"] and not o.answers["open"] and not o.answers["differs"] for o in (one, other))


def _mean(rounds: Sequence[float]) -> float:
    return sum(rounds) / len(rounds)


def _gib(option: _Option) -> float | None:
    return option.memory["measured_gib"] if option.memory else None
