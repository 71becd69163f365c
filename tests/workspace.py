"""Run this checkout's workflow (or a copy's) in a folder with a configuration and its results."""

import copy
import os
import re
import subprocess
import sys
from pathlib import Path

import psutil
import yaml

from processes import argv

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
CONFIG = {
    "experiment": "reruns",
    "rounds": 2,
    "engines": {"sim": {"kind": "simulator"}},
    "models": {"none": {"source": "file:///nowhere.gguf", "sha256": "0" * 64}},
    "workload": {"prompts": "en-short", "max_tokens": 4, "warmup_s": 0.1, "window_s": 0.5, "timeout_s": 20},
    "settings": {
        "one": {"engine": "sim", "model": "none", "slots": 1, "context": 512, "users": [1, 2]},
        "two": {"engine": "sim", "model": "none", "slots": 2, "context": 512, "users": [1, 2]},
    },
    "runtime": {
        "beyond_calibration": "mark",
        "ready_timeout_s": 60,
        "foreign_use": {"share": 1, "samples": 100, "action": "mark"},
    },
}


class Workspace:
    """Hold one experiment on simulators, with windows of half a second."""

    def __init__(self, folder: Path, source: Path = ROOT) -> None:
        self.folder, self.source = folder, source
        self.config, self.comment = copy.deepcopy(CONFIG), ""
        self.results = folder / "results" / CONFIG["experiment"]
        # A node name of its own: the device lock does not wait for whatever else runs on this machine.
        self.env = {**os.environ, "SLURMD_NODENAME": f"test-{folder.name}-{os.getpid()}"}

    def command(self, *arguments: str) -> list[str]:
        file = self.folder / "config.yaml"
        file.write_text(self.comment + yaml.safe_dump(self.config, sort_keys=False))
        command = [str(BIN / "snakemake"), "--cores", "1", "--snakefile", str(self.source / "Snakefile"), *arguments]
        return [*command, "--directory", str(self.folder), "--configfile", str(file)]

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start Snakemake in a process group of its own, as a terminal does."""
        return subprocess.Popen(
            self.command(*arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            process_group=0,
            env=self.env,
        )

    def snakemake(self, *arguments: str, code: int = 0, timeout_s: float = 600) -> str:
        """Run snakemake, which must end with exit code `code`, and return its output."""
        done = subprocess.run(self.command(*arguments), capture_output=True, text=True, timeout=timeout_s, env=self.env)
        assert done.returncode == code, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout + done.stderr

    def planned(self, target: str = "all") -> dict[str, int]:
        """Count the jobs by rule in a dry run, without the targets themselves."""
        jobs = dict(re.findall(r"^(\S+) +(\d+)$", self.snakemake("-n", target), re.M))
        return {rule: int(count) for rule, count in jobs.items() if rule not in ("total", "all", target)}

    def measured(self) -> dict[str, int]:
        """Return the inode of each stored measurement: a new inode means measured again."""
        return {p.name: p.stat().st_ino for p in (self.results / "store").glob("*.parquet")}

    def servebench(self, *arguments: str, code: int = 0) -> str:
        """Run a verb, which must end with exit code `code`, and return its output."""
        command = [str(BIN / "servebench"), *arguments, "--configfile", str(self.folder / "config.yaml")]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, env=self.env)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout or done.stderr


def engines(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Return the processes that are simulators, not their guards."""
    return [process for process in processes if "".join(argv(process)[1:2]).endswith("simulated.py")]
