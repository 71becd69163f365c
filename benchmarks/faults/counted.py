"""Run a script that injects faults until it has injected enough or its time is over, and print its counts as JSON."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

WRONG = ("lost", "doubled", "left_running", "broken")


class Injecting(Protocol):
    """Inject at least one fault at every trial; count them, and what went wrong."""

    faults: int

    def trial(self) -> None: ...

    def end(self) -> dict[str, Any]: ...


def main(document: str, begin: Callable[[Path, int], Injecting]) -> None:
    """Begin in a folder that is removed afterwards, with a seed; exit with 1 when anything went wrong."""
    parser = argparse.ArgumentParser(description=document, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="servebench-faults-") as name:
        injecting = begin(Path(name), given.seed)
        while injecting.faults < given.faults and time.monotonic() - began < given.seconds:
            injecting.trial()
        found = injecting.end()
    print(json.dumps({"faults": injecting.faults, "took_s": round(time.monotonic() - began), **found}))
    sys.exit(any(found.get(what, 0) for what in WRONG))
