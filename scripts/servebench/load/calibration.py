"""Define what a calibration holds: the load generator's own errors on a machine, as load/calibrate.py measures them."""

from __future__ import annotations

from typing import Any

import msgspec


class Level(msgspec.Struct, frozen=True, kw_only=True):
    """Hold the result for one number of users on a schedule; errors in seconds, `beyond` lists the bounds it missed."""

    variant: str
    users: int
    schedule: dict[str, Any] = {}
    processes: int | None = None
    chunks: int | None = None
    failed: int = 0
    ttft_error_p50_s: float | None = None
    ttft_error_p99_s: float | None = None
    arrival_error_p50_s: float | None = None
    arrival_error_p99_s: float | None = None
    delivered_ratio: float
    cpu_s_per_100k_chunks: float | None = None
    cpu_ratio: float
    server_lateness_p99_s: float | None = None
    beyond: list[Any] = []


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """Hold all levels measured on a machine under one PROTOCOL.

    `max_users` is the largest number of users at which every variant, at this and every smaller number, was within the
    bounds; 0 when no number was.
    """

    protocol: int | None = None
    machine: dict[str, Any] | None = None
    processes: int | None = None
    created_at: str | None = None
    bounds: dict[str, float] = {}
    max_users: int
    levels: list[Level] = []
