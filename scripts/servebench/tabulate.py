"""From the stored records of an experiment to all of its tables and published JSON."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from servebench import ROOT, estimate, evaluate, publish, publish_quantization, store, tables
from servebench.job import manifest_of
from servebench.models import facts
from servebench.models.kv_cache import Cache
from servebench.plan import Plan, from_json
from servebench.tables import evaluated
from servebench.tasks import answers


def run(results: Path) -> None:
    """Write `<results>/tables/*.parquet` and the published JSON from the measurements the plan names."""
    plan = from_json((results / "plan.json").read_bytes())
    records = [
        _ranked(store.read(estimate.users_path(results, session.setting, session.round, users)), session.rank)
        for session in plan.sessions()
        for users in session.setting.users
    ]
    made = tables.make(records, store.Store(results).discarded(), plan, _caches(plan, results))
    if plan.cost:
        price = plan.cost["price_per_hour"]
        made["cost"] = tables.cost(made["settings"], price)
        made["paid_idle"] = tables.paid_idle(made["sessions"], price, plan.cost.get("idle_after_min"))
    if plan.reference:
        published = tables.read_reference(ROOT / "config" / "references" / f"{plan.reference}-concurrency.csv")
        made["reproduction"] = tables.reproduction(made["settings"], published)
    if asked := plan.evaluations:
        questions = {name: evaluate.asked_questions(results, name, task) for name, task in asked.tasks.items()}
        replies = [answers.read(estimate.target_path(results, target)) for target in asked.targets]
        made |= evaluated.make(asked, replies, questions)
        publish_quantization.write(made, plan, results / "tables")
    tables.write(results / "tables", made)
    publish.write(made, plan, results / "tables")


def _ranked(record: store.Record, rank: int) -> store.Record:
    """The record, at its setting's place in the experiment as it is now; it keeps the one of when it was measured."""
    return replace(record, identity={**record.identity, "rank": rank})


def _caches(plan: Plan, results: Path) -> dict[str, Cache]:
    """The KV cache by model, where the model's file says enough."""
    manifests = {key: manifest_of(model, results) for key, model in plan.models.items()}
    found = {key: facts.cache(manifest["facts"]) for key, manifest in manifests.items() if manifest}
    return {key: cache for key, cache in found.items() if cache}
