"""Measure and ask again what failed: run Snakemake with the rules of the failed settings and targets forced."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from servebench import ROOT
from servebench.cli import status
from servebench.cli.messages import say
from servebench.plan import Plan


def command(plan: Plan, results: Path, run: str | None, setting: str | None, configfiles: Sequence[Path]) -> int:
    """Retry what failed: everything, or only a setting (or, as run "evaluations", a target); return the exit status.

    Failed measurements are kept on record; good ones are not made again. Raises `status.UnknownMeasurement` for a
    setting without a failure.
    """
    failed = status.failures(plan, results)
    if run is not None and (run, setting) not in failed:
        there = ", ".join(f"{run} {name}" for run, name in failed) or "nothing"
        raise status.UnknownMeasurement(f"{run} {setting}: has nothing that failed; what failed: {there}")
    chosen = [one for one in failed if run is None or one == (run, setting)]
    if not chosen:
        say("nothing failed; servebench status says what is left")
        return 0
    rules = [f"evaluate_{name}" if run == status.EVALUATIONS else f"session_{run}_{name}" for run, name in chosen]
    files = [str(file.absolute()) for file in configfiles]
    where = ["--snakefile", str(ROOT / "Snakefile"), "--directory", str(Path.cwd())]
    argv = ["--cores", "1", *where, "all", "--forcerun", *rules]
    argv += ["--configfile", *files] if files else []
    argv += ["--config", *plan.overrides] if plan.overrides else []
    say(f"again: {', '.join(f'{run} {name}' for run, name in chosen)}")
    return subprocess.run([sys.executable, "-m", "snakemake", *argv], check=False).returncode
