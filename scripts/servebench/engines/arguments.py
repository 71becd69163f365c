"""Reading a setting's own arguments: what they give is not given before, and what they ask is what is compared."""

from __future__ import annotations

from collections.abc import Sequence


def unless(given: Sequence[str], names: tuple[str, ...], *with_value: str) -> list[str]:
    """[names[0], value…], or [] when `given` has one of the names."""
    return [] if any(word.partition("=")[0] in names for word in given) else [names[0], *with_value]


def value(given: Sequence[str], names: tuple[str, ...]) -> str | None:
    """The value of the last of `names` in `given` (`--name value` or `--name=value`)."""
    found = None
    for place, word in enumerate(given):
        name, equals, rest = word.partition("=")
        if name in names:
            found = rest if equals else (given[place + 1] if place + 1 < len(given) else None)
    return found


# PyTorch's types as vLLM and SGLang take them, and what `models.kv_cache` calls them.
_DTYPES = {"half": "f16", "float16": "f16", "bfloat16": "bf16", "float": "f32", "float32": "f32"}
_DTYPES |= dict.fromkeys(("fp8_e4m3", "fp8_e5m2"), "fp8")


def cache_dtype(given: Sequence[str]) -> tuple[str, str]:
    """Types of the KV cache's keys and values by `--kv-cache-dtype`; left out or auto, it is that of the weights by
    `--dtype`, and of 16 bits where that is left out or auto, too."""
    asked = [value(given, names) for names in (("--kv-cache-dtype", "--kv_cache_dtype"), ("--dtype",))]
    kind = next((dtype for dtype in asked if dtype not in (None, "auto")), None) or "f16"
    return _DTYPES.get(kind, kind), _DTYPES.get(kind, kind)


def last(given: Sequence[str], on: tuple[str, ...], off: tuple[str, ...]) -> bool | None:
    """Which of two opposite flags comes last; None for neither."""
    said = [word in on for word in given if word in on + off]
    return said[-1] if said else None
