"""Locks that jobs share, and the cache they share."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from servebench.machine import cache
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


def test_the_cache_is_where_it_is_named_else_in_the_users_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SERVEBENCH_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/ann")
    assert cache.root() == Path("/home/ann/.cache/servebench")
    monkeypatch.setenv("XDG_CACHE_HOME", "/fast/cache")
    assert cache.root() == Path("/fast/cache/servebench")
    monkeypatch.setenv("SERVEBENCH_CACHE", "~/models")
    assert cache.root() == Path("/home/ann/models")
    assert cache.root("/scratch/ann") == Path("/scratch/ann")
