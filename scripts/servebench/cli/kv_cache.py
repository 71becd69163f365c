"""Calculate how much memory a model's KV cache takes: `servebench kv-cache`."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

from servebench.machine.infrastructure import InfrastructureError
from servebench.models import hf
from servebench.models.kv_cache import GIB, UNREADABLE, Cache, from_config, from_gguf


def of(model: str) -> Cache:
    """Read a cache's shape from a GGUF file, a config.json (or its folder) or hf://owner/repository[@revision]."""
    path = _config_of_repository(model) if model.startswith("hf://") else Path(model).expanduser()
    if path.is_dir():
        path /= "config.json"
    if not path.is_file():
        raise InfrastructureError(f"{model}: no such file; give a GGUF, a config.json or hf://owner/repository")
    with path.open("rb") as file:
        is_gguf = file.read(4) == b"GGUF"
    from servebench.models.facts import metadata

    try:
        return from_gguf(metadata(path)) if is_gguf else from_config(json.loads(path.read_text(encoding="utf-8")))
    except UNREADABLE as error:
        what = "GGUF" if is_gguf else "config.json"
        raise InfrastructureError(
            f"{path}: is not a complete {what} ({type(error).__name__}: {error}); name another or fetch it again"
        ) from error


def _config_of_repository(model: str) -> Path:
    from huggingface_hub import hf_hub_download

    source, token = hf.parse(model), hf.token(model)
    with hf.asking(model):
        return Path(hf_hub_download(source.repository, "config.json", revision=source.revision, token=token))


def report(
    model: str,
    *,
    tokens: int | None = None,
    streams: int = 1,
    gib: str | None = None,
    key_type: str = "f16",
    value_type: str = "f16",
) -> dict[str, Any]:
    """Calculate the memory of `streams` × `tokens`, or the tokens that fit into `gib`, for `servebench kv-cache`.

    `gib` is a rounded figure: "18.64" stands for all sizes that round to it, so the answer is the number of tokens at
    exactly that size and the range around it. Several streams share these tokens.
    """
    cache = of(model)
    layers = cache.layers
    answer: dict[str, Any] = {
        "model": model,
        "layers": cache.all_layers,
        "layers_with_cache": len(layers),
        "layers_with_window": sum(layer.window is not None for layer in layers),
        "key_type": key_type,
        "value_type": value_type,
        "bytes_per_token": float(cache.exact(1, key_type, value_type)),
        "notes": list(cache.notes),
    }
    if (tokens is None) == (gib is None):
        raise InfrastructureError("give either --tokens (and --streams) or --gib")
    if (tokens is not None and tokens < 1) or streams < 1:
        raise InfrastructureError(f"--tokens {tokens} --streams {streams}: are not positive integers")
    if gib is not None and (not re.fullmatch(r"[0-9]+(\.[0-9]+)?", gib) or not Fraction(gib)):
        raise InfrastructureError(f"--gib: {gib!r} is not a number of GiB above 0; give one as 18.64")
    if tokens is not None:
        size_bytes = cache.bytes(tokens, streams, key_type, value_type)
        return {**answer, "tokens": tokens, "streams": streams, "bytes": size_bytes, "gib": size_bytes / GIB}
    assert gib is not None
    exact, half = Fraction(gib), Fraction(1, 2 * 10 ** len(gib.partition(".")[2]))
    low, middle, high = (cache.tokens(g * GIB, key_type, value_type) for g in (exact - half, exact, exact + half))
    return {
        **answer,
        "gib": float(exact),
        "tokens": middle,
        "tokens_min": low + 1 if low * cache.exact(1, key_type, value_type) < (exact - half) * GIB else low,
        "tokens_max": high,
        **({"streams": streams, "tokens_of_each_stream": middle // streams} if streams > 1 else {}),
        "rounding": f"rounded down to whole tokens at exactly {gib} GiB; as a rounded figure it stands for "
        f"{float(exact - half):g} to {float(exact + half):g} GiB",
    }
