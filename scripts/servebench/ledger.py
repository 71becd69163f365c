"""What of an experiment is measured, failed or discarded, and how to have it again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from servebench import estimate, evaluate, job, progress, store, watching
from servebench import plan as planning
from servebench.faults import Fault
from servebench.load.command import counted
from servebench.load.jsonl import sendable
from servebench.plan import Evaluations, Plan, Setting
from servebench.tasks import answers


class UnknownMeasurement(Fault):
    """Nothing of that name is in the experiment."""


def report(plan: Plan, results: Path, configfiles: Sequence[Path] = ()) -> tuple[list[str], int]:
    """Lines for the console, and the number of failed measurements. `configfiles` are those the plan was read from,
    when it is not the quick start; they are part of the commands."""
    options = _options(configfiles)
    folder = results / plan.experiment
    lines = [estimate.announcement(plan, folder), *_by_setting(plan, folder)]
    failed = 0
    for one in _all(plan, folder):
        if not one.file.exists():
            continue
        try:
            record = store.read_metadata(one.file)
        except store.StoreError as error:
            failed += 1
            lines.append(f"damaged: {one}: {error}")
            lines.append(
                f"  again: servebench discard {one.setting.run} {one.setting.name} --round {one.round}"
                f" --users {one.users} --why damaged{options} && snakemake --cores 1 all{options}"
            )
            continue
        if record["status"] == "failed":
            failed += 1
            lines.append(f"failed: {one}: {record['reason']}")
            lines.append(f"  again: snakemake --cores 1 --force {one.path}{options}")
    lines += [f"running: {watching.line(said)}" for said in progress.running(folder)]
    for target, path in _targets(plan, folder):
        try:
            if not path.exists():
                lines.append(_left(plan, folder, target))
                continue
            facts = answers.read(path).facts
        except Fault as error:
            failed += 1
            lines.append(f"damaged: evaluation of {target}: {error}")
            continue
        if facts["reason"] or facts["failures"]:
            failed += 1
            why = facts["reason"] or f"{facts['failures']} of {facts['asked']} questions"
            lines.append(f"failed: evaluation of {target}: {why}")
            lines.append(f"  again: snakemake --cores 1 --force {path}{options}")
        else:
            lines.append(f"complete: evaluation of {target}, {facts['answered']} questions")
    for thrown in store.Store(folder).discarded():
        where = "{run} {setting} round {round}, ".format(**thrown.place) + counted(thrown.place["users"])
        lines.append(f"discarded {thrown.discarded_at}: {where}: {thrown.why}")
    return lines, failed


def discard(
    plan: Plan,
    results: Path,
    run: str,
    setting: str,
    round_: int | None,
    users: int | None,
    why: str,
    configfiles: Sequence[Path] = (),
) -> Iterator[str]:
    """Throw out the measurements of a setting (of one round, of one number of users); yields what was done and what
    measures them again. `configfiles` as of `report`."""
    if not why.strip():
        raise Fault(f"--why: {why!r} is no reason; say why, it is kept with the record")
    sendable("--why", why)
    if setting not in plan.settings or plan.settings[setting].run != run:
        known = ", ".join(f"{s.run} {s.name}" for s in plan.settings.values())
        raise UnknownMeasurement(f"{run} {setting}: is not in experiment {plan.experiment}; there are: {known}")
    folder = results / plan.experiment
    kept = store.Store(folder)
    found = 0
    for one in _all(plan, folder):
        wanted = one.setting.name == setting and round_ in (None, one.round) and users in (None, one.users)
        if wanted and one.file.exists():
            found += 1
            yield f"discarded {one}; kept as {kept.discard(one.digest, why, one.place)}"
    if not found:
        raise UnknownMeasurement(f"{run} {setting}: nothing of that is measured yet; see servebench status")
    yield f"now: snakemake --cores 1 all{_options(configfiles)}"


def _options(configfiles: Sequence[Path]) -> str:
    return " ".join(["", "--configfile", *map(str, configfiles)]) if configfiles else ""


def _by_setting(plan: Plan, folder: Path) -> Iterator[str]:
    """A line for each setting of which something is left, and one that names the others."""
    left: dict[str, list[int]] = {}  # of each session, how many measurements
    for session, users in estimate.missing(plan, folder):
        left.setdefault(session.setting.name, []).append(len(users))
    complete = []
    for name, counts in left.items():
        setting = plan.settings[name]
        if not any(counts):
            complete.append(f"{setting.run} {name}")
            continue
        whole = plan.rounds * len(setting.users)
        yield (
            f"left: {setting.run} {name}: {counts.count(0)} of {plan.rounds} sessions,"
            f" {whole - sum(counts)} of {whole} measurements are there"
        )
    if complete:
        yield f"complete: {', '.join(complete)}"


def _left(plan: Plan, folder: Path, target: str) -> str:
    """How many questions of each task a target has been asked, and how long the others take."""
    asked = plan.evaluations
    assert asked
    slice_ = job.identified(planning.target_slice(plan, target), asked.targets[target], folder)
    done = whole = 0
    told = []
    for task, condition, wanted in _questions(asked, target):
        file = answers.answers_path(folder, planning.answers_digest(slice_, task, condition))
        there = min(wanted, len(answers.Answers(file).replies))
        told.append(f"{f'{task}, {condition}' if condition else task} {there} of {wanted}")
        done, whole = done + there, whole + wanted
    left = estimate.minutes(estimate.evaluation_s(asked, asked.targets[target]) * (whole - done) / whole)
    by_task = f" ({'; '.join(told)})" if done else ""
    return f"left: evaluation of {target}: {done} of {whole} questions are asked{by_task}, {left}"


def _questions(asked: Evaluations, target: str) -> Iterator[tuple[str, str | None, int]]:
    """(task, condition, how many) of what a target is asked."""
    for name, task in asked.tasks.items():
        yield name, None, asked.repeats * task.questions
    load = asked.under_load
    if load and target in load.targets:
        for condition in (evaluate.ALONE, evaluate.LOADED):
            yield load.task, condition, load.questions


def _targets(plan: Plan, folder: Path) -> Iterator[tuple[str, Path]]:
    for target in plan.evaluations.targets if plan.evaluations else ():
        yield target, estimate.target_path(folder, target)


@dataclass(frozen=True)
class _Measurement:
    """One of the plan's. `path` stands for it under measurements/; in the store it is `stored`, as configured."""

    setting: Setting
    round: int
    users: int
    path: Path
    stored: Path

    def __str__(self) -> str:
        return f"{self.setting.run} {self.setting.name} round {self.round}, {counted(self.users)}"

    @property
    def place(self) -> dict[str, Any]:
        """As `store.PLACE`."""
        setting = self.setting
        return {"run": setting.run, "setting": setting.name, "round": self.round, "users": self.users}

    @property
    def file(self) -> Path:
        """Where it is, if it is: `path`, or in the store alone, when its session has failed after it."""
        return self.path if self.path.exists() else self.stored

    @property
    def digest(self) -> str:
        """Its name in the store: what it says itself, else that of the same file, else as configured."""
        try:
            return str(store.read_metadata(self.file)["identity"]["digest"])
        except store.StoreError:
            same = (file.stem for file in self.stored.parent.glob("*.parquet") if file.samefile(self.file))
            return next(same, self.stored.stem)


def _all(plan: Plan, folder: Path) -> Iterator[_Measurement]:
    for session in plan.sessions():
        setting, round_ = session.setting, session.round
        for users in setting.users:
            path = estimate.users_path(folder, setting, round_, users)
            yield _Measurement(setting, round_, users, path, estimate.stored_path(plan, folder, session, users))
