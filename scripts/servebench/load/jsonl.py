"""JSON that people wrote and requests will hold: what is wrong with it is one sentence with file and line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from servebench.faults import Fault


def lines(path: Path) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """("file:line", line number, object) for each line of a JSONL file; empty lines are passed over. Raises Fault."""
    for i, line in enumerate(read(path).split(b"\n"), 1):
        if line.strip():
            where = f"{path}:{i}"
            item = value(where, line, "one JSON object a line")
            if not isinstance(item, dict):
                raise Fault(f"{where}: is not a JSON object; one JSON object a line")
            yield where, i, sendable(where, item)


def read(path: Path) -> bytes:
    """A file's content. Raises Fault."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise Fault(f"{path}: cannot be read: {error.strerror}; name a file that is there") from None


def value(where: str, written: bytes, remedy: str) -> Any:
    """What the JSON in `written` says. Raises Fault."""
    try:
        return json.loads(written.decode())
    except (ValueError, RecursionError) as error:
        raise Fault(f"{where}: is not JSON in UTF-8 ({error}); {remedy}") from None


def sendable(where: str, found: Any) -> Any:
    """`found` itself, if a request can hold it. Raises Fault for half of a surrogate pair ("\\ud800"), which Python's
    texts may hold and UTF-8 may not, for NaN, infinities, and what is no JSON at all."""
    try:
        json.dumps(found, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, TypeError, RecursionError) as error:
        raise Fault(f"{where}: cannot be sent as JSON in UTF-8 ({error}); take that out") from None
    return found


def text(where: str, item: dict[str, Any], key: str) -> str:
    """The text at `key`, which is there and not empty. Raises Fault."""
    found = item.get(key)
    if not isinstance(found, str) or not found:
        raise Fault(f"{where}: {key}: {found!r:.60} is not a text; give some")
    return found
