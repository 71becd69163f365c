"""Show an experiment while it runs, live on a terminal, as plain lines elsewhere: `servebench watch`."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from servebench.cli.messages import say
from servebench.machine.untrusted import printable
from servebench.outlook import duration, inventory
from servebench.plan import Plan
from servebench.sessions import progress
from servebench.sessions.progress import ASKING, LOADING

UNKNOWN = "–"
HINT = Text("q ends this view; the run goes on", style="dim")
LIVE_S, PLAIN_S = 1.0, 10.0  # between two updates, on a terminal and elsewhere


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """Hold the state at one moment. `running`: the latest progress of each running job (sessions.progress).

    `failed`: those of the measured ones that failed or are damaged.
    """

    experiment: str
    measured: int
    failed: int
    measurements: int
    sessions_done: int
    sessions: int
    evaluations_done: int
    evaluations: int
    left_s: float
    running: Sequence[Mapping[str, Any]]

    @property
    def complete(self) -> bool:
        """Return whether nothing is left to measure or ask."""
        whole = (self.measurements, self.evaluations)
        return (self.measured, self.evaluations_done) == whole and not self.running


def snapshot(plan: Plan, results: Path) -> Snapshot:
    """Take a snapshot of results/<experiment> and the running jobs."""
    left = [users for _, users in inventory.missing(plan, results)]
    targets = plan.evaluations.targets.values() if plan.evaluations else ()
    to_ask_s = {target.name: duration.to_ask_s(plan, results, target) for target in targets}
    running = list(progress.running(results))
    left_s = duration.remaining_s(plan, results)
    for said in running:
        if said["phase"] in LOADING:
            left_s -= said["elapsed_s"]
        elif said["phase"] == ASKING and to_ask_s.get(said["setting"]):
            left_s += said["left_s"] - to_ask_s[said["setting"]]
    return Snapshot(
        experiment=plan.experiment,
        measured=plan.measurements - sum(map(len, left)),
        failed=inventory.failed(plan, results),
        measurements=plan.measurements,
        sessions_done=left.count([]),
        sessions=len(left),
        evaluations_done=list(to_ask_s.values()).count(0),
        evaluations=len(to_ask_s),
        left_s=max(0.0, left_s),
        running=running,
    )


def plain(now: Snapshot) -> list[str]:
    """Make a line for the experiment and one for each running job."""
    return [_head(now), *map(line, now.running)]


def line(said: Mapping[str, Any]) -> str:
    """Make the line of one job."""
    return ", ".join(f"{name} {text}" for name, text in cells(said))


def drawn(now: Snapshot) -> RenderableType:
    """Draw the snapshot for a terminal."""
    bar = Table.grid()  # a bar outside a table does not end its line
    bar.add_row(ProgressBar(total=now.measurements, completed=now.measured, width=50))
    if not now.running:
        return Group(Text(_head(now)), bar, Text("nothing runs", style="dim"), HINT)
    kinds = dict.fromkeys(said["kind"] for said in now.running)
    tables = (_table([said for said in now.running if said["kind"] == kind]) for kind in kinds)
    return Group(Text(_head(now)), bar, *tables, HINT)


def _table(jobs: Sequence[Mapping[str, Any]]) -> Table:
    """Draw a table of jobs of one kind."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name, _ in cells(jobs[0]):
        table.add_column(name)
    for said in jobs:
        table.add_row(*(Text(printable(text)) for _, text in cells(said)))
    return table


def _head(now: Snapshot) -> str:
    left = "complete" if now.complete else f"{duration.minutes(now.left_s)} left"
    failed = f", {now.failed} FAILED (`status` says why)" if now.failed else ""
    evaluations = f", {now.evaluations_done} of {now.evaluations} evaluations" if now.evaluations else ""
    return (
        f"{now.experiment}: {now.measured} of {now.measurements} measurements, {now.sessions_done} of {now.sessions}"
        f" sessions{evaluations}, {left}{failed}"
    )


def cells(said: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (name, value) of each cell of one job."""
    return _evaluation(said) if said["kind"] == "evaluation" else _session(said)


def _evaluation(said: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the cells of an evaluation; its questions are those that were left when the job began."""
    asking = said["phase"] == ASKING
    yield "evaluation", said["setting"]
    yield "phase", said["phase"]
    yield "task", said["task"] if asking else UNKNOWN
    yield "asked", f"{said['asked']} of {said['questions']}" if asking else UNKNOWN
    yield "failed", str(said["failures"]) if asking else UNKNOWN
    yield "left", duration.minutes(said["left_s"]) if asking else UNKNOWN


def _session(said: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the cells of a session.

    Nothing is parsed while a measurement runs, so as not to disturb it; until its end only the rate of arriving pieces
    of replies, about one a token, and the time to the first piece are known. Tokens and TTFT are those of the last
    finished measurement, with its number of users.
    """
    loading = said["phase"] in LOADING
    last = said.get("last") or {}
    yield "session", f"{said['run']} {said['setting']} round {said['round']}"
    yield "phase", _phase(said) if loading else said["phase"]
    yield "users", str(said["users"]) if loading else UNKNOWN
    for name in ("running", "finished", "failures"):
        yield name, str(said[name]) if loading else UNKNOWN
    yield "pieces/s", _number(said["pieces_s"], 1, "") if loading else UNKNOWN
    yield "first piece", _number(said["first_piece_s"], 2, " s") if loading else UNKNOWN
    at = f" at {last['users']}" if last else ""
    yield "last tok/s", _number(last.get("output_tok_s"), 1, at)
    yield "last TTFT p95", _number(last.get("ttft_p95_s"), 2, f" s{at}")
    memory = said.get("memory_bytes")
    name = "GPU memory" if said.get("memory_kind") == "nvml" else "memory"
    yield name, _number(None if memory is None else memory / 2**30, 2, " GiB")
    foreign = said.get("foreign_utilisation")
    yield "foreign use", _number(None if foreign is None else 100 * foreign, 0, " %")


def _phase(said: Mapping[str, Any]) -> str:
    total_s = said["total_s"]
    whole = UNKNOWN if total_s is None else f"{total_s:.0f}"
    return f"{said['phase']} {said['elapsed_s']:.0f}/{whole} s"


def _number(value: float | None, places: int, unit: str) -> str:
    return UNKNOWN if value is None else f"{value:.{places}f}{unit}"


def command(plan: Plan, results: Path, *, once: bool) -> None:
    """Show the experiment until it is complete, or once. `results` is results/<experiment>."""
    console = Console()
    if once or not console.is_terminal:
        _tell(plan, results, once)
        return
    now = snapshot(plan, results)
    with keys() as pressed, Live(drawn(now), console=console, auto_refresh=False) as live:
        while not now.complete and "q" not in pressed(LIVE_S):
            now = snapshot(plan, results)
            live.update(drawn(now), refresh=True)


def _wait(wait_s: float) -> str:
    time.sleep(wait_s)
    return ""


@contextmanager
def keys() -> Iterator[Callable[[float], str]]:
    """Yield a function that waits so many seconds for keys and returns those pressed, without Enter or echo.

    Where the standard input is no terminal it only waits.
    """
    if not sys.stdin.isatty():
        yield _wait
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)

    def pressed(wait_s: float) -> str:
        ready, _, _ = select.select([descriptor], [], [], wait_s)
        return os.read(descriptor, 64).decode(errors="replace") if ready else ""

    try:
        tty.setcbreak(descriptor)
        yield pressed
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _tell(plan: Plan, results: Path, once: bool) -> None:
    while True:
        now = snapshot(plan, results)
        say("\n".join(plain(now)))
        if once or now.complete:
            return
        time.sleep(PLAIN_S)
