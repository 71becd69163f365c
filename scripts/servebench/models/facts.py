"""Read what a model file says about itself: a GGUF's metadata, or a snapshot's config.json."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from servebench.models import gguf_header
from servebench.models.kv_cache import Cache, Layer, from_config, from_gguf


def of(path: Path) -> dict[str, Any]:
    """Read the facts of a GGUF or of a snapshot with a config.json; {} for any other file.

    architecture, name, quantization (the tensor type that holds most of the weights), parameters, context_length,
    layers, kv_heads and head_size (of the layers that have a KV cache; a list where they differ), sliding_window,
    kv_bytes_per_token (at 16 bits, within every window), kv_layers (those with a KV cache, as `cache` reads them),
    tokenizer, chat_template_sha256. None where the file does not say.
    """
    if path.is_dir():
        return _of_config(path)
    with path.open("rb") as file:
        return _of_gguf(path) if file.read(4) == b"GGUF" else {}


def metadata(path: Path) -> dict[str, Any]:
    """Read all key-value pairs of a GGUF except its tokenizer's long lists."""
    return _metadata(_reader(path))


def _reader(path: Path) -> Any:
    from gguf import GGUFReader

    gguf_header.check(path)
    return GGUFReader(path)


def _metadata(reader: Any) -> dict[str, Any]:
    long = ("tokenizer.ggml.tokens", "tokenizer.ggml.merges", "tokenizer.ggml.scores", "tokenizer.ggml.token_type")
    return {name: field.contents() for name, field in reader.fields.items() if name not in long}


def _of_gguf(path: Path) -> dict[str, Any]:
    reader = _reader(path)
    found = _metadata(reader)
    architecture = found["general.architecture"]
    weights: Counter[str] = Counter()
    for tensor in reader.tensors:
        weights[tensor.tensor_type.name] += int(tensor.n_bytes)
    template = found.get("tokenizer.chat_template")
    return {
        "architecture": architecture,
        "name": found.get("general.name"),
        "quantization": weights.most_common(1)[0][0] if weights else None,
        "parameters": sum(int(t.n_elements) for t in reader.tensors),
        "context_length": found.get(f"{architecture}.context_length"),
        **_cache_facts(from_gguf(found)),
        "tokenizer": found.get("tokenizer.ggml.model"),
        "chat_template_sha256": hashlib.sha256(template.encode()).hexdigest() if template else None,
    }


def _of_config(path: Path) -> dict[str, Any]:
    file = path / "config.json"
    if not file.is_file():
        return {}
    found = json.loads(file.read_text(encoding="utf-8"))
    text = found.get("text_config", found)
    return {
        "architecture": found.get("model_type"),
        "name": (found.get("architectures") or [None])[0],
        "quantization": (found.get("quantization_config") or {}).get("quant_method")
        or text.get("torch_dtype")
        or text.get("dtype"),
        "parameters": None,
        "context_length": text.get("max_position_embeddings"),
        **_cache_facts(from_config(found)),
        "tokenizer": "tokenizer.json" if (path / "tokenizer.json").is_file() else None,
        "chat_template_sha256": _template_sha256(path),
    }


def _template_sha256(path: Path) -> str | None:
    if (path / "chat_template.jinja").is_file():
        return hashlib.sha256((path / "chat_template.jinja").read_bytes()).hexdigest()
    if (path / "tokenizer_config.json").is_file():
        template = json.loads((path / "tokenizer_config.json").read_text(encoding="utf-8")).get("chat_template")
        return hashlib.sha256(template.encode()).hexdigest() if isinstance(template, str) else None
    return None


def _cache_facts(cache: Cache) -> dict[str, Any]:
    heads = sorted({layer.kv_heads for layer in cache.layers})
    sizes = sorted({layer.key_size for layer in cache.layers})
    windows = sorted({layer.window for layer in cache.layers if layer.window})
    return {
        "layers": cache.all_layers,
        "kv_heads": heads[0] if len(heads) == 1 else heads,
        "head_size": sizes[0] if len(sizes) == 1 else sizes,
        "sliding_window": windows[0] if windows else None,
        "kv_bytes_per_token": cache.bytes(1),
        "kv_layers": [{"count": count, **asdict(layer)} for layer, count in Counter(cache.layers).items()],
    }


def cache(facts: Mapping[str, Any]) -> Cache | None:
    """Build the KV cache from the facts of `of`, for arithmetic; None where they lack it."""
    if "kv_layers" not in facts:
        return None
    groups = [dict(group) for group in facts["kv_layers"]]
    return Cache(tuple(Layer(**group) for group in groups for _ in range(group.pop("count"))), facts["layers"])
