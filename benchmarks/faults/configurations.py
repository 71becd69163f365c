"""Time how long a configuration with many faults takes to be refused, and how that grows with their number.

    python benchmarks/faults/configurations.py --faults 2000

The quick start's configuration is given unknown keys, or faulty settings, as often as asked and a tenth as often; each
is read from its file as before a run. Prints JSON: CPU seconds of each (the shortest of `--repeats`), and the ratio of
both, which is about 10 where the time is linear; exits with 1 where not every fault has its line.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

from servebench import ROOT, configuration

QUICK = yaml.safe_load((ROOT / "config" / "config.yaml").read_text(encoding="utf-8"))


def faulty(where: str, faults: int) -> dict[str, Any]:
    """Return the quick start's configuration with this many faults."""
    config = copy.deepcopy(QUICK)
    if where == "unknown keys":
        config.update({f"unknown{n}": 1 for n in range(faults)})
    else:
        setting = next(iter(config["settings"].values()))
        config["settings"] = {f"s{n}": {**setting, "slots": 0} for n in range(faults)}
    return config


def refused(file: Path) -> tuple[float, int]:
    """Return the CPU seconds until the file is refused, and the number of lines that say why."""
    began = time.process_time()
    try:
        configuration.read([file])
    except configuration.ConfigError as error:
        return time.process_time() - began, len(str(error).splitlines())
    return time.process_time() - began, 0


def main() -> None:
    """Time, and print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    figures, whole = {}, True
    with tempfile.TemporaryDirectory() as folder:
        for where in ("unknown keys", "faulty settings"):
            cpu_s = {}
            for faults in (given.faults, given.faults // 10):
                file = Path(folder) / "c.yaml"
                file.write_text(yaml.safe_dump(faulty(where, faults), sort_keys=False), encoding="utf-8")
                runs = [refused(file) for _ in range(given.repeats)]
                cpu_s[faults] = min(run[0] for run in runs)
                whole = whole and all(run[1] == faults for run in runs)
            many, few = cpu_s.values()
            figures[where] = {"cpu_s": {n: round(seconds, 3) for n, seconds in cpu_s.items()}, "ratio": many / few}
    print(json.dumps(figures))
    sys.exit(not whole)


if __name__ == "__main__":
    main()
