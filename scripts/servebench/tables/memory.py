"""Make the table of measured memory beside weights and predicted KV cache. Pure."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from fractions import Fraction

import pyarrow as pa

from servebench.engines import ADAPTERS
from servebench.models.kv_cache import Cache, types_known
from servebench.plan import Setting
from servebench.tables.catalogue import SETTING
from servebench.tables.files import Row, rows_of, table
from servebench.tables.groups import groups, span_of


def memory(
    sessions: pa.Table, measurements: pa.Table, caches: Mapping[str, Cache], settings: Mapping[str, Setting]
) -> pa.Table:
    """Compare measured memory with weights and predicted KV cache, one row per setting that has a session.

    `caches` is by model key; a model without an entry has no prediction. `settings` are the settings as configured.
    """
    lengths = _request_tokens(measurements)
    rows = []
    for group in groups(sessions, ("run", "setting")):
        first = group[0]
        measured = span_of(row["memory_gib"] for row in group)[1]
        size = first["model_size_bytes"]
        tokens, request_tokens = _kv_cache_tokens(group), lengths.get((first["run"], first["setting"]))
        weights = None if size is None else size / 2**30
        cache = _kv_cache_gib(caches.get(first["model"]), tokens, settings[first["setting"]])
        known = measured is not None and weights is not None and cache is not None
        rows.append(
            {name: first[name] for name in SETTING}
            | {
                "measured_gib": measured,
                "memory_kind": first["memory_kind"],
                "weights_gib": weights,
                "kv_cache_tokens": tokens,
                "kv_cache_gib": cache,
                "rest_gib": measured - weights - cache if known else None,
                "request_tokens": request_tokens,
                "requests_fit": requests_fit(tokens, request_tokens),
            }
        )
    return table("memory", rows)


def _kv_cache_gib(cache: Cache | None, tokens: int | None, setting: Setting) -> float | None:
    """Predict the cache of all slots, each with its share of the tokens, in the configured types; None where unknown.

    It is unknown for a pool of tokens with sliding windows: how an engine counts these tokens changes with its version.
    """
    engine = ADAPTERS[setting.engine.kind]
    types = engine.cache_types(setting)
    if cache is None or tokens is None or not types_known(types) or (cache.windowed and engine.fills_device):
        return None
    return float(setting.slots * cache.exact(Fraction(tokens, setting.slots), *types)) / 2**30


def rooms(tables: Mapping[str, pa.Table], run: str) -> dict[str, int]:
    """Return how many requests the KV cache has room for, of settings with more slots: it is full before the slots."""
    rows = [row for row in rows_of(tables, "memory", run) if row["requests_fit"] is not None]
    return {row["setting"]: row["requests_fit"] for row in rows if row["requests_fit"] < row["slots"]}


def requests_fit(kv_cache_tokens: int | None, request_tokens: float | None) -> int | None:
    """Compute how many whole requests (prompt and answer) a KV cache has room for; None with either unknown."""
    return int(kv_cache_tokens / request_tokens) if kv_cache_tokens is not None and request_tokens else None


def _kv_cache_tokens(launches: Sequence[Row]) -> int | None:
    """Return the smallest cache that a launch reported; else the configured cache: context × slots."""
    told = [json.loads(launch["facts"]).get("kv_cache_tokens") for launch in launches if launch["facts"]]
    context, slots = launches[0]["context"], launches[0]["slots"]
    smallest: int | None = span_of(told)[0]
    return smallest if smallest is not None else None if context is None else context * slots


def _request_tokens(measurements: pa.Table) -> dict[tuple[str, str], float]:
    """Average the tokens of a request, prompt and answer, by run and setting; settings without a count are absent."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in measurements.to_pylist():
        if row["prompt_tokens_p50"] is not None and row["output_tokens_mean"] is not None:
            found[row["run"], row["setting"]].append(row["prompt_tokens_p50"] + row["output_tokens_mean"])
    return {place: sum(values) / len(values) for place, values in found.items()}
