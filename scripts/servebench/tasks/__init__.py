"""Evaluation tasks, one module each: prompt, extraction with the rule that fired, score."""

from collections.abc import Mapping

from servebench.tasks import jcommonsenseqa, mgsm, proofreading
from servebench.tasks.task import Task

TASKS: Mapping[str, Task] = {task.name: task for task in (jcommonsenseqa.TASK, mgsm.TASK, proofreading.TASK)}
