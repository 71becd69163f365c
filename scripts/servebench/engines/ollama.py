"""Run `ollama serve`, a binary or a container, and the llama-server that it starts (Ollama 0.30 and later)."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx

from servebench import plan
from servebench.engines import llama_log, runtime
from servebench.engines.arguments import Option, value
from servebench.engines.base import Adapter, Command, Difference, LaunchFailed, log_tail, post, sha256, unlike
from servebench.machine.infrastructure import InfrastructureError
from servebench.models import ollama as store
from servebench.models import weights
from servebench.models.checking import remembered

SPAWN = re.compile(r'msg="starting llama-server"\s+cmd="((?:[^"\\]|\\.)*)"')  # logged once for every start
TRUNCATED = re.compile(r'msg="truncating input prompt"')
CONFIGURED = re.compile(r'msg="server config"\s+env="map\[(.*)\]"')
TEMPLATE = re.compile(r'msg="template selection"\s+model=(?P<model>\S+)\s+selected=(?P<selected>\w+)')
BLOB = re.compile(r"sha256-([0-9a-f]{64})")
# Keys of a request's body that /v1 drops without a word, and what to use instead.
IGNORED = {
    "max_completion_tokens": "use max_tokens",
    "ignore_eos": "choose prompts whose replies are long enough",
    "min_tokens": "choose prompts whose replies are long enough",
    "grammar": "use response_format with a JSON schema",
}


class Ollama(Adapter):
    """Slots are OLLAMA_NUM_PARALLEL, the context is OLLAMA_CONTEXT_LENGTH.

    A model of an `ollama://` source is served from its store by its own name, any other GGUF is created under the
    model's key with the file's SHA-256 as its tag. Ollama writes a created file anew, with the same tensors in another
    order and a template of its own. What counts are the arguments of the llama-server that Ollama starts; they are read
    from the log.
    """

    start_s = 15.0
    health_path = "/"  # up before any model is loaded
    slots = Option(env=("OLLAMA_NUM_PARALLEL",))
    context = Option(env=("OLLAMA_CONTEXT_LENGTH",))
    ignored = IGNORED

    @staticmethod
    def fitting_context(context: int, slots: int, args: Sequence[str]) -> int | None:
        """Round up as the inner llama-server does."""
        return llama_log.padded(context)

    @staticmethod
    def cache_types(setting: plan.Setting) -> tuple[str, str]:
        """Return OLLAMA_KV_CACHE_TYPE, for both."""
        kind = setting.env.get("OLLAMA_KV_CACHE_TYPE") or "f16"
        return kind, kind

    def command(self, port: int) -> Command:
        """Return `ollama serve` on the store that holds the model."""
        if self.launch.model_path is None:
            raise InfrastructureError(f"settings.{self.setting.name}.model: Ollama needs a model")
        env = {
            "OLLAMA_HOST": f"{runtime.bind_address(self.launch)}:{port}",
            "OLLAMA_MODELS": runtime.inside(self.launch, self.store, mount=self.store),
            "OLLAMA_NUM_PARALLEL": str(self.setting.slots),
            "OLLAMA_MAX_LOADED_MODELS": "1",
            "OLLAMA_KEEP_ALIVE": "-1",
            "OLLAMA_NOPRUNE": "1",  # the store is shared: serve would delete what it does not know
            "OLLAMA_NO_CLOUD": "1",
        }
        if self.setting.context is not None:
            env["OLLAMA_CONTEXT_LENGTH"] = str(self.setting.context)
        argv = ["serve", *self.setting.args]
        return runtime.command(
            self.launch, argv, port=port, in_venv=[], in_image=[], env=env, mount=self.store, writable=not self.pulled
        )

    @property
    def pulled(self) -> bool:
        """Whether the model comes from a registry; else it is created from a file."""
        return (self.setting.model.source or "").startswith("ollama://")

    @property
    def store(self) -> Path:
        """OLLAMA_MODELS: the store of the blob, or a folder beside the cache's own files."""
        assert self.launch.model_path is not None
        base = self.launch.model_path.parent.parent
        return base if self.pulled else base / "ollama-created"

    @property
    def model(self) -> str:
        """The model's name in Ollama."""
        if self.pulled:
            return store.parse(self.setting.model.source or "").name
        return f"{self.setting.model.key}:{self._file_sha256}"

    @cached_property
    def _file_sha256(self) -> str:
        assert self.launch.model_path is not None
        return remembered(self.launch.model_path)[0]

    @property
    def extra(self) -> dict[str, Any]:
        """Thinking off: the only switch that /v1 heeds."""
        return {"reasoning_effort": "none"} if self.thinking_off else {}

    def prepare(self, client: httpx.Client) -> None:
        """Create the model if the store lacks it, then load it: Ollama answers before it has loaded any model."""
        names = [entry["name"] for entry in client.get("/api/tags").json()["models"]]
        if self.model not in names:
            if self.pulled:
                raise self._failed(f"does not know {self.model}; its models are: {', '.join(names) or 'none'}")
            self._create(client)
        timeout_s = self.launch.runtime.ready_timeout_s
        loaded = client.post("/api/generate", json={"model": self.model, "stream": False}, timeout=timeout_s)
        if loaded.is_error:
            raise self._failed(f"could not load {self.model}: {loaded.text[:300]}")

    def _create(self, client: httpx.Client) -> None:
        path, timeout_s = self.launch.model_path, self.launch.runtime.ready_timeout_s
        assert path is not None
        digest = f"sha256:{self._file_sha256}"
        if client.head(f"/api/blobs/{digest}").status_code != httpx.codes.OK:
            with path.open("rb") as file:
                client.post(f"/api/blobs/{digest}", content=file, timeout=timeout_s).raise_for_status()
        request = {"model": self.model, "files": {path.name: digest}, "stream": False}
        created = client.post("/api/create", json=request, timeout=timeout_s)
        if created.is_error or "error" in created.json():
            raise self._failed(f"could not create {self.model} from {path.name}: {created.text[:300]}")

    def _failed(self, why: str) -> LaunchFailed:
        return LaunchFailed(f"ollama {why}", log_tail(self.launch.log_path, 30))

    @staticmethod
    def counted(log: str) -> dict[str, int]:
        """Count prompts that were cut, which only the log tells."""
        return {"truncated_prompts": len(TRUNCATED.findall(log))}

    def inspect(self, client: httpx.Client) -> dict[str, Any]:
        """Ask /api/version, /api/ps and /api/show; the log has the spawn line, the inner server's start, the template.

        `jinja` and `chat_template` are those of the inner server's start, placeholders: prompts are made by
        `template_selected`, whose text and stop words /api/show tells.
        """
        log = self.log()
        spawned = [shlex.split(line.replace('\\"', '"')) for line in SPAWN.findall(log)]
        inner = spawned[-1] if spawned else []
        loaded: dict[str, Any] = next(
            (m for m in client.get("/api/ps").json()["models"] if m["name"] == self.model), {}
        )
        start = llama_log.start(log)
        slots, whole = value(inner, ("-np", "--parallel")), value(inner, ("-c", "--ctx-size"))
        batch, micro_batch = value(inner, ("-b", "--batch-size")), value(inner, ("-ub", "--ubatch-size"))
        blob = BLOB.search(value(inner, ("--model", "-m")) or "")
        configured = CONFIGURED.search(log)
        size, on_gpu = loaded.get("size"), loaded.get("size_vram")
        return {
            "version": client.get("/api/version").json()["version"],
            "build": start["build"],
            "slots": int(slots) if slots else start["slots"],
            "n_ctx_slot": start["n_ctx_slot"] or loaded.get("context_length"),
            "kv_unified": start["kv_unified"],
            "kv_cache_tokens": int(whole) if whole else None,
            "threads": start["threads"],
            "offloaded_layers": start["offloaded_layers"],
            "all_layers": start["all_layers"],
            "n_batch": int(batch) if batch else start["n_batch"],
            "n_ubatch": int(micro_batch) if micro_batch else start["n_ubatch"],
            "jinja": "--no-jinja" not in inner if inner else None,
            "chat_template": value(inner, ("--chat-template",)),
            **self._prompting(client, log),
            "inner_argv": inner or None,
            "runner_starts": len(spawned) or None,
            "model_digest": loaded.get("digest"),
            "blob_sha256": blob[1] if blob else None,
            "weights_sha256": self._weights_sha256(blob[1]) if blob else None,
            "loaded": bool(loaded),
            "expires_at": loaded.get("expires_at"),
            "gpu_share": on_gpu / size if size and on_gpu is not None else None,
            "quantization": (loaded.get("details") or {}).get("quantization_level"),
            "server_config": configured[1] if configured else None,
        }

    def _prompting(self, client: httpx.Client, log: str) -> dict[str, Any]:
        """Return how the model's prompts are made, and the sampling that it brings with it."""
        shown = post(client, "/api/show", {"model": self.model})
        template = shown.get("template") or None
        selections = [found["selected"] for found in TEMPLATE.finditer(log)]
        parameters: dict[str, list[str]] = {}
        for line in (shown.get("parameters") or "").splitlines():
            name, _, given = line.partition(" ")
            parameters.setdefault(name, []).append(" ".join(shlex.split(given)))
        return {
            "template_selected": selections[-1] if selections else None,
            "chat_template_sha256": sha256(template),
            "stop": parameters.pop("stop", []),
            "sampling_defaults": parameters,
        }

    def _weights_sha256(self, blob_sha256: str) -> str | None:
        """Return the digest of the tensors of a blob of the store; None when the store lacks it."""
        blob = store.blob_path(self.store, f"sha256:{blob_sha256}")
        return weights.sha256(blob) if blob.is_file() else None

    def compare(self, facts: Mapping[str, Any]) -> list[Difference]:
        """Compare the inner server's slots, context and weights; it must start once and be all on the GPU."""
        asked: dict[str, Any] = {
            "loaded": True,
            "slots": self.setting.slots,
            "runner_starts": 1,
            "quantization": self.setting.model.quantization,
        }
        if self.setting.context is not None:
            asked["n_ctx_slot"] = self.setting.context
        if self.launch.device is not None:
            asked["gpu_share"] = 1.0
        assert self.launch.model_path is not None
        if self.pulled:
            asked["blob_sha256"] = self.launch.model_path.name.removeprefix("sha256-")
            if pinned := store.parse(self.setting.model.source or "").digest:
                asked["model_digest"] = pinned.removeprefix("sha256:")
        elif facts["weights_sha256"] is not None:
            asked["weights_sha256"] = weights.sha256(self.launch.model_path)
        return unlike(asked, facts)
