"""Score replies from a file: `servebench score`."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer()


@app.command()
def score(
    task: Annotated[str, typer.Option(help="jcommonsenseqa, mgsm or proofreading.")],
    replies: Annotated[Path, typer.Option(help="question_id and reply per line (JSON Lines).")],
    out: Annotated[Path, typer.Option(help="question_id, extracted, rule, correct per line (JSON Lines).")],
    data: Annotated[Path | None, typer.Option(help="The questions; by default the task's full set.")] = None,
    mirror: Annotated[str | None, typer.Option(help="Directory or address to fetch published data from.")] = None,
) -> None:
    """Score replies you already have, and print the totals."""
    from servebench.faults import Fault
    from servebench.machine import cache
    from servebench.outlook.questions import find
    from servebench.tasks import TASKS
    from servebench.tasks.scoring import score_replies

    if task not in TASKS:
        raise Fault(f"--task: {task!r} is unknown; one of {', '.join(TASKS)}")

    def questions() -> Path:
        say = partial(print, file=sys.stderr)
        return data or find(TASKS[task], cache_root=cache.root(), mirror=mirror, progress=say)

    print(score_replies(TASKS[task], replies, questions, out))
