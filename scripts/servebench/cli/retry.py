"""Measure and ask again what failed: run Snakemake with the rules of the failed settings and targets forced.

Snakemake's targets are `all`, and `capacity` for further rounds of a search, so what is missing is measured too.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from servebench import ROOT
from servebench.cli import status
from servebench.cli.messages import say
from servebench.plan import Plan


def command(
    plan: Plan,
    results: Path,
    run: str | None,
    setting: str | None,
    configfiles: Sequence[Path],
    profile: str | None,
    *,
    dry: bool = False,
) -> int:
    """Retry what failed: everything, or only a setting (or, as run "evaluations", a target); return the exit status.

    `profile` is Snakemake's --workflow-profile, for a cluster. `dry`: only show what would be measured. Failed
    measurements are kept on record; good ones are not made again. Raises `status.UnknownMeasurement` for a setting
    without a failure.
    """
    failed = status.failures(plan, results)
    if run is not None and (run, setting) not in failed:
        there = ", ".join(f"{run} {name}" for run, name in failed) or "nothing"
        raise status.UnknownMeasurement(f"{run} {setting}: has nothing that failed; what failed: {there}")
    chosen = [one for one in failed if run is None or one == (run, setting)]
    if not chosen:
        say(f"nothing failed; servebench status{plan.options(configfiles)} says what is left")
        return 0
    say(f"again: {', '.join(f'{run} {name}' for run, name in chosen)}")
    rules = [rule for one in chosen for rule in failed[one]]
    searches = [rule for rule in rules if rule.startswith("search_")]
    more = ["--dry-run"] if dry else []
    codes = [
        subprocess.run([*_snakemake(target, forced, plan, configfiles, profile), *more], check=False).returncode
        for target, forced in (("capacity", searches), ("all", [rule for rule in rules if rule not in searches]))
        if forced
    ]
    return next((code for code in codes if code), 0)


def _snakemake(
    target: str, forced: Sequence[str], plan: Plan, configfiles: Sequence[Path], profile: str | None
) -> list[str]:
    """Return the command that makes a target with these rules forced."""
    how = ["--workflow-profile", profile] if profile else ["--cores", "1"]
    where = ["--snakefile", str(ROOT / "Snakefile"), "--directory", str(Path.cwd())]
    files = [str(file.absolute()) for file in configfiles]
    argv = [sys.executable, "-m", "snakemake", *how, *where, target, "--forcerun", *forced]
    argv += ["--configfile", *files] if files else []
    return [*argv, "--config", *plan.overrides] if plan.overrides else argv
