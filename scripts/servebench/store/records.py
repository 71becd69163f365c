"""Define the metadata of a stored measurement: its identity, its load, and its provenance.

A change of these structs raises FORMAT by one and adds a function to `MEASUREMENT.upgrades` that converts content of
the previous format to the new one.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from servebench.load.calibration import Calibration
from servebench.load.measurement import LoadMeta
from servebench.machine.identity import Machine
from servebench.marks import Mark, mark
from servebench.plan import Engine, ForeignUse, Setting
from servebench.store.parquet import Format

FORMAT = 4


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """Base of the metadata: immutable, stored as plain JSON, None where a fact is unknown."""


class Identity(Facts, frozen=True, kw_only=True):
    """Identify a measurement. `rank` is its setting's place in the experiment at the time of measuring."""

    experiment: str
    run: str
    setting: str
    engine: str
    engine_kind: str
    model: str
    model_name: str
    quantization: str | None = None
    slots: int
    context: int | None = None
    users: int
    round: int
    rank: int
    digest: str

    @classmethod
    def of(cls, setting: Setting, *, experiment: str, rank: int, round_: int, users: int, digest: str) -> Identity:
        """Identify the measurement of a setting."""
        return cls(
            experiment=experiment,
            run=setting.run,
            setting=setting.name,
            engine=setting.engine.key,
            engine_kind=setting.engine.kind,
            model=setting.model.key,
            model_name=setting.model.name,
            quantization=setting.model.quantization,
            slots=setting.slots,
            context=setting.context,
            users=users,
            round=round_,
            rank=rank,
            digest=digest,
        )

    @property
    def place(self) -> dict[str, Any]:
        """Return the place as `plan.layout.PLACE` has it."""
        return {"run": self.run, "setting": self.setting, "round": self.round, "users": self.users}


class ColdStart(Facts, frozen=True, kw_only=True):
    """Hold the seconds from launch until the process ran, was healthy, and had sent a first token."""

    process_s: float | None = None
    healthy_s: float | None = None
    first_token_s: float | None = None


class SessionFacts(Facts, frozen=True, kw_only=True):
    """Describe the server that was measured, and how long it had run. `facts` is what the engine reports of itself.

    For a server that did not start only the first four fields are known.
    """

    session_id: str
    launched_at: str | None = None
    log: str | None = None
    log_tail: str | None = None  # end of the log of a failed launch
    engine_version: str | None = None
    engine_build: str | None = None
    node: str | None = None
    devices: list[str] = []
    argv: list[str] | None = None
    env: dict[str, str] | None = None
    cold_start_s: ColdStart = ColdStart()
    facts: dict[str, Any] | None = None
    memory_gib: float | None = None
    memory_kind: str | None = None
    server_age_s: float | None = None
    users_before: list[int] | None = None

    @property
    def device(self) -> str | None:
        """Return the server's node and devices as tables name them."""
        return f"{self.node} {', '.join(self.devices)}" if self.devices else None


class ModelFile(Facts, frozen=True, kw_only=True):
    """Hold the manifest of the loaded model (`models.fetch`)."""

    key: str
    name: str
    source: str | None = None
    requantize: dict[str, str] | None = None
    sha256: str
    size_bytes: int
    path: str | None = None
    kind: str | None = None
    quantization: str | None = None
    note: str | dict[str, str] | None = None
    facts: dict[str, Any] = {}
    fetch_s: float | None = None
    unverified: str | dict[str, str] | None = None


class Software(Facts, frozen=True, kw_only=True):
    """Describe the servebench that measured."""

    version: str
    protocol: int


class Provenance(Facts, frozen=True, kw_only=True):
    """Describe what a measurement was made with; `model` is null for an engine that loads no configured file."""

    machine: Machine
    model: ModelFile | None = None
    engine: Engine
    servebench: Software
    calibration: Calibration | None = None
    started_at: str


class Metadata(Facts, frozen=True, kw_only=True):
    """Hold all of a record except its rows.

    `telemetry`: samples of the machine by column (`machine.watcher.TELEMETRY_SCHEMA`). `served`: the requests in
    llama-server's log (`engines.llama_log.Request`), by column, with the log's numbers; {} for servers without such a
    log. `foreign_use`: the configured limit of others' use of the device at the time of measuring.
    """

    format: int = FORMAT
    identity: Identity
    status: Literal["ok", "failed"]
    reason: list[Mark] = []  # why the measurement failed
    meta: LoadMeta | None = None
    telemetry: dict[str, list[Any]] = {}
    served: dict[str, list[Any]] = {}
    foreign_use: ForeignUse = ForeignUse()
    session: SessionFacts
    provenance: Provenance


def as_marks(reason: str | None) -> list[Any]:
    """Convert the failure reason of format 0, one text, to a list of one mark in JSON, keeping the text whole."""
    return [] if reason is None else [msgspec.to_builtins(mark("failed", reason=reason))]


def _first(content: dict[str, Any]) -> dict[str, Any]:
    """Convert format 0 to format 1.

    In format 0 the limit of others' use of the device was among the facts of the load, and a failure's reason was one
    text.
    """
    meta = dict(content["meta"] or {})
    rule = meta.pop("foreign_use", {})
    return content | {"meta": meta or None, "foreign_use": rule, "reason": as_marks(content["reason"])}


def _second(content: dict[str, Any]) -> dict[str, Any]:
    """Convert format 1 to format 2. In format 1 one seed decided the order of documents and the number lines."""
    meta = content["meta"]
    return content | {"meta": meta and meta | {"number_seed": meta.get("seed")}}


def _same(content: dict[str, Any]) -> dict[str, Any]:
    """Convert a format to one that only adds to it: format 3 the file's digest, format 4 the machine's bandwidth."""
    return content


MEASUREMENT = Format(Metadata, FORMAT, {0: _first, 1: _second, 2: _same, 3: _same}, digest_since=3)
