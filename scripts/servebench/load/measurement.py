"""Define a measurement as the load generator returns it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """Base of the facts about a measurement: immutable, stored as plain JSON, None where a fact is unknown."""


class PromptSet(Facts, frozen=True, kw_only=True):
    """Describe the prompts that were sent: how many, and their lengths in characters (min, p5, p50, p95, max)."""

    name: str
    prompts: int
    skipped: int = 0  # conversations without a question
    prompt_chars: dict[str, int]
    counted_by: str | None = None  # how prompts of a length were counted: /tokenize, tokenizer or usage


class Probe(Facts, frozen=True, kw_only=True):
    """Describe the single reply before the load; its duration is the time over which users start."""

    status: str
    error: str | None = None
    answer_s: float | None = None


class Warmup(Facts, frozen=True, kw_only=True):
    """Describe the warm-up: its length, and whether it was `bounded`, ending before every user's first request did."""

    s: float
    bounded: bool
    unfinished_users: int


class ClientProcess(Facts, frozen=True, kw_only=True):
    """Describe one process of the load generator, from the first request of the load to the last."""

    pid: int
    cpus: list[int] | None = None
    cpu_s: float
    wall_s: float
    loop_lag_p50_s: float | None = None
    loop_lag_p99_s: float | None = None
    loop_lag_max_s: float | None = None
    dispatch_delay_p50_s: float | None = None
    dispatch_delay_p99_s: float | None = None


class Client(Facts, frozen=True, kw_only=True):
    """Describe the load generator; `cpu_ratio` is that of its busiest process."""

    cpu_ratio: float | None = None
    processes: list[ClientProcess] = []


class Address(Facts, frozen=True, kw_only=True):
    """Describe the server that was loaded, without API key and headers.

    `version`: as the server says; None where it says none, and where the session's facts have it.
    """

    url: str
    model: str
    extra: dict[str, Any] = {}
    version: str | None = None


class LoadMeta(Facts, frozen=True, kw_only=True):
    """Describe the load of a measurement. Stamps are CLOCK_MONOTONIC ns; `started_at` is ISO 8601 UTC.

    `workload` is `Workload.to_dict()` with the keys it had when the measurement was made.
    """

    protocol: int | None = None
    mode: str
    users: int
    processes: int | None = None
    seed: int | None = None
    number_seed: int | None = None
    prompts: PromptSet | None = None
    started_at: str | None = None
    load_start_ns: int
    window_start_ns: int
    window_end_ns: int
    load_end_ns: int
    spread_s: float | None = None
    connections_opened: int | None = None
    probe: Probe | None = None
    warmup: Warmup | None = None
    client: Client = Client()
    workload: dict[str, Any] = {}
    target: Address | None = None

    @property
    def window_s(self) -> float:
        """Return the length of the window, seconds."""
        return (self.window_end_ns - self.window_start_ns) / 1e9


@dataclass(frozen=True)
class Measurement:
    """Hold the measurement of one workload at one number of users against one server.

    `requests` and `chunks` have the schemas of `servebench.load.records`. `clock` has the stamps of a clock server,
    as worker.CLOCK_SCHEMA; None for any other server.
    """

    requests: pa.Table
    chunks: pa.Table
    meta: LoadMeta
    clock: pa.Table | None = None
