"""Give a session devices of its own on its node: those of the batch system, or the first that are free.

A device is a GPU, known by its UUID. When the engine uses no GPU, or the driver shows none, the names in
CUDA_VISIBLE_DEVICES stand for devices all the same (a batch system may hand out devices that only it knows), and
without such names the one device is the CPU.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import random
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from servebench.machine import gpu
from servebench.machine.gpu import Gpu
from servebench.machine.infrastructure import InfrastructureError

POLL_S = 0.2
log = logging.getLogger("servebench")


@dataclass(frozen=True)
class Devices:
    """Devices held: names, the GPUs among them, and the files in which a killed holder leaves what must be ended."""

    names: tuple[str, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    files: tuple[TextIO, ...] = ()

    def left(self) -> list[dict[str, Any]]:
        """Return what earlier holders left to be ended: they were killed."""
        found = []
        for file in self.files:
            file.seek(0)
            with suppress(json.JSONDecodeError):
                found.append(json.loads(file.read()))
        return found

    def remember(self, entry: Mapping[str, Any]) -> None:
        """Write down what the next holder must end if this one is killed."""
        self.forget()
        for file in self.files:
            file.write(json.dumps(entry))
            file.flush()

    def forget(self) -> None:
        """Delete what `remember` wrote: nothing is left to be ended."""
        for file in self.files:
            file.truncate(0)


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
    # Not under TMPDIR: batch systems give each job its own, and two jobs on one device must meet.
    folder = Path(os.environ.get("SERVEBENCH_LOCKS") or f"/tmp/servebench-{os.getuid()}")
    folder.mkdir(parents=True, exist_ok=True)
    waiting = False
    while True:
        with ExitStack() as stack:
            found = _free(there, count, folder, stack)
            if len(found) == count:
                yield Devices(
                    names=tuple(name for name, _, _ in found),
                    gpus=tuple(g for _, g, _ in found if g is not None),
                    files=tuple(file for _, _, file in found),
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
) -> list[tuple[str, Gpu | None, TextIO]]:
    """Hold the first `count` free devices, or as many as are free, until `stack` ends."""
    found: list[tuple[str, Gpu | None, TextIO]] = []
    for name, device in there:
        if len(found) == count:
            break
        file = stack.enter_context((folder / f"{node()}-{name}.lock").open("a+", encoding="utf-8"))
        with suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            found.append((name, device, file))
    return found
