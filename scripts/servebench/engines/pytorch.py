"""Define what vLLM and SGLang share: serving a snapshot with PyTorch, on one or several GPUs that they fill."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from servebench import plan
from servebench.engines.arguments import value
from servebench.engines.base import Adapter
from servebench.faults import Fault

# PyTorch's types, and what `models.kv_cache` calls them.
DTYPES = {"half": "f16", "float16": "f16", "bfloat16": "bf16", "float": "f32", "float32": "f32"}
DTYPES |= dict.fromkeys(("fp8_e4m3", "fp8_e5m2"), "fp8")
# Parallelism: each size multiplies the GPUs of one server.
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


class PyTorch(Adapter):
    """Run an engine that takes a share of its device's memory, whatever the model needs."""

    fills_device = True
    start_s = 90.0
    memory_flag: str  # gives the share
    memory_default: float  # and about what the engine takes without the flag

    @staticmethod
    def cache_types(setting: plan.Setting) -> tuple[str, str]:
        """Return `--kv-cache-dtype`, for both.

        Left out or auto, the types are that of the weights by `--dtype`; of 16 bits when that is left out or auto, too.
        """
        asked = [value(setting.args, (name,)) for name in ("--kv-cache-dtype", "--dtype")]
        kind = next((dtype for dtype in asked if dtype not in (None, "auto")), None) or "f16"
        return DTYPES.get(kind, kind), DTYPES.get(kind, kind)

    @staticmethod
    def gpus(setting: plan.Setting) -> int:
        """Return the product of the sizes of parallelism."""
        return gpus(setting.args)

    @classmethod
    def memory_share(cls, setting: plan.Setting) -> float:
        """Return what the flag gives, or the default."""
        text = value(setting.args, (cls.memory_flag,))
        try:
            share = cls.memory_default if text is None else float(text)
        except ValueError:
            share = 0.0
        if not 0 < share <= 1:
            where = f"settings.{setting.name}.args: {text!r}"
            raise Fault(f"{where} is not a share of the device's memory; give one above 0 and up to 1")
        return share

    @property
    def extra(self) -> dict[str, Any]:
        """Switch thinking off by the chat template's switch."""
        return {"chat_template_kwargs": {"enable_thinking": False}} if self.thinking_off else {}
