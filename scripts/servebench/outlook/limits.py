"""Predict what a setting can do at most, from its model's size and the device's memory and bandwidth.

A stream gets a token when all weights have been read once, so it gets at most bandwidth ÷ weights tokens a second.
Slots fit as far as memory has room for weights and caches. Whatever else an engine does makes it slower and larger.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from servebench.outlook import requirements
from servebench.outlook.inventory import manifest_of
from servebench.outlook.requirements import Memory
from servebench.plan import Plan, Struct

GB = 10**9
# In the names of products that are slower or faster than those they are named after, and of parts of a device.
_OTHER = re.compile(r" (Laptop|Ti|MIG)\b")


class Bandwidth(Struct, frozen=True, kw_only=True):
    """Hold the bandwidth of a device's memory, and what says so: "configured", "data_sheet" or "copied"."""

    gb_s: float
    source: str


class Limit(Struct, frozen=True, kw_only=True):
    """Hold what is predicted of a setting; None where it cannot be.

    `stream_tok_s`: most tokens a second of one stream; `slots`: how many fit into the device's memory.
    """

    setting: str
    stream_tok_s: float | None
    slots: int | None


@cache
def _devices() -> list[dict[str, object]]:
    return list(yaml.safe_load(Path(__file__).with_name("devices.yaml").read_text(encoding="utf-8")))


def bandwidth(gpu: str | None, configured: float | None = None, copied: float | None = None) -> Bandwidth | None:
    """Return the bandwidth of a device's memory: as configured, else by a GPU's name; None for an unknown GPU.

    Of a CPU (`gpu` None) it is what a probe has `copied` (`machine.bandwidth`), None without a probe.
    """
    if configured is not None:
        return Bandwidth(gb_s=configured, source="configured")
    if gpu is None:
        return None if copied is None else Bandwidth(gb_s=copied, source="copied")
    known = () if _OTHER.search(gpu) else _devices()
    found = next((float(str(one["gb_s"])) for one in known if _names(str(one["name"]), gpu)), None)
    return None if found is None else Bandwidth(gb_s=found, source="data_sheet")


def _names(name: str, device: str) -> bool:
    """Return whether whole words of a device's name are `name`: "T4" is no "T400"."""
    return re.search(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", device) is not None


def limits(
    plan: Plan, results: Path, cache_root: Path, *, memory_gib: float, bandwidth_gb_s: float | None
) -> list[Limit]:
    """Predict each launched setting, in the plan's order, on a device with this memory and bandwidth."""
    found = []
    for need in requirements.memory(plan, results, cache_root):
        targets = plan.evaluations.targets if plan.evaluations else {}
        setting = plan.settings.get(need.setting) or targets[need.setting]
        facts = (manifest_of(setting.model, results) or {}).get("facts") or {}
        found.append(limit(need, facts, memory_gib=memory_gib, bandwidth_gb_s=bandwidth_gb_s))
    return found


def limit(need: Memory, facts: Mapping[str, Any], *, memory_gib: float, bandwidth_gb_s: float | None) -> Limit:
    """Predict a setting by the memory it needs and its model file's facts."""
    dense = "moe" not in str(facts.get("architecture")).lower()  # otherwise a token reads only some of the weights
    speed = None
    if need.weights_gib and bandwidth_gb_s and dense:
        speed = bandwidth_gb_s * GB / (need.weights_gib * requirements.GIB)
    return Limit(setting=need.setting, stream_tok_s=speed, slots=need.contexts(memory_gib))
