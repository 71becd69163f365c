"""List the evaluation tasks, one module each: prompt, extraction with the rule that fired, score, measures."""

from collections.abc import Mapping

from servebench.tasks import jcommonsenseqa, mgsm, proofreading
from servebench.tasks.task import Measure, Task

TASKS: Mapping[str, Task] = {task.name: task for task in (jcommonsenseqa.TASK, mgsm.TASK, proofreading.TASK)}
MEASURES: tuple[Measure, ...] = tuple(measure for task in TASKS.values() for measure in task.measures)
