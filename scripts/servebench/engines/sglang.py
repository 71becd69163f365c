"""Run SGLang (experimental) from a virtual environment or a container."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx

from servebench.engines import metrics, runtime
from servebench.engines.arguments import Option, unless
from servebench.engines.base import Command, Difference, unlike
from servebench.engines.pytorch import PyTorch
from servebench.machine.infrastructure import InfrastructureError

ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}


class Sglang(PyTorch):
    """Slots are `--max-running-requests`, the context is `--context-length`."""

    slots = Option(("--max-running-requests",))
    context = Option(("--context-length",))
    memory_flag = "--mem-fraction-static"
    memory_default = 0.92  # SGLang works its own out from the model and the device

    def command(self, port: int) -> Command:
        """Return `python -m sglang.launch_server …`; the setting's own arguments come last and win."""
        if self.launch.model_path is None:
            raise InfrastructureError(f"settings.{self.setting.name}.model: SGLang needs a snapshot's directory")
        given = self.setting.args
        argv = ["--model-path", runtime.inside(self.launch, self.launch.model_path), "--served-model-name", self.model]
        argv += ["--host", runtime.bind_address(self.launch), "--port", str(port)]
        argv += unless(given, self.slots.flags, str(self.setting.slots))
        if self.setting.context is not None:
            argv += unless(given, self.context.flags, str(self.setting.context))
        argv += unless(given, ("--enable-metrics",))
        argv += given
        module = ["-m", "sglang.launch_server"]
        return runtime.command(
            self.launch, argv, port=port, in_venv=module, in_image=["python3", *module], env=ENVIRONMENT
        )

    def inspect(self, client: httpx.Client) -> dict[str, Any]:
        """Ask /get_server_info, /v1/models and /metrics."""
        info = client.get("/get_server_info").json()
        card = client.get("/v1/models").json()["data"][0]
        found = metrics.scrape(client)
        return {
            "version": info.get("version"),
            "build": None,
            "slots": info.get("max_running_requests"),
            "n_ctx_slot": card.get("max_model_len") or info.get("context_length"),
            "model_alias": card.get("id"),
            "model_path": info.get("model_path"),
            "kv_cache_tokens": info.get("max_total_num_tokens"),
            "prefix_caching": None if "disable_radix_cache" not in info else not info["disable_radix_cache"],
            "preemptions": found.total("sglang:num_retracted_reqs"),
        }

    def compare(self, facts: Mapping[str, Any]) -> list[Difference]:
        """Compare slots, context and model."""
        asked: dict[str, Any] = {
            "slots": self.setting.slots,
            "n_ctx_slot": self.setting.context,
            "model_alias": self.model,
        }
        return unlike(asked, facts)
