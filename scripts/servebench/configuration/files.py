"""Find the files that a configuration names, and compute their digests."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from servebench import ROOT


def engine_pin(entry: Mapping[str, Any]) -> str | None:
    """Return what pins an engine's version: the SHA-256 of its environment's lock, or its image's digest."""
    if entry.get("environment"):
        return hashlib.sha256((ROOT / "envs" / f"{entry['environment']}.lock").read_bytes()).hexdigest()
    if entry.get("image"):
        images = yaml.safe_load((ROOT / "envs" / "images.yaml").read_text(encoding="utf-8"))
        return str(images[entry["image"]]["digest"])
    return None


def prompts_path(prompts: str) -> Path:
    """Return the path of a prompt set: a built-in name under config/prompts, or a path (from the root, if relative)."""
    built_in = ROOT / "config" / "prompts" / prompts
    return built_in if built_in.is_dir() else ROOT / prompts


def prompts_digest(prompts: str) -> str:
    """Return the SHA-256 over a prompt set's files, by name and content."""
    path = prompts_path(prompts)
    whole = hashlib.sha256()
    for file in sorted(path.iterdir()) if path.is_dir() else [path]:
        if file.suffix != ".md":
            whole.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return whole.hexdigest()


def trace_digest(trace: str | None) -> str | None:
    """Return the SHA-256 of a trace's file (a relative path is from the project's root); None without a trace."""
    return None if trace is None else hashlib.sha256((ROOT / trace).read_bytes()).hexdigest()
