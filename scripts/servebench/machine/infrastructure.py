"""What must be there before anything is measured: the error that says it is not, and the lock that jobs share."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from servebench.faults import Fault

DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # takes nothing more, and names no file
ROOM = "make room and run the same again: what was measured before is kept"
_SAID = re.compile(r".*(?:no space left on device|disk quota exceeded).*", re.IGNORECASE)


class InfrastructureError(Fault):
    """Something needed is missing or broken (weights, binary, environment, lock): the job fails without a result."""


def api_key(where: str, name: str) -> str:
    """The key that the environment variable `name` holds, as `where` asks for; never part of a message. Raises
    `InfrastructureError` when there is none or no header can hold it."""
    key = os.environ.get(name)
    if not key:
        raise InfrastructureError(f"{where}: {name} is not set; export the key")
    if wrong := re.search(r"[^!-~]", key):
        at = f"character {wrong.start() + 1} of {len(key)} is {wrong[0]!a}"
        raise InfrastructureError(f"{where}: {name} holds no key: {at}, which no header may hold; export the key alone")
    return key


def check_room(folder: Path, said: str) -> None:
    """Raise `InfrastructureError` when a disk takes nothing more: that of `folder` or that of temporary files, which
    are tried, or another that a program tells of in `said`, its last words."""
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
    """`folder`, made if absent and tried: nothing is to be fetched or measured that cannot be kept. Raises
    `InfrastructureError`, with what names another folder."""
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
    """Hold an exclusive `flock` on `path` (made if absent) in the block; `waiting` is told once when another process
    holds it. The kernel drops the lock when the holder dies, however it dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting(f"waiting for {path}, which another process holds")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
