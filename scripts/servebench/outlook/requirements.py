"""Work out what an experiment needs of a machine and what the machine has. Only looks at files and devices."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import psutil

from servebench import models
from servebench.engines import ADAPTERS, runtime
from servebench.faults import Fault
from servebench.machine import gpu, host
from servebench.models import facts, file, kv_cache
from servebench.models.checking import size
from servebench.models.kv_cache import Cache
from servebench.outlook import duration
from servebench.outlook.inventory import manifest_of
from servebench.plan import Engine, Model, Plan, Setting, Struct

GIB = 2**30
# Of the memory that is free. The rest is for what an engine needs beside weights and caches.
SHARE = 0.90
# Bytes of raw data per request, and per chunk with its arrival and tokens, compressed.
BYTES_PER_TOKEN, BYTES_PER_MEASUREMENT = 8, 60_000


class Download(Struct, frozen=True, kw_only=True):
    """Describe the download of one model: `size_bytes` is None when unknown, and approximate unless `exact`."""

    model: Model
    size_bytes: int | None
    exact: bool
    present: bool
    sha256: str | None  # configured, or of the file first fetched
    own: Path | None  # the local file that the source names, whether or not it exists


class Device(Struct, frozen=True, kw_only=True):
    """Hold what engines run on: a GPU, or the CPUs with the machine's memory. GiB in all, and free."""

    gpu: gpu.Gpu | None
    memory_gib: float
    free_gib: float

    @classmethod
    def here(cls, wanted: str | None = None) -> Device:
        """Look at this machine's GPU, the first usable one unless one is `wanted`, and at what others use of it."""
        device = gpu.resolve(wanted)
        if device is None:
            memory = psutil.virtual_memory()
            return cls(gpu=None, memory_gib=memory.total / GIB, free_gib=memory.available / GIB)
        sampler = gpu.Sampler(device.uuid)
        used = sampler.used_bytes()
        sampler.close()
        return cls(gpu=device, memory_gib=device.memory_gib, free_gib=device.memory_gib - (used or 0) / GIB)

    def usable_gib(self, need: Memory) -> float:
        """Return what a setting may fill: all, where its engine takes a share of all; else SHARE of what is free."""
        return self.memory_gib if need.fills_device else SHARE * self.free_gib

    def __str__(self) -> str:
        free = f"{self.memory_gib:.1f} GiB, {self.free_gib:.1f} free"
        if self.gpu is None:
            return f"no GPU that NVML names, so engines run on {len(host.cpus())} CPUs ({free})"
        return f"{self.gpu.name} ({free}), driver {self.gpu.driver}, CUDA up to {self.gpu.cuda}"


class Memory(Struct, frozen=True, kw_only=True):
    """Hold the GiB of device memory a setting needs at least: weights and KV cache. None where a part is unknown."""

    setting: str
    weights_gib: float | None
    cache_gib: float | None
    streams: int = 1  # that the cache is for, each filling its context
    share: float = 1.0  # share of the device's memory that the engine may take
    context: int | None = None  # tokens of one stream
    fills_device: bool = False  # the engine takes its share, whatever it needs

    @property
    def gib(self) -> float | None:
        """Return the memory that the whole device must have."""
        if self.weights_gib is None or self.cache_gib is None:
            return None
        return (self.weights_gib + self.cache_gib) / self.share

    def contexts(self, there_gib: float) -> int | None:
        """Return how many contexts fit beside the weights into the engine's share of a device of `there_gib`."""
        if self.weights_gib is None or not self.cache_gib:
            return None
        return max(0, int((there_gib * self.share - self.weights_gib) / (self.cache_gib / self.streams)))


def downloads(plan: Plan, results: Path, cache_root: Path) -> list[Download]:
    """List the models that are fetched or made for this plan, in the plan's order."""
    return [_download(model, results, cache_root) for model in _fetched(plan)]


def _started(plan: Plan) -> list[Setting]:
    return [*plan.settings.values(), *(plan.evaluations.targets.values() if plan.evaluations else ())]


def _launched(plan: Plan) -> list[Setting]:
    return [setting for setting in _started(plan) if ADAPTERS[setting.engine.kind].loads_model]


def _fetched(plan: Plan) -> list[Model]:
    return _with_sources(plan, _launched(plan))


def _with_sources(plan: Plan, settings: list[Setting]) -> list[Model]:
    """Return the models of these settings, those that are made from another after it."""
    keys = dict.fromkeys(setting.model.key for setting in settings)
    sources = [r["from"] for key in keys if (r := plan.models[key].requantize)]
    return [plan.models[key] for key in dict.fromkeys([*sources, *keys])]


def _download(model: Model, results: Path, cache_root: Path) -> Download:
    manifest, own = manifest_of(model, results), _own(model)
    if manifest:
        there = (cache_root / manifest["path"]).exists()
        size_bytes, sha256 = int(manifest["size_bytes"]), str(manifest["sha256"])
        return Download(model=model, size_bytes=size_bytes, exact=True, present=there, sha256=sha256, own=own)
    found = _local(model, cache_root)
    return Download(
        model=model,
        size_bytes=size(found) if found else duration.weights_bytes(model),
        exact=found is not None or model.size_bytes is not None,
        present=models.kept(model, cache_root) is not None,
        sha256=model.sha256,
        own=own,
    )


def _own(model: Model) -> Path | None:
    return file.path_of(model.source) if model.source and model.source.startswith("file://") else None


def _local(model: Model, cache_root: Path) -> Path | None:
    """Return the model's file, in the cache or where its source names it; None without one."""
    own = _own(model)
    return models.kept(model, cache_root) or (own if own and own.exists() else None)


@lru_cache(maxsize=16)
def _facts(found: Path, changed_ns: int) -> dict[str, Any]:
    """Read a model file's facts once; `changed_ns` is when it was changed."""
    return facts.of(found)


def _looked_at(model: Model, cache_root: Path) -> dict[str, Any]:
    """Read size and facts of a local file, as a manifest would hold them."""
    found = _local(model, cache_root)
    if found is None:
        return {}
    try:
        return {"size_bytes": size(found), "facts": _facts(found, found.stat().st_mtime_ns)}
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        told = f"is not a complete model file ({type(error).__name__}: {error}); name another"
        raise Fault(f"models.{model.key}: {found}: {told}") from error


def memory(plan: Plan, results: Path, cache_root: Path) -> list[Memory]:
    """Return the memory each launched setting needs, in the plan's order."""
    return [_memory(setting, results, cache_root) for setting in _launched(plan)]


def _memory(setting: Setting, results: Path, cache_root: Path) -> Memory:
    manifest = manifest_of(setting.model, results) or _looked_at(setting.model, cache_root)
    weights = manifest.get("size_bytes") or duration.weights_bytes(setting.model)
    # An engine that fills its share of the device needs room for one request; other engines allocate every slot.
    adapter = ADAPTERS[setting.engine.kind]
    streams = 1 if adapter.fills_device else setting.slots
    return Memory(
        setting=setting.name,
        weights_gib=None if weights is None else weights / GIB,
        cache_gib=_cache_gib(setting, streams, facts.cache(manifest.get("facts") or {})),
        streams=streams,
        share=adapter.memory_share(setting),
        context=setting.context,
        fills_device=adapter.fills_device,
    )


def _cache_gib(setting: Setting, streams: int, cache: Cache | None) -> float | None:
    """Return the GiB of `streams` that fill the context, from the model's file or else its configured rough facts."""
    context, about = setting.context or 0, setting.model.about.kv_kib_per_token
    types = ADAPTERS[setting.engine.kind].cache_types(setting)
    if not kv_cache.types_known(types):
        return None
    if cache is None:
        of_16_bits = float(sum(kv_cache.ELEMENT_BYTES[kind.lower()] for kind in types) / 4)
        return None if about is None else about * 1024 * of_16_bits * streams * context / GIB
    return cache.bytes(context, streams, *types) / GIB


def need_gpu(plan: Plan) -> list[str]:
    """List the settings whose engine, or its image, is made for GPUs only."""
    return [
        setting.name
        for setting in _launched(plan)
        if ADAPTERS[setting.engine.kind].fills_device
        or (setting.engine.image and runtime.image(setting.engine).get("cuda"))
    ]


def container_fault(plan: Plan) -> str | None:
    """Return why the plan's images cannot run on this machine; None when they can."""
    tools = {runtime.container_tool(engine) for engine in plan.engines.values() if engine.runtime == "container"}
    if None in tools:
        return "NOT FOUND: docker, apptainer or podman; install one"
    for tool in sorted(filter(None, tools - {"apptainer"})):
        try:
            subprocess.run([tool, "info"], check=True, capture_output=True, timeout=10)
        except (OSError, subprocess.SubprocessError):
            what = "its daemon DOES NOT ANSWER: start it, and see" if tool == "docker" else "DOES NOT WORK: see"
            return f"{tool} is installed, but {what} what {tool} info says"
    return None


def raw_data_bytes(plan: Plan) -> int:
    """Estimate the measurements' size on disk: a stream of `duration.USER_TOK_S` for each user that has a slot."""
    total = 0.0
    for setting in plan.settings.values():
        for users in setting.users:
            tokens = duration.USER_TOK_S * min(users, setting.slots) * duration.measurement_s(setting, users)
            total += BYTES_PER_MEASUREMENT + BYTES_PER_TOKEN * tokens
    return int(plan.rounds * total)


def free_bytes(path: Path) -> int:
    """Return the free bytes on the file system of `path`, which need not exist."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free


def unverified(plan: Plan) -> Iterator[tuple[str, str | dict[str, str]]]:
    """Yield what could not be verified as (place in the configuration, why), for the plan and the page."""
    for model in _with_sources(plan, _started(plan)):
        if model.unverified:
            yield f"models.{model.key}", model.unverified
    for text in plan.unverified:
        yield plan.experiment, text


def image(engine: Engine) -> str:
    """Return the image of an engine as `repository:tag@digest`."""
    entry = runtime.image(engine)
    return f"{entry['repository']}:{entry['tag']}@{entry['digest']}"
