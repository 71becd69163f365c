"""Where a task's questions come from: our own from `config/tasks/`, published ones fetched and kept in the cache."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from servebench import models
from servebench.configuration import ROOT
from servebench.plan import Model
from servebench.tasks import sets
from servebench.tasks.task import Task


def find(
    task: Task,
    name: str = sets.FULL,
    *,
    cache_root: Path,
    mirror: str | None = None,
    progress: Callable[[str], None] = lambda line: None,
) -> Path:
    """The file of the task's set called `name`; published data is exactly the pinned bytes, fetched when need be.

    Published data is never part of the project. Raises `InfrastructureError` when it cannot be had.
    """
    own = sets.local(task, name, ROOT)
    if own is not None:
        return own
    assert task.source  # what is not our own has one
    data = Model(key=task.name, name=task.name, source=task.source.url, sha256=task.source.sha256)
    manifest = models.fetch(data, {}, cache_root=cache_root, mirror=mirror, progress=progress)
    return models.path(manifest, cache_root)
