"""Name what two settings differ in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from servebench.plan.types import Setting


def differences(one: Setting, other: Setting) -> list[str]:
    """Name what two settings differ in.

    That is the model, or its file or quantization; the engine, slots, context and load processes; and each argument,
    environment variable, and key of the request, the workload or the CPUs by its own name, such as "-ub",
    "workload.window_s" or "cpus.server".
    """
    names = ["model"] if one.model.name != other.model.name else []
    if one.model.name == other.model.name and one.model.key != other.model.key:
        same = one.model.quantization == other.model.quantization
        names.append("model_file" if same else "quantization")
    names += ["engine"] if one.engine.key != other.engine.key else []
    names += [name for name in ("slots", "context", "processes") if getattr(one, name) != getattr(other, name)]
    names += _unlike(_options(one.args), _options(other.args))
    for part in ("env", "request", "workload", "cpus"):
        names += [f"{part}.{name}" for name in _unlike(getattr(one, part) or {}, getattr(other, part) or {})]
    return names


# What two measurements may differ in though their settings do not say so: columns of `measurements`, each with the
# differences of settings that explain it.
MEASURED: Mapping[str, tuple[str, ...]] = {
    "engine_version": ("engine",),
    "engine_build": ("engine", "engine_version"),
    "engine_pin": ("engine", "engine_version", "engine_build"),
    "model_sha256": ("model", "model_file", "quantization"),
    "fingerprint": (),
    "device": ("fingerprint",),
    "protocol": (),
}


def measured_differences(
    names: Sequence[str], one: Sequence[Mapping[str, Any]], other: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Name the columns of MEASURED in which the rows of two settings differ, but for what `names` explains.

    `names`: what the settings differ in. A value that a row does not know differs from none.
    """
    found: list[str] = []
    for column, explained in MEASURED.items():
        first, second = ({row[column] for row in rows if row[column] is not None} for rows in (one, other))
        if {*names, *found}.isdisjoint(explained) and first and second and first != second:
            found.append(column)
    return found


def _options(args: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Group arguments by option: `-t 8` is {"-t": ("8",)}."""
    options: dict[str, tuple[str, ...]] = {}
    name = ""
    for word in args:
        if word.startswith("-") and not word.lstrip("-").replace(".", "").isdigit():
            name = word
            options[name] = ()
        else:
            options[name] = (*options.get(name, ()), word)
    return options


def _unlike(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    missing = object()
    return [name for name in {**one, **other} if one.get(name, missing) != other.get(name, missing)]
