"""Read the JSON that requests are made from; a fault is one sentence with file and line."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from servebench.faults import Fault

MOST_BYTES = 2**30


def lines(path: Path) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Yield ("file:line", line number, object) for each non-empty line of a JSONL file. Raises Fault."""
    for i, line in enumerate(read(path).split(b"\n"), 1):
        if line.strip():
            where = f"{path}:{i}"
            item = value(where, line, "write one JSON object a line")
            if not isinstance(item, dict):
                raise Fault(f"{where}: is not a JSON object; write one JSON object a line")
            yield where, i, sendable(where, item)


def read(path: Path) -> bytes:
    """Read a file's content. Raises Fault, also for a device and for more than `MOST_BYTES`."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise Fault(f"{path}: is not a file; name a readable file")
        if found.st_size > MOST_BYTES:
            raise Fault(f"{path}: has {found.st_size:,} bytes, at most {MOST_BYTES:,} are read; name a part of it")
        return path.read_bytes()
    except OSError as error:
        raise Fault(f"{path}: cannot be read: {error.strerror}; name a readable file") from None


def value(where: str, written: bytes, remedy: str) -> Any:
    """Parse the JSON in `written`. Raises Fault."""
    try:
        return json.loads(written.decode())
    except (ValueError, RecursionError) as error:
        raise Fault(f"{where}: is not JSON in UTF-8 ({error}); {remedy}") from None


def sendable(where: str, found: Any) -> Any:
    """Return `found` unchanged if a request can carry it.

    Raises Fault for a lone surrogate ("\\ud800"), which a Python string can hold but UTF-8 cannot, for NaN and
    infinities, and for values that are not JSON.
    """
    try:
        json.dumps(found, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, TypeError, RecursionError) as error:
        raise Fault(f"{where}: cannot be sent as JSON in UTF-8 ({error}); remove it") from None
    return found


def text(where: str, item: dict[str, Any], key: str) -> str:
    """Return the string at `key`. Raises Fault if it is missing or empty."""
    found = item.get(key)
    if not isinstance(found, str) or not found:
        raise Fault(f"{where}: {key}: {found!r:.60} is not a non-empty string; give one")
    return found
