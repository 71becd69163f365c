"""Check everything that an experiment keeps, to the last bit: `servebench verify`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from servebench import models
from servebench import plan as planning
from servebench.cli.status import measurements_of
from servebench.faults import Fault
from servebench.machine import cache
from servebench.outlook import inventory
from servebench.plan import Plan
from servebench.plan.layout import Layout
from servebench.store import measurements, replies


def report(plan: Plan, results: Path, configfiles: Sequence[Path] = ()) -> tuple[list[str], int]:
    """Return lines for the console, and the number of things that are wrong.

    Read are the saved plan, every stored and discarded measurement and its link, every reply, and the experiment's
    models, whose SHA-256 is computed again.
    """
    folder = results / plan.experiment
    again = f"snakemake --cores 1 all{plan.options(configfiles)}"
    counts = dict.fromkeys(("measurements", "discarded measurements", "replies", "models"), 0)
    wrong: list[str] = []
    checks = (
        _plan(folder, again),
        _links(plan, folder, plan.options(configfiles)),
        _stored(folder, counts),
        _replies(folder, counts, again),
        _models(plan, folder, counts),
    )
    for check in checks:
        wrong += check
    read = ", ".join(f"{count} {what}" for what, count in counts.items())
    return [*wrong, f"read: {read}; wrong: {len(wrong)}"], len(wrong)


def _plan(folder: Path, again: str) -> Iterator[str]:
    path = Layout(folder).plan
    if path.exists():
        try:
            planning.read(path)
        except Fault as fault:
            yield f"damaged: {fault}: {again}"


def _stored(folder: Path, counts: dict[str, int]) -> Iterator[str]:
    """Read what no link of the present plan leads to, and every discarded measurement."""
    layout = Layout(folder)
    for path in sorted((folder / "store").glob("*.parquet")):
        counts["measurements"] += 1
        try:
            record = measurements.read(path)
        except Fault as fault:
            yield f"damaged: {fault}"
        else:
            if record.identity.digest != path.stem:
                yield f"misplaced: {path}: holds the measurement {record.identity.digest}; move it away, and run again"
    for path in sorted(layout.discarded.glob("*.parquet")):
        counts["discarded measurements"] += 1
        try:
            measurements.read(path)
        except Fault as fault:
            yield f"damaged among the discarded: {fault}"
    try:
        list(measurements.Store(folder).discarded())
    except Fault as fault:
        yield f"damaged: {fault}"
    for path in sorted((folder / "store").rglob(f"{measurements.UNFINISHED}*")):
        yield f"left by a killed job: {path}: when nothing runs: rm {shlex.quote(str(path))}"


def _links(plan: Plan, folder: Path, given: str) -> Iterator[str]:
    """Compare each measurement of the plan with its file in the store."""
    for one in measurements_of(plan, folder):
        stored, again = one.stored, f"snakemake --cores 1 {one.target}{given}"
        if not stored.exists():
            yield from _only_link(one.path, Layout(folder))
        elif not one.path.exists():
            forced = f" --forcerun {one.rule}" if one.further else ""
            yield f"no link: {one.path}: the next run links it again: {again}{forced}"
        elif not one.path.samefile(stored) and one.path.read_bytes() != stored.read_bytes():
            discard = (
                f"servebench discard {one.setting.run} {one.setting.name} --round {one.round} --users {one.users}"
                f" --why damaged{given}"
            )
            yield (
                f"differs: {one.path} and {stored}: whichever verify does not name as damaged is whole; "
                f"remove the link, or {discard}, and {again}"
            )


def _only_link(path: Path, layout: Layout) -> Iterator[str]:
    """Name a link whose measurement, perhaps of an earlier configuration, is no longer in the store."""
    if not path.exists():
        return
    try:
        stored = layout.stored(measurements.read(path).identity.digest)
    except Fault as fault:
        yield f"damaged: {fault}"
        return
    if not stored.exists() and not any(file.samefile(path) for file in stored.parent.glob("*.parquet")):
        keep = f"mkdir -p {shlex.quote(str(stored.parent))} && cp -n {shlex.join([str(path), str(stored)])}"
        yield f"not in the store: {path}: is the only copy of this measurement; keep it: {keep}"


def _replies(folder: Path, counts: dict[str, int], again: str) -> Iterator[str]:
    for path in sorted((folder / "store" / "answers").glob("*.jsonl")):
        try:
            counts["replies"] += len(replies.Answers(path).replies)
        except Fault as fault:
            yield f"damaged: {fault}: {again}"
    for path in sorted((folder / "evaluations").glob("*.parquet")):
        try:
            replies.read(path)
        except Fault as fault:
            yield f"damaged: {fault}: {again}"


def _models(plan: Plan, folder: Path, counts: dict[str, int]) -> Iterator[str]:
    root = cache.root(plan.runtime.cache)
    for key, model in plan.models.items():
        manifest = inventory.manifest_of(model, folder)
        if manifest is None:
            if Layout(folder).model(key).exists():
                yield f"damaged: {Layout(folder).model(key)}: is not of models.{key}; remove it and run again"
            continue
        counts["models"] += 1
        if told := models.altered(manifest, root):
            yield f"altered: models.{key}: {told}"
