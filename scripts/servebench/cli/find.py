"""Find the most users, or the highest rate of requests, within the target: `servebench load --find-capacity`."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from secrets import randbits
from typing import Any

import msgspec
from rich.console import Console

from servebench.capacity.judging import CONFIDENCE
from servebench.capacity.search import STEPS, Search, answer, foreseen, wanted
from servebench.claims import Claim
from servebench.cli import load
from servebench.faults import Fault
from servebench.load import calibrate, figures
from servebench.load.calibration import Calibration
from servebench.load.endpoint import Endpoint
from servebench.load.line import Line
from servebench.load.measurement import LoadMeta, Measurement
from servebench.load.modes import MODES
from servebench.load.objective import Objective, Outcome
from servebench.load.records import write_measurement
from servebench.load.workload import Workload
from servebench.machine import cache
from servebench.machine.infrastructure import writable
from servebench.machine.untrusted import printable
from servebench.words.claims import said

NAME = "line"


def command(
    endpoint: Endpoint,
    workload: Workload,
    out: Path,
    *,
    most_users: int,
    processes: int | None,
    seed: int | None,
    line: Line,
) -> int:
    """Measure whatever the search wants, print each outcome and the answer, and write it to `out/capacity.json`.

    Every measurement is kept in `out/ROUND/users-N`, or `rate-R` for an open loop, and not made again by a later call.
    Returns the exit status: 0 when the search has an answer, else 1. Raises Fault for a load without users to vary.
    """
    if workload.mode == "trace" or workload.mode == "count":
        raise Fault(f"--find-capacity: mode {workload.mode} is not searched; leave out --{MODES[workload.mode].needs}")
    writable(out, "--out")
    levels = _Levels(endpoint, workload, out, line, processes, randbits(32) if seed is None else seed)
    by_rate = workload.mode == "open"
    search = (
        Search(most=STEPS * STEPS, start=STEPS, most_rounds=4) if by_rate else Search(most=most_users, most_rounds=4)
    )
    # Without noise, of a server that serves as many as each number tried while doubling, or none.
    counts = [len(foreseen(search, serves)) for serves in (0, *(2**n for n in range(search.most.bit_length())))]
    console = Console(stderr=True)
    console.print(
        f"searching: {' to '.join(map(str, sorted({min(counts), max(counts)})))} measurements, by what the server"
        f" serves, and more near a limit, each of at least {workload.warmup_s + workload.window_s:.0f} s, for an"
        f" answer that holds with {CONFIDENCE:.0%} confidence, {search.resolution:.0%} wide where the rounds can tell",
        highlight=False,
        soft_wrap=True,
    )
    evidence: dict[str, dict[int, dict[int, Outcome]]] = {NAME: {}}
    for round_ in range(1, search.most_rounds + 1):
        while (level := wanted(evidence, search, round_)) is not None:
            outcome = levels.outcome(level, round_)
            evidence[NAME].setdefault(level, {})[round_] = outcome
            console.print(f"round {round_}, {levels.name(level)}: {_side(outcome)}", highlight=False, soft_wrap=True)
    found, claim = answer(evidence[NAME], paced=workload.way.scheduled), levels.concluded()
    content = {
        "said": said(claim)["en"],
        "claim": msgspec.to_builtins(claim),
        "confidence": CONFIDENCE,
        "measurements": claim.values["measurements"],
        **{name: [levels.value(level) for level in getattr(found, name)] for name in ("kept", "missed", "open")},
        "lower": None if found.lower is None else levels.value(found.lower),
        "upper": None if found.upper is None else levels.value(found.upper),
    }
    (out / "capacity.json").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    Console().print(printable(said(claim)["en"]), markup=False, highlight=False, soft_wrap=True)
    if found.lower == search.most:
        further = "a higher --rate" if by_rate else f"--most-users above {search.most}"
        console.print(f"{levels.name(search.most)}: the most that was tried; {further} tries more", highlight=False)
    console.print(f"written to {out}/: capacity.json, round-*/", markup=False, highlight=False, soft_wrap=True)
    return 0 if found.lower is not None or found.upper is not None else 1


def _side(outcome: Outcome) -> str:
    """Say in words on which side of the target a measurement lies, or why that cannot be said."""
    if outcome.missed:
        return f"missed: {', '.join(outcome.missed)}"
    if outcome.margin is not None:
        return "met"
    if outcome.lacking:
        return f"cannot be judged: {outcome.lacking} requests too few, which a longer --window gives"
    return "cannot be judged: no speed could be measured"


class _Levels:
    """Measure a level, a number of users or of steps of a rate, in a round; or read what an earlier call measured."""

    def __init__(
        self, endpoint: Endpoint, workload: Workload, out: Path, line: Line, processes: int | None, seed: int
    ) -> None:
        self.endpoint, self.out, self.line, self.processes, self.seed = endpoint, out, line, processes, seed
        self.objective = Objective.of(line)
        least = max(workload.min_targets or 0, self.objective.requests)
        self.workload = dataclasses.replace(workload, min_targets=least)
        self.known: Calibration | None = calibrate.known(cache.root(), processes=processes)
        self.summaries: dict[tuple[int, int], dict[str, Any]] = {}

    def value(self, level: int) -> float:
        """Return the users, or the requests per second, of a level."""
        return level if self.workload.rate is None else self.workload.rate * level / STEPS

    def name(self, level: int) -> str:
        """Name a level: "8 users", "1.5 requests/s"."""
        return load.counted(level) if self.workload.rate is None else f"{self.value(level):g} requests/s"

    def outcome(self, level: int, round_: int) -> Outcome:
        """Measure a level, and judge it."""
        rate = self.workload.rate
        workload = self.workload if rate is None else dataclasses.replace(self.workload, rate=self.value(level))
        users = level if rate is None else 1
        kind = f"users-{level}" if rate is None else f"rate-{self.value(level):g}"
        folder = self.out / f"round-{round_}" / kind
        if kept := load.read_kept(folder):
            if not load.is_of(kept.meta, self.endpoint, workload, users):
                raise Fault(f"--out: {folder} holds a measurement of another load; name another folder, or remove it")
            return self._judged(level, round_, self._figures(kept), kept.meta)
        number = self.seed + 1000 * round_ + level
        made = load.measured_now(
            self.endpoint, workload, users, processes=self.processes, seed=self.seed + round_, number_seed=number
        )
        found = self._figures(made)
        summary = {**found, "meta": msgspec.to_builtins(made.meta), "calibration": msgspec.to_builtins(self.known)}
        write_measurement(folder, made.requests, made.chunks, summary)
        return self._judged(level, round_, found, made.meta)

    def concluded(self) -> Claim:
        """State the answer by all that was measured: in users, or in requests per second."""
        from servebench.tables import loaded  # not before the load: importing takes time
        from servebench.verdicts.objectives import at_rates, stated

        setting, rows = loaded.searched(self.summaries)
        claim = stated(setting, NAME, self.objective, rows, discarded=())
        return claim if self.workload.rate is None else at_rates(claim, self.value)

    def _figures(self, made: Measurement) -> dict[str, Any]:
        most = self.known.max_users if self.known else None
        return figures.measurement_figures(made.requests, made.chunks, made.meta, self.line, calibrated_users=most)

    def _judged(self, level: int, round_: int, found: dict[str, Any], meta: LoadMeta) -> Outcome:
        self.summaries[level, round_] = msgspec.to_builtins({**found, "meta": meta})
        return self.objective.outcome(found)
