"""End a process when its parent ends, however the parent ends; and take over what a dead child leaves behind."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def follow_parent(parent: int | None, signum: int = signal.SIGTERM) -> None:
    """Send `signum` to this process when its parent dies.

    `parent` is the parent's pid, None for the present parent; the signal comes at once if another process is the parent
    by now.

    Linux: the kernel does it (PR_SET_PDEATHSIG). Elsewhere a thread looks once a second.
    """
    parent = os.getppid() if parent is None else parent
    if sys.platform == "linux":
        _prctl(_PR_SET_PDEATHSIG, signum)
    else:
        threading.Thread(target=_watch, args=(parent, signum), daemon=True).start()
    if os.getppid() != parent:
        os.kill(os.getpid(), signum)


def adopt_orphans(adopt: bool) -> None:
    """Become the parent of every descendant whose own parent dies, or do so no more (Linux; elsewhere nothing does)."""
    if sys.platform == "linux":
        _prctl(_PR_SET_CHILD_SUBREAPER, int(adopt))


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")


def _watch(parent: int, signum: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os.kill(os.getpid(), signum)
