"""Work out the workload of a run, as the load generator takes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from servebench.configuration import sections
from servebench.configuration.sections import defaults


def workload(config: Mapping[str, Any], run: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the workload of a run, or the configuration's own: defaults under its keys, `prompts` a set or file."""
    people = {"think": config["people"]["pause"]} if "people" in config else {}
    merged = {**defaults(sections.Workload), **people, **config["workload"], **((run or {}).get("workload") or {})}
    if isinstance(cut := merged.get("prompts"), Mapping):
        merged |= {"prompts": cut.get("set", defaults(sections.Prompts)["set"]), "prompt_tokens": cut["tokens"]}
    if isinstance(merged.get("think"), int | float):
        merged["think"] = f"{merged['think']:g}"
    return merged
