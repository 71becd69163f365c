"""Find the questions a configuration names: a task's full set, our own small set, or a file."""

from __future__ import annotations

from pathlib import Path

from servebench.faults import Fault
from servebench.tasks.task import FULL, SMALL, Task


def local(task: Task, name: str, root: Path) -> Path | None:
    """Find the file of the set called `name`, or at this path from `root`; None for published data, which is fetched.

    Raises Fault when the file does not exist; its text says what to give instead.
    """
    if name == FULL and task.source is not None:
        return None
    own = task.own.get(name)
    if own is None and name == SMALL:
        raise Fault(f"{name!r}: {task.name} has no small set; leave it out and give a limit")
    path = root / "config" / "tasks" / own if own else root / name
    if not path.is_file():
        raise Fault(f"{name!r} is not a file; give one, {SMALL!r}, or leave it out for the full set")
    return path
