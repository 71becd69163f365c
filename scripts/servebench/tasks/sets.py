"""Which questions a configuration means: a task's full set, a small one of our own, or a file."""

from __future__ import annotations

from pathlib import Path

from servebench.faults import Fault
from servebench.tasks.task import Task

FULL, SMALL = "full", "small"
# Our own, under config/tasks/.
_OWN = {
    ("proofreading", FULL): "proofreading/sentences.jsonl",
    ("jcommonsenseqa", SMALL): "jcommonsenseqa-small/questions.jsonl",
    ("mgsm", SMALL): "mgsm-small/questions.tsv",
}


def local(task: Task, name: str, root: Path) -> Path | None:
    """The file of the set called `name`, or at this path from `root`; None for published data, which is fetched.

    Fault when there is none; its text says what to give instead.
    """
    if name == FULL and task.source is not None:
        return None
    own = _OWN.get((task.name, name))
    if own is None and name == SMALL:
        raise Fault(f"{name!r}: {task.name} has no small set; leave it out and give a limit")
    path = root / "config" / "tasks" / own if own else root / name
    if not path.is_file():
        raise Fault(f"{name!r} is not a file; give one, {SMALL!r}, or leave it out for the full set")
    return path
