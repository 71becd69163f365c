"""The error for what a job needs and does not have, and the lock that jobs share."""

from __future__ import annotations

import errno
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from servebench.faults import Fault

DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # a full disk; the error names no file
ROOM = "make room and run the same again: what was measured before is kept"
_SAID = re.compile(r".*(?:no space left on device|disk quota exceeded).*", re.IGNORECASE)


class InfrastructureError(Fault):
    """A missing or broken part (weights, binary, environment, lock): the job fails without a result."""


def api_key(where: str, name: str) -> str:
    """Return the API key in the environment variable `name`, which the configuration key `where` names.

    Raises `InfrastructureError` when the variable is not set or no HTTP header can hold its value. No message contains
    the API key.
    """
    key = os.environ.get(name)
    if not key:
        raise InfrastructureError(f"{where}: {name} is not set; export the key")
    if wrong := re.search(r"[^!-~]", key):
        at = f"character {wrong.start() + 1} of {len(key)} is {wrong[0]!a}"
        raise InfrastructureError(f"{where}: {name} holds no key: {at}, which no header may hold; export the key alone")
    return key


def check_room(folder: Path, said: str) -> None:
    """Raise `InfrastructureError` when a disk is full.

    The disks of `folder` and of temporary files are tried; `said`, the last output of a program, may report another.
    """
    for tried in (folder, Path(tempfile.gettempdir())):
        try:
            with tempfile.TemporaryFile(dir=tried, buffering=0) as file:
                file.write(bytes(2**16))
        except OSError as error:
            if error.errno in (*DISK, errno.EROFS):
                raise InfrastructureError(f"{tried}: {error.strerror}; {ROOM}") from None
    if found := _SAID.search(said):
        raise InfrastructureError(f"{found[0].strip()}; {ROOM}")


def writable(folder: Path, named_by: str) -> Path:
    """Return `folder`, made if absent, after writing to it, so that nothing is fetched or measured that cannot be kept.

    Raises `InfrastructureError`, which says that `named_by` chooses another folder.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError as error:
        raise InfrastructureError(
            f"{folder}: cannot be written ({error.strerror}); make it writable, or name another folder: {named_by}"
        ) from None


@contextmanager
def locked(path: Path, *, waiting: Callable[[str], None]) -> Iterator[None]:
    """Hold the exclusive lock of the file `path`, made if absent, for the block.

    While another process holds the lock, `waiting` gets one message. The kernel drops the lock when its holder dies.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path, fallback_to_soft=False)  # a soft lock would outlive a killed holder
    try:
        lock.acquire(blocking=False)
    except Timeout:
        waiting(f"waiting for {path}, which another process holds")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
