"""Say where every file under results/ is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from servebench.plan.types import Setting

PLACE = ("run", "setting", "round", "users")


def target_path(results: Path, target: str) -> Path:
    """The file that holds what a target answered, under `results/<experiment>`."""
    return results / "evaluations" / f"{target}.parquet"


def users_path(results: Path, setting: Setting, round_: int | str, users: int) -> Path:
    """The file that stands for a measurement under `results/<experiment>`; of any round with a `round_` "{round}"."""
    return measurement_path(results, {"run": setting.run, "setting": setting.name, "round": round_, "users": users})


def measurement_path(results: Path, place: Mapping[str, Any]) -> Path:
    """The file under measurements/ that stands for the measurement at `place` (PLACE)."""
    folder = results.joinpath("measurements", place["run"], place["setting"], f"round{place['round']}")
    return folder / f"users{place['users']:03d}.parquet"
