"""Publish how far a running job is: one small JSON file under `<results>/progress`, replaced about once a second.

The session or evaluation writes the file, outside of the load processes; only `servebench watch` reads it.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import msgspec
import psutil
from msgspec import Struct

from servebench import plan
from servebench.engines import devices
from servebench.plan.layout import Layout

LOADING = ("warmup", "window", "drain", "whole")  # phases of a session
ASKING = "asking"  # the only phase of an evaluation
SILENT_S = 900.0  # a job on another node that has published nothing for this long counts as gone
log = logging.getLogger("servebench")


class _Last(Struct):
    users: int
    output_tok_s: float | None
    ttft_p95_s: float | None


class _Said(Struct):
    """Hold the content of a progress file: keys every file has, and optional ones."""

    kind: Literal["session", "search", "evaluation"]
    phase: str
    run: str
    setting: str
    round: int
    node: str
    pid: int
    process_started_s: float
    told_at_s: float
    last: _Last | None = None
    memory_bytes: float | None = None
    memory_kind: str | None = None
    foreign_utilisation: float | None = None


class _Loading(_Said, kw_only=True):
    users: int
    elapsed_s: float
    total_s: float | None
    running: int
    finished: int
    failures: int
    pieces_s: float | None
    first_piece_s: float | None


class _Asking(_Said, kw_only=True):
    task: str
    asked: int
    questions: int
    failures: int
    left_s: float


_BY_PHASE: Mapping[str, type[_Said]] = {**dict.fromkeys(LOADING, _Loading), ASKING: _Asking}


class Publisher:
    """Publish a job's progress inside a `with` block, at whose end the file is removed."""

    def __init__(self, results: Path, session: plan.Session, kind: str = "session") -> None:
        """Name the file. `results` is results/<experiment>; `kind` is session, search or evaluation."""
        setting = session.setting
        self.path = Layout(results).progress / f"{kind}-{setting.run}-{setting.name}-round{session.round}.json"
        own = psutil.Process()
        self.said: dict[str, Any] = {
            "kind": kind,
            "run": setting.run,
            "setting": setting.name,
            "round": session.round,
            "engine_kind": setting.engine.kind,
            "slots": setting.slots,
            "node": devices.node(),
            "pid": own.pid,
            "process_started_s": own.create_time(),
        }
        self.broken = False

    def __enter__(self) -> Self:
        self.tell(phase="starting")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):  # where writing failed, no file exists
            self.path.unlink()

    def tell(self, **news: Any) -> None:
        """Publish `news` and the earlier values. A disk that cannot be written disturbs no measurement."""
        self.said |= news | {"told_at_s": time.time()}
        if self.broken:
            return
        part = self.path.with_suffix(".part")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            part.write_text(json.dumps(self.said), encoding="utf-8")
            part.replace(self.path)
        except OSError as error:
            self.broken = True
            log.warning("%s: cannot be written (%s); watch will not show this job", self.path, error)


def running(results: Path) -> Iterator[dict[str, Any]]:
    """Yield the latest progress of each running job, in order of name; damaged files are skipped."""
    for path in sorted(Layout(results).progress.glob("*.json")):
        try:
            content = path.read_bytes()
            phase = msgspec.json.decode(content, type=_Said).phase
            msgspec.json.decode(content, type=_BY_PHASE.get(phase, _Said))
        except (FileNotFoundError, ValueError):
            continue  # the job has just ended, the machine died while writing, or another version wrote the file
        said = json.loads(content)
        if _alive(said):
            yield said


def _alive(said: Mapping[str, Any]) -> bool:
    if said["node"] != devices.node():
        return time.time() - float(said["told_at_s"]) < SILENT_S
    try:
        return bool(psutil.Process(said["pid"]).create_time() == said["process_started_s"])
    except psutil.Error:
        return False
