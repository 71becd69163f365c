"""Leave out what a file says of its experiment where a later file changes the model or the machine, unless it says so.

A title, published figures, a price or expected facts of an H200 are untrue of the H100 that an overlay puts in its
place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

Path = tuple[str, ...]
Layer = tuple[str, Mapping[str, Any]]  # a file's name and its content

SAID = ("title", "reference", "cost", "deviations", "unverified")
# What a model and a machine are, by section; a model's file is compared by `_file_differs`.
_SUBJECT: Mapping[str, tuple[str, ...]] = {
    "engines": ("kind", "runtime", "environment", "image", "binary", "url", "options", "args", "env"),
    "models": ("requantize",),
    "settings": ("engine", "model", "slots", "context", "args", "env", "matrix", "include", "exclude"),
}


def without_stale(config: Mapping[str, Any], layers: Sequence[Layer]) -> tuple[dict[str, Any], list[str]]:
    """Return the merged configuration without what has become untrue, and a sentence for each file that made it so.

    `config` is the result of merging `layers`, in order.
    """
    from snakemake.utils import update_config

    merged: dict[str, Any] = {}
    stale: dict[Path, str] = {}  # and the file that made it so
    causes: dict[str, str] = {}
    for name, content in layers:
        before, said, restated = deepcopy(merged), set(_said(merged)), set(_said(content))
        update_config(merged, deepcopy(dict(content)))
        changed = list(_changes(before, merged))
        stale = {path: file for path, file in stale.items() if path not in restated}
        if changed:
            causes[name] = ".".join(changed[0])
            stale |= dict.fromkeys(said - restated - stale.keys(), name)
    kept = deepcopy(dict(config))
    gone = {path: file for path, file in stale.items() if _remove(kept, path)}
    sentences = []
    for file, cause in causes.items():
        names = sorted({_named(path, kept) for path, other in gone.items() if other == file})
        if names:
            sentences.append(
                f"{file} changes {cause}, so what was said before of another model or machine is left out:"
                f" {', '.join(names)}; where it still holds, say it again in {file}"
            )
    return kept, sentences


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Path]:
    """Yield the keys in which models or machine differ; an entry that only one of the two has changes no other."""
    for section, fields in _SUBJECT.items():
        there = dict(_entries(after, section))
        for name, entry in _entries(before, section):
            if name in there:
                yield from (
                    (section, name, key) for key in fields if (entry.get(key) or None) != (there[name].get(key) or None)
                )
                if section == "models" and _file_differs(entry, there[name]):
                    yield section, name, "sha256" if there[name].get("sha256") else "source"
    if before and before.get("cpus") != after.get("cpus"):
        yield ("cpus",)


def _file_differs(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two entries of a model name different files: by hash, or by source where one has no hash."""
    key = "sha256" if one.get("sha256") and other.get("sha256") else "source"
    return bool(one.get(key) != other.get(key))


def _said(config: Mapping[str, Any]) -> Iterator[Path]:
    """Yield each key under SAID and `expect`; a list counts as one value."""
    for key in SAID:
        yield from _leaves(config.get(key), (key,))
    for section in ("engines", "settings"):
        for name, entry in _entries(config, section):
            yield from _leaves(entry.get("expect"), (section, name, "expect"))


def _entries(config: Mapping[str, Any], section: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    entries = config.get(section)
    if isinstance(entries, Mapping):
        yield from ((str(name), entry) for name, entry in entries.items() if isinstance(entry, Mapping))


def _leaves(value: Any, path: Path) -> Iterator[Path]:
    if isinstance(value, Mapping):
        for key, held in value.items():
            yield from _leaves(held, (*path, str(key)))
    elif value is not None:
        yield path


def _remove(config: dict[str, Any], path: Path) -> bool:
    """Remove a key, and mappings that it leaves empty; return whether it was there."""
    first, *rest = path
    if not isinstance(config, dict) or config.get(first) is None:
        return False
    if not rest:
        del config[first]
        return True
    removed = _remove(config[first], tuple(rest))
    if removed and not config[first]:
        del config[first]
    return removed


def _named(path: Path, kept: Mapping[str, Any]) -> str:
    """Name a removed key: the shortest beginning of its path that is gone, or `expect` for all of them."""
    if path[-2:-1] == ("expect",) and not any("expect" in said for said in _said(kept)):
        return "expect"
    held: Any = kept
    for length, key in enumerate(path, 1):
        if not isinstance(held, Mapping) or key not in held:
            return ".".join(path[:length])
        held = held[key]
    return ".".join(path)
