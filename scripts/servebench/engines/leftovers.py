"""End what is left of an engine whose session or guard was killed.

Every process of an engine inherits a mark in its environment: the lock files of the devices that its session holds
(`devices.Devices`). Once somebody else holds such a lock, that session is over and what still has its mark is left
over, in whatever process group, session or parent it is. Nothing that anybody writes into a file ends a process.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

import psutil

from servebench.machine.infrastructure import InfrastructureError

MARK = "SERVEBENCH_DEVICES"
PATIENCE_S = 15.0  # for a guard that is ending its engine just now
ENDING_S = 15.0  # for what was killed to be gone
POLL_S = 0.05
log = logging.getLogger("servebench")


def mark(locks: Iterable[str]) -> dict[str, str]:
    """Return the variables that mark every process of an engine whose session holds these lock files."""
    value = os.pathsep.join(locks)
    # Apptainer starts with a clean environment but for APPTAINERENV_…; setproctitle (vLLM, SGLang) writes its titles
    # over a process's environment unless SPT_NOENV is set.
    return {MARK: value, f"APPTAINERENV_{MARK}": value, "SPT_NOENV": "1"}


def marked(locks: Iterable[str]) -> list[psutil.Process]:
    """Find this user's living processes that have the mark of one of the lock files, and their descendants.

    This process and those above it are never among them.
    """
    wanted, me = set(locks), psutil.Process()
    found: dict[int, psutil.Process] = {}
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.uids().real == os.getuid() and wanted & set(
                _environment(process).get(MARK, "").split(os.pathsep)
            ):
                found |= {each.pid: each for each in (process, *process.children(recursive=True))}
    ours = {process.pid for process in (me, *me.parents())}
    return [process for process in found.values() if process.pid not in ours and lives(process)]


def _environment(process: psutil.Process) -> Mapping[str, str]:
    try:
        return process.environ()
    except OSError:  # such as EINVAL, of a process that is just ending
        return {}


def adopted(born_after_s: float) -> list[psutil.Process]:
    """Find the living children that this process did not start: orphans of a killed guard, and their descendants.

    `born_after_s` is the time (of the epoch) just before the guard was born. This process's own children stay in its
    session (`setsid`), but for the guard.
    """
    born_after_s -= 1.0  # the kernel's birth times are rounded, and follow another clock
    found: list[psutil.Process] = []
    for child in psutil.Process().children():
        with suppress(psutil.Error, ProcessLookupError):
            if child.create_time() >= born_after_s and _of_another_session(child):
                found += [child, *child.children(recursive=True)]
    return [process for process in found if lives(process)]


def reap() -> None:
    """Take away the adopted children that have ended: nobody else waits for them."""
    for child in psutil.Process().children():
        with suppress(psutil.Error, ProcessLookupError, ChildProcessError):
            if not lives(child) and _of_another_session(child):
                os.waitpid(child.pid, os.WNOHANG)


def _of_another_session(child: psutil.Process) -> bool:
    return os.getsid(child.pid) != os.getsid(0)


def end(locks: Iterable[str]) -> None:
    """End the processes with the mark of these lock files, which the caller holds.

    A guard may be ending its engine just now, so they get `PATIENCE_S` before they are killed. Raises
    `InfrastructureError` when one stays: it would disturb what is measured next.
    """
    locks = list(locks)
    found = marked(locks)
    if not found:
        return
    log.warning("ending what an earlier session left running: %s", _pids(found))
    psutil.wait_procs(found, timeout=PATIENCE_S)
    if left := killed(lambda: marked(locks)):
        raise InfrastructureError(f"processes of an earlier session do not end: {_pids(left)}; restart the machine")


def killed(find: Callable[[], list[psutil.Process]]) -> list[psutil.Process]:
    """Kill what `find` finds until it finds nothing, for `ENDING_S`; return what is left."""
    deadline = time.monotonic() + ENDING_S
    while (left := find()) and time.monotonic() < deadline:
        for process in left:
            with suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(left, timeout=POLL_S)
    return left


def lives(process: psutil.Process) -> bool:
    """Return whether the process has not ended; a zombie has."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _pids(processes: Iterable[psutil.Process]) -> str:
    return ", ".join(str(process.pid) for process in processes)
