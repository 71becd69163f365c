"""The typed experiment: engines, models, settings and runs in order, and the digests that decide what runs again.

A *spec* is everything that determines one session's measurements and nothing else; its canonical JSON is the
parameter Snakemake tracks. `servebench.configuration` builds a `Plan` from YAML.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from servebench.load.line import Line


class Struct(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of the plan's records: immutable, built from and turned into plain JSON values."""


class ForeignUse(Struct, frozen=True, kw_only=True):
    """When others used the device: at least `samples` telemetry samples in which they took `share` of it or more.

    `action` "discard": the measurement is discarded on record and measured again, at most three times; "mark": it is
    kept and marked as not valid.
    """

    share: float = 0.05
    samples: int = 2
    action: str = "discard"

    def exceeded(self, shares: Iterable[float | None]) -> int | None:
        """In how many samples others took that share or more, of those that tell; None where none tells."""
        seen = [share for share in shares if share is not None]
        return sum(share >= self.share for share in seen) if seen else None


class About(Struct, frozen=True, kw_only=True):
    """What is roughly known of a model before it is fetched; only the plan's arithmetic uses it."""

    gib: float | None = None
    kv_kib_per_token: float | None = None


class Model(Struct, frozen=True, kw_only=True):
    """One model file or snapshot. Identified by `sha256`, or by the revision or digest inside `source`.

    `unverified` says why neither is given; then the first fetch decides which file it is, its manifest and every
    record hold the SHA-256 that was found, and measurements are known by it (`with_file`).
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
    """One engine build: its kind (a module of servebench.engines), how it is run, and what pins its version."""

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
    """One engine + one model file + one set of launch arguments, and the numbers of users it is measured with."""

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
    workload: dict[str, Any] = {}  # as load.workload.Workload takes it
    prompts_sha256: str | None = None  # over the prompt set's files
    trace_sha256: str | None = None  # of the trace's file
    processes: int | None = None  # load processes; None: the load generator's rule
    cpus: dict[str, int] | None = None  # CPUs of the `server` and of the `load` generator; None: whatever there is
    expect: dict[str, bool | int | float | str] = {}  # facts published of this setting (tables/expected.py)
    note: str | dict[str, str] | None = None


class TaskSet(Struct, frozen=True, kw_only=True):
    """What is asked of one task: the first `questions` of the file whose bytes have this SHA-256."""

    set: str  # full, small, or a file
    sha256: str
    questions: int
    max_tokens: int  # of a reply
    request: dict[str, Any] = {}  # merged into every request body of this task


class UnderLoad(Struct, frozen=True, kw_only=True):
    """Questions asked one at a time, first of an idle server, then while `users` run the workload."""

    users: int
    task: str
    questions: int
    targets: tuple[str, ...]
    workload: dict[str, Any]
    prompts_sha256: str


ALONE, LOADED = "alone", "loaded"  # the conditions of those questions


class Evaluations(Struct, frozen=True, kw_only=True):
    """How well each target answers: everything is asked `repeats` times, `concurrency` questions at once.

    A target is a setting of the run "evaluations" without a workload. `margins`: points, by measure.
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
        """Replies each target gives to the tasks."""
        return self.repeats * sum(task.questions for task in self.tasks.values())


class Runtime(Struct, frozen=True, kw_only=True):
    """How things are run, never what is measured; changing it measures nothing again."""

    ready_timeout_s: float = 600.0
    stop_timeout_s: float = 30.0
    ports: tuple[int, int] = (20000, 29999)
    cache: str | None = None
    scratch: str | None = None  # a folder on each node's own disk, where models are copied before they are loaded
    job_minutes: int | None = None  # the longest job a batch system takes
    device: str | None = None
    mirror: str | None = None
    beyond_calibration: str = "refuse"  # or "mark"
    foreign_use: ForeignUse = ForeignUse()


class Session(Struct, frozen=True, kw_only=True):
    """One (run, setting, round): the engine is started once and every number of users measured in ascending order."""

    experiment: str
    round: int
    rank: int  # place of the setting in its experiment, from 0
    setting: Setting


class Plan(Struct, frozen=True, kw_only=True):
    """A whole experiment."""

    experiment: str
    title: str | dict[str, str]
    files: tuple[str, ...] = ()  # it was read from, later over earlier; of one outside of the checkout the name alone
    overrides: tuple[str, ...] = ()  # KEY=VALUE, as given to snakemake --config, over the files
    rounds: int
    line: Line
    reference: str | None = None  # config/references/<reference>…csv: what was published
    cost: dict[str, Any] | None = None  # price_per_hour, currency
    deviations: tuple[str | dict[str, str], ...] = ()  # where this is not, or may not be, as the source did it
    unverified: tuple[str | dict[str, str], ...] = ()  # what could not be checked
    models: dict[str, Model]
    engines: dict[str, Engine]
    settings: dict[str, Setting]
    runs: dict[str, dict[str, Any]]
    evaluations: Evaluations | None = None
    charts: dict[str, Any] = {}
    runtime: Runtime = Runtime()

    def sessions(self) -> Iterator[Session]:
        """All sessions in the order they are run: round 1 of everything, then round 2."""
        for round_ in range(1, self.rounds + 1):
            for rank, setting in enumerate(self.settings.values()):
                yield Session(experiment=self.experiment, round=round_, rank=rank, setting=setting)

    @property
    def measurements(self) -> int:
        """Number of measurements: settings × users × rounds."""
        return self.rounds * sum(len(setting.users) for setting in self.settings.values())
