"""Compute how much memory the keys and values of a number of tokens take, and how many tokens fit.

bytes = 2 × layers × KV heads × head size × tokens × bytes per element, layer by layer, so that sliding windows, layers
without a cache, shared caches and heads of unequal size count as they are. KV heads, not attention heads: with grouped
queries several attention heads share one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from servebench.machine.infrastructure import InfrastructureError

GIB = 2**30
MOST_LAYERS = 10_000
# What reading a damaged model file, or one that was made to mislead, ends in.
UNREADABLE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, MemoryError)


# Bytes per element: the size of a block over the elements in it.
ELEMENT_BYTES: Mapping[str, Fraction] = {
    "f32": Fraction(4),
    "f16": Fraction(2),
    "bf16": Fraction(2),
    "fp8": Fraction(1),
    "q8_0": Fraction(34, 32),
    "q5_1": Fraction(24, 32),
    "q5_0": Fraction(22, 32),
    "q4_1": Fraction(20, 32),
    "q4_0": Fraction(18, 32),
    "iq4_nl": Fraction(18, 32),
}


# One layer in this many sees all tokens, the others a sliding window, where the GGUF names only the window.
FULL_EVERY = {"gemma2": 2, "gemma3": 6, "gemma3n": 5, "gpt-oss": 2, "cohere2": 4}


@dataclass(frozen=True)
class Layer:
    """Hold one layer's cache: elements per token in keys and in values; at most `window` tokens, None for all."""

    kv_heads: int
    key_size: int
    value_size: int
    window: int | None = None


@dataclass(frozen=True)
class Cache:
    """Hold the layers of a model that keep keys and values. `notes` say what was not modelled."""

    layers: tuple[Layer, ...]
    all_layers: int
    notes: tuple[str, ...] = ()

    @property
    def windowed(self) -> bool:
        """Tell whether some layer keeps only a window of each stream."""
        return any(layer.window for layer in self.layers)

    def exact(self, tokens: int | Fraction, key_type: str = "f16", value_type: str = "f16") -> Fraction:
        """Compute the bytes of one stream of `tokens`, before rounding."""
        key, value = _element_bytes(key_type), _element_bytes(value_type)
        return sum(
            (
                layer.kv_heads
                * (layer.key_size * key + layer.value_size * value)
                * (min(tokens, layer.window) if layer.window else tokens)
                for layer in self.layers
            ),
            Fraction(0),
        )

    def bytes(self, tokens: int, streams: int = 1, key_type: str = "f16", value_type: str = "f16") -> int:
        """Compute the bytes of `streams` streams of `tokens` each, rounded up."""
        return math.ceil(streams * self.exact(tokens, key_type, value_type))

    def tokens(self, size_bytes: Fraction | int, key_type: str = "f16", value_type: str = "f16") -> int:
        """Compute how many tokens fit, rounded down: of streams within every window, or of one long stream without.

        Windows are ignored: they bound a stream, not a pool that many streams share.
        """
        per_token = self.exact(1, key_type, value_type)
        if per_token <= 0:
            raise InfrastructureError("the model keeps no KV cache: any number of tokens fits")
        return int(Fraction(size_bytes) // per_token)


def types_known(types: tuple[str, str]) -> bool:
    """Tell whether the element sizes of these types of keys and values are known."""
    return all(kind.lower() in ELEMENT_BYTES for kind in types)


def _element_bytes(kind: str) -> Fraction:
    try:
        return ELEMENT_BYTES[kind.lower()]
    except KeyError:
        raise InfrastructureError(f"{kind!r} is not a cache type; use one of {', '.join(ELEMENT_BYTES)}") from None


def from_gguf(metadata: Mapping[str, Any]) -> Cache:
    """Build the cache of a GGUF from its metadata (llama.cpp's key names)."""
    architecture = metadata["general.architecture"]

    def key(name: str, default: Any = None) -> Any:
        return metadata.get(f"{architecture}.{name}", default)

    count = _layers(key("block_count"))
    heads = key("attention.head_count")
    kv_heads = _per_layer(key("attention.head_count_kv", heads), count)
    size = int(key("embedding_length")) // _heads(max(_per_layer(heads, count)))
    key_size, value_size = int(key("attention.key_length", size)), int(key("attention.value_length", size))
    notes = []
    if rank := key("attention.kv_lora_rank"):  # latent attention: one compressed key, from which values are made too
        kv_heads, key_size, value_size = [1] * count, int(rank) + int(key("rope.dimension_count", 0)), 0
    window, pattern = key("attention.sliding_window"), key("attention.sliding_window_pattern")
    if isinstance(pattern, list):
        windowed = [bool(slides) for slides in pattern]
    elif window and (every := pattern or FULL_EVERY.get(architecture)):
        windowed = [(i + 1) % int(every) != 0 for i in range(count)]
    else:
        windowed = [False] * count
        if window:
            notes.append(f"a sliding window of {window} tokens is named but not which layers have it: counted as none")
    keeps = [True] * count
    if interval := key("full_attention_interval"):
        keeps = [(i + 1) % int(interval) == 0 for i in range(count)]
        notes.append("layers without attention keep a state of fixed size, which is not counted")
    shared = int(key("attention.shared_kv_layers", 0))
    layers = [
        Layer(kv_heads[i], key_size, value_size, int(window) if windowed[i] else None)
        for i in range(count - shared)
        if keeps[i] and kv_heads[i]
    ]
    return Cache(tuple(layers), count, tuple(notes))


def from_config(config: Mapping[str, Any]) -> Cache:
    """Build the cache of a Hugging Face model from its config.json."""
    text: Mapping[str, Any] = config.get("text_config", config)
    count, heads = _layers(text["num_hidden_layers"]), _heads(text["num_attention_heads"])
    kv_heads = int(text.get("num_key_value_heads") or heads)
    size = int(text.get("head_dim") or text["hidden_size"] // heads)
    key_size = value_size = size
    notes = []
    if rank := text.get("kv_lora_rank"):
        kv_heads, key_size, value_size = 1, int(rank) + int(text["qk_rope_head_dim"]), 0
    window = text.get("sliding_window") if text.get("use_sliding_window", True) else None
    kinds: Sequence[str] | None = text.get("layer_types")
    if kinds is None:
        every = text.get("sliding_window_pattern")
        sliding = {i for i in range(count) if window and (not every or (i + 1) % int(every))}
        kinds = ["sliding_attention" if i in sliding else "full_attention" for i in range(count)]
    if any(kind not in ("full_attention", "sliding_attention") for kind in kinds):
        notes.append("layers without attention keep a state of fixed size, which is not counted")
    shared = int(text.get("num_kv_shared_layers") or 0)
    layers = [
        Layer(kv_heads, key_size, value_size, int(window) if kind == "sliding_attention" and window else None)
        for kind in list(kinds)[: count - shared]
        if kind in ("full_attention", "sliding_attention")
    ]
    return Cache(tuple(layers), count, tuple(notes))


def _layers(count: Any) -> int:
    """Return a number of layers; raises ValueError for one that no model has."""
    if not 1 <= int(count) <= MOST_LAYERS:
        raise ValueError(f"{count!r:.40} is not a number of layers")
    return int(count)


def _heads(count: Any) -> int:
    """Return a number of attention heads; raises ValueError for one that no model has."""
    if int(count) < 1:
        raise ValueError(f"{count!r:.40} is not a number of attention heads")
    return int(count)


def _per_layer(value: Any, count: int) -> list[int]:
    return [int(v) for v in value] if isinstance(value, list) else [int(value)] * count
