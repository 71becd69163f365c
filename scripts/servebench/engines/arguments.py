"""Read a setting's own arguments: what they give is not given again, and what they ask for is what is compared."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from servebench.faults import Fault
from servebench.plan import Setting


def unless(given: Sequence[str], names: tuple[str, ...], *with_value: str) -> list[str]:
    """Return [names[0], value…], or [] when `given` has one of the names."""
    return [] if any(_name(word) in names for word in given) else [names[0], *with_value]


def value(given: Sequence[str], names: tuple[str, ...]) -> str | None:
    """Return the value of the last of `names` in `given` (`--name value` or `--name=value`)."""
    return _last(given, names)[1]


def _last(given: Sequence[str], names: tuple[str, ...]) -> tuple[str, str | None]:
    """Return the last of `names` in `given` as it is written, and its value."""
    found: tuple[str, str | None] = "", None
    for place, word in enumerate(given):
        if _name(word) in names:
            name, equals, text = word.partition("=")
            found = name, text if equals else (given[place + 1] if place + 1 < len(given) else None)
    return found


def _name(word: str) -> str:
    """Return the flag of `--name` or `--name=value`. llama-server and vLLM take --ctx_size for --ctx-size."""
    name = word.partition("=")[0]
    return name.replace("_", "-") if name.startswith("--") else name


def integer(given: Sequence[str], names: tuple[str, ...]) -> int | None:
    """Return the last value of `names` in `given` as a number."""
    text = value(given, names)
    return None if text is None else int(text)


def last(given: Sequence[str], on: tuple[str, ...], off: tuple[str, ...]) -> bool | None:
    """Return which of two opposite flags comes last; None when neither is given."""
    switches = [word in on for word in given if word in on + off]
    return switches[-1] if switches else None


@dataclass(frozen=True)
class Option:
    """What an engine calls a number that a setting has a key for: flags, environment variables."""

    flags: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    all_slots: bool = False  # the engine's number is that of all slots together

    def otherwise(self, args: Sequence[str], env: Mapping[str, str], wanted: int) -> tuple[str, str] | None:
        """Return the flag or variable that asks for another number than `wanted`, and its value."""
        for name, text in (_last(args, self.flags), *((name, env.get(name)) for name in self.env)):
            if text is not None and text.strip() != str(wanted):
                return name, text
        return None


# Parallelism of vLLM and SGLang: each size multiplies the GPUs of one server.
_TENSOR = ("-tp", "--tp", "--tp-size", "--tensor-parallel-size")
_PIPELINE = ("-pp", "--pp", "--pp-size", "--pipeline-parallel-size")
_DATA = ("-dp", "--dp", "--dp-size", "--data-parallel-size")
_CONTEXT = ("-pcp", "--prefill-context-parallel-size")


def gpus(given: Sequence[str]) -> int:
    """Return how many GPUs tensor, pipeline, data and context parallelism take together."""
    # With --enable-dp-attention SGLang splits the tensor-parallel GPUs among the replicas.
    data = () if "--enable-dp-attention" in given else (_DATA,)
    sizes = [value(given, names) for names in (_TENSOR, _PIPELINE, *data, _CONTEXT)]
    return math.prod(int(size) for size in sizes if size is not None and size.isdecimal())


def share(setting: Setting, flag: str, default: float) -> float:
    """Return the share of a device's memory that `flag` gives; raises Fault when it is not above 0 and up to 1."""
    text = value(setting.args, (flag,))
    try:
        size = default if text is None else float(text)
    except ValueError:
        size = 0.0
    if not 0 < size <= 1:
        where = f"settings.{setting.name}.args: {text!r}"
        raise Fault(f"{where} is not a share of the device's memory; give one above 0 and up to 1")
    return size


# PyTorch's types as vLLM and SGLang take them, and what `models.kv_cache` calls them.
_DTYPES = {"half": "f16", "float16": "f16", "bfloat16": "bf16", "float": "f32", "float32": "f32"}
_DTYPES |= dict.fromkeys(("fp8_e4m3", "fp8_e5m2"), "fp8")


def cache_dtype(given: Sequence[str]) -> tuple[str, str]:
    """Return the types of the KV cache's keys and values by `--kv-cache-dtype`.

    Left out or auto, they are that of the weights by `--dtype`, and of 16 bits where that is left out or auto, too.
    """
    asked = [value(given, names) for names in (("--kv-cache-dtype",), ("--dtype",))]
    kind = next((dtype for dtype in asked if dtype not in (None, "auto")), None) or "f16"
    return _DTYPES.get(kind, kind), _DTYPES.get(kind, kind)
