"""Stand between a session and its engine, so that no engine outlives its session, however the session ends.

    python -I guard.py '{"stop_timeout_s": 30, "cleanup": [], "cpus": []}' ENGINE_COMMAND...

It runs the engine in a process group of its own and holds the other end of a pipe on its standard input. When the
session closes the pipe, or dies by any signal (then the kernel closes it), the guard stops the engine: SIGTERM to the
engine's main process, which lets it end its own children; after `stop_timeout_s` SIGKILL to every descendant; then
`cleanup`, a command that removes what is not a descendant (a container).
The guard reaps orphaned descendants (Linux), so that a worker that left its group or its parent is ended too and no
zombie is left; and if the guard itself is killed, the kernel ends the engine (PR_SET_PDEATHSIG).

The guard writes the engine's pid as its first line to standard output. It exits with the engine's exit status,
128 + signal when the engine died by a signal; with 0 when the session stopped it and every process is gone.
"""

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
LINUX = sys.platform == "linux"


def main() -> int:
    """Run the engine, wait for its end or the session's, and leave no process behind."""
    options, command = json.loads(sys.argv[1]), sys.argv[2:]
    # A signal meant for the session's group must not end the guard before the engine; the pipe tells it in time.
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    if LINUX:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
    guard = os.getpid()
    engine = os.fork()
    if engine == 0:
        become(command, guard, options["cpus"])
    print(engine, flush=True)

    while True:
        ready, _, _ = select.select([sys.stdin.fileno(), woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            status = reap(engine)
            if status is not None:
                end_all(engine, time.monotonic(), options["cleanup"])
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code
        if sys.stdin.fileno() in ready and not os.read(sys.stdin.fileno(), 4096):
            send(engine, signal.SIGTERM)
            end_all(engine, time.monotonic() + options["stop_timeout_s"], options["cleanup"])
            return 0


def become(command: list[str], guard: int, cpus: list[int]) -> None:
    """Become the engine, in the child: in a group of its own, tied to the guard's life, on the engine's CPUs."""
    os.setpgid(0, 0)
    if cpus and LINUX:
        os.sched_setaffinity(0, cpus)
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(signum, signal.SIG_DFL)
    if LINUX:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)  # standard output carries the guard's one line; the engine's goes to the log
    if os.getppid() == guard:
        try:
            os.execvp(command[0], command)  # noqa: S606  no shell is wanted
        except OSError as error:
            print(f"{command[0]}: {error.strerror}", file=sys.stderr, flush=True)
    os._exit(127)


def prctl(option: int, value: int) -> None:
    """Set a process attribute; raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl failed")


def reap(engine: int) -> int | None:
    """Collect every dead child; returns the engine's wait status if the engine is among them."""
    status = None
    while True:
        try:
            pid, wait_status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status
        if pid == 0:
            return status
        if pid == engine:
            status = wait_status


def end_all(engine: int, deadline: float, cleanup: list[str]) -> None:
    """Wait until no descendant is left, from `deadline` (monotonic seconds) on kill the rest, then run `cleanup`."""
    while True:
        reap(engine)
        # Zombies are among them: the guard is their reaper, and one that cannot be reaped yet still has living threads.
        left = descendants(os.getpid()) if LINUX else group(engine)
        if not left:
            if cleanup:
                subprocess.run(cleanup, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False)
            return
        if time.monotonic() >= deadline:
            for pid in left:
                send(pid, signal.SIGKILL)
        time.sleep(0.02)


def send(pid: int, signum: int) -> None:
    """Send a signal, if the process still exists."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signum)


def descendants(ancestor: int) -> list[int]:
    """Return the processes below `ancestor`, by /proc."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                # The name in parentheses may contain anything, so fields are counted from the last one.
                _, parent = (entry / "stat").read_bytes().rpartition(b")")[2].split()[:2]
            except OSError:
                continue
            parents[int(entry.name)] = int(parent)

    def below(pid: int) -> bool:
        while pid in parents:
            pid = parents[pid]
            if pid == ancestor:
                return True
        return False

    return [pid for pid in parents if below(pid)]


def group(engine: int) -> list[int]:
    """Return [-engine], the whole group to `kill`, while the group has a member (systems without /proc)."""
    try:
        os.killpg(engine, 0)
    except (ProcessLookupError, PermissionError):
        return []
    return [-engine]


if __name__ == "__main__":
    sys.exit(main())
