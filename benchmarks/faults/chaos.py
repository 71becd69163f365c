"""Kill and damage a simulator experiment at random moments, and count what is lost, doubled or left running.

    python benchmarks/faults/chaos.py --faults 10000 --seed 1

A fault is a signal to a process of a running session (session, guard, engine, load worker, sampler, or session and
guard at once) at a random moment, or damage to a file between two sessions (a bit of a stored measurement,
the plan, the note in a lock, a link). After each fault the store must hold every measurement that was ever in it, bit
for bit, but for those that were damaged here. When all measurements of an experiment are there, and once at the end,
`servebench verify` must find nothing wrong and no process may be left; then the next experiment begins.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import psutil

from servebench import configuration
from servebench.cli import verify
from servebench.engines import leftovers
from servebench.plan.layout import Layout
from servebench.store import measurements
from servebench.workflow import Targets

CONFIG = {
    "experiment": "chaos",
    "rounds": 1,
    "engines": {"sim": {"kind": "simulator"}},
    "models": {"none": {"source": "file:///nowhere.gguf", "sha256": "0" * 64}},
    "workload": {"prompts": "en-short", "max_tokens": 4, "warmup_s": 0.1, "window_s": 0.3, "timeout_s": 20},
    "settings": {
        "one": {"engine": "sim", "model": "none", "slots": 1, "context": 512, "users": [1, 2]},
        "two": {"engine": "sim", "model": "none", "slots": 2, "context": 512, "users": [1, 2]},
    },
    "runtime": {
        "beyond_calibration": "mark",
        "foreign_use": {"share": 1, "samples": 100, "action": "mark"},
        "stop_timeout_s": 3,
    },
}
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
LONGEST_S = 8.0  # between a session's start and the signal
PATIENCE_S = 120.0


class Chaos:
    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.random = folder, random.Random(seed)
        self.env = {**os.environ, "SERVEBENCH_LOCKS": str(folder / "locks"), "CUDA_VISIBLE_DEVICES": ""}
        self.counts: Counter[str] = Counter()
        self.lost = self.doubled = self.running = self.experiments = 0
        self.begin()

    def begin(self) -> None:
        """Begin an experiment without results."""
        shutil.rmtree(self.folder / "results", ignore_errors=True)
        self.targets = Targets(configuration.load(CONFIG, []), Layout(Path("results/chaos")))
        self.targets.hand_over()
        shutil.copy(self.targets.reported(None, None), self.targets.layout.plan)
        self.wanted = self.targets.plan.measurements
        self.known: dict[str, str] = {}
        self.experiments += 1

    def start(self) -> subprocess.Popen[bytes]:
        """Start the session of a random setting."""
        job = self.random.choice([job for job in self.targets.jobs() if job.of_rounds])
        log, engine_log = self.targets.layout.log("session"), self.targets.layout.engine_log("session")
        command = shlex.split(job.options(SimpleNamespace(round="1"), None))
        command = [sys.executable, "-m", "servebench", *command, "--log", str(log), "--engine-log", str(engine_log)]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=self.env)

    def signalled(self) -> None:
        """Start a session, and send a signal to one of its processes."""
        session = self.start()
        time.sleep(self.random.uniform(0.2, LONGEST_S))
        family: dict[str, list[psutil.Process]] = {"session": [psutil.Process(session.pid)]}
        with suppress(psutil.Error):
            for process in family["session"][0].children(recursive=True):
                with suppress(psutil.Error):
                    words = " ".join(process.cmdline())
                    names = ("guard.py", "simulated.py", "load.worker", "machine.sampler")
                    name = next((name for name in names if name in words.split("{")[0]), None)
                    family.setdefault(name or "other", []).append(process)
        victim = self.random.choice(sorted(family))
        victims = [self.random.choice(family[victim])]
        if victim == "guard.py" and self.random.random() < 0.5:
            victim, victims = "session and guard", [*victims, *family["session"]]
        with suppress(psutil.Error):
            for process in victims:
                process.send_signal(signal.SIGKILL if len(victims) > 1 else self.random.choice(SIGNALS))
        self.counts[victim] += 1
        session.wait(PATIENCE_S)

    def damaged(self) -> None:
        """Damage a file between two sessions."""
        layout = self.targets.layout
        stored = sorted(Path("results/chaos/store").glob("*.parquet"))
        kind = self.random.choice(["bit", "plan", "lock", "link"] if stored else ["plan", "lock"])
        if kind in ("bit", "link"):
            path = self.random.choice(stored)
            if kind == "bit":
                content = bytearray(path.read_bytes())
                bit = self.random.randrange(8 * len(content))
                content[bit // 8] ^= 1 << bit % 8
                path.write_bytes(content)
                place = measurements.read_metadata(Path(self.copies[path.stem])).identity.place
                try:
                    measurements.read(path)
                    self.lost += 1  # a change that nobody notices
                except measurements.Damaged as damage:
                    with suppress(measurements.Damaged):
                        measurements.Store(layout.results).mend(path.stem, place, damage)
                self.known.pop(path.stem, None)
            else:
                for link in Path("results/chaos/measurements").rglob("*.parquet"):
                    if link.samefile(path):
                        link.unlink()
                        link.write_bytes(b"garbage")
        elif kind == "plan":
            layout.plan.write_bytes(self.random.choice([b"", b"{}", b"[", b"5"]))
        else:
            for lock in (self.folder / "locks").glob("*.lock"):
                lock.write_bytes(self.random.choice([b"{}", b"5", b'{"container": "x", "processes": [[1, 0]]}']))
        self.counts[f"damaged {kind}"] += 1

    def check(self) -> None:
        """Compare the store with what was ever in it."""
        found = {
            p.stem: hashlib.sha256(p.read_bytes()).hexdigest() for p in Path("results/chaos/store").glob("*.parquet")
        }
        for name, digest in self.known.items():
            if name not in found:
                self.lost += 1
            elif found[name] != digest:
                self.doubled += 1
        self.known = found
        self.copies = {}
        for name in found:
            copy = self.folder / f"{name}.copy"
            shutil.copy(Path("results/chaos/store") / f"{name}.parquet", copy)
            self.copies[name] = str(copy)

    def finish(self) -> None:
        """Measure what is missing without faults; then nothing may be wrong or left."""
        for job in self.targets.jobs():
            command = shlex.split(job.options(SimpleNamespace(round="1"), None))
            logs = ["--log", "results/log", "--engine-log", "results/engine.log"]
            command = [sys.executable, "-m", "servebench", *command, *logs]
            subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=self.env, timeout=600)
            self.check()
        shutil.copy(self.targets.reported(None, None), self.targets.layout.plan)
        lines, _ = verify.report(self.targets.plan, Path("results"))
        for line in (line for line in lines[:-1] if not line.startswith(("damaged among", "left by a killed"))):
            print(line)
            self.lost += 1
        self.lost += self.wanted - len(self.known)
        locks = [str(path) for path in (self.folder / "locks").glob("*.lock")]
        left = leftovers.marked(locks)
        self.running += len(left)
        for process in left:
            print("left:", process)

    def run(self, faults: int, seconds: float) -> int:
        began, done = time.monotonic(), 0
        while done < faults and time.monotonic() - began < seconds:
            if self.known and self.random.random() < 0.3:
                self.damaged()
            else:
                self.signalled()
            done += 1
            self.check()
            if len(self.known) == self.wanted and self.random.random() < 0.5:
                self.finish()
                self.begin()
        self.finish()
        return done


def main() -> None:
    """Run, and print the counts as JSON; exit with 1 when anything was lost, doubled or left running."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="servebench-chaos-") as name:
        os.chdir(name)
        began = time.monotonic()
        chaos = Chaos(Path(name), given.seed)
        faults = chaos.run(given.faults, given.seconds)
        took_s = round(time.monotonic() - began)
        found = {"lost": chaos.lost, "doubled": chaos.doubled, "left_running": chaos.running}
        counts = dict(sorted(chaos.counts.items()))
        print(json.dumps({"faults": faults, **found, "experiments": chaos.experiments, "took_s": took_s, "of": counts}))
        os.chdir("/")
    sys.exit(any(found.values()))


if __name__ == "__main__":
    main()
