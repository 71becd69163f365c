"""The evaluations of Japanese answers. A new one is one file and one line here."""

from __future__ import annotations

from collections.abc import Mapping

from servebench.tasks import jcommonsenseqa, mgsm, proofreading
from servebench.tasks.task import Task

# Bumped by hand when what is asked changes (the wording of a prompt, sampling); then everything is asked again.
PROMPTS = 1

TASKS: Mapping[str, Task] = {task.name: task for task in (jcommonsenseqa.TASK, mgsm.TASK, proofreading.TASK)}
