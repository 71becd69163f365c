"""Provide a workspace whose sessions are jobs of the SLURM that tests/slurm/up.sh starts."""

import subprocess
import sys
from pathlib import Path

import psutil

from workspace import ROOT, Workspace

PROFILE = ROOT / "profiles" / "slurm"
# The plugin asks 10 s later each time that no job has ended; here it asks every 2 s.
IMPATIENT_SNAKEMAKE = """
import sys
from snakemake.cli import main
from snakemake_executor_plugin_slurm import Executor

Executor.next_seconds_between_status_checks = property(lambda self: 2, lambda self, seconds: None)
sys.argv[0] = "snakemake"
sys.exit(main())
"""


class Cluster(Workspace):
    """Run `snakemake --workflow-profile profiles/slurm`, polling for ended jobs more often than a real site should."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        del self.env["SLURMD_NODENAME"]

    def command(self, *arguments: str) -> list[str]:
        _program, _cores, _one, *others = super().command(*arguments)
        return [sys.executable, "-c", IMPATIENT_SNAKEMAKE, "--workflow-profile", str(PROFILE), *others]

    def processes(self) -> list[psutil.Process]:
        """List all processes in this workspace's folder, on every node: sessions, engines, their guards."""
        found = []
        for process in psutil.process_iter():
            try:
                if Path(process.cwd()).is_relative_to(self.folder) and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def logs(self) -> str:
        """Return the messages of all sessions and jobs."""
        files = [*self.results.glob("logs/sessions/**/*.log"), *self.folder.glob(".snakemake/slurm_logs/**/*.log")]
        return "\n".join(file.read_text(errors="replace") for file in files)


def slurm(*command: str) -> str:
    """Return the output of a SLURM command."""
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout


def queue(states: str = "PENDING,RUNNING,COMPLETING") -> dict[str, tuple[str, str]]:
    """Map each job's number to (its state, why it waits)."""
    lines = slurm("squeue", "--noheader", "--states", states, "--format", "%A %T %r").splitlines()
    return {number: (state, reason) for number, state, reason in (line.split(maxsplit=2) for line in lines)}
