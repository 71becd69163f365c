"""Run the simulator in place of an engine, for rehearsals and tests (`simulated.py`)."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import httpx

import servebench
from servebench import plan
from servebench.engines import pytorch
from servebench.engines.base import Adapter, Command, Difference, unlike
from servebench.engines.simulated import Machine

SERVER = Path(__file__).with_name("simulated.py")
OPTIONS = {field.name for field in fields(Machine)} - {"port", "model", "slots", "context"}
GIB = 2**30


class Simulator(Adapter):
    """The engine's options are `Machine`'s, and `weights_gib` and `kv_bytes_per_token`, which give its memory.

    The simulator reads none of the setting's arguments; a rehearsal keeps them for the tables.
    """

    uses_gpu = False
    loads_model = False
    start_s = 2.0

    @classmethod
    def option_names(cls, runtime: str | None) -> tuple[str, ...]:
        """Return all engines' options, those of `Machine`, and those that give its memory."""
        return *super().option_names(runtime), *sorted(OPTIONS), "weights_gib", "kv_bytes_per_token"

    @staticmethod
    def gpus(setting: plan.Setting) -> int:
        """Return how many GPUs the rehearsed engine needs, so that a rehearsal asks for as many."""
        return pytorch.gpus(setting.args)

    def command(self, port: int) -> Command:
        """Return the simulator in this interpreter."""
        options = dict(self.setting.engine.options)
        weights_gib, per_token = options.pop("weights_gib", None), options.pop("kv_bytes_per_token", 0)
        if weights_gib is not None:
            cache_bytes = per_token * self.setting.slots * (self.setting.context or 0)
            options["memory_gib"] = weights_gib + cache_bytes / GIB
        machine = {
            **{name: value for name, value in options.items() if name in OPTIONS},
            "port": port,
            "model": self.model,
            "slots": self.setting.slots,
            "context": self.setting.context,
        }
        return Command(argv=[sys.executable, str(SERVER), json.dumps(machine)], env=dict(self.setting.env))

    def inspect(self, client: httpx.Client) -> dict[str, Any]:
        """Ask /props."""
        props = client.get("/props").json()
        return {
            "version": f"simulator of servebench {servebench.__version__}",
            "build": None,
            "slots": props["total_slots"],
            "n_ctx_slot": props["n_ctx_slot"],
            "model_alias": props["model_alias"],
            "simulated_memory_gib": props["memory_gib"],
        }

    def compare(self, facts: Mapping[str, Any]) -> list[Difference]:
        """Compare slots and context."""
        return unlike({"slots": self.setting.slots, "n_ctx_slot": self.setting.context}, facts)
