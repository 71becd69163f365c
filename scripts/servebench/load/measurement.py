"""What one measurement is when the load generator hands it over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa


@dataclass(frozen=True)
class Measurement:
    """One workload at one number of users against one server.

    `requests` and `chunks` have the schemas of `servebench.load.records`. `meta` is JSON-able: `protocol, mode,
    users, processes, seed, load_start_ns, window_start_ns, window_end_ns, load_end_ns` (CLOCK_MONOTONIC ns),
    `started_at` (ISO 8601 UTC), `spread_s`, `connections_opened`, `warmup {s, bounded, unfinished_users}`, `probe
    {status, error, answer_s}` or null, `prompts` (how many, how long), `client {cpu_ratio, processes: [{pid, cpu_s,
    wall_s, loop_lag_p50_s, loop_lag_p99_s, loop_lag_max_s, dispatch_delay_p50_s, dispatch_delay_p99_s}]}` and the
    `workload` as asked and, as `target`, the endpoint.
    """

    requests: pa.Table
    chunks: pa.Table
    meta: dict[str, Any]
