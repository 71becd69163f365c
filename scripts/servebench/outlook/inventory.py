"""Find what an experiment has measured and answered, and what is missing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from servebench import engines, plan
from servebench import plan as planning
from servebench.faults import Fault
from servebench.outlook.questions import asked_questions
from servebench.plan import ALONE, LOADED, Evaluations, Plan, Session, Setting
from servebench.plan.layout import Layout
from servebench.store import replies as answers


@dataclass(frozen=True, kw_only=True)
class Part:
    """What a target is asked of one task, repeats included. `condition`: ALONE or LOADED for what is asked under load.

    `left`: not asked yet. `failed`: asked, and no reply came.
    """

    task: str
    condition: str | None
    questions: int
    left: int
    failed: int = 0

    @property
    def name(self) -> str:
        """Such as "mgsm" or "mgsm, loaded"."""
        return f"{self.task}, {self.condition}" if self.condition else self.task


def parts(asked: Evaluations, target: Setting) -> Iterator[Part]:
    """Everything a target is asked, all of it left."""
    for name, task in asked.tasks.items():
        whole = asked.repeats * task.questions
        yield Part(task=name, condition=None, questions=whole, left=whole)
    load = asked.under_load
    for condition in (ALONE, LOADED) if load and target.name in load.targets else ():
        assert load
        yield Part(task=load.task, condition=condition, questions=load.questions, left=load.questions)


def missing(plan: Plan, results: Path) -> list[tuple[Session, list[int]]]:
    """Every session with the numbers of users that are not measured yet as the plan has them: what was measured of a
    setting before it was changed is something else."""
    return [
        (session, [users for users in session.setting.users if not stored_path(plan, results, session, users).exists()])
        for session in plan.sessions()
    ]


def stored_path(plan: Plan, results: Path, session: Session, users: int) -> Path:
    """Where a measurement is kept, under the name of what determines it."""
    spec = identified(planning.session_spec(plan, session.setting), session.setting, results)
    return Layout(results).stored(planning.measurement_id(spec, users, session.round))


def done(plan: Plan, results: Path) -> int:
    """How many measurements are there."""
    return plan.measurements - sum(len(users) for _, users in missing(plan, results))


def answered(plan: Plan, results: Path, target: Setting) -> list[Part]:
    """How much of what the plan asks of a target is there, whatever its file says: replies are known by what
    determines them. Fault where kept replies are damaged."""
    asked = plan.evaluations
    assert asked
    spec = _target_spec(plan, results, target)
    return [_answered(asked, part, results, spec) for part in parts(asked, target)]


def _answered(asked: Evaluations, part: Part, results: Path, spec: str) -> Part:
    try:
        questions = asked_questions(results, part.task, asked.tasks[part.task])
    except (OSError, Fault):  # not there yet, or those of another set, which are replaced before anything is asked
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
    """Whether each reply in a file failed; for those who look every second, read again only when it has changed."""
    return {key: reply.failed is not None for key, reply in answers.Answers(path).replies.items()}


def target_digest(plan: Plan, results: Path, target: Setting) -> str:
    """What a target's file calls itself when it is as the plan has it."""
    return planning.digest(_target_spec(plan, results, target))


def _target_spec(plan: Plan, results: Path, target: Setting) -> str:
    return identified(planning.target_spec(plan, target.name), target, results)


def given_up(plan: Plan, results: Path, target: Setting) -> bool:
    """Whether an up-to-date evaluation stopped early because its engine failed."""
    path = Layout(results).evaluation(target.name)
    facts = answers.read_facts(path) if path.exists() else None
    return bool(facts and facts.reason and facts.digest == target_digest(plan, results, target))


def identified(spec: str, setting: plan.Setting, results: Path) -> str:
    """The spec; where nothing pins the setting's model it names the file that the first fetch has found."""
    if setting.model.unverified and engines.ADAPTERS[setting.engine.kind].loads_model:
        manifest = manifest_of(setting.model, results)
        return plan.with_file(spec, manifest["sha256"]) if manifest else spec
    return spec


def manifest_of(model: plan.Model, results: Path) -> dict[str, Any] | None:
    """What the first fetch of this model found, if it was there."""
    path = Layout(results).model(model.key)
    manifest = dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}
    # In a folder without Snakemake's records it may be of what the key stood for before.
    known = "sha256" if model.sha256 else "requantize" if model.requantize else "source"
    return manifest if manifest.get(known) == getattr(model, known) else None
