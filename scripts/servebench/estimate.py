"""How long an experiment takes, before anything starts and while it runs."""

from __future__ import annotations

import math
from pathlib import Path

from servebench import ROOT, job, store
from servebench import plan as planning
from servebench.engines import ADAPTERS
from servebench.load.arrivals import read_trace
from servebench.plan import Evaluations, Model, Plan, Session, Setting
from servebench.tasks import TASKS

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


def evaluation_s(asked: Evaluations, target: Setting) -> float:
    """Expected seconds of a target's evaluation: start, all questions, stop."""
    length = {name: min(task.max_tokens, TASKS[name].reply_tokens) for name, task in asked.tasks.items()}
    all_tokens = asked.repeats * sum(task.questions * length[name] for name, task in asked.tasks.items())
    tokens = all_tokens / min(asked.concurrency, target.slots)
    load = asked.under_load
    if load and target.name in load.targets:
        slower = 1 + max(1.0, load.users / target.slots)  # first alone, then in a queue
        tokens += load.questions * length[load.task] * slower
    return start_s(target) + tokens / USER_TOK_S


def evaluation_minutes(asked: Evaluations, target: Setting) -> int:
    """An evaluation's time limit for a batch system, as `session_minutes`."""
    return int(15 + 2 * evaluation_s(asked, target) / 60 + 1)


def target_path(results: Path, target: str) -> Path:
    """The file that holds what a target answered, under `results/<experiment>`."""
    return results / "evaluations" / f"{target}.parquet"


def users_path(results: Path, setting: Setting, round_: int, users: int) -> Path:
    """The file that stands for a measurement under `results/<experiment>`."""
    return results / "measurements" / setting.run / setting.name / f"round{round_}" / f"users{users:03d}.parquet"


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


def remaining_s(plan: Plan, results: Path) -> float:
    """Expected seconds until the last measurement and the last evaluation is there."""
    total = 0.0
    for session, left in missing(plan, results):
        setting = session.setting
        total += sum(measurement_s(setting, users) for users in left) + (start_s(setting) if left else 0)
    asked = plan.evaluations
    for target in asked.targets.values() if asked else ():
        if asked and not target_path(results, target.name).exists():
            total += evaluation_s(asked, target)
    return total


def minutes(seconds: float) -> str:
    """Such as "under a minute", "about 7 min" or "about 3 h 05 min"."""
    whole = round(seconds / 60)
    if whole < 1:
        return "under a minute"
    return f"about {whole} min" if whole < 60 else f"about {whole // 60} h {whole % 60:02d} min"


def announcement(plan: Plan, results: str | Path) -> str:
    """What is about to be measured and how long it takes, one paragraph for the console."""
    left = plan.measurements - done(plan, Path(results))
    head = (
        f"servebench: experiment {plan.experiment}: {len(plan.settings)} settings, {plan.measurements} measurements"
        f" in {plan.rounds} round{'s' if plan.rounds > 1 else ''}"
    )
    if asked := plan.evaluations:
        head += f", {asked.answers} questions to each of {len(asked.targets)} targets"
    if not left and remaining_s(plan, Path(results)) == 0:
        return f"{head}, all of them there"
    time_left = minutes(remaining_s(plan, Path(results)))
    return f"{head}, {left} to measure: {time_left}, beside downloads (once) and charts"
