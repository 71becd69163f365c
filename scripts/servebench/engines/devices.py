"""Give a session devices of its own on its node: those of the batch system, or the first that are free.

A device is a GPU, known by its UUID. When the engine uses no GPU, or the driver shows none, the names in
CUDA_VISIBLE_DEVICES stand for devices all the same (a batch system may hand out devices that only it knows), and
without such names the one device is the CPU.
"""

from __future__ import annotations

import fcntl
import logging
import os
import random
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, BinaryIO
from urllib.parse import quote

import msgspec
from platformdirs.unix import Unix

from servebench.engines.base import Container
from servebench.machine import gpu
from servebench.machine.gpu import Gpu
from servebench.machine.infrastructure import InfrastructureError, private_file

POLL_S = 0.2
NAMED_BY = "SERVEBENCH_LOCKS"
log = logging.getLogger("servebench")


class _Left(msgspec.Struct):
    """Hold what a killed holder leaves and no mark in a process can say: its container."""

    container: Annotated[str, msgspec.Meta(pattern=r"\Aservebench-[0-9a-f]{12}\Z")] | None = None
    tool: Annotated[str, msgspec.Meta(pattern=r"\A(docker|podman)\Z")] = "docker"


@dataclass(frozen=True)
class Devices:
    """Devices held: names, the GPUs among them, and the locked files by which this user's sessions hold them."""

    names: tuple[str, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    files: tuple[BinaryIO, ...] = ()
    paths: tuple[str, ...] = ()  # of those files

    def left(self) -> list[Container]:
        """Return the containers that earlier holders left to be removed: they were killed."""
        found = []
        for file in self.files:
            file.seek(0)
            with suppress(msgspec.DecodeError):  # it was killed while it wrote
                found.append(msgspec.json.decode(file.read(), type=_Left))
        return [Container(left.tool, left.container) for left in found if left.container is not None]

    def remember(self, container: Container) -> None:
        """Write down the container that the next holder must remove if this one is killed."""
        self.forget()
        for file in self.files:
            file.write(msgspec.json.encode(_Left(container.name, container.tool)))
            file.flush()

    def forget(self) -> None:
        """Delete what `remember` wrote: nothing is left to be removed."""
        for file in self.files:
            file.seek(0)
            file.truncate()


def node() -> str:
    """Return this node's name: the batch system's, else the host's."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


@contextmanager
def held(wanted: str | None, *, count: int, uses_gpu: bool) -> Iterator[Devices]:
    """Hold `count` devices of this node (all of them, when they are fewer and no GPUs), waiting until they are free.

    `wanted` (runtime.device) names the devices to choose from, else CUDA_VISIBLE_DEVICES does, else all GPUs. The
    kernel frees a device when its holder dies. Raises `InfrastructureError` when the node has fewer GPUs than asked
    for, or not the named one.
    """
    there = candidates(wanted, uses_gpu=uses_gpu)
    if len(there) < count:
        if there[0][1] is not None:
            seen = ", ".join(name for name, _ in there)
            raise InfrastructureError(
                f"{count} GPUs on {node()} are needed, but only {len(there)} can be used: {seen}; ask the batch system "
                "for as many, or set runtime.device or CUDA_VISIBLE_DEVICES"
            )
        count = len(there)
    # Not under TMPDIR: batch systems give each job its own, and two jobs on one device must meet. Not under /tmp, where
    # another user could make the folder first.
    folder = Path(os.environ.get(NAMED_BY) or Unix("servebench").user_state_path / "locks").absolute()
    waiting = False
    while True:
        with ExitStack() as stack:
            found = _free(there, count, folder, stack)
            if len(found) == count:
                yield Devices(
                    names=tuple(name for name, _, _ in found),
                    gpus=tuple(g for _, g, _ in found if g is not None),
                    files=tuple(file for _, _, file in found),
                    paths=tuple(str(folder / _lock_name(name)) for name, _, _ in found),
                )
                return
        if not waiting:
            waiting = True
            names = ", ".join(name for name, _ in there)
            log.warning("waiting for %d of the devices %s on %s; other sessions hold them", count, names, node())
        # All or none were taken, and not at the same moments as somebody else who wants several.
        time.sleep(POLL_S * random.uniform(0.5, 1.5))


def candidates(
    wanted: str | None, *, uses_gpu: bool, environ: Mapping[str, str] = os.environ
) -> list[tuple[str, Gpu | None]]:
    """Return (name, GPU or None) of each device that may be used; never empty."""
    if wanted == "cpu":
        return [("cpu", None)]
    if uses_gpu and (gpus := gpu.usable(wanted, environ)):
        return [(found.uuid, found) for found in gpus]
    names = gpu.named(wanted, environ)
    if uses_gpu and names:
        log.warning("no driver shows the devices %s; the engine has to do without a GPU", ", ".join(names))
    return [(name, None) for name in names or ["cpu"]]


def _free(
    there: Sequence[tuple[str, Gpu | None]], count: int, folder: Path, stack: ExitStack
) -> list[tuple[str, Gpu | None, BinaryIO]]:
    """Hold the first `count` free devices, or as many as are free, until `stack` ends."""
    found: list[tuple[str, Gpu | None, BinaryIO]] = []
    for name, device in there:
        if len(found) == count:
            break
        file = stack.enter_context(os.fdopen(private_file(folder, _lock_name(name), NAMED_BY), "r+b", buffering=0))
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        except OSError as error:
            raise InfrastructureError(
                f"{folder}: its file system has no locks ({error.strerror}); name a folder on another: {NAMED_BY}"
            ) from None
        found.append((name, device, file))
    return found


def _lock_name(device: str) -> str:
    return quote(f"{node()}-{device}.lock", safe="")
