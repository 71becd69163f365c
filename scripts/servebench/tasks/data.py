"""Where a task's questions come from: our own from `config/tasks/`, published ones fetched and kept in the cache."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from servebench import models
from servebench.configuration import ROOT
from servebench.plan import Model
from servebench.tasks.task import Task

OWN = {"proofreading": "proofreading/sentences.jsonl"}


def find(
    task: Task, *, cache_root: Path, mirror: str | None = None, progress: Callable[[str], None] = lambda line: None
) -> Path:
    """The file of the task's full set, exactly the pinned bytes; fetched when the cache has it not.

    Published data is never part of the project. Raises `InfrastructureError` when it cannot be had.
    """
    if task.source is None:
        return ROOT / "config" / "tasks" / OWN[task.name]
    data = Model(key=task.name, name=task.name, source=task.source.url, sha256=task.source.sha256)
    manifest = models.fetch(data, {}, cache_root=cache_root, mirror=mirror, progress=progress)
    return models.path(manifest, cache_root)
