"""From the stored records of an experiment to all of its tables and published JSON."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from servebench import ROOT, tables
from servebench.faults import Fault
from servebench.models import facts
from servebench.models.kv_cache import Cache
from servebench.outlook import inventory
from servebench.outlook.inventory import manifest_of
from servebench.outlook.questions import asked_questions
from servebench.plan import Plan, Session, from_json, layout
from servebench.store import measurements
from servebench.store import replies as answers
from servebench.tables.evaluated import targets
from servebench.tables.published import concurrency, quantization


class Outdated(Fault):
    """Something in the folder of results is of another configuration: its name would say what it is not."""


def run(results: Path) -> None:
    """Write `<results>/tables/*.parquet` and the published JSON from the measurements the plan names.

    Raises Outdated where one of them, or what a target answered, is of another configuration.
    """
    plan = from_json((results / "plan.json").read_bytes())
    records = [_record(plan, results, session, users) for session in plan.sessions() for users in session.setting.users]
    made = tables.from_records(records, measurements.Store(results).discarded(), plan, _caches(plan, results))
    if plan.cost:
        price = plan.cost["price_per_hour"]
        made["cost"] = tables.cost(made["settings"], price)
        made["paid_idle"] = tables.paid_idle(made["sessions"], price, plan.cost.get("idle_after_min"))
    if plan.reference:
        published = tables.read_reference(ROOT / "config" / "references" / f"{plan.reference}-concurrency.csv")
        made["reproduction"] = tables.reproduction(made["settings"], published)
    if asked := plan.evaluations:
        questions = {name: asked_questions(results, name, task) for name, task in asked.tasks.items()}
        replies = [_replies(plan, results, target) for target in asked.targets]
        made |= targets.make(asked, replies, questions)
    directory = results / "tables"
    tables.write(directory, made)
    written = concurrency.write(made, plan, directory)
    if plan.evaluations:
        written.append(quantization.write(made, plan, directory))
    for path in set(directory.glob("*.json")) - set(written):  # of what the experiment has no more
        path.unlink()


def _record(plan: Plan, results: Path, session: Session, users: int) -> measurements.Record:
    """The record, at its setting's place in the experiment as it is now; it keeps the one of when it was measured."""
    path = layout.users_path(results, session.setting, session.round, users)
    record = measurements.read(path)
    if record.identity["digest"] != inventory.stored_path(plan, results, session, users).stem:
        raise Outdated(f"{path}: was measured as configured otherwise; move it away and run the same again")
    return replace(record, identity={**record.identity, "rank": session.rank})


def _replies(plan: Plan, results: Path, target: str) -> answers.Evaluated:
    """What a target answered."""
    asked = plan.evaluations
    assert asked
    path = layout.target_path(results, target)
    found = answers.read(path)
    if found.facts.get("digest") != inventory.target_digest(plan, results, asked.targets[target]):
        raise Outdated(f"{path}: was answered as configured otherwise; remove it and run the same again")
    return found


def _caches(plan: Plan, results: Path) -> dict[str, Cache]:
    """The KV cache by model, where the model's file says enough."""
    manifests = {key: manifest_of(model, results) for key, model in plan.models.items()}
    found = {key: facts.cache(manifest["facts"]) for key, manifest in manifests.items() if manifest}
    return {key: cache for key, cache in found.items() if cache}
