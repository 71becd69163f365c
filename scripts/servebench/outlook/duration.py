"""Estimate how long an experiment takes, before it starts and while it runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from servebench import ROOT
from servebench.capacity.judging import CONFIDENCE
from servebench.capacity.search import STEPS, foreseen
from servebench.engines import ADAPTERS
from servebench.faults import Fault
from servebench.load.arrivals import Pause
from servebench.load.lengths import Lengths
from servebench.load.objective import Objective, needed
from servebench.load.traces import Entry, read_trace
from servebench.outlook.inventory import Part, answered, done, failed, given_up, missing, of_earlier_protocols, parts
from servebench.plan import ALONE, LOADED, Evaluations, Model, Plan, Setting
from servebench.tasks import TASKS
from servebench.versions import PROTOCOL

GIB = 2**30


WEIGHTS_GIB_PER_S = 1.0


# Assumed speed of one stream; it gives the duration of a reply, and from that those of queues and drains.
USER_TOK_S = 40.0


OVERHEAD_S = 2.5  # starting load processes, checking, writing


def measurement_s(setting: Setting, users: int, least: int = 0) -> float:
    """Estimate the seconds of one measurement: warm-up until all users have a reply, window, drain; or a fixed work.

    `least`: the target requests that the window is lengthened for, if the workload does not ask for more.
    """
    workload = setting.workload
    reply_s = _reply_tokens(setting) / USER_TOK_S
    if workload["mode"] == "count":
        replies: int = math.ceil(workload["requests"] / min(users, setting.slots))
        return OVERHEAD_S + replies * reply_s
    if workload["mode"] == "trace":
        return OVERHEAD_S + _trace(workload)[-1].arrival_s + reply_s
    waves_s = math.ceil(users / setting.slots) * reply_s
    warmup_s = max(float(workload.get("warmup_s", 0)), waves_s)
    longer_s = max(workload.get("min_targets") or 0, least) / _requests_s(setting, users)
    return OVERHEAD_S + warmup_s + max(float(workload.get("window_s", 0)), longer_s) + waves_s


def _trace(workload: Mapping[str, Any]) -> list[Entry]:
    first_s, speed = workload.get("trace_first_s"), workload.get("trace_speed", 1.0)
    return read_trace(str(ROOT / workload["trace"]), speed, first_s).entries


def _reply_tokens(setting: Setting) -> float:
    lengths = setting.workload.get("reply_tokens")
    if lengths is None:
        return float(setting.workload["max_tokens"])
    return Lengths.parse("workload.reply_tokens", lengths).mean


def _requests_s(setting: Setting, users: int) -> float:
    """Estimate the requests sent per second: as scheduled, or by users who wait for replies of USER_TOK_S."""
    workload = setting.workload
    if workload["mode"] == "open":
        return float(workload["rate"])
    if workload["mode"] == "open-users":
        return float(workload["user_rate"]) * users
    reply_s = _reply_tokens(setting) / USER_TOK_S
    pause_s = Pause.parse(workload["think"]).mean if workload.get("think") else 0.0
    return min(users / (reply_s + pause_s), setting.slots / reply_s)


def expected_requests(setting: Setting, users: int) -> int:
    """Estimate how many target requests a measurement gets, rounded down."""
    workload = setting.workload
    if workload["mode"] == "count":
        return int(workload["requests"])
    if workload["mode"] == "trace":
        return len(_trace(workload))
    in_window = int(float(workload.get("window_s", 0)) * _requests_s(setting, users))
    return max(in_window, workload.get("min_targets") or 0)


def too_few(plan: Plan) -> Iterator[str]:
    """Yield a line for each setting with numbers of users at which too few requests for a judgement are expected."""
    least = Objective.of(plan.line).requests
    for setting in plan.settings.values():
        counts = {users: expected_requests(setting, users) for users in setting.users}
        few = {users: count for users, count in counts.items() if count < least}
        if few:
            levels = f"{', '.join(map(str, few))} {'user' if [*few] == [1] else 'users'}"
            yield (
                f"{setting.name}: with {levels} about {min(few.values())} requests are expected (replies of"
                f" {_reply_tokens(setting):g} tokens at {USER_TOK_S:g} tokens/s); the target needs"
                f" {least} to be judged: set workload.min_targets: {least}"
            )


def session_s(setting: Setting) -> float:
    """Estimate the seconds of one session: start, every number of users, stop."""
    return start_s(setting) + sum(measurement_s(setting, users) for users in setting.users)


def start_s(setting: Setting) -> float:
    """Estimate the seconds to start and stop the setting's engine."""
    adapter = ADAPTERS[setting.engine.kind]
    weights_gib = (weights_bytes(setting.model) or 0) / GIB if adapter.loads_model else 0
    return adapter.start_s + weights_gib / WEIGHTS_GIB_PER_S


def weights_bytes(model: Model) -> int | None:
    """Return the exact or approximate size of a model's file; None where the configuration gives neither."""
    if model.size_bytes is not None:
        return model.size_bytes
    return None if model.about.gib is None else int(model.about.gib * GIB)


def session_minutes(setting: Setting) -> int:
    """Return a session's time limit in minutes for a batch system: twice the estimate and 15 for loading a model."""
    return int(15 + 2 * session_s(setting) / 60 + 1)


def search_s(plan: Plan, setting: Setting) -> tuple[int, float]:
    """Estimate the measurements of a search for a setting's capacity, and their seconds.

    They are those of a server without noise that serves twice as many users as it has slots, or the rate it is given.
    """
    search = plan.search_of(setting)
    guess = STEPS if plan.by_rate(setting) else min(2 * setting.slots, search.most)
    made = foreseen(search, guess)
    least = needed(plan.judged_by)
    measured_s = sum(measurement_s(setting, users, least) for users in made)
    return len(made), plan.search.rounds * start_s(setting) + measured_s


def search_minutes(plan: Plan, setting: Setting) -> int:
    """Return the time limit in minutes of a round of a search, as `session_minutes`."""
    return int(15 + 2 * search_s(plan, setting)[1] / 60 + 1)


def announcement_of_search(plan: Plan, settings: Sequence[Setting]) -> str:
    """Announce, in one paragraph for the console, what searches for capacities cost and what they will say."""
    each = [search_s(plan, setting) for setting in settings]
    search = plan.search
    more = f"; up to {search.most_rounds} rounds near a limit" if search.most_rounds > search.rounds else ""
    return (
        f"servebench: search for how many users {counted(len(each), 'setting')} serve: about"
        f" {sum(count for count, _ in each)} measurements in {counted(search.rounds, 'round')},"
        f" {minutes(sum(seconds for _, seconds in each))} if twice the slots are served, less what the store has{more}."
        f" Each answer holds with {CONFIDENCE:.0%} confidence; its ends are {search.resolution:.0%} apart where the"
        " rounds agree well enough to tell, and farther where they do not"
    )


def evaluation_s(asked: Evaluations, target: Setting) -> float:
    """Estimate the seconds of a target's evaluation: start, all questions, stop."""
    return asking_s(asked, target, list(parts(asked, target)))


def asking_s(asked: Evaluations, target: Setting, of: Sequence[Part]) -> float:
    """Estimate the seconds to start, ask the remaining questions, and stop; 0 when none remain."""
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
    """Return an evaluation's time limit in minutes for a batch system, as `session_minutes`."""
    return int(15 + 2 * evaluation_s(asked, target) / 60 + 1)


def to_ask_s(plan: Plan, results: Path, target: Setting) -> float:
    """Estimate the seconds until a target has been asked everything; 0 when it has, or when its engine failed.

    Damaged replies count as not asked.
    """
    assert plan.evaluations
    try:
        if given_up(plan, results, target):
            return 0.0
        return asking_s(plan.evaluations, target, answered(plan, results, target))
    except Fault:
        return evaluation_s(plan.evaluations, target)


def remaining_s(plan: Plan, results: Path) -> float:
    """Estimate the seconds until the last measurement and the last evaluation are done."""
    total = 0.0
    for session, left in missing(plan, results):
        setting = session.setting
        total += sum(measurement_s(setting, users) for users in left) + (start_s(setting) if left else 0)
    targets = plan.evaluations.targets.values() if plan.evaluations else ()
    return total + sum(to_ask_s(plan, results, target) for target in targets)


def minutes(seconds: float) -> str:
    """Format a duration, such as "under a minute", "about 7 min" or "about 3 h 05 min"."""
    whole = round(seconds / 60)
    if whole < 1:
        return "under a minute"
    return f"about {whole} min" if whole < 60 else f"about {whole // 60} h {whole % 60:02d} min"


def counted(number: int, of: str) -> str:
    """Return a number of things in words: "1 setting", "2 settings"."""
    return f"{number} {of}" if number == 1 else f"{number} {of}s"


def announcement(plan: Plan, results: str | Path, configfiles: Iterable[str | Path] = ()) -> str:
    """Announce, in one paragraph for the console, what is about to be measured and how long it takes.

    `configfiles` are those the plan was read from, empty for the quick start; a printed command names them.
    """
    left = plan.measurements - done(plan, Path(results))
    head = (
        f"servebench: experiment {plan.experiment}: {counted(len(plan.settings), 'setting')},"
        f" {counted(plan.measurements, 'measurement')} in {counted(plan.rounds, 'round')}"
    )
    if asked := plan.evaluations:
        head += f", {counted(asked.answers, 'question')} to each of {counted(len(asked.targets), 'target')}"
    seconds = remaining_s(plan, Path(results))
    if lost := failed(plan, Path(results)):
        head += f", {lost} failed (servebench status{plan.options(configfiles)} says why, and how to try again)"
    if not left and not seconds:
        return f"{head}, nothing {'else is left' if lost else 'left'} to measure"
    todo = f"{left} to measure" if left else "questions to ask"
    again = _measured_again(plan, Path(results))
    return f"{head}, {todo}: {minutes(seconds)}, beside downloads (once) and charts{again}"


def _measured_again(plan: Plan, results: Path) -> str:
    """Say which results of earlier protocols are measured again; "" without any."""
    found = of_earlier_protocols(plan, results)
    if not found:
        return ""
    protocols = f"protocol{'s' if len(found) > 1 else ''} {' and '.join(map(str, sorted(found)))}"
    return (
        f"; {sum(found.values())} of these were measured under {protocols} and are measured again under {PROTOCOL}"
        f" (CHANGELOG.md says what changed); the old ones stay in {results / 'store'}"
    )
