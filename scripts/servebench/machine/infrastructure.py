"""The error for what a job needs and does not have, the lock that jobs share, and files that are one user's alone."""

from __future__ import annotations

import errno
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from servebench.faults import Fault
from servebench.machine.untrusted import keep_secret

DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # a full disk; the error names no file
ROOM = "make room and run the same again: what was measured before is kept"
_SAID = re.compile(r".*(?:no space left on device|disk quota exceeded).*", re.IGNORECASE)


class InfrastructureError(Fault):
    """A missing or broken part (weights, binary, environment, lock): the job fails without a result."""


def api_key(where: str, name: str) -> str:
    """Return the API key in the environment variable `name`, which the configuration key `where` names.

    Raises `InfrastructureError` when the variable is not set or no HTTP header can hold its value. No message contains
    the API key, and from now on `untrusted.redacted` hides it.
    """
    key = os.environ.get(name)
    if not key:
        raise InfrastructureError(f"{where}: {name} is not set; export the key")
    if wrong := re.search(r"[^!-~]", key):
        at = f"character {wrong.start() + 1} of {len(key)} is {wrong[0]!a}"
        raise InfrastructureError(f"{where}: {name} holds no key: {at}, which no header may hold; export the key alone")
    keep_secret(key)
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


def private_file(folder: Path, name: str, named_by: str) -> int:
    """Open the file `name` in `folder`, both made if absent, for reading and writing; return the descriptor.

    No link is followed, and both must be this user's alone: whoever could write to them, or lock them, could stop every
    session or have files truncated. Raises `InfrastructureError`, which says that `named_by` chooses another folder.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            _private(os.fstat(at), folder, "chmod 700", named_by)
            file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600, dir_fd=at)
        finally:
            os.close(at)
        try:
            found = os.fstat(file)
            _private(found, folder / name, "chmod 600", named_by)
            if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
                raise InfrastructureError(f"{folder / name}: is not an ordinary file; remove it")
        except BaseException:
            os.close(file)
            raise
    except OSError as error:
        why = "is a link" if error.errno in (errno.ELOOP, errno.ENOTDIR) else f"cannot be opened ({error.strerror})"
        where = folder if error.filename is None else folder / error.filename
        raise InfrastructureError(f"{where}: {why}; remove it, or name another folder: {named_by}") from None
    return file


def _private(found: os.stat_result, path: Path, remedy: str, named_by: str) -> None:
    if found.st_uid != os.geteuid():
        raise InfrastructureError(f"{path}: belongs to another user; remove it, or name another folder: {named_by}")
    if found.st_mode & 0o077:
        mode = f"{stat.S_IMODE(found.st_mode):o}"
        raise InfrastructureError(
            f"{path}: is open to other users (mode {mode}); {remedy}, or name another folder: {named_by}"
        )


def new(folder: Path, named_by: str, *names: str) -> None:
    """Raise `InfrastructureError` when `folder` has one of these files: what was measured is never overwritten."""
    for path in (folder / name for name in names):
        if path.exists():
            raise InfrastructureError(f"{path}: exists and is not overwritten; move it, or name another: {named_by}")


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
