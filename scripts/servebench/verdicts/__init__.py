"""Turn tables into claims: what may be concluded, once, as data. No sentence is built anywhere else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from servebench.plan import Plan
from servebench.tables.files import rows_of
from servebench.verdicts.answers import answers
from servebench.verdicts.claim import KINDS, Claim, table
from servebench.verdicts.leaders import leaders, pairs
from servebench.verdicts.levels import capacities, levels

__all__ = ["KINDS", "Claim", "conclude", "table"]


def conclude(tables: Mapping[str, pa.Table], plan: Plan) -> list[Claim]:
    """List every claim the tables allow, in the order of reading: what failed or is missing, how many users, with which
    setting, whether the answers are right; then each level, pair and equivalence."""
    covered = list(_coverage(tables, plan))
    judged = levels(tables, plan)
    about_answers = list(answers(tables, plan))
    return [
        *(claim for claim in covered if claim.verdict != "complete"),
        *capacities(judged),
        *leaders(tables, plan),
        *(claim for claim in about_answers if claim.kind == "score"),
        *(claim for claim in covered if claim.verdict == "complete"),
        *judged,
        *pairs(tables, plan),
        *(claim for claim in about_answers if claim.kind == "equivalence"),
    ]


def _coverage(tables: Mapping[str, pa.Table], plan: Plan) -> Iterator[Claim]:
    """Yield for each run how much of what was planned was measured."""
    for run in plan.runs:
        planned = plan.rounds * sum(len(setting.users) for setting in plan.settings.values() if setting.run == run)
        rows = rows_of(tables, "measurements", run)
        failed = [row for row in rows if row["status"] != "ok" or row["failures"] == row["target_requests"] != 0]
        values = {"planned": planned, "discarded": len(rows_of(tables, "discarded", run))}
        counts = {"measured": len(rows) - len(failed), "failed": len(failed), "missing": planned - len(rows)}
        if failed:
            names = list(dict.fromkeys(row["setting"] for row in failed))
            yield Claim(kind="coverage", verdict="failures", run=run, values=values | counts | {"settings": names})
        elif counts["missing"]:
            yield Claim(kind="coverage", verdict="unfinished", run=run, values=values | counts)
        else:
            yield Claim(kind="coverage", verdict="complete", run=run, values=values)
