"""Run llama.cpp's HTTP server: from the wheel (venv), as the `llama-server` binary, or in a container."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from servebench import plan
from servebench.engines import llama_log, runtime
from servebench.engines.arguments import Option, integer, last, unless, value
from servebench.engines.base import Adapter, Command, Difference, post, sha256, unlike
from servebench.machine.infrastructure import InfrastructureError

LAUNCHER = Path(__file__).with_name("llama_wheel.py")
IDLE_TIMEOUT_S = 30.0
MICRO_BATCH = 512  # llama-server's own --ubatch-size
# llama.cpp's names of file types that differ from the names of the files.
FILE_TYPES = {
    "Q2_K - Medium": "Q2_K",
    "Q3_K - Small": "Q3_K_S",
    "Q3_K - Medium": "Q3_K_M",
    "Q3_K - Large": "Q3_K_L",
    "Q4_K - Small": "Q4_K_S",
    "Q4_K - Medium": "Q4_K_M",
    "Q5_K - Small": "Q5_K_S",
    "Q5_K - Medium": "Q5_K_M",
}


class LlamaServer(Adapter):
    """Slots are `-np`; `-c` is the context of all slots together, of which each gets its part: slots × context."""

    slots = Option(("-np", "--parallel"), ("LLAMA_ARG_N_PARALLEL",))
    context = Option(("-c", "--ctx-size"), ("LLAMA_ARG_CTX_SIZE",), all_slots=True)

    @staticmethod
    def unheard(variable: str, runtime: str | None) -> str | None:
        """Refuse llama-server's variables for the wheel, which takes flags only."""
        wheel = runtime == "venv" and variable.startswith(("LLAMA_ARG_", "LLAMA_LOG_"))
        return "the wheel takes flags only: give the flag among args" if wheel else None

    @staticmethod
    def fitting_context(context: int, slots: int, args: Sequence[str]) -> int | None:
        """Round up a slot's context, or with a unified cache the context of all slots together."""
        if not last(args, ("-kvu", "--kv-unified"), ("-no-kvu", "--no-kv-unified")):
            return llama_log.padded(context)
        if llama_log.padded(slots * context) is None:
            return None
        return next(more for more in range(context, context + 257) if llama_log.padded(slots * more) is None)

    @staticmethod
    def cache_types(setting: plan.Setting) -> tuple[str, str]:
        """Return `-ctk` and `-ctv`, or their variables."""
        key = value(setting.args, ("-ctk", "--cache-type-k")) or setting.env.get("LLAMA_ARG_CACHE_TYPE_K")
        val = value(setting.args, ("-ctv", "--cache-type-v")) or setting.env.get("LLAMA_ARG_CACHE_TYPE_V")
        return key or "f16", val or "f16"

    @staticmethod
    def micro_batch(argv: Sequence[str]) -> int | None:
        """Return `-ub`, or the default."""
        return integer(argv, ("-ub", "--ubatch-size")) or MICRO_BATCH

    @staticmethod
    def tokenized(client: httpx.Client, request: Mapping[str, Any]) -> dict[str, Any] | None:
        """Apply the chat template, then tokenize its text."""
        chat = {key: part for key, part in request.items() if key != "model"}
        prompt = post(client, "/apply-template", chat)["prompt"]
        return post(client, "/tokenize", {"content": prompt, "add_special": True, "parse_special": True})

    def command(self, port: int) -> Command:
        """Return the command; the setting's own arguments come last and win, and are not given twice."""
        if self.launch.model_path is None:
            raise InfrastructureError(f"settings.{self.setting.name}.model: llama-server needs a GGUF file")
        given = self.setting.args
        model = runtime.inside(self.launch, self.launch.model_path)
        argv = ["-m", model, "--alias", self.model, "--host", runtime.bind_address(self.launch), "--port", str(port)]
        argv += unless(given, self.slots.flags, str(self.setting.slots))
        if self.setting.context is not None:
            argv += unless(given, self.context.flags, str(self.setting.slots * self.setting.context))
        if self.launch.device is not None:
            argv += unless(given, ("-ngl", "--gpu-layers", "--n-gpu-layers"), "99")
        argv += unless(given, ("--jinja", "--no-jinja"))
        argv += unless(given, ("--metrics",))
        if self.thinking_off:
            argv += unless(given, ("--reasoning-budget", "--reasoning", "-rea"), "0")
        argv += given
        return runtime.command(self.launch, argv, port=port, in_venv=[str(LAUNCHER)], in_image=[])

    def inspect(self, client: httpx.Client) -> dict[str, Any]:
        """Ask /props, /slots and /v1/models; kv_unified, threads, offloaded layers and batches are only in the log."""
        props = client.get("/props").json()
        slots = client.get("/slots").json()
        models = client.get("/v1/models").json()["data"][0]
        log = llama_log.start(self.log())
        environment = self.launch.environment
        wheel = environment["packages"].get("xllamacpp") if environment else None
        n_ctx_train = (models.get("meta") or {}).get("n_ctx_train")
        n_ctx_slot = slots[0]["n_ctx"] if isinstance(slots, list) else props["default_generation_settings"]["n_ctx"]
        total = props["total_slots"]
        return {
            "version": f"xllamacpp {wheel}" if wheel else props.get("build_info"),
            "build": props.get("build_info"),
            "slots": total,
            "n_ctx_slot": n_ctx_slot,
            "n_ctx_train": n_ctx_train,
            "kv_unified": log["kv_unified"],
            "kv_cache_tokens": cache_tokens(log, n_ctx_slot, total, n_ctx_train),
            "threads": log["threads"],
            "offloaded_layers": log["offloaded_layers"],
            "all_layers": log["all_layers"],
            "model_path": props.get("model_path"),
            "model_alias": props.get("model_alias"),
            "quantization": FILE_TYPES.get(props.get("model_ftype", ""), props.get("model_ftype")),
            **{name: log[name] for name in ("n_ctx", "n_batch", "n_ubatch", "cache_ram_mib")},
            "chat_template_sha256": sha256(props.get("chat_template")),
        }

    def compare(self, facts: Mapping[str, Any]) -> list[Difference]:
        """Compare slots, context per slot, caches, model, quantization, threads, batches, and layers on the GPU."""
        args = self.setting.args
        asked: dict[str, Any] = {"slots": self.setting.slots}
        unified = last(args, ("-kvu", "--kv-unified"), ("-no-kvu", "--no-kv-unified"))
        asked["kv_unified"] = bool(unified)
        asked["model_alias"] = self.model
        asked["quantization"] = self.setting.model.quantization
        asked["threads"] = integer(args, ("-t", "--threads"))
        asked["cache_ram_mib"] = integer(args, ("-cram", "--cache-ram"))
        # llama.cpp takes no larger batch than the whole context, and no larger micro-batch than the batch.
        asked["n_batch"] = _most(integer(args, ("-b", "--batch-size")), facts["n_ctx"])
        asked["n_ubatch"] = _most(integer(args, ("-ub", "--ubatch-size")), facts["n_batch"])
        if self.launch.model_path is not None:
            asked["model_path"] = runtime.inside(self.launch, self.launch.model_path)
        if self.launch.device is not None and facts["all_layers"] is not None:
            layers = value(args, ("-ngl", "--gpu-layers", "--n-gpu-layers")) or "all"
            asked["offloaded_layers"] = (
                min(int(layers), facts["all_layers"]) if layers.isdigit() else facts["all_layers"]
            )
        return unlike(asked, facts) + self._context(facts, bool(unified))

    def _context(self, facts: Mapping[str, Any], unified: bool) -> list[Difference]:
        """Compare a slot's context: its part, or all of a shared cache, but no more than the model was made for."""
        if self.setting.context is None:
            return []
        asked = self.setting.context * (self.setting.slots if unified else 1)
        if unified and facts["n_ctx_train"]:
            asked = min(asked, facts["n_ctx_train"])
        if facts["n_ctx_slot"] in (asked, llama_log.padded(asked)):
            return []
        return [Difference(what="n_ctx_slot", asked=asked, got=facts["n_ctx_slot"])]

    def probe(self, client: httpx.Client) -> list[Difference]:
        """Probe as for every engine, but once every slot is idle: work may go on after a client has left."""
        deadline = time.monotonic() + IDLE_TIMEOUT_S
        while any(slot["is_processing"] for slot in client.get("/slots").json()):
            if time.monotonic() >= deadline:
                return [Difference(what="slots", asked="idle", got=f"still busy after {IDLE_TIMEOUT_S:g} s")]
            time.sleep(0.1)
        return super().probe(client)


def cache_tokens(log: Mapping[str, Any], n_ctx_slot: int, slots: int, n_ctx_train: int | None) -> int | None:
    """Return the tokens of the KV cache: as logged, else the slots' parts, or what a slot may hold of a shared cache.

    None when a slot may hold as much as the model was made for: a shared cache may be larger.
    """
    if log["n_ctx"] is not None or log["kv_unified"] is None:
        found: int | None = log["n_ctx"]
        return found
    if not log["kv_unified"]:
        return n_ctx_slot * slots
    return n_ctx_slot if n_ctx_train is not None and n_ctx_slot < n_ctx_train else None


def _most(asked: int | None, limit: int | None) -> int | None:
    return asked if asked is None or limit is None else min(asked, limit)
