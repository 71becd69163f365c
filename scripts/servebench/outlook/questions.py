"""Find a task's questions: our own in `config/tasks/`, published ones fetched and kept in the cache."""

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
    """Return a task's questions in file order. Raises InfrastructureError when the file has another SHA-256."""
    path = Layout(results).questions(task)
    content = path.read_bytes()
    if (found := hashlib.sha256(content).hexdigest()) != asked.sha256:
        raise InfrastructureError(f"{path}: has SHA-256 {found}, not {asked.sha256}; delete the file")
    return TASKS[task].load(path)[: asked.questions]


def find(
    task: Task,
    name: str = FULL,
    *,
    cache_root: Path,
    mirror: str | None = None,
    progress: Callable[[str], None] = lambda line: None,
) -> Path:
    """Return the file of the task's set called `name`; published data has exactly the pinned bytes, fetched if needed.

    Published data is never part of the project. Raises `InfrastructureError` when it cannot be fetched.
    """
    own = sets.local(task, name, ROOT)
    if own is not None:
        return own
    assert task.source  # every published set has a source
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
    """Copy the set unchanged to `out`. Raises `InfrastructureError` when its SHA-256 is not the given one."""
    found = find(task, name, cache_root=cache_root, mirror=mirror, progress=progress)
    content = found.read_bytes()
    if (is_now := hashlib.sha256(content).hexdigest()) != sha256:
        raise InfrastructureError(f"{found}: has SHA-256 {is_now}, not {sha256}; the file has changed, start again")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_bytes(content)
