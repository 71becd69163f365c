"""Search the quick start's settings twice on llama.cpp's server, and say whether the two answers overlap.

Each search has a folder of its own, so the second knows nothing of the first. The answers of one setting overlap if
some capacity is within both. Slow: two settings take about a quarter of an hour.

    python benchmarks/capacity/twice.py --out results/twice                   # all settings
    python benchmarks/capacity/twice.py --out results/twice np1 np4
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
SEARCHES = 2


def configuration(settings: list[str], ttft_s: float | None, most_users: int | None) -> dict[str, Any]:
    """Return the quick start's configuration with these settings (all where none is named), without evaluations.

    `ttft_s` (of the line's p95) and `most_users` take the place of its own, for a machine that is slow or busy.
    """
    config: dict[str, Any] = yaml.safe_load((ROOT / "config" / "config.yaml").read_text(encoding="utf-8"))
    del config["evaluations"]
    config["settings"] = {name: config["settings"][name] for name in settings or config["settings"]}
    if ttft_s is not None:
        config["line"] |= {"ttft_p95_s": ttft_s, "user_tok_s": 0.1}
    if most_users is not None:
        config["capacity"] = {"most_users": most_users}
    return config


def answers(folder: Path, config: dict[str, Any]) -> list[dict[str, Any]]:
    """Search in this folder, or go on with a search that was stopped there; returns its claims."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    snakemake = [str(Path(sys.executable).parent / "snakemake"), "--cores", "1", "--snakefile", str(ROOT / "Snakefile")]
    where = ["--directory", str(folder), "--configfile", str(file)]
    subprocess.run([*snakemake, "capacity", *where], check=True)
    found = folder / "results" / config["experiment"] / "capacity" / "answers.json"
    return list(json.loads(found.read_text(encoding="utf-8")))


def ends(claim: dict[str, Any]) -> tuple[int, int | None]:
    """Return the smallest capacity that an answer allows, and the smallest above it that it excludes (None: no end)."""
    return claim["values"].get("most", 0), claim["values"].get("misses")


def overlap(one: tuple[int, int | None], other: tuple[int, int | None]) -> bool:
    """Return whether some capacity is within both answers."""
    highest = min((end for _, end in (one, other) if end is not None), default=None)
    return highest is None or max(one[0], other[0]) < highest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("settings", nargs="*")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--ttft-s", type=float, help="Limit of the TTFT p95, with a speed of 0.1 tokens/s.")
    parser.add_argument("--most-users", type=int)
    asked = parser.parse_args()
    config = configuration(asked.settings, asked.ttft_s, asked.most_users)
    found = [answers(asked.out / str(number), config) for number in range(1, SEARCHES + 1)]
    print("| setting | serves, misses: first search | second search | measurements | overlap |")
    print("|---|---|---|---|---|")
    apart = 0
    for one, other in zip(*found, strict=True):
        both, made = [ends(one), ends(other)], [claim["values"]["measurements"] for claim in (one, other)]
        apart += not overlap(*both)
        shown = " | ".join(f"{low or 'none'}, {'–' if high is None else high}" for low, high in both)
        told = "yes" if overlap(*both) else "NO"
        print(f"| {one['subjects'][0]} | {shown} | {made[0]} + {made[1]} | {told} |", flush=True)
    raise SystemExit(apart > 0)


if __name__ == "__main__":
    main()
