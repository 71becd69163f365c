"""What follows a load gives way to it, and nothing else does."""

import os
import subprocess
import sys

import pytest

from servebench.machine.priority import NICENESS, behind

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux, where a thread has a priority of its own")


def niceness() -> int:
    return os.getpriority(os.PRIO_PROCESS, 0)


def test_the_thread_behind_the_load_has_the_lowest_priority_and_its_process_keeps_its_own() -> None:
    mine = niceness()
    with behind() as thread:
        assert thread.submit(niceness).result() == NICENESS
        assert niceness() == mine
        child = subprocess.run([sys.executable, "-c", "import os; print(os.nice(0))"], capture_output=True, text=True)
    assert int(child.stdout) == mine


def test_what_the_thread_raises_is_raised_where_its_result_is_awaited() -> None:
    with behind() as thread, pytest.raises(ZeroDivisionError):
        thread.submit(lambda: 1 // 0).result()
