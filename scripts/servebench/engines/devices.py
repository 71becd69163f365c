"""Which devices a session has, for itself alone on its node: those a batch system gave it, or the first that are free.

A device is a GPU, known by its UUID. Where an engine uses none, or the driver shows none, the names in
CUDA_VISIBLE_DEVICES stand for devices all the same (a batch system may hand out what only it knows of), and without
any there is one device, the CPU.
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
    """Devices held: their names, the GPUs among them, and the files that tell their next holders what to end."""

    names: tuple[str, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    files: tuple[TextIO, ...] = ()

    def left(self) -> list[dict[str, Any]]:
        """What earlier holders remembered and did not forget: they were killed."""
        found = []
        for file in self.files:
            file.seek(0)
            with suppress(json.JSONDecodeError):
                found.append(json.loads(file.read()))
        return found

    def remember(self, entry: Mapping[str, Any]) -> None:
        """Leave word of what must be ended if we cannot."""
        self.forget()
        for file in self.files:
            file.write(json.dumps(entry))
            file.flush()

    def forget(self) -> None:
        """Nothing is left to be ended."""
        for file in self.files:
            file.truncate(0)


def node() -> str:
    """This node's name: as the batch system calls it, else the host's."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


@contextmanager
def held(wanted: str | None, *, count: int, uses_gpu: bool) -> Iterator[Devices]:
    """Hold `count` devices of this node (all there are, if they are fewer and no GPUs), waiting until they are free.

    `wanted` (runtime.device) names the devices to choose from, else CUDA_VISIBLE_DEVICES does, else all GPUs. The
    kernel gives a device up when its holder dies, however it dies. Raises `InfrastructureError` when there are fewer
    GPUs than asked for, or a named one is not there.
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
    """(name, GPU if it is one) of each device that may be used; never empty."""
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
    """The first `count` devices nobody holds, now held until `stack` ends; fewer when there are not as many."""
    found: list[tuple[str, Gpu | None, TextIO]] = []
    for name, device in there:
        if len(found) == count:
            break
        file = stack.enter_context((folder / f"{node()}-{name}.lock").open("a+", encoding="utf-8"))
        with suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            found.append((name, device, file))
    return found
