"""How long an experiment takes, before anything starts and while it runs."""

from __future__ import annotations

from pathlib import Path

from servebench.plan import Plan, Setting

# Start and stop of an engine, and what a measurement takes beside its warm-up and window: draining the last targets.
SESSION_S = 12.0
DRAIN_S = 2.5


def measurement_s(setting: Setting) -> float:
    """Expected seconds of one measurement; a warm-up that waits for slow first replies takes longer."""
    workload = setting.workload
    return float(workload.get("warmup_s", 0)) + float(workload.get("window_s", 0)) + DRAIN_S


def session_s(setting: Setting) -> float:
    """Expected seconds of one session: start, every number of users, stop."""
    return SESSION_S + len(setting.users) * measurement_s(setting)


def session_minutes(setting: Setting) -> int:
    """A session's time limit for a batch system, in minutes: twice the estimate and 15 minutes for loading a model."""
    return int(15 + 2 * session_s(setting) / 60 + 1)


def users_path(results: Path, setting: Setting, round_: int, users: int) -> Path:
    """The file that stands for a measurement under `results/<experiment>`."""
    return results / "measurements" / setting.run / setting.name / f"round{round_}" / f"users{users:03d}.parquet"


def done(plan: Plan, results: Path) -> int:
    """How many measurements are there."""
    return sum(
        users_path(results, session.setting, session.round, users).exists()
        for session in plan.sessions()
        for users in session.setting.users
    )


def remaining_s(plan: Plan, results: Path) -> float:
    """Expected seconds until the last measurement is there."""
    total = 0.0
    for session in plan.sessions():
        setting = session.setting
        missing = sum(not users_path(results, setting, session.round, users).exists() for users in setting.users)
        total += missing * measurement_s(setting) + (SESSION_S if missing else 0)
    return total


def minutes(seconds: float) -> str:
    """ "under a minute", "7 min", "3 h 05 min"."""
    whole = round(seconds / 60)
    if whole < 1:
        return "under a minute"
    return f"{whole} min" if whole < 60 else f"{whole // 60} h {whole % 60:02d} min"


def announcement(plan: Plan, results: str | Path) -> str:
    """What is about to be measured and how long it takes, one paragraph for the console."""
    missing = plan.measurements - done(plan, Path(results))
    head = f"servebench: experiment {plan.experiment}: {len(plan.settings)} settings, {plan.measurements} measurements"
    if not missing:
        return f"{head}, all of them there"
    left = minutes(remaining_s(plan, Path(results)))
    return f"{head} in {plan.rounds} rounds, {missing} to measure: about {left}, beside downloads (once) and charts"
