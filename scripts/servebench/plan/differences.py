"""Name what two settings differ in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from servebench.plan.types import Setting


def differences(one: Setting, other: Setting) -> list[str]:
    """Name what two settings differ in.

    That is the model, or its file or quantization; the engine, slots and context; and each argument, environment
    variable, and key of the request or the workload by its own name, such as "-ub" or "workload.window_s".
    """
    names = ["model"] if one.model.name != other.model.name else []
    if one.model.name == other.model.name and one.model.key != other.model.key:
        same = one.model.quantization == other.model.quantization
        names.append("model_file" if same else "quantization")
    names += ["engine"] if one.engine.key != other.engine.key else []
    names += [name for name in ("slots", "context") if getattr(one, name) != getattr(other, name)]
    names += _unlike(_options(one.args), _options(other.args))
    for part in ("env", "request", "workload"):
        names += [f"{part}.{name}" for name in _unlike(getattr(one, part), getattr(other, part))]
    return names


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
