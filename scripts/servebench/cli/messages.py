"""What a verb says while it runs and when it fails, on the console and in its log file."""

from __future__ import annotations

import logging
import sys
from pathlib import Path


def start(log: Path | None) -> None:
    """Send messages to the console and, when asked, to a log file, whose times have a date and a zone."""
    handlers: list[logging.Handler] = [logging.StreamHandler()]
    if log:
        log.parent.mkdir(parents=True, exist_ok=True)
        file = logging.FileHandler(log, mode="w", encoding="utf-8")
        file.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S%z"))
        handlers.append(file)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s", datefmt="%H:%M:%S", handlers=handlers)
    logging.getLogger("servebench").setLevel(logging.INFO)
    logging.raiseExceptions = False  # where no message can be written, what is written next says why


def tell(fault: str) -> None:
    """Say why a verb ends: on the console, and in its log file, which is all that is left of a job elsewhere."""
    print(f"servebench: {fault}", file=sys.stderr)
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.FileHandler):
            handler.handle(logging.makeLogRecord({"msg": fault, "levelno": logging.ERROR}))
