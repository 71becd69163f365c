"""Kill and damage a simulator experiment at random moments, and count what is lost, doubled or left running.

    python benchmarks/faults/chaos.py --faults 10000 --seed 1

A fault is a signal to a process of a running session (session, guard, engine, load worker, sampler, or session and
guard at once) at a random moment, one after the other until the session has ended, or damage to a file between two
sessions (a bit of a stored measurement, the plan, the note in a lock, a link). After each session the store must hold
every measurement that was ever in it, bit for bit, but for those that were damaged here. When all measurements of an
experiment are there, and once at the end, `servebench verify` must find nothing wrong and no process may be left; then
the next experiment begins.

Most sessions, with their load workers and samplers, are forked from this process, which has imported all they import:
they run the same verb on the same files with the same processes, pipes and signals, and begin at once. A share is
started as the workflow starts it, in a fresh Python, and another by a whole `snakemake`, which is then a process that
is hit too.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import counted
import psutil

from servebench import ROOT, configuration
from servebench.cli import app, verify
from servebench.engines import leftovers
from servebench.load import worker
from servebench.machine import sampler
from servebench.plan.layout import Layout
from servebench.store import measurements
from servebench.workflow import Targets

CONFIG = {
    "experiment": "chaos",
    "rounds": 1,
    "engines": {"sim": {"kind": "simulator"}},
    "models": {"none": {"source": "file:///nowhere.gguf", "sha256": "0" * 64}},
    "workload": {"prompts": "en-short", "max_tokens": 4, "warmup_s": 0.05, "window_s": 0.2, "timeout_s": 20},
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
WEIGHTS = {"load worker": 4, "engine": 2}  # others: 1, so that a session lives for some faults
FIRST_S = 3.0  # at most, of a session's first signal
BETWEEN_S = 0.2  # two signals, on average
PATIENCE_S = 600.0  # at the lowest priority on a busy machine
FRESH, SNAKEMAKE = 0.05, 0.02  # shares of the sessions
FORKED = {module.__name__: module.main for module in (worker, sampler)}
executed = subprocess._fork_exec  # type: ignore[attr-defined]


def forked(words: list[bytes | str], *given: Any) -> int:
    """Take the place of the call behind `Popen`: fork what is imported already, execute anything else."""
    argv = [os.fsdecode(word) for word in words]
    if argv[1:2] != ["-m"] or argv[2] not in FORKED:
        return int(executed(words, *given))
    (_, _, kept, _, _, read, _, _, write, _, error, _, told, *_), group = given, given[15]
    if child := born():
        return child
    Path("/proc/self/comm").write_text(argv[2].rpartition(".")[2], encoding="ascii")
    if group >= 0:
        os.setpgid(0, group)
    for source, target in ((read, 0), (write, 1), (error, 2)):
        if source >= 0:
            os.dup2(source, target)
    last = 2
    for descriptor in (*sorted({*kept} - {told}), 2**16):
        os.closerange(last + 1, descriptor)
        last = descriptor
    sys.argv = argv[2:]
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    ended(FORKED[argv[2]])


def born() -> int:
    """Fork; the child gets no signal before it runs what it is for (`ended`), as it would be its parent's copy."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    if child := os.fork():
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    return child


def ended(main: Any) -> None:
    """Run a process's own entry point in a forked child, and end the child as Python would have ended."""
    status: Any = 1
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        status = main() or 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except KeyboardInterrupt:
        status = 130
    finally:
        os._exit(status)


def kind(process: psutil.Process, root: psutil.Process) -> str:
    """Name what a process of a run is; what only forked has its module's name, else its command tells."""
    if process == root:
        return "session"
    if process.name() in ("worker", "sampler"):
        return {"worker": "load worker"}.get(process.name(), "sampler")
    words = " ".join(process.cmdline()).split("{")[0]
    names = {"guard.py": "guard", "simulated.py": "engine", "load.worker": "load worker", "machine.sampler": "sampler"}
    return next((name for part, name in names.items() if part in words), "other")


class Chaos:
    def __init__(self, folder: Path, seed: int) -> None:
        os.chdir(folder)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's job in the background ignores
        self.folder, self.random = folder, random.Random(seed)
        os.environ.update({"SERVEBENCH_LOCKS": str(folder / "locks"), "CUDA_VISIBLE_DEVICES": ""})
        (folder / "chaos.json").write_text(json.dumps(CONFIG), encoding="utf-8")
        self.counts: Counter[str] = Counter()
        self.lost = self.doubled = self.running = self.experiments = self.faults = 0
        self.begin()

    def begin(self) -> None:
        """Begin an experiment without results."""
        shutil.rmtree("results", ignore_errors=True)
        self.targets = Targets(configuration.load(CONFIG, []), Layout(Path("results/chaos")))
        self.targets.hand_over()
        shutil.copy(self.targets.reported(None, None), self.targets.layout.plan)
        self.wanted = self.targets.plan.measurements
        self.known: dict[str, str] = {}
        self.experiments += 1

    def start(self) -> psutil.Process:
        """Start the session of a random setting: as snakemake's, in a fresh Python, or forked."""
        job = self.random.choice([job for job in self.targets.jobs() if job.of_rounds])
        verb = self.verb(job)
        drawn = self.random.random()
        self.counts["sessions"] += 1
        if drawn < FRESH + SNAKEMAKE:
            command = [sys.executable, "-m", "servebench", *verb]
            if drawn < SNAKEMAKE:
                self.counts["sessions of snakemake"] += 1
                command = [str(Path(sys.executable).with_name("snakemake")), "--cores", "1", "--nolock"]
                command += ["--snakefile", str(ROOT / "Snakefile"), "--configfile", "chaos.json"]
                command += ["--rerun-incomplete", f"only_main_{job.setting.name}"]
            return psutil.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return self.fork(verb)

    def fork(self, verb: list[str]) -> psutil.Process:
        """Run a verb in a fork of this process."""
        sys.stdout.flush()
        if child := born():
            return psutil.Process(child)
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        subprocess._fork_exec = forked  # type: ignore[attr-defined]
        ended(lambda: app.main(verb))

    def verb(self, job: Any) -> list[str]:
        log, engine_log = self.targets.layout.log("session"), self.targets.layout.engine_log("session")
        words = shlex.split(job.options(SimpleNamespace(round="1"), None))
        return [*words, "--log", str(log), "--engine-log", str(engine_log)]

    def signalled(self) -> None:
        """Start a session, and send signals to its processes until it has ended."""
        root = self.start()
        seen: list[psutil.Process] = []
        wait_s = self.random.uniform(0, FIRST_S)
        while True:
            try:
                root.wait(wait_s)
                break
            except psutil.TimeoutExpired:
                self.signal(root, seen)
                wait_s = self.random.expovariate(1 / BETWEEN_S)
        _, alive = psutil.wait_procs(seen, PATIENCE_S)
        self.running += len(alive)
        for process in alive:
            print("does not end:", process)

    def signal(self, root: psutil.Process, seen: list[psutil.Process]) -> None:
        """Send a signal to one of the processes; those that begin a session must then end."""
        family: dict[str, list[psutil.Process]] = {}
        with suppress(psutil.Error):
            for process in [root, *root.children(recursive=True)]:
                with suppress(psutil.Error):
                    family.setdefault(kind(process, root), []).append(process)
            seen += [process for each in family.values() for process in each if process not in seen]
        if not family:
            return
        (victim,) = self.random.choices(sorted(family), [WEIGHTS.get(name, 1) for name in sorted(family)])
        victims = [self.random.choice(family[victim])]
        signum = self.random.choice(SIGNALS)
        if victim == "guard" and self.random.random() < 0.5:
            victim, victims, signum = "session and guard", [*victims, root], signal.SIGKILL
        with suppress(psutil.Error):
            for process in victims:
                process.send_signal(signum)
            self.counts[victim] += 1
            self.faults += 1
        if victim.startswith("session"):
            root.wait(PATIENCE_S)

    def damaged(self) -> None:
        """Damage a file between two sessions."""
        layout = self.targets.layout
        stored = sorted(Path("results/chaos/store").glob("*.parquet"))
        what = self.random.choice(["bit", "plan", "lock", "link"] if stored else ["plan", "lock"])
        if what in ("bit", "link"):
            path = self.random.choice(stored)
            if what == "bit":
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
        elif what == "plan":
            layout.plan.write_bytes(self.random.choice([b"", b"{}", b"[", b"5"]))
        else:
            for lock in (self.folder / "locks").glob("*.lock"):
                lock.write_bytes(self.random.choice([b"{}", b"5", b'{"container": "x", "processes": [[1, 0]]}']))
        self.counts[f"damaged {what}"] += 1
        self.faults += 1

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
            self.fork(self.verb(job)).wait(PATIENCE_S)
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

    def trial(self) -> None:
        """Damage a file, or start a session and hit it until it has ended; look at what is there."""
        if self.known and self.random.random() < 0.3:
            self.damaged()
        else:
            self.signalled()
        self.check()
        if len(self.known) == self.wanted and self.random.random() < 0.5:
            self.finish()
            self.begin()

    def end(self) -> dict[str, Any]:
        """Finish the last experiment; return what went wrong and the faults by kind."""
        self.finish()
        os.chdir("/")
        found = {"lost": self.lost, "doubled": self.doubled, "left_running": self.running}
        return {**found, "experiments": self.experiments, "of": dict(sorted(self.counts.items()))}


def main() -> None:
    """Run, and print the counts as JSON; exit with 1 when anything was lost, doubled or left running."""
    counted.main(str(__doc__), Chaos)


if __name__ == "__main__":
    main()
