"""Turn tables into claims: every conclusion is drawn here, once, as data; `words` puts it into sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import pyarrow as pa

from servebench.claims import Claim
from servebench.load.modes import MODES
from servebench.plan import LINE, Evaluations, Plan
from servebench.tables.files import rows_of
from servebench.verdicts.answers import answers, under_load
from servebench.verdicts.choices import choices
from servebench.verdicts.highest import highest
from servebench.verdicts.leaders import leaders, pairs
from servebench.verdicts.levels import capacities, discards, levels
from servebench.verdicts.means import means, people
from servebench.verdicts.objectives import objectives, schedules
from servebench.verdicts.slow import slow

__all__ = ["conclude", "headline"]


def conclude(tables: Mapping[str, pa.Table], plan: Plan) -> list[Claim]:
    """List every claim that the tables allow, in reading order.

    First what failed or is missing, how many users each setting serves, which setting is ahead and which to run, and
    whether the answers are right; then each level, pair and equivalence, and what the levels mean.
    """
    covered = list(_coverage(tables, plan))
    judged = levels(tables, plan)
    capacity = capacities(tables, plan, judged)
    about_answers = list(answers(tables, plan))
    found = [
        *(claim for claim in covered if claim.verdict != "complete"),
        *capacity,
        *people(tables, plan, capacity),
        *leaders(tables, plan, judged),
        *choices(tables, plan, [claim for claim in about_answers if claim.kind == "score"]),
        *(claim for claim in about_answers if claim.kind == "score"),
        *(claim for claim in covered if claim.verdict == "complete"),
        *judged,
        *pairs(tables, plan),
        *(claim for claim in about_answers if claim.kind == "equivalence"),
        *under_load(tables),
        *objectives(tables, plan),
        *schedules(tables, plan),
        *means(tables, plan, judged, capacity),
        *slow(tables, plan),
        *highest(tables, plan),
    ]
    return [msgspec.structs.replace(claim, several=True) for claim in found] if len(plan.runs) > 1 else found


def headline(found: Sequence[Claim]) -> list[Claim]:
    """Pick the claims that a reader needs first.

    These are what failed, is missing or was discarded, the most users that any setting serves and the people they stand
    for (of a schedule: whether it met the line and each objective), for each named objective the setting that keeps it
    for the most users, which setting is ahead at the level where most settings compete (where capacities were searched
    for, first of all which setting to run for the most users), and how the answers compare.
    """
    served = _most([claim for claim in found if claim.kind == "capacity"])
    searched = [claim for claim in found if claim.kind == "objective"]
    names = dict.fromkeys(claim.values["objective"] for claim in searched)
    within = [
        best for name in names for best in _most([claim for claim in searched if claim.values["objective"] == name])
    ]
    # Where the setting's users were searched for, the answer says how sure it is.
    sure = [claim for claim in searched if claim.values["objective"] == LINE]
    if not served or served[0].subjects in [claim.subjects for claim in sure]:
        served = _most(sure)
    ahead = [claim for claim in found if claim.kind == "leader" and claim.figure == "output_tok_s"]
    chosen = _chosen(found)
    scores = [claim for claim in found if claim.kind == "score"]
    telling = [claim for claim in scores if claim.verdict in ("higher", "lower", "not_judged", "no_baseline")]
    return [
        *(claim for claim in found if claim.kind == "coverage" and _lacking(claim)),
        *chosen,
        *served,
        *(claim for claim in within if claim not in served),
        *(claim for claim in found if claim.kind == "level" and not MODES[claim.values["mode"]].by_users),
        *(claim for claim in found if claim.kind == "schedule"),
        *(claim for claim in found if claim.kind == "people" and [claim.subjects] == [c.subjects for c in served]),
        *([] if chosen else sorted(ahead, key=_telling)[:1]),
        *(telling or scores[:1]),
    ]


def _most(found: Sequence[Claim]) -> list[Claim]:
    """Pick the claim of the most users, by valid measurements if there are any; [] of none."""
    return sorted(found, key=lambda claim: (not claim.values["valid"], -(claim.users or 0)))[:1]


def _chosen(found: Sequence[Claim]) -> list[Claim]:
    """Pick, where capacities were searched for, which setting to run for the most users that any surely serves."""
    searched = {claim.run for claim in found if claim.kind == "objective" and claim.values["objective"] == LINE}
    choices = [claim for claim in found if claim.kind == "choice" and claim.run in searched]
    return sorted(choices, key=lambda claim: -(claim.users or 0))[:1]


def _lacking(coverage: Claim) -> bool:
    """Return whether something failed, is missing or was discarded."""
    return coverage.verdict != "complete" or bool(coverage.values["discarded"])


def _telling(leader: Claim) -> tuple[bool, bool, int, int]:
    """Order claims on leaders: valid ones, then those whose first met the target, where most compete, at most users."""
    values = leader.values
    missed = values["first"] in values["missed"]
    return not values["valid"], missed, -len(leader.subjects), -(leader.users or 0)


def _coverage(tables: Mapping[str, pa.Table], plan: Plan) -> Iterator[Claim]:
    """Yield for each run how much of what was planned was measured."""
    for run in plan.runs:
        rows = rows_of(tables, "measurements", run)
        planned = plan.rounds * sum(len(setting.users) for setting in plan.settings.values() if setting.run == run)
        planned += sum(row["round"] > plan.rounds for row in rows)  # further rounds of a search for a capacity
        failed = [row for row in rows if row["status"] != "ok" or row["failures"] == row["target_requests"] != 0]
        values = {"planned": planned, "discarded": discards(tables, plan, run)}
        counts = {"measured": len(rows) - len(failed), "failed": len(failed), "missing": planned - len(rows)}
        if failed:
            names = list(dict.fromkeys(row["setting"] for row in failed))
            yield Claim(kind="coverage", verdict="failures", run=run, values=values | counts | {"settings": names})
        elif counts["missing"]:
            yield Claim(kind="coverage", verdict="unfinished", run=run, values=values | counts)
        else:
            yield Claim(kind="coverage", verdict="complete", run=run, values=values)
    if plan.evaluations:
        yield from _evaluated(tables, plan.evaluations)


def _evaluated(tables: Mapping[str, pa.Table], asked: Evaluations) -> Iterator[Claim]:
    """Yield which targets failed: some of their questions were never asked."""
    failed = [row["target"] for row in rows_of(tables, "targets") if row["status"] != "ok"]
    if failed:
        values = {"targets": failed, "planned": len(asked.targets)}
        yield Claim(kind="coverage", verdict="targets_failed", subjects=failed, values=values)
