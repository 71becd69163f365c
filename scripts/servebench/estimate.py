"""How long an experiment takes, before anything starts and while it runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from servebench import ROOT, job, store
from servebench import plan as planning
from servebench.engines import ADAPTERS
from servebench.faults import Fault
from servebench.load.arrivals import read_trace
from servebench.plan import ALONE, LOADED, Evaluations, Model, Plan, Session, Setting
from servebench.tasks import TASKS, answers
from servebench.tasks.data import asked_questions

GIB = 2**30

WEIGHTS_GIB_PER_S = 1.0
# Speed of one stream while nothing is known: it gives the length of a reply, and with it of queues and drains.
USER_TOK_S = 40.0
OVERHEAD_S = 2.5  # load processes, checks, writing


def measurement_s(setting: Setting, users: int) -> float:
    """Expected seconds of one measurement: warm-up until all have a reply, window, drain; or a fixed work."""
    workload = setting.workload
    reply_s = float(workload["max_tokens"]) / USER_TOK_S
    if workload["mode"] == "count":
        replies: int = math.ceil(workload["requests"] / min(users, setting.slots))
        return OVERHEAD_S + replies * reply_s
    if workload["mode"] == "trace":
        return OVERHEAD_S + read_trace(str(ROOT / workload["trace"]))[-1].arrival_s + reply_s
    waves_s = math.ceil(users / setting.slots) * reply_s
    warmup_s = max(float(workload.get("warmup_s", 0)), waves_s)
    return OVERHEAD_S + warmup_s + float(workload.get("window_s", 0)) + waves_s


def session_s(setting: Setting) -> float:
    """Expected seconds of one session: start, every number of users, stop."""
    return start_s(setting) + sum(measurement_s(setting, users) for users in setting.users)


def start_s(setting: Setting) -> float:
    """Expected seconds to start and stop the setting's engine."""
    adapter = ADAPTERS[setting.engine.kind]
    weights_gib = (weights_bytes(setting.model) or 0) / GIB if adapter.loads_model else 0
    return adapter.start_s + weights_gib / WEIGHTS_GIB_PER_S


def weights_bytes(model: Model) -> int | None:
    """Size of a model's file: known, or roughly so; None when nothing is said of it."""
    if model.size_bytes is not None:
        return model.size_bytes
    return None if model.about.gib is None else int(model.about.gib * GIB)


def session_minutes(setting: Setting) -> int:
    """A session's time limit for a batch system, in minutes: twice the estimate and 15 minutes for loading a model."""
    return int(15 + 2 * session_s(setting) / 60 + 1)


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


def evaluation_s(asked: Evaluations, target: Setting) -> float:
    """Expected seconds of a target's evaluation: start, all questions, stop."""
    return asking_s(asked, target, list(parts(asked, target)))


def asking_s(asked: Evaluations, target: Setting, of: Sequence[Part]) -> float:
    """Expected seconds to start, ask what is left, and stop; 0 when nothing is."""
    if not any(part.left for part in of):
        return 0.0
    load = asked.under_load
    queue = max(1.0, load.users / target.slots) if load else 1.0
    tokens = 0.0
    for part in of:
        length = min(asked.tasks[part.task].max_tokens, TASKS[part.task].reply_tokens)
        slower = {None: 1 / min(asked.concurrency, target.slots), ALONE: 1.0, LOADED: queue}[part.condition]
        tokens += part.left * length * slower
    return start_s(target) + tokens / USER_TOK_S


def evaluation_minutes(asked: Evaluations, target: Setting) -> int:
    """An evaluation's time limit for a batch system, as `session_minutes`."""
    return int(15 + 2 * evaluation_s(asked, target) / 60 + 1)


def target_path(results: Path, target: str) -> Path:
    """The file that holds what a target answered, under `results/<experiment>`."""
    return results / "evaluations" / f"{target}.parquet"


def users_path(results: Path, setting: Setting, round_: int | str, users: int) -> Path:
    """The file that stands for a measurement under `results/<experiment>`; of any round with a `round_` "{round}"."""
    place = {"run": setting.run, "setting": setting.name, "round": round_, "users": users}
    return store.Store(results).output(place)


def missing(plan: Plan, results: Path) -> list[tuple[Session, list[int]]]:
    """Every session with the numbers of users that are not measured yet as the plan has them: what was measured of a
    setting before it was changed is something else."""
    return [
        (session, [users for users in session.setting.users if not stored_path(plan, results, session, users).exists()])
        for session in plan.sessions()
    ]


def stored_path(plan: Plan, results: Path, session: Session, users: int) -> Path:
    """Where a measurement is kept, under the name of what determines it."""
    slice_ = job.identified(planning.session_slice(plan, session.setting), session.setting, results)
    return store.Store(results).path(planning.measurement_digest(slice_, users, session.round))


def done(plan: Plan, results: Path) -> int:
    """How many measurements are there."""
    return plan.measurements - sum(len(users) for _, users in missing(plan, results))


def answered(plan: Plan, results: Path, target: Setting) -> list[Part]:
    """How much of what the plan asks of a target is there, whatever its file says: replies are known by what
    determines them. Fault where kept replies are damaged."""
    asked = plan.evaluations
    assert asked
    slice_ = _target_slice(plan, results, target)
    return [_answered(asked, part, results, slice_) for part in parts(asked, target)]


def _answered(asked: Evaluations, part: Part, results: Path, slice_: str) -> Part:
    try:
        questions = asked_questions(results, part.task, asked.tasks[part.task])
    except (OSError, Fault):  # not there yet, or those of another set, which are replaced before anything is asked
        return part
    path = answers.answers_path(results, planning.answers_digest(slice_, part.task, part.condition))
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
    return {key: "failed" in reply for key, reply in answers.Answers(path).replies.items()}


def target_digest(plan: Plan, results: Path, target: Setting) -> str:
    """What a target's file calls itself when it is as the plan has it."""
    return planning.digest(_target_slice(plan, results, target))


def _target_slice(plan: Plan, results: Path, target: Setting) -> str:
    return job.identified(planning.target_slice(plan, target.name), target, results)


def given_up(plan: Plan, results: Path, target: Setting) -> str | None:
    """Why a target that is as the plan has it could not be asked everything; None when that is not so."""
    path = target_path(results, target.name)
    facts = answers.read_facts(path) if path.exists() else {}
    return facts["reason"] if facts.get("digest") == target_digest(plan, results, target) else None


def to_ask_s(plan: Plan, results: Path, target: Setting) -> float:
    """Expected seconds until a target is asked everything; 0 when it is, or when its engine did not live through it.
    Of what is damaged nothing counts."""
    assert plan.evaluations
    try:
        if given_up(plan, results, target):
            return 0.0
        return asking_s(plan.evaluations, target, answered(plan, results, target))
    except Fault:
        return evaluation_s(plan.evaluations, target)


def remaining_s(plan: Plan, results: Path) -> float:
    """Expected seconds until the last measurement and the last evaluation is there."""
    total = 0.0
    for session, left in missing(plan, results):
        setting = session.setting
        total += sum(measurement_s(setting, users) for users in left) + (start_s(setting) if left else 0)
    targets = plan.evaluations.targets.values() if plan.evaluations else ()
    return total + sum(to_ask_s(plan, results, target) for target in targets)


def minutes(seconds: float) -> str:
    """Such as "under a minute", "about 7 min" or "about 3 h 05 min"."""
    whole = round(seconds / 60)
    if whole < 1:
        return "under a minute"
    return f"about {whole} min" if whole < 60 else f"about {whole // 60} h {whole % 60:02d} min"


def _count(number: int, of: str) -> str:
    return f"{number} {of}" if number == 1 else f"{number} {of}s"


def announcement(plan: Plan, results: str | Path) -> str:
    """What is about to be measured and how long it takes, one paragraph for the console."""
    left = plan.measurements - done(plan, Path(results))
    head = (
        f"servebench: experiment {plan.experiment}: {_count(len(plan.settings), 'setting')},"
        f" {_count(plan.measurements, 'measurement')} in {_count(plan.rounds, 'round')}"
    )
    if asked := plan.evaluations:
        head += f", {_count(asked.answers, 'question')} to each of {_count(len(asked.targets), 'target')}"
    seconds = remaining_s(plan, Path(results))
    if not left and not seconds:
        return f"{head}, nothing left to measure"
    todo = f"{left} to measure" if left else "questions to ask"
    return f"{head}, {todo}: {minutes(seconds)}, beside downloads (once) and charts"
