"""What all tests share: a mark for each folder, turns for what is timed, and Ctrl-C as a signal that arrives.

A shell that starts the suite in the background has SIGINT ignored; that is inherited, and tests send it to processes.
"""

import fcntl
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

# In the order in which they run, timed ones last: the cluster's, which mostly wait, beside those that only need a CPU.
FOLDERS = ("cluster", "rerun", "browser", "unit", "property", "fault", "engine", "load")

signal.signal(signal.SIGINT, signal.default_int_handler)


def folder(item: pytest.Item) -> str:
    """Return the folder of a test, which is also its mark."""
    return item.path.relative_to(Path(__file__).parent).parts[0]


def timed(item: pytest.Item) -> bool:
    """Return whether what else runs would change the times that the test looks at."""
    return item.get_closest_marker("timed") is not None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.add_marker(folder(item))
    items.sort(key=lambda item: (timed(item), FOLDERS.index(folder(item))))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Take turns by a lock on this file: a timed test alone in all of `pytest --numprocesses`, others side by side."""
    with Path(__file__).open() as turn:
        fcntl.flock(turn, fcntl.LOCK_EX if timed(item) else fcntl.LOCK_SH)
        try:
            return (yield)
        finally:
            fcntl.flock(turn, fcntl.LOCK_UN)
