"""Find what an experiment has measured and answered, and what is missing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from msgspec import structs

from servebench import engines, plan
from servebench import plan as planning
from servebench.faults import Fault
from servebench.outlook.questions import asked_questions
from servebench.plan import ALONE, LOADED, Evaluations, Plan, Session, Setting
from servebench.plan.layout import Layout
from servebench.store import measurements
from servebench.store import replies as answers
from servebench.store.parquet import Damaged
from servebench.versions import PROTOCOL

MOST_ROUNDS = 9  # that a configuration may ask for


@dataclass(frozen=True, kw_only=True)
class Part:
    """Count a target's questions of one task, repeats included. `condition` is ALONE or LOADED for `under_load`.

    `left`: not asked yet. `failed`: asked without getting a reply.
    """

    task: str
    condition: str | None
    questions: int
    left: int
    failed: int = 0

    @property
    def name(self) -> str:
        """Return a name such as "mgsm" or "mgsm, loaded"."""
        return f"{self.task}, {self.condition}" if self.condition else self.task


def parts(asked: Evaluations, target: Setting) -> Iterator[Part]:
    """Yield all parts of a target's evaluation, with every question left."""
    for name, task in asked.tasks.items():
        whole = asked.repeats * task.questions
        yield Part(task=name, condition=None, questions=whole, left=whole)
    load = asked.under_load
    for condition in (ALONE, LOADED) if load and target.name in load.targets else ():
        assert load
        yield Part(task=load.task, condition=condition, questions=load.questions, left=load.questions)


def missing(plan: Plan, results: Path) -> list[tuple[Session, list[int]]]:
    """List every session with the numbers of users that are still to be measured.

    A measurement made before its setting was changed does not count.
    """
    return [
        (session, [users for users in session.setting.users if not stored_path(plan, results, session, users).exists()])
        for session in plan.sessions()
    ]


def with_searched(plan: Plan, results: Path) -> Plan:
    """Return the plan in which the numbers of users that searches have measured stand beside the configured ones."""
    return with_users(plan, searched_users(plan, results))


def searched_users(plan: Plan, results: Path) -> dict[str, list[int]]:
    """Map each setting with a search to the numbers of users measured; the record of another spec does not count."""
    found = {name: _searched(plan, results, setting) for name, setting in plan.searchable.items()}
    return {name: sorted({users for users, _ in made}) for name, made in found.items() if made}


def with_users(plan: Plan, found: Mapping[str, Iterable[int]]) -> Plan:
    """Return the plan in which these settings have these numbers of users beside the configured ones."""
    searched = {name: setting for name, setting in plan.searchable.items() if name in found}
    settings = {
        name: structs.replace(setting, users=tuple(sorted({*setting.users, *found.get(name, ())})))
        for name, setting in (plan.settings | searched).items()
    }
    return structs.replace(plan, settings=settings, searched=tuple(found))


def _searched(plan: Plan, results: Path, setting: Setting) -> list[tuple[int, int]]:
    """List the (users, round) that the searches of a setting have measured."""
    spec = planning.digest(identified(planning.search_spec(plan, setting), setting, results))
    found = []
    for round_ in range(1, MOST_ROUNDS + 1):
        path = Layout(results).search(setting, round_)
        record = _json_object(path)
        found += [(users, round_) for users in record.get("users", ()) if record.get("spec") == spec]
    return found


def further_rounds(plan: Plan, results: Path) -> list[tuple[Session, int]]:
    """List what searches have measured in more rounds than the experiment plans, as (session, users)."""
    return [
        (Session(experiment=plan.experiment, round=round_, rank=rank, setting=setting), users)
        for rank, setting in enumerate(plan.settings.values())
        for users, round_ in _searched(plan, results, setting)
        if round_ > plan.rounds
    ]


def of_earlier_protocols(plan: Plan, results: Path) -> dict[int, int]:
    """Count, by earlier PROTOCOL, the missing measurements that the store holds as measured under it."""
    found: Counter[int] = Counter()
    for session, left in missing(plan, results):
        for users in left:
            for protocol in range(1, PROTOCOL):
                found[protocol] += stored_path(plan, results, session, users, protocol).exists()
    return {protocol: count for protocol, count in found.items() if count}


def stored_path(plan: Plan, results: Path, session: Session, users: int, protocol: int = PROTOCOL) -> Path:
    """Return the stored file of a measurement, named by the digest of what determines it."""
    spec = identified(planning.session_spec(plan, session.setting, protocol), session.setting, results)
    return Layout(results).stored(planning.measurement_id(spec, users, session.round))


def failed(plan: Plan, results: Path) -> int:
    """Count the measurements that failed or are damaged."""
    paths = (
        stored_path(plan, results, session, users) for session in plan.sessions() for users in session.setting.users
    )
    return sum(map(_failed, paths))


def _failed(path: Path) -> bool:
    return path.exists() and _is_failure(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=4096)
def _is_failure(path: Path, changed_ns: int) -> bool:
    """Return whether a stored measurement failed or is damaged; cached for callers that look every second."""
    try:
        return measurements.read_metadata(path).status == "failed"
    except Damaged:
        return True


def done(plan: Plan, results: Path) -> int:
    """Count the measurements that are done."""
    return plan.measurements - sum(len(users) for _, users in missing(plan, results))


def answered(plan: Plan, results: Path, target: Setting) -> list[Part]:
    """Return how much of a target's evaluation is done, judged by its stored replies, not by its result file.

    Replies are found by the digest of what determines them. Raises Fault for damaged replies.
    """
    asked = plan.evaluations
    assert asked
    spec = _target_spec(plan, results, target)
    return [_answered(asked, part, results, spec) for part in parts(asked, target)]


def _answered(asked: Evaluations, part: Part, results: Path, spec: str) -> Part:
    try:
        questions = asked_questions(results, part.task, asked.tasks[part.task])
    except (OSError, Fault):  # missing, or of another set and replaced before anything is asked
        return part
    path = Layout(results).replies(planning.answers_digest(spec, part.task, part.condition))
    replies = _replies(path, path.stat().st_mtime_ns) if path.exists() else {}
    if part.condition:
        questions, repeats = questions[: part.questions], range(1, 2)
    else:
        repeats = range(1, asked.repeats + 1)
    found = [replies.get((repeat, question.question_id)) for repeat in repeats for question in questions]
    return replace(part, left=found.count(None), failed=found.count(True))


@lru_cache(maxsize=64)
def _replies(path: Path, changed_ns: int) -> dict[answers.Key, bool]:
    """Map each reply in a file to whether it failed; cached by `changed_ns` for callers that look every second."""
    return {key: reply.failed is not None for key, reply in answers.Answers(path).replies.items()}


def target_digest(plan: Plan, results: Path, target: Setting) -> str:
    """Return the digest that a target's result file holds when it is up to date with the plan."""
    return planning.digest(_target_spec(plan, results, target))


def _target_spec(plan: Plan, results: Path, target: Setting) -> str:
    return identified(planning.target_spec(plan, target.name), target, results)


def given_up(plan: Plan, results: Path, target: Setting) -> bool:
    """Whether an up-to-date evaluation stopped early because its engine failed."""
    path = Layout(results).evaluation(target.name)
    facts = answers.read_facts(path) if path.exists() else None
    return bool(facts and facts.reason and facts.digest == target_digest(plan, results, target))


def identified(spec: str, setting: plan.Setting, results: Path) -> str:
    """Return the spec, which for an unpinned model names the file of the first fetch."""
    if setting.model.unverified and engines.ADAPTERS[setting.engine.kind].loads_model:
        manifest = manifest_of(setting.model, results)
        return plan.with_file(spec, manifest["sha256"]) if manifest else spec
    return spec


def _json_object(path: Path) -> dict[str, Any]:
    """Read a JSON object; {} for a file that holds something else, such as one that was cut."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def manifest_of(model: plan.Model, results: Path) -> dict[str, Any] | None:
    """Return the manifest that the first fetch of this model wrote; None without one."""
    path = Layout(results).model(model.key)
    manifest = _json_object(path) if path.is_file() else {}
    # In a folder without Snakemake's records the manifest may be of a model that the key named before.
    known = "sha256" if model.sha256 else "requantize" if model.requantize else "source"
    return manifest if manifest.get(known) == getattr(model, known) else None
