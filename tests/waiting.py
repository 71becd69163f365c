"""Wait in tests for a condition, never for time to pass."""

import time
from collections.abc import Callable


def until(condition: Callable[[], object], seconds: float, what: str) -> None:
    """Wait until the condition holds; fail with its name if that takes too long."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.05)
