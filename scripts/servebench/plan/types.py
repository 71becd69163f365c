"""Define the typed experiment: engines, models, settings, runs and evaluations.

A *spec* is everything that determines one session's measurements and nothing else; its canonical JSON is the
parameter that Snakemake tracks. `servebench.configuration` builds a `Plan` from YAML.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from servebench.capacity.search import STEPS, Search
from servebench.load.line import Line
from servebench.load.modes import MODES
from servebench.load.objective import Objective, needed


class Struct(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of the plan's records: immutable, built from and turned into plain JSON values."""


class ForeignUse(Struct, frozen=True, kw_only=True):
    """Define when others used the device: in at least `samples` telemetry samples they took `share` of it or more.

    `action` "discard": the measurement is discarded on record and made again, at most three times; "mark": it is kept
    and marked as invalid.
    """

    share: float = 0.05
    samples: int = 2
    action: str = "discard"

    def exceeded(self, shares: Iterable[float | None]) -> int | None:
        """Count the samples in which others took `share` or more; None where no sample knows others' use."""
        seen = [share for share in shares if share is not None]
        return sum(share >= self.share for share in seen) if seen else None


class About(Struct, frozen=True, kw_only=True):
    """Hold rough facts of a model before it is fetched; only the plan's estimates use them."""

    gib: float | None = None
    kv_kib_per_token: float | None = None


class Model(Struct, frozen=True, kw_only=True):
    """Describe one model file or snapshot, identified by `sha256`, or by the revision or digest inside `source`.

    `unverified` says why neither is given; then the first fetch decides which file the model is, its manifest and every
    record hold that file's SHA-256, and the names of measurements depend on it (`with_file`).
    """

    key: str
    name: str
    source: str | None = None
    requantize: dict[str, str] | None = None
    sha256: str | None = None
    size_bytes: int | None = None
    unverified: str | dict[str, str] | None = None
    about: About = About()
    quantization: str | None = None
    note: str | dict[str, str] | None = None


class Engine(Struct, frozen=True, kw_only=True):
    """Describe one engine build: its kind (a module of servebench.engines), how it is run, what pins its version."""

    key: str
    kind: str
    runtime: str | None = None
    environment: str | None = None
    image: str | None = None
    binary: str | None = None
    url: str | None = None
    api_key_env: str | None = None
    options: dict[str, Any] = {}
    pin: str | None = None  # sha256 of the environment's lock file, or the image digest


class Setting(Struct, frozen=True, kw_only=True):
    """Combine one engine, one model file, one set of launch arguments, and the numbers of users to measure."""

    name: str
    run: str
    engine: Engine
    model: Model
    slots: int
    context: int | None = None  # tokens per slot
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    request: dict[str, Any] = {}  # merged into every request body
    users: tuple[int, ...]
    workload: dict[str, Any] = {}  # keys of load.workload.Workload
    prompts_sha256: str | None = None  # over the prompt set's files
    trace_sha256: str | None = None  # of the trace's file
    processes: int | None = None  # load processes; None: the load generator's rule
    cpus: dict[str, int] | None = None  # CPUs of the `server` and of the `load` generator; None: whatever there is
    expect: dict[str, bool | int | float | str] = {}  # published facts of this setting (tables/expected.py)
    note: str | dict[str, str] | None = None

    @property
    def scheduled(self) -> bool:
        """Return whether a rate or a trace alone says what is sent: `users` are then connections, not people."""
        return not MODES[self.workload.get("mode", "closed")].by_users

    @property
    def paced(self) -> bool:
        """Return whether requests come whatever the server does (open loops, trace): they decide the output."""
        return MODES[self.workload.get("mode", "closed")].scheduled


# After the name of a setting with a rate: that of the setting that stands for it in a search.
RATES = "-rates"


class TaskSet(Struct, frozen=True, kw_only=True):
    """Select a task's questions: the first `questions` of the file whose bytes have this SHA-256."""

    set: str  # full, small, or a file
    sha256: str
    questions: int
    max_tokens: int  # of a reply
    request: dict[str, Any] = {}  # merged into every request body of this task


class UnderLoad(Struct, frozen=True, kw_only=True):
    """Define questions asked one at a time, first of an idle server, then while `users` run the workload."""

    users: int
    task: str
    questions: int
    targets: tuple[str, ...]
    workload: dict[str, Any]
    prompts_sha256: str


LINE = "line"  # the name of the line among the objectives
ALONE, LOADED = "alone", "loaded"  # the conditions of those questions


class Evaluations(Struct, frozen=True, kw_only=True):
    """Define the evaluations: each target is asked all questions `repeats` times, `concurrency` at once.

    A target is a setting of the run "evaluations" without a workload. `margins` are points, by measure.
    """

    baseline: str
    concurrency: int
    repeats: int
    seed: int
    tasks: dict[str, TaskSet]
    targets: dict[str, Setting]
    margins: dict[str, float] = {}
    under_load: UnderLoad | None = None

    @property
    def answers(self) -> int:
        """Return the number of replies each target gives to the tasks."""
        return self.repeats * sum(task.questions for task in self.tasks.values())


class Runtime(Struct, frozen=True, kw_only=True):
    """Define how jobs are run, never what is measured; changing it measures nothing again."""

    ready_timeout_s: float = 600.0
    stop_timeout_s: float = 30.0
    ports: tuple[int, int] = (20000, 29999)
    cache: str | None = None
    scratch: str | None = None  # a folder on each node's own disk, to which models are copied before loading
    job_minutes: int | None = None  # the longest job a batch system takes
    device: str | None = None
    bandwidth_gb_s: float | None = None  # of the device's memory; None: by its name (outlook/devices.yaml)
    mirror: str | None = None
    beyond_calibration: str = "refuse"  # or "mark"
    foreign_use: ForeignUse = ForeignUse()


class Session(Struct, frozen=True, kw_only=True):
    """Hold one (run, setting, round): the engine is started once, and all numbers of users are measured, ascending."""

    experiment: str
    round: int
    rank: int  # place of the setting in its experiment, from 0
    setting: Setting


# The environment variable that hands `Plan.options` of a run to its jobs, for the commands that they print.
GIVEN = "SERVEBENCH_GIVEN"
QUICKSTART = ("config/config.yaml",)  # the configuration when none is named


class Plan(Struct, frozen=True, kw_only=True):
    """Describe a whole experiment."""

    experiment: str
    title: str | dict[str, str]
    license: str = "CC-BY-4.0"  # of the published results
    files: tuple[str, ...] = ()  # later over earlier; of a file outside the checkout only the name
    overrides: tuple[str, ...] = ()  # KEY=VALUE, as given to snakemake --config, over the files
    left_out: tuple[str, ...] = ()  # sentences: what an overlay has made untrue of the files before it
    rounds: int
    line: Line
    objectives: dict[str, Objective] = {}  # named ones beside the line
    search: Search = Search()  # for how many users each setting serves
    searched: tuple[str, ...] = ()  # those of `searchable` whose `users` include a search's (outlook.inventory)
    reference: str | None = None  # config/references/<reference>…csv: what was published
    cost: dict[str, Any] | None = None  # price_per_hour, currency
    deviations: tuple[str | dict[str, str], ...] = ()  # where the experiment does, or may, differ from its source
    unverified: tuple[str | dict[str, str], ...] = ()  # what could not be checked
    models: dict[str, Model]
    engines: dict[str, Engine]
    settings: dict[str, Setting]
    runs: dict[str, dict[str, Any]]
    evaluations: Evaluations | None = None
    charts: dict[str, Any] = {}
    runtime: Runtime = Runtime()

    @property
    def given(self) -> str:
        """Return the options of a command that is published; "" for the quick start alone."""
        return self.options(() if self.files == QUICKSTART and not self.overrides else self.files)

    def options(self, files: Iterable[str | Path]) -> str:
        """Return --configfile, with the files it was read from as they were given, and --config, quoted for a shell."""
        options = (("--configfile", [str(file) for file in files]), ("--config", self.overrides))
        return "".join(f" {shlex.join([name, *values])}" for name, values in options if values)

    @property
    def judged_by(self) -> dict[str, Objective]:
        """Return all objectives by name, first the line, called LINE."""
        return {LINE: Objective.of(self.line), **self.objectives}

    @property
    def searchable(self) -> dict[str, Setting]:
        """Return the settings whose capacity can be searched, by name; a trace's cannot.

        A rate is searched in steps of a sixteenth: as that of so many users of an open loop. Users who send at random
        (Poisson) are together one source that does. The setting that stands for it is called NAME-rates.
        """
        found: dict[str, Setting] = {}
        for name, setting in self.settings.items():
            if not setting.scheduled:
                found[name] = setting
            elif (rate := setting.workload.get("rate")) is not None:
                sent = {key: value for key, value in setting.workload.items() if key != "rate"}
                sent |= {"mode": "open-users", "user_rate": rate / STEPS}
                found.setdefault(name + RATES, structs.replace(setting, name=name + RATES, users=(), workload=sent))
        return found

    def by_rate(self, setting: Setting) -> bool:
        """Return whether a setting stands for one with a rate (`searchable`), so that its users are steps of it."""
        base = self.settings.get(setting.name.removesuffix(RATES))
        return base is not None and base.name != setting.name and "rate" in base.workload

    def search_of(self, setting: Setting) -> Search:
        """Return how a setting's capacity is searched.

        An open loop's search starts with as many users as send enough requests in a window of the configured length;
        that of a rate starts with the rate, and goes at least up to it.
        """
        if self.by_rate(setting):
            return replace(self.search, start=STEPS, most=max(STEPS, self.search.most))
        rate, window_s = setting.workload.get("user_rate"), setting.workload.get("window_s")
        if not rate or not window_s:
            return self.search
        start = min(ceil(needed(self.judged_by) / (rate * window_s)), self.search.most)
        return replace(self.search, start=max(start, self.search.start))

    def sessions(self) -> Iterator[Session]:
        """Yield all sessions in the order they are run: all settings in round 1, backwards in round 2, and so on.

        So a machine that becomes faster or slower with time favours no setting.
        """
        for round_ in range(1, self.rounds + 1):
            ranked = list(enumerate(self.settings.values()))
            for rank, setting in ranked if round_ % 2 else reversed(ranked):
                yield Session(experiment=self.experiment, round=round_, rank=rank, setting=setting)

    @property
    def measurements(self) -> int:
        """Return the number of measurements: settings × users × rounds."""
        return self.rounds * sum(len(setting.users) for setting in self.settings.values())
