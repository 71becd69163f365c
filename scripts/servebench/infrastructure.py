"""What must be there before anything is measured: the error that says it is not, and the lock that jobs share."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from servebench.faults import Fault


class InfrastructureError(Fault):
    """Something needed is missing or broken (weights, binary, environment, lock): the job fails without a result."""


@contextmanager
def locked(
    path: Path, *, timeout_s: float | None = None, waiting: Callable[[str], None] | None = None
) -> Iterator[TextIO]:
    """Hold an exclusive `flock` on `path` (made if absent) and yield the open file.

    The kernel drops the lock when the holder dies, however it dies. `waiting` is called once, with the holder's note,
    when the lock is taken. Raises `InfrastructureError` after `timeout_s` seconds (None waits for ever).
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        began, told = time.monotonic(), False
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                file.seek(0)
                holder = file.read().strip() or "another process"
                if waiting and not told:
                    waiting(f"waiting for {path}, held by {holder}")
                    told = True
                if timeout_s is not None and time.monotonic() - began >= timeout_s:
                    raise InfrastructureError(
                        f"{path}: still held by {holder} after {timeout_s:g} s; wait for it or end it"
                    ) from None
                time.sleep(0.1)
        yield file
