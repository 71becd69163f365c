"""Score replies from a file: `servebench score`."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from servebench.faults import Fault
from servebench.machine import cache
from servebench.machine.infrastructure import new
from servebench.outlook import questions
from servebench.tasks import TASKS
from servebench.tasks.scoring import score_replies


def command(task: str, replies: Path, out: Path, data: Path | None, mirror: str | None) -> None:
    """Score the file, and print the totals. Without `data`, the task's full set is found or fetched."""
    if task not in TASKS:
        raise Fault(f"--task: {task!r} is unknown; one of {', '.join(TASKS)}")

    def asked() -> Path:
        say = partial(print, file=sys.stderr)
        return data or questions.find(TASKS[task], cache_root=cache.root(), mirror=mirror, progress=say)

    new(out.parent, "--out", out.name)
    print(score_replies(TASKS[task], replies, asked, out))
