"""Leave a core to more urgent work: a lower priority, and no imports for nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from importlib.abc import MetaPathFinder

# What shares a core with a load process: it may wait for a second, the load for no millisecond.
NICENESS = 19


def give_way(niceness: int = NICENESS) -> None:
    """Lower this thread's priority (elsewhere than on Linux: the process's), for good: only root can raise it again."""
    if hasattr(os, "setpriority"):
        with suppress(OSError):  # it is lower already
            os.setpriority(os.PRIO_PROCESS, 0, niceness)


@contextmanager
def behind() -> Iterator[ThreadPoolExecutor]:
    """Make a thread that gives way to everything else. What starts processes or waits for them keeps its priority."""
    initializer = give_way if sys.platform == "linux" else None
    with ThreadPoolExecutor(1, initializer=initializer) as thread:
        yield thread


def spare_pandas() -> None:
    """Keep pyarrow from importing pandas in this process, where the load and what follows it need none.

    Wherever pandas is installed, pyarrow imports it (half a second) to ask whether a list is one of its series.
    """
    if "pandas" not in sys.modules:
        sys.meta_path.insert(0, _WithoutPandas())


def allow_pandas() -> None:
    """Undo `spare_pandas`, once the load is over."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _WithoutPandas)]


class _WithoutPandas(MetaPathFinder):
    def find_spec(self, name: str, *_: object) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is left out of this process", name=name)
