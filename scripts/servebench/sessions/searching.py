"""Search, in one round of a setting, for the number of users it serves: measure what the search wants next.

Each probe is an ordinary measurement in the store; whatever the store holds is evidence and is not measured again. The
engine stays up from one probe to the next.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Collection, Mapping
from dataclasses import replace

from servebench import engines, plan
from servebench.capacity.search import Search, wanted
from servebench.load import calibrate
from servebench.load.figures import measurement_figures
from servebench.load.line import Line
from servebench.load.objective import Objective, Outcome, needed, outcomes
from servebench.machine import cache, cpus
from servebench.outlook.inventory import MOST_ROUNDS
from servebench.plan.layout import Layout
from servebench.sessions.job import Context
from servebench.sessions.measuring import Measuring
from servebench.sessions.progress import Publisher
from servebench.store import measurements
from servebench.store.parquet import Damaged

log = logging.getLogger("servebench")


class Evidence:
    """Read what the store says of a setting, for each objective: outcomes by users and round."""

    def __init__(self, setting: plan.Setting, context: Context, objectives: Mapping[str, Objective]) -> None:
        self.setting, self.context, self.objectives = setting, context, objectives
        limits = objectives[plan.LINE].limits
        self.line = Line(**limits, min_targets=objectives[plan.LINE].min_targets)
        self.kept = measurements.Store(context.results)
        self.found: dict[str, dict[int, dict[int, Outcome]]] = {name: {} for name in objectives}

    def read(self, most: int, retried: int | None = None) -> None:
        """Read all measurements with up to `most` users; discard the failed ones of the round `retried`."""
        for round_ in range(1, MOST_ROUNDS + 1):
            for users in range(1, most + 1):
                self.add(users, round_, retried)

    def add(self, users: int, round_: int, retried: int | None = None) -> None:
        """Read one measurement, if the store has it whole."""
        digest = plan.measurement_id(self.context.spec, users, round_)
        if not self.kept.path(digest).exists():
            return
        try:
            record = measurements.read(self.kept.path(digest))
        except Damaged as error:
            place = {"run": self.setting.run, "setting": self.setting.name, "round": round_, "users": users}
            log.warning("%s; it is kept as %s", error, self.kept.discard(digest, f"damaged: {error}", place))
            return
        if record.status == "failed" and round_ == retried:
            self.kept.discard(digest, "failed; tried again")
            return
        figures = {"status": record.status, "reason": record.reason}
        if record.status == "ok":
            figures |= measurement_figures(record.requests, record.chunks, record.loaded, self.line)
        for name, outcome in outcomes(self.objectives, figures):
            self.found[name].setdefault(users, {})[round_] = outcome

    def within(self, most: int) -> dict[str, dict[int, dict[int, Outcome]]]:
        """Return the evidence on up to `most` users."""
        return {
            name: {users: rounds for users, rounds in own.items() if users <= most} for name, own in self.found.items()
        }

    def users(self, round_: int) -> list[int]:
        """List the numbers of users that a round has measured."""
        return sorted(users for users, rounds in next(iter(self.found.values())).items() if round_ in rounds)


def run(
    session: plan.Session,
    context: Context,
    search: Search,
    objectives: Mapping[str, Objective],
    tied: Collection[int] = (),
) -> None:
    """Measure what the search wants in this round, link it under measurements/, and record the numbers of users.

    `tied`: numbers of users at which another round may tell which setting is ahead.
    """
    context = context.identified(session.setting)
    evidence, layout = Evidence(session.setting, context, objectives), Layout(context.results)
    kept = evidence.kept
    kept.sweep()
    # What another round of this run has tried again and failed is evidence, and stays.
    evidence.read(search.most, session.round if context.retry_failed else None)
    asked = [wanted(evidence.found, search, session.round, tied)]
    if asked[0] is not None:
        search = replace(search, most=_most(session.setting, context, search.most))
        asked = [wanted(evidence.within(search.most), search, session.round, tied)]

    def then() -> int | None:
        """Judge what was measured last, and say what is next."""
        if asked[-1] is not None:
            evidence.add(asked[-1], session.round)
        asked.append(wanted(evidence.within(search.most), search, session.round, tied))
        return asked[-1]

    while asked[-1] is not None:  # once for each launch of the engine: a number of users that kills it is an outcome
        first = asked[-1]
        with Publisher(context.results, session, kind="search") as published:
            requests = needed(objectives)
            measuring = Measuring(session, context, kept, published, min_targets=requests, most=search.most)
            measuring.run([first], then)
        if asked[-1] is not None:
            then()
        if not measuring.up:
            break  # an engine that does not start does so with no other number of users
    for users in evidence.users(session.round):
        kept.link(
            plan.measurement_id(context.spec, users, session.round),
            layout.measurement(session.setting, session.round, users),
        )
    for name, own in evidence.found.items():
        short = [users for users in evidence.users(session.round) if _short(own[users][session.round])]
        if short:
            given = os.environ.get(plan.GIVEN, "")
            log.warning(
                "%s round %d: too few requests to judge %s with %s users; they were not measured for it: %s, then"
                f" snakemake --cores 1 capacity{given} measures in longer windows",
                *(session.setting.name, session.round, name, ", ".join(map(str, short))),
                " && ".join(
                    f"servebench discard {session.setting.run} {session.setting.name} --round {session.round}"
                    f" --users {users} --why short{given}"
                    for users in short
                ),
            )
    record = {"spec": plan.digest(context.spec), "users": evidence.users(session.round)}
    path = layout.search(session.setting, session.round)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    part.write_text(json.dumps(record) + "\n", encoding="utf-8")
    part.replace(path)


def _short(outcome: Outcome) -> bool:
    return outcome.margin is None and outcome.lacking > 0


def _most(setting: plan.Setting, context: Context, most: int) -> int:
    """Return how many users may be tried: where rows beyond the calibration are refused, only as many as it allows."""
    if context.runtime.beyond_calibration == "mark":
        return most
    load_cpus = cpus.allot(setting.cpus).get("load", [])
    found = calibrate.ensure(most, cache.root(context.runtime.cache), load_cpus, setting.processes)
    if found.max_users < 1:
        raise engines.InfrastructureError(f"{setting.name}: this machine loads not even one user accurately")
    if found.max_users < most:
        log.warning(
            "%s: this machine loads at most %d users accurately, so no more are tried", setting.name, found.max_users
        )
    return min(most, found.max_users)
