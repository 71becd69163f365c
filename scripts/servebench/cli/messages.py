"""Write a verb's messages and its final fault to the console and its log file."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from servebench.machine.untrusted import shown


class _Shown(logging.Formatter):
    """Format messages without secrets and control characters: they may quote servers and tools."""

    def format(self, record: logging.LogRecord) -> str:
        return shown(super().format(record))


def say(text: str) -> None:
    """Print a text, which may quote servers and tools, without secrets and control characters."""
    print(shown(text), flush=True)


def start(log: Path | None) -> None:
    """Send messages to the console and, if `log` is given, to that file, with date and time zone."""
    handlers: list[logging.Handler] = [logging.StreamHandler()]
    if log:
        log.parent.mkdir(parents=True, exist_ok=True)
        file = logging.FileHandler(log, mode="w", encoding="utf-8")
        file.setFormatter(_Shown("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S%z"))
        handlers.append(file)
    handlers[0].setFormatter(_Shown("%(asctime)s %(message)s", "%H:%M:%S"))
    logging.basicConfig(level=logging.WARNING, handlers=handlers)
    logging.getLogger("servebench").setLevel(logging.INFO)
    logging.raiseExceptions = False  # where no message can be written, the next write to the disk reports why


def tell(fault: str) -> None:
    """Print why a verb ends, on the console and in its log file, the only trace of a job on another node."""
    print(shown(f"servebench: {fault}"), file=sys.stderr)
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.FileHandler):
            handler.handle(logging.makeLogRecord({"msg": fault, "levelno": logging.ERROR}))
