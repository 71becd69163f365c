"""State the answers of all searches for a capacity."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import msgspec

from servebench import tables
from servebench.outlook.inventory import MOST_ROUNDS
from servebench.plan import from_json, measurement_id, search_spec
from servebench.sessions.job import Context
from servebench.sessions.searching import Evidence
from servebench.store import measurements
from servebench.tables.files import rows_of
from servebench.verdicts.objectives import stated
from servebench.words.claims import said

log = logging.getLogger("servebench")


def found(plan_json: str, results: Path) -> list[dict[str, Any]]:
    """Return a claim for each setting and objective, and log what each says."""
    plan = from_json(plan_json)
    claims = []
    for setting in plan.settings.values():
        if setting.scheduled:
            continue  # a schedule has no users to vary
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
        evidence.read(plan.search.most)
        digests = [
            measurement_id(context.spec, users, round_)
            for round_ in range(1, MOST_ROUNDS + 1)
            for users in evidence.users(round_)
        ]
        table = tables.measurements([measurements.read(evidence.kept.path(digest)) for digest in digests], plan.line)
        if rows := rows_of({"measurements": table}, "measurements"):
            claims += [stated(setting, name, objective, rows) for name, objective in plan.judged_by.items()]
    for claim in claims:
        log.info("%s", said(claim)["en"])
    return [msgspec.to_builtins(claim) for claim in claims]
