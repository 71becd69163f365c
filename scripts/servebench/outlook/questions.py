"""Where a task's questions come from: our own from `config/tasks/`, published ones fetched and kept in the cache."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from servebench import ROOT, models
from servebench.machine.infrastructure import InfrastructureError
from servebench.plan import Model, TaskSet
from servebench.plan.layout import Layout
from servebench.tasks import TASKS, sets
from servebench.tasks.task import FULL, Question, Task


def asked_questions(results: Path, task: str, asked: TaskSet) -> list[Question]:
    """The questions that are asked of a task, in file order; InfrastructureError when the file is another one."""
    path = Layout(results).questions(task)
    content = path.read_bytes()
    if (found := hashlib.sha256(content).hexdigest()) != asked.sha256:
        raise InfrastructureError(f"{path}: has SHA-256 {found}, not {asked.sha256}; delete it")
    return TASKS[task].load(path)[: asked.questions]


def find(
    task: Task,
    name: str = FULL,
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


def copy(
    task: Task,
    name: str,
    sha256: str,
    out: Path,
    *,
    cache_root: Path,
    mirror: str | None = None,
    progress: Callable[[str], None] = lambda line: None,
) -> None:
    """Write the set to `out`, byte by byte. Raises `InfrastructureError` when it is not the one of this SHA-256."""
    found = find(task, name, cache_root=cache_root, mirror=mirror, progress=progress)
    content = found.read_bytes()
    if (is_now := hashlib.sha256(content).hexdigest()) != sha256:
        raise InfrastructureError(f"{found}: has SHA-256 {is_now}, not {sha256}; it changed meanwhile, start again")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_bytes(content)
