"""Show what an experiment measures, how long it takes, what it needs and what is missing: `servebench plan`."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from servebench import ROOT
from servebench.engines import environment, runtime
from servebench.faults import Fault
from servebench.machine import bandwidth, cache, host
from servebench.machine.identity import machine
from servebench.outlook import duration, limits, requirements
from servebench.outlook.duration import counted
from servebench.plan import Plan
from servebench.plan.layout import RESULTS
from servebench.words import LANGUAGES, words

# An engine can be given about so much of a device's memory; the rest is the driver's.
MOST_SHARE = 0.95
# In a line about something that is needed and missing.
LACKING = ("NOT FOUND", "NOT ENOUGH", "NOT SET", "DOES NOT ANSWER", "this machine has none")


def command(plan: Plan, language: str, configfiles: Sequence[Path] = ()) -> int:
    """Print the plan, with the configuration's texts in `language` (en or ja). Starts and fetches nothing.

    `configfiles` are those the plan was read from, empty for the quick start; a printed command names them.

    Returns the exit status: 1 when something that is needed is missing, else 0.
    """
    if language not in LANGUAGES:
        raise Fault(f"--language: {language!r} is unknown; one of {', '.join(LANGUAGES)}")
    results, cache_root = RESULTS / plan.experiment, cache.root(plan.runtime.cache)
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"[bold]{escape(say(plan.title, language))}[/bold]")
    console.print(settings_table(plan))
    lacking = False
    for heading, lines in sections(plan, results, cache_root, language, configfiles):
        found = list(lines)
        if found:
            console.print(f"\n[bold]{heading}[/bold]")
            for line in found:
                console.print(f"  {escape(line)}")
                lacking |= any(word in line for word in LACKING)
    return 1 if lacking else 0


def settings_table(plan: Plan) -> Table:
    """Make a table of all sessions of a round, each run's in the order of odd rounds."""
    order = ", even rounds from the last to the first" if plan.rounds > 1 else ""
    table = Table(title=f"each round{order}", title_justify="left", box=box.SIMPLE, padding=(0, 1, 0, 0))
    for heading in ("run", "setting", "model", "slots", "users", "takes"):
        wraps = heading in ("model", "users")
        table.add_column(heading, justify="right" if heading == "slots" else "left", no_wrap=not wraps, overflow="fold")
    for run in plan.runs:
        for setting in plan.settings.values():
            if setting.run == run:
                users = " ".join(map(str, setting.users))
                takes = duration.minutes(duration.session_s(setting))
                table.add_row(run, setting.name, setting.model.key, str(setting.slots), users, takes)
    return table


def sections(
    plan: Plan, results: Path, cache_root: Path, language: str, configfiles: Sequence[Path]
) -> Iterator[tuple[str, Iterator[str]]]:
    """Yield the heading and lines of each section."""
    yield "To measure", to_measure(plan, results, configfiles)
    yield "Left out", iter(plan.left_out)
    yield "Too few requests to judge", duration.too_few(plan)
    yield "Models", models(plan, results, cache_root)
    yield "Engines", engines(plan, cache_root)
    yield "Needed and available", needs(plan, results, cache_root)
    yield "Predicted, not measured", predicted(plan, results, cache_root, configfiles)
    yield "Not verified", (f"{where}: {say(text, language)}" for where, text in requirements.unverified(plan))
    yield (
        "Deviations from the source, and what it leaves open",
        (say(text, language) for text in plan.deviations),
    )


def to_measure(plan: Plan, results: Path, configfiles: Sequence[Path]) -> Iterator[str]:
    """Count sessions and measurements by run, and estimate the time."""
    counts = {}
    for run in plan.runs:
        settings = [setting for setting in plan.settings.values() if setting.run == run]
        levels = sum(len(setting.users) for setting in settings)
        counts[run] = (
            f"{counted(plan.rounds * len(settings), 'session')},"
            f" {counted(plan.rounds * levels, 'measurement')} ({counted(len(settings), 'setting')},"
            f" {counted(levels, 'measurement')} a round, {counted(plan.rounds, 'round')})"
        )
    for told, runs in alike(counts).items():
        yield f"{', '.join(runs)}: {told}{' each' if len(runs) > 1 else ''}"
    if asked := plan.evaluations:
        sizes = ", ".join(f"{name} ({task.questions} questions)" for name, task in asked.tasks.items())
        often = "twice" if asked.repeats > 1 else "once"
        targets = counted(len(asked.targets), "target")
        yield f"evaluations: {targets}, each asked {sizes} {often}, {asked.concurrency} at once"
    yield duration.announcement(plan, results, configfiles).removeprefix("servebench: ")
    yield f"results: {results.absolute()}{'' if results.is_dir() else ', not there yet'}"


def models(plan: Plan, results: Path, cache_root: Path) -> Iterator[str]:
    """Describe each model: its source, its size, and what identifies it."""
    for download in requirements.downloads(plan, results, cache_root):
        model = download.model
        where = f"made from {model.requantize['from']}" if model.requantize else model.source
        state = "in the cache" if download.present else "to be made" if model.requantize else "to be fetched"
        if download.own and not download.present:
            there = download.own.exists()
            state = "there, to be taken into the cache" if there else "NOT FOUND: put it there or name another source"
        if download.sha256 and model.sha256:
            identity = f"sha256 {download.sha256[:12]}…"
        elif download.sha256:
            identity = f"first fetched as sha256 {download.sha256}"
        else:
            identity = "not verified" if model.unverified else "pinned by its source"
        yield f"{model.key}: {where}, {size(download)}, {identity}, {state}"


def engines(plan: Plan, cache_root: Path) -> Iterator[str]:
    """Say what each engine is run from, and whether that is available."""
    lacking = requirements.container_fault(plan)
    for key in dict.fromkeys(setting.engine.key for setting in plan.settings.values()):
        engine = plan.engines[key]
        key += f" ({', '.join(s.name for s in plan.settings.values() if s.engine is engine)})"
        if engine.environment:
            lock = ROOT / "envs" / f"{engine.environment}.lock"
            state = "in the cache" if environment.made(engine.environment, lock, cache_root) else "to be made"
            yield f"{key}: environment {engine.environment}, {state}"
        elif engine.image:
            yield f"{key}: image {requirements.image(engine)}{f', {lacking}' if lacking else ''}"
        elif engine.binary:
            found = runtime.program(engine.binary)
            yield f"{key}: program {found or f'{engine.binary}, NOT FOUND: install it or give its path'}"
        elif engine.url:
            told = f"server at {engine.url}{', a placeholder' if 'example.' in engine.url else ''}"
            if name := engine.api_key_env:
                told += f", its key in {name}{'' if os.environ.get(name) else ', NOT SET: export it before the run'}"
            yield f"{key}: {told}"
        else:
            yield f"{key}: simulator"


def needs(plan: Plan, results: Path, cache_root: Path) -> Iterator[str]:
    """Compare disk, memory and CPUs needed with those available; shortages are marked NOT ENOUGH."""
    wanted = [d for d in requirements.downloads(plan, results, cache_root) if not (d.present or d.own)]
    to_fetch = sum(d.size_bytes or 0 for d in wanted)
    unknown = [d.model.key for d in wanted if d.size_bytes is None]
    if wanted:
        more = f", and {', '.join(unknown)} of unknown size" if unknown else ""
        yield f"disk for models, {cache_root}: {beside(to_fetch, requirements.free_bytes(cache_root))}{more}"
    yield f"disk for raw data, {results}: {beside(requirements.raw_data_bytes(plan), requirements.free_bytes(results))}"
    yield from memory(plan, results, cache_root)
    if plan_cpus := next(iter(plan.settings.values())).cpus:
        there, asked = len(host.cpus()), sum(plan_cpus.values())
        short = "" if asked <= there else " – NOT ENOUGH"
        split = ", ".join(f"{count} for the {who}" for who, count in plan_cpus.items())
        yield f"CPUs: {asked} ({split}) of {there}{short}"


def memory(plan: Plan, results: Path, cache_root: Path) -> Iterator[str]:
    """Compare the setting that needs most device memory with the device's memory."""
    found = requirements.memory(plan, results, cache_root)
    if not found:
        return
    device = requirements.Device.here(plan.runtime.device)
    if device.gpu is None and (names := requirements.need_gpu(plan)):
        yield f"GPU: this machine has none, and these need one: {', '.join(names)}"
    there = device.memory_gib
    name = device.gpu.name if device.gpu else "memory of this machine, which has no GPU"
    known = [one for one in found if one.gib is not None]
    if known:
        most = max(known, key=lambda one: one.gib or 0)
        short = "" if (most.gib or 0) <= there else " – NOT ENOUGH"
        share = f" in {most.share:.0%} of it" if most.share < 1 else ""
        parts = f"weights {most.weights_gib:.1f}, KV cache {most.cache_gib:.1f}{share}"
        has = f"{there:.1f} GiB there, {device.free_gib:.1f} free"
        yield f"{name}: at least {most.gib:.1f} GiB for {most.setting} ({parts}), {has}{short}"
        yield from room(known, device)
    unknown = [one.setting for one in found if one.gib is None]
    if unknown:
        yield f"memory not known, before their models are fetched or with their KV cache's type: {', '.join(unknown)}"


def predicted(plan: Plan, results: Path, cache_root: Path, configfiles: Sequence[Path]) -> Iterator[str]:
    """Predict from memory and bandwidth what each setting can do at most, and what a search for its capacity costs.

    The memory's bandwidth is measured where nothing else says it and it is not a GPU's.
    """
    device, configured = requirements.Device.here(plan.runtime.device), plan.runtime.bandwidth_gb_s
    launched = requirements.memory(plan, results, cache_root)
    probed = launched and device.gpu is None and configured is None
    copied = bandwidth.measured(cache_root, machine().fingerprint, again=True) if probed else None
    found = limits.bandwidth(device.gpu.name if device.gpu else None, configured, copied)
    gb_s = found.gb_s if found else None
    fastest = {
        limit.setting: f"at most {limit.stream_tok_s:,.0f} tokens/s for one stream"
        for limit in limits.limits(plan, results, cache_root, memory_gib=device.memory_gib, bandwidth_gb_s=gb_s)
        if limit.stream_tok_s
    }
    for told, names in alike(fastest).items():
        yield f"{', '.join(names)}: {told}"
    if found:
        source = words(f"claims.bandwidths.{found.source}")["en"]
        yield f"the memory's bandwidth: {found.gb_s:g} GB/s, {source}; runtime.bandwidth_gb_s sets it"
    elif launched:
        yield "the fastest possible stream is not predicted: set runtime.bandwidth_gb_s to the memory's bandwidth"
    searched = list(plan.searchable.values())
    if searched:
        yield (
            duration.announcement_of_search(plan, searched).removeprefix("servebench: ")
            + f": snakemake --cores 1 capacity{plan.options(configfiles)}"
        )


def room(settings: Sequence[requirements.Memory], device: requirements.Device) -> Iterator[str]:
    """Say for how many contexts a device has room, as `servebench init` counts, and what would fit where it has not."""
    fits = {}
    for one in settings:
        usable_gib = device.usable_gib(one)
        if (contexts := one.contexts(usable_gib)) is None or one.context is None:
            continue
        told = f"room for {contexts} context{'' if contexts == 1 else 's'} of {one.context:,} tokens"
        if (one.gib or 0) > usable_gib:
            told += _instead(one, contexts, usable_gib)
        fits[one.setting] = told
    for told, names in alike(fits).items():
        yield f"{told}: {', '.join(names)}"


def alike(told: Mapping[str, str]) -> dict[str, list[str]]:
    """Map each text to the names it is told of."""
    found: dict[str, list[str]] = {}
    for name, text in told.items():
        found.setdefault(text, []).append(name)
    return found


def _instead(one: requirements.Memory, contexts: int, there_gib: float) -> str:
    """Name the value with which a setting that does not fit would."""
    assert one.weights_gib is not None and one.cache_gib is not None and one.context is not None
    share = (one.weights_gib + one.cache_gib) / there_gib
    if one.share < 1 and share <= MOST_SHARE:
        return f"; the engine's share of the memory would have to be {math.ceil(100 * share)} %"
    if contexts:
        return f"; slots: {contexts} would fit"
    left_gib = there_gib * one.share - one.weights_gib
    tokens = int(left_gib / (one.cache_gib / one.streams) * one.context) // 256 * 256
    return f"; context: {tokens} with slots: 1 would fit" if tokens >= 256 else "; the weights alone do not fit"


def beside(needed: int, there: int) -> str:
    """Format bytes needed and free: "about 1.2 GB, 30.0 GB free"."""
    return f"about {gigabytes(needed)}, {gigabytes(there)} free{'' if needed <= there else ' – NOT ENOUGH'}"


def size(download: requirements.Download) -> str:
    """Format a download's size: "98 MB", "about 9.8 GB", "size not known"."""
    if download.size_bytes is None:
        return "size not known"
    return gigabytes(download.size_bytes) if download.exact else f"about {gigabytes(download.size_bytes)}"


def gigabytes(amount: int) -> str:
    """Format bytes in decimal units, as disks and downloads are counted: "98 MB", "9.8 GB"."""
    return f"{amount / 1e9:.1f} GB" if amount >= 1e9 else f"{amount / 1e6:.0f} MB"


def say(text: str | dict[str, str], language: str) -> str:
    """Return a configured text in `language`, or in English where it has no other."""
    return text if isinstance(text, str) else text.get(language, text["en"])
