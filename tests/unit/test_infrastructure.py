"""Locks that jobs share."""

from __future__ import annotations

import threading
from pathlib import Path

from servebench.machine.infrastructure import locked


def test_who_waits_for_a_lock_is_told_once_and_has_it_when_it_is_free(tmp_path: Path) -> None:
    path, told, order = tmp_path / "locks" / "one.lock", threading.Event(), []
    said: list[str] = []

    def waits() -> None:
        with locked(path, waiting=lambda line: (said.append(line), told.set())):
            order.append("second")

    other = threading.Thread(target=waits)
    with locked(path, waiting=said.append):
        other.start()
        assert told.wait(60)
        order.append("first")
    other.join(60)
    assert order == ["first", "second"]
    assert said == [f"waiting for {path}, which another process holds"]
