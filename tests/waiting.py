"""The one way in which tests wait."""

import time
from collections.abc import Callable


def until(condition: Callable[[], object], seconds: float, what: str) -> None:
    """Wait until it holds; fail, naming what was waited for, if that takes longer."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.05)
