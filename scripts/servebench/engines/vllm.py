"""Run vLLM from a virtual environment (CUDA or CPU build) or a container."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import httpx

from servebench.engines import metrics, runtime
from servebench.engines.arguments import Option, unless
from servebench.engines.base import Command, Difference, post, unlike
from servebench.engines.pytorch import PyTorch
from servebench.machine.infrastructure import InfrastructureError

IDLE_TIMEOUT_S = 30.0
# Builds differ in the device's name and in whether size and concurrency share a line; /metrics is preferred.
CACHE_TOKENS = re.compile(r"(?:GPU|CPU) KV cache size: ([\d,]+) tokens")
# The arguments as vLLM has read them, in the log's first lines.
SLOTS = re.compile(r"non-default args: \{.*'max_num_seqs': (\d+)")
CONCURRENCY = re.compile(r"Maximum concurrency for ([\d,]+) tokens per request: ([\d.]+)x")
ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}


class Vllm(PyTorch):
    """Slots are `--max-num-seqs`, the context is `--max-model-len`."""

    slots = Option(("--max-num-seqs",))
    context = Option(("--max-model-len",))
    memory_flag = "--gpu-memory-utilization"
    memory_default = 0.92

    @staticmethod
    def tokenized(client: httpx.Client, request: Mapping[str, Any]) -> dict[str, Any] | None:
        """Tokenize the chat request as it is."""
        return post(client, "/tokenize", request)

    def command(self, port: int) -> Command:
        """Return `vllm serve …`; the setting's own arguments come last and win."""
        if self.launch.model_path is None:
            raise InfrastructureError(f"settings.{self.setting.name}.model: vLLM needs a snapshot's directory")
        given = self.setting.args
        model = runtime.inside(self.launch, self.launch.model_path)
        argv = ["serve", model]
        argv += ["--served-model-name", self.model, "--host", runtime.bind_address(self.launch), "--port", str(port)]
        argv += unless(given, self.slots.flags, str(self.setting.slots))
        if self.setting.context is not None:
            argv += unless(given, self.context.flags, str(self.setting.context))
        # The sampling settings in the model's files would change the workload silently.
        argv += unless(given, ("--generation-config",), "vllm")
        argv += given
        return runtime.command(
            self.launch,
            argv,
            port=port,
            in_venv=["-m", "vllm.entrypoints.cli.main"],
            in_image=[],
            env=ENVIRONMENT,
        )

    def inspect(self, client: httpx.Client) -> dict[str, Any]:
        """Ask /version, /v1/models and /metrics; some facts are only in the log."""
        found, versions = metrics.scrape(client), _told(client, "/version")
        listed = _told(client, "/v1/models").get("data")
        card = listed[0] if isinstance(listed, list) and listed and isinstance(listed[0], dict) else {}
        cache = found.labels("vllm:cache_config_info")
        log = self.log()
        tokens = cache.get("kv_cache_size_tokens") or _first(CACHE_TOKENS, log)
        concurrency = cache.get("kv_cache_max_concurrency") or _second(CONCURRENCY, log)
        return {
            "version": versions.get("version"),
            "rust_frontend_version": versions.get("rust_frontend_version"),  # None: the front end in Python
            "build": None,
            "slots": _int(_first(SLOTS, log)),
            "n_ctx_slot": card.get("max_model_len"),
            "model_alias": card.get("id"),
            "model_path": card.get("root"),
            "kv_cache_tokens": None if tokens is None else int(tokens.replace(",", "")),
            "kv_cache_max_concurrency": None if concurrency is None else float(concurrency),
            "block_size": _int(cache.get("block_size")),
            "prefix_caching": cache.get("enable_prefix_caching"),
            "preemptions": found.total("vllm:num_preemptions_total"),
            "prefix_cache_queries": found.total("vllm:prefix_cache_queries_total"),
            "prefix_cache_hits": found.total("vllm:prefix_cache_hits_total"),
            **_speculation(found),
        }

    def compare(self, facts: Mapping[str, Any]) -> list[Difference]:
        """Compare slots, context and model; the KV cache must hold at least one whole request."""
        asked: dict[str, Any] = {"slots": self.setting.slots, "model_alias": self.model}
        asked["n_ctx_slot"] = self.setting.context
        if self.launch.model_path is not None:
            asked["model_path"] = runtime.inside(self.launch, self.launch.model_path)
        found = unlike(asked, facts)
        tokens, least = facts["kv_cache_tokens"], asked["n_ctx_slot"]
        if tokens is not None and least is not None and tokens < least:
            found.append(Difference(what="kv_cache_tokens", asked=f"at least {least}", got=tokens))
        return found

    def probe(self, client: httpx.Client) -> list[Difference]:
        """Probe as for every engine, but once no request runs: /health stays 200 when the core is dead or frozen."""
        deadline = time.monotonic() + IDLE_TIMEOUT_S
        while (running := metrics.scrape(client).total("vllm:num_requests_running")) and running > 0:
            if time.monotonic() >= deadline:
                return [Difference(what="requests running", asked=0, got=int(running))]
            time.sleep(0.1)
        return super().probe(client)


def _speculation(found: metrics.Metrics) -> dict[str, float | None]:
    """Return the figures of speculative decoding since the start.

    The mean length includes the token that needs no draft, as in vLLM's own log.
    """
    drafts, tokens, accepted = (
        found.total(f"vllm:spec_decode_num_{what}_total") for what in ("drafts", "draft_tokens", "accepted_tokens")
    )
    return {
        "drafts": drafts,
        "draft_tokens": tokens,
        "accepted_tokens": accepted,
        "draft_acceptance": accepted / tokens if tokens and accepted is not None else None,
        "mean_accepted_length": 1 + accepted / drafts if drafts and accepted is not None else None,
    }


def _first(pattern: re.Pattern[str], text: str) -> str | None:
    return found[1] if (found := pattern.search(text)) else None


def _second(pattern: re.Pattern[str], text: str) -> str | None:
    return found[2] if (found := pattern.search(text)) else None


def _int(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None


def _told(client: httpx.Client, path: str) -> dict[str, Any]:
    """Return the JSON object at `path`; {} where there is none: vLLM's front end in Rust may lack a page."""
    response = client.get(path)
    with suppress(ValueError):
        found = response.json()
        return found if response.is_success and isinstance(found, dict) else {}
    return {}
