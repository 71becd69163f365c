"""Write a verb's messages and its final fault to the console and its log file."""

from __future__ import annotations

import logging
import sys
from pathlib import Path


def start(log: Path | None) -> None:
    """Send messages to the console and, if `log` is given, to that file, with date and time zone."""
    handlers: list[logging.Handler] = [logging.StreamHandler()]
    if log:
        log.parent.mkdir(parents=True, exist_ok=True)
        file = logging.FileHandler(log, mode="w", encoding="utf-8")
        file.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S%z"))
        handlers.append(file)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s", datefmt="%H:%M:%S", handlers=handlers)
    logging.getLogger("servebench").setLevel(logging.INFO)
    logging.raiseExceptions = False  # where no message can be written, the next write to the disk reports why


def tell(fault: str) -> None:
    """Print why a verb ends, on the console and in its log file, the only trace of a job on another node."""
    print(f"servebench: {fault}", file=sys.stderr)
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.FileHandler):
            handler.handle(logging.makeLogRecord({"msg": fault, "levelno": logging.ERROR}))
