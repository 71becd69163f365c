"""State the answers of all searches for a capacity."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from servebench import tables
from servebench.outlook.inventory import MOST_ROUNDS, with_users
from servebench.plan import Plan, Setting, from_json, measurement_id, search_spec
from servebench.sessions.job import Context
from servebench.sessions.searching import Evidence
from servebench.store import measurements
from servebench.tables.files import rows_of
from servebench.verdicts.choices import choices, worth_more_rounds
from servebench.verdicts.levels import discards
from servebench.verdicts.objectives import stated
from servebench.words.claims import said

log = logging.getLogger("servebench")


def found(plan_json: str, results: Path) -> list[dict[str, Any]]:
    """Return a claim for each setting and objective, and log what each says."""
    plan = from_json(plan_json)
    claims = []
    discarded = {"discarded": tables.discarded(measurements.Store(results).discarded())}
    for setting in plan.searchable.values():
        table = _measured(plan, results, setting)
        if rows := rows_of({"measurements": table}, "measurements"):
            thrown = discards(discarded, plan, setting.run, setting.name)
            claims += [stated(setting, name, objective, rows, thrown) for name, objective in plan.judged_by.items()]
    for claim in claims:
        log.info("%s", said(claim)["en"])
    return [msgspec.to_builtins(claim) for claim in claims]


def tied(plan_json: str, results: Path, name: str) -> list[int]:
    """List the number of users at which another round may tell whether the setting of this name is ahead; [] if none.

    It is the most users that any setting surely serves (`verdicts.choices`).
    """
    plan = from_json(plan_json)
    made = {key: _measured(plan, results, setting) for key, setting in plan.searchable.items()}
    plan = with_users(plan, {key: table["users"].unique().to_pylist() for key, table in made.items()})
    found = choices({"measurements": pa.concat_tables(made.values())}, plan, [])
    claim = worth_more_rounds(found, plan, plan.settings[name].run)
    return [claim.users or 0] if claim and name in claim.subjects else []


def _measured(plan: Plan, results: Path, setting: Setting) -> pa.Table:
    """Read what is stored of a setting for its search, as a table `measurements`."""
    context = Context(
        spec=search_spec(plan, setting),
        models=plan.models,
        engines=plan.engines,
        results=results,
        runtime=plan.runtime,
        engine_log=Path(),
        retry_failed=False,
    ).identified(setting)
    evidence = Evidence(setting, context, plan.judged_by)
    evidence.read(plan.search_of(setting).most)
    digests = [
        measurement_id(context.spec, users, round_)
        for round_ in range(1, MOST_ROUNDS + 1)
        for users in evidence.users(round_)
    ]
    return tables.measurements([measurements.read(evidence.kept.path(digest)) for digest in digests], plan.line)
