"""Make all tables and published JSON of an experiment from its stored records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec.structs import replace

from servebench import ROOT
from servebench.faults import Fault
from servebench.machine import cache
from servebench.models import facts
from servebench.models.kv_cache import Cache
from servebench.outlook import inventory, requirements
from servebench.outlook.inventory import manifest_of
from servebench.outlook.questions import asked_questions
from servebench.plan import Plan, Session
from servebench.plan import read as read_plan
from servebench.plan.layout import Layout
from servebench.store import measurements
from servebench.store import replies as answers
from servebench.store.parquet import Damaged
from servebench.tables import published
from servebench.tables.catalogue import tables_of
from servebench.tables.files import read_reference, write
from servebench.tables.sources import Sources


class Outdated(Fault):
    """The folder of results holds a file made with another configuration under this configuration's name."""


def run(results: Path) -> None:
    """Write every table of an experiment as `<results>/tables/*.parquet`, and the published JSON.

    Raises Outdated when a measurement, or a target's replies, came from another configuration.
    """
    layout = Layout(results)
    plan = read_plan(layout.plan)
    asked = plan.evaluations
    sources = Sources(
        plan=plan,
        records=_records(plan, results),
        thrown_out=measurements.Store(results).discarded(),
        caches=_caches(plan, results),
        needs=_needs(plan, results),
        evaluated=[_replies(plan, results, target) for target in asked.targets] if asked else (),
        questions={name: asked_questions(results, name, task) for name, task in asked.tasks.items()} if asked else {},
        published=_published(plan.reference) if plan.reference else (),
    )
    made = sources.tables(tables_of(plan))
    write(layout.tables, made)
    published.write(made, plan, layout.tables)


def _records(plan: Plan, results: Path) -> list[measurements.Record]:
    """Read all records. Raises Damaged, naming each damaged file, once all of them are moved to the discarded ones."""
    records, damaged = [], []
    planned = [(session, users) for session in plan.sessions() for users in session.setting.users]
    for session, users in [*planned, *inventory.further_rounds(plan, results)]:
        try:
            records.append(_record(plan, results, session, users))
        except Damaged as error:
            damaged.append(str(error))
    if damaged:
        raise Damaged("\n".join(damaged))
    return records


def _record(plan: Plan, results: Path, session: Session, users: int) -> measurements.Record:
    """Read a record and give it its setting's present place in the experiment; the stored record keeps its own."""
    path = Layout(results).measurement(session.setting, session.round, users)
    try:
        record = measurements.read(path)
    except Damaged as damage:
        digest = inventory.stored_path(plan, results, session, users).stem
        place = {"run": session.setting.run, "setting": session.setting.name, "round": session.round, "users": users}
        measurements.Store(results).mend(digest, place, damage)
        record = measurements.read(path)
    if record.identity.digest != inventory.stored_path(plan, results, session, users).stem:
        raise Outdated(f"{path}: was measured with another configuration; move it away and run again")
    return replace(record, identity=replace(record.identity, rank=session.rank))


def _published(reference: str) -> list[dict[str, Any]]:
    return read_reference(ROOT / "config" / "references" / f"{reference}-concurrency.csv")


def _replies(plan: Plan, results: Path, target: str) -> answers.Evaluated:
    asked = plan.evaluations
    assert asked
    path = Layout(results).evaluation(target)
    found = answers.read(path)
    if found.facts.digest != inventory.target_digest(plan, results, asked.targets[target]):
        raise Outdated(f"{path}: was answered with another configuration; remove it and run again")
    return found


def _needs(plan: Plan, results: Path) -> dict[str, requirements.Memory]:
    """Map settings to the memory they need; a setting counts before a target of the same name."""
    found = requirements.memory(plan, results, cache.root(plan.runtime.cache))
    return {need.setting: need for need in reversed(found)}


def _caches(plan: Plan, results: Path) -> dict[str, Cache]:
    """Describe each model's KV cache, where the model's file says enough."""
    manifests = {key: manifest_of(model, results) for key, model in plan.models.items()}
    found = {key: facts.cache(manifest["facts"]) for key, manifest in manifests.items() if manifest}
    return {key: cache for key, cache in found.items() if cache}
