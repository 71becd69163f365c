"""Measure this client's timing error: `servebench calibrate`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from servebench.cli.load import pair_ms
from servebench.load import calibrate
from servebench.load.calibration import Level
from servebench.machine import cache
from servebench.machine.infrastructure import new, writable


def command(users: list[int], out: Path, *, window_s: float, processes: int | None, cpus: Sequence[int]) -> int:
    """Calibrate; write calibration.json into `out` and this machine's cache, and print it.

    Returns the exit status: 1 when a level is beyond the bounds, else 0.
    """
    new(writable(out, "--out"), "--out", "calibration.json")
    kept = cache.ready()
    err = Console(stderr=True)

    def told(level: Level) -> None:
        verdict = "; ".join(level.beyond) or "within the bounds"
        err.print(f"{level.variant}, {level.users} users: {verdict}", highlight=False)

    measured = calibrate.calibrate(users, window_s=window_s, processes=processes, cpus=cpus, told=told)
    found = calibrate.keep(measured, kept)
    (out / "calibration.json").write_text(calibrate.as_json(found), encoding="utf-8")
    machine = calibrate.machine(cpus)
    title = f"{machine['processor']}, {machine['cores']} cores"
    table = Table(title=title, box=None, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column("clock", no_wrap=True)
    for name in ("users", "proc.", "TTFT error\np50/p99 ms", "arrival error\np50/p99 ms", "delivered\n÷ ideal"):
        table.add_column(name, justify="right")
    for name in ("CPU s per\n100k chunks", "CPU"):
        table.add_column(name, justify="right")
    for level in measured.levels:
        cpu = level.cpu_s_per_100k_chunks
        table.add_row(
            level.variant,
            str(level.users),
            str(level.processes),
            pair_ms(level, "ttft_error"),
            pair_ms(level, "arrival_error"),
            f"{level.delivered_ratio:.4f}",
            "–" if cpu is None else f"{cpu:.2f}",
            f"{level.cpu_ratio:.0%}",
            style="red" if level.beyond else None,
        )
    console = Console()
    console.print(table)
    console.print(
        f"This machine loads up to {found.max_users} users accurately, of the numbers tried.", highlight=False
    )
    return 1 if any(level.beyond for level in measured.levels) else 0
