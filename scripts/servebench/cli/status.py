"""Report what was measured, failed or discarded, and how to redo it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from servebench import claims, verdicts
from servebench.cli import watch
from servebench.cli.load import counted
from servebench.faults import Fault
from servebench.load.jsonl import sendable
from servebench.outlook import duration, inventory
from servebench.plan import Plan, Setting
from servebench.plan.layout import Layout, session_job
from servebench.sessions import progress
from servebench.store import measurements, replies
from servebench.store.parquet import Damaged
from servebench.words import marks
from servebench.words.claims import said


class UnknownMeasurement(Fault):
    """The experiment has no measurement of that name."""


def report(plan: Plan, results: Path, configfiles: Sequence[Path] = ()) -> tuple[list[str], int]:
    """Return lines for the console, and the number of failed measurements.

    `configfiles` are the files the plan was read from, empty for the quick start; the printed commands name them.
    """
    given = plan.options(configfiles)
    folder = results / plan.experiment
    lines: list[str] = []
    failing: list[str] = []  # names of their settings
    for one in measurements_of(plan, folder):
        if not one.file.exists():
            continue
        try:
            record = measurements.read_metadata(one.file)
        except Damaged as error:
            failing.append(one.setting.name)
            lines.append(f"damaged: {one}: {error}")
            lines.append(f"  again: servebench retry {one.setting.run} {one.setting.name}{given}")
            continue
        if record.status == "failed":
            failing.append(one.setting.name)
            lines.append(f"failed: {one}: {marks.told(record.reason, 'en')}")
            job = session_job(one.setting.run, one.setting.name, one.round, search=one.further)
            if (log := Layout(folder).engine_log(job)).exists():
                lines.append(f"  the engine's log: {log}")
            lines.append(f"  again: servebench retry {one.setting.run} {one.setting.name}{given}")
    lines = [
        *_concluded(folder),
        duration.announcement(plan, folder, configfiles),
        *_by_setting(plan, folder, failing),
        *lines,
    ]
    lines += [f"running: {watch.line(said)}" for said in progress.running(folder)]
    failed = len(failing)
    for target in plan.evaluations.targets.values() if plan.evaluations else ():
        line = _evaluation(plan, folder, target)
        lines.append(f"{line.word}: evaluation of {target.name}{line.text}")
        failed += line.word in ("failed", "damaged")
        if line.again:
            lines.append(f"  again: servebench retry {EVALUATIONS} {target.name}{given}")
    for thrown in measurements.Store(folder).discarded():
        where = "{run} {setting} round {round}, ".format(**thrown.place) + counted(thrown.place["users"])
        lines.append(f"discarded {thrown.discarded_at}: {where}: {thrown.why}")
    return lines, failed


EVALUATIONS = "evaluations"  # stands for a run where the targets of the evaluations are named


def failures(plan: Plan, results: Path) -> dict[tuple[str, str], list[str]]:
    """Map the settings with a failed or damaged measurement, as (run, setting), and the targets that only a forced run
    asks again, as (`EVALUATIONS`, target), to Snakemake's rules that make these again."""
    folder = results / plan.experiment
    failed: dict[tuple[str, str], list[str]] = {}
    for one in measurements_of(plan, folder):
        if not one.file.exists():
            continue
        try:
            good = measurements.read_metadata(one.file).status != "failed"
        except Damaged:
            good = False
        rules = failed.setdefault((one.setting.run, one.setting.name), []) if not good else None
        if rules is not None and one.rule not in rules:
            rules.append(one.rule)
    for target in plan.evaluations.targets.values() if plan.evaluations else ():
        if _evaluation(plan, folder, target).again:
            failed[(EVALUATIONS, target.name)] = [f"evaluate_{target.name}"]
    return failed


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
    """Discard the measurements of a setting, or those of one round or one number of users.

    Yields what was discarded and the command that measures again. `configfiles` as for `report`.
    """
    if not why.strip():
        raise Fault(f"--why: {why!r} is not a reason; give one, it is kept with the record")
    sendable("--why", why)
    if setting not in plan.settings or plan.settings[setting].run != run:
        known = ", ".join(f"{s.run} {s.name}" for s in plan.settings.values())
        raise UnknownMeasurement(f"{run} {setting}: is not in experiment {plan.experiment}; it has: {known}")
    folder = results / plan.experiment
    kept = measurements.Store(folder)
    targets: dict[str, None] = {}
    for one in measurements_of(plan, folder):
        wanted = one.setting.name == setting and round_ in (None, one.round) and users in (None, one.users)
        if wanted and one.file.exists():
            targets[one.target] = None
            yield f"discarded {one}; kept as {kept.discard(one.digest, why, one.place, by_hand=True)}"
    if not targets:
        raise UnknownMeasurement(
            f"{run} {setting}: has no such measurement yet; see servebench status{plan.options(configfiles)}"
        )
    yield f"now: snakemake --cores 1 {' '.join(targets)}{plan.options(configfiles)}"


def _concluded(folder: Path) -> Iterator[str]:
    """Yield the claims that a run ends with, or that they are older than what is stored; nothing before the first."""
    table = Layout(folder).table("verdicts")
    if not table.exists():
        return
    stored = [*(folder / "store").glob("*.parquet"), *(folder / "store" / "answers").glob("*.jsonl")]
    if any(path.stat().st_mtime_ns > table.stat().st_mtime_ns for path in stored):
        yield f"{table}: is older than the latest measurement; the next complete run concludes anew"
        return
    try:
        concluded = claims.read(pq.read_table(table))
    except ValueError:
        yield f"{table}: is of another version of servebench; the next complete run concludes anew"
        return
    for claim in verdicts.headline(concluded):
        yield said(claim)["en"]


def _by_setting(plan: Plan, folder: Path, failing: Sequence[str]) -> Iterator[str]:
    """Yield a line for each setting with measurements left, and one that names the finished settings.

    The finished settings that are `failing` are left out: they have lines of their own.
    """
    left: dict[str, list[int]] = {}  # for each session, how many measurements
    for session, users in inventory.missing(plan, folder):
        left.setdefault(session.setting.name, []).append(len(users))
    complete = []
    for name, counts in left.items():
        setting = plan.settings[name]
        if not any(counts):
            complete += [] if name in failing else [f"{setting.run} {name}"]
            continue
        whole = plan.rounds * len(setting.users)
        yield (
            f"left: {setting.run} {name}: {counts.count(0)} of {plan.rounds} sessions,"
            f" {whole - sum(counts)} of {whole} measurements are done"
        )
    if complete:
        yield f"complete: {', '.join(complete)}"


class _State(NamedTuple):
    """Hold the state of an evaluation. `again`: only a forced run changes it."""

    word: str
    text: str
    again: bool


def _evaluation(plan: Plan, folder: Path, target: Setting) -> _State:
    """Judge an evaluation by its stored replies; only its result file says whether its engine failed."""
    assert plan.evaluations
    path = Layout(folder).evaluation(target.name)
    try:
        facts = replies.read(path).facts if path.exists() else None
    except Fault as error:
        return _State("damaged", f": {error}", again=False)
    try:
        asked = inventory.answered(plan, folder, target)
    except Fault as error:
        return _State("damaged", f": {error}", again=path.exists())
    current = facts is not None and facts.digest == inventory.target_digest(plan, folder, target)
    if facts and current and facts.reason:
        return _State("failed", f": {marks.told(facts.reason, 'en')}", again=True)
    whole, left, failed = (sum(getattr(part, name) for part in asked) for name in ("questions", "left", "failed"))
    if left or not path.exists():
        told = "; ".join(f"{part.name} {part.questions - part.left} of {part.questions}" for part in asked)
        by_task = f" ({told})" if left < whole else ""
        time_left = duration.minutes(duration.asking_s(plan.evaluations, target, asked))
        return _State("left", f": {whole - left} of {whole} questions are asked{by_task}, {time_left}", again=current)
    if failed:
        return _State("failed", f": {failed} of {whole} questions", again=True)
    return _State("complete", f", {whole} questions", again=False)


@dataclass(frozen=True)
class _Measurement:
    """Hold a measurement of the plan: `path` is its link under measurements/, `stored` its file by the present spec.

    `further`: of a round beyond the planned ones, which only a search measures.
    """

    setting: Setting
    round: int
    users: int
    path: Path
    stored: Path
    further: bool

    def __str__(self) -> str:
        return f"{self.setting.run} {self.setting.name} round {self.round}, {counted(self.users)}"

    @property
    def place(self) -> dict[str, Any]:
        """Return the place as `plan.layout.PLACE` has it."""
        setting = self.setting
        return {"run": setting.run, "setting": setting.name, "round": self.round, "users": self.users}

    @property
    def rule(self) -> str:
        """Return the name of Snakemake's rule that makes it."""
        return f"{'search' if self.further else 'session'}_{self.setting.run}_{self.setting.name}"

    @property
    def target(self) -> str:
        """Return Snakemake's target that measures it where it is missing."""
        return "capacity" if self.further else "all"

    @property
    def file(self) -> Path:
        """Return its file if it exists: `path`, or `stored` where the session failed later and made no link."""
        return self.path if self.path.exists() else self.stored

    @property
    def digest(self) -> str:
        """Return its name in the store: from its metadata, else the same file's name, else from the present spec."""
        try:
            return measurements.read_metadata(self.file).identity.digest
        except Damaged:
            same = (file.stem for file in self.stored.parent.glob("*.parquet") if file.samefile(self.file))
            return next(same, self.stored.stem)


def measurements_of(plan: Plan, folder: Path) -> list[_Measurement]:
    """List the planned measurements, then those of further rounds that searches have made."""
    planned = [(session, users) for session in plan.sessions() for users in session.setting.users]
    return [
        _Measurement(
            session.setting,
            session.round,
            users,
            Layout(folder).measurement(session.setting, session.round, users),
            inventory.stored_path(plan, folder, session, users),
            further=session.round > plan.rounds,
        )
        for session, users in [*planned, *inventory.further_rounds(plan, folder)]
    ]
