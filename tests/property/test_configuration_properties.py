"""A configuration in which anything stands in any place is taken or refused by name: no other exception."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from servebench import ROOT, configuration
from servebench.configuration import ConfigError

# What configurations hold beside what the quick start does: a matrix, a running server, runs, objectives, people.
OTHER = """
experiment: other
engines:
  mine: {kind: url, url: "http://127.0.0.1:9/v1"}
  llama: {kind: llama-server, runtime: venv, environment: llama-cpp}
models:
  q4:
    source: file:///x.gguf
    name: M
    quantization: Q4
    sha256: &any "0000000000000000000000000000000000000000000000000000000000000000"
  q8: {source: "file:///y.gguf", name: M, quantization: Q8, sha256: *any}
runs: {main: {}, extra: {workload: {max_tokens: 9}}}
objectives: {chat: {ttft_p95_s: 1, user_tok_s: 10}, batch: {ttft_p95_s: 30, failures_share: 0.01}}
cost: {price_per_hour: 2, currency: USD, used_share: 0.2}
rounds: {min: 2, max: 4}
workload: {prompts: en-short, max_tokens: 8, warmup_s: 1, window_s: 2, min_targets: 20}
people: {pause: "lognormal:20,0.8"}
settings:
  now: {engine: mine, users: [1, 2]}
  grid:
    engine: llama
    model: q4
    slots: 1
    context: 512
    users: [1, 2]
    matrix: {slots: [1, 4], quantization: [Q4, Q8], workload.max_tokens: [4, 8]}
    include: [{slots: 8, quantization: Q4}]
    exclude: [{slots: 4, quantization: Q8}]
  more: {engine: llama, model: q4, slots: 1, context: 512, users: [1], run: extra}
evaluations:
  concurrency: 2
  baseline: q4
  targets:
    q4: {model: q4, engine: llama, slots: 1, context: 512}
    q8: {model: q8, engine: llama, slots: 1, context: 512}
  tasks: {jcommonsenseqa: {limit: 3}}
runtime: {foreign_use: {share: 0.5, samples: 3, action: mark}, ports: [2000, 3000]}
"""
QUICK_START = (ROOT / "config" / "config.yaml").read_text(encoding="utf-8")
STRANGE = st.sampled_from(
    [None, "", "x" * 300, "\0", "a\n", "../x", "http://[", "\ud800", True, -1, 2**70, [[1]], [None], {"": 1}]
)
VALUES = STRANGE | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=2),
    max_leaves=4,
)


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """List where anything stands in a value."""
    entries: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        entries = list(value.items())
    elif isinstance(value, list):
        entries = list(enumerate(value))
    for key, inner in entries:
        yield (*place, key)
        yield from places(inner, (*place, key))


@pytest.mark.parametrize("text", [QUICK_START, OTHER], ids=["quick start", "other"])
def test_any_value_in_any_place_is_taken_or_refused(text: str) -> None:
    whole = yaml.safe_load(text)
    configuration.load(whole, [])

    @settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.sampled_from(list(places(whole))), VALUES, st.sampled_from(["value", "key", "gone"]))
    def tried(place: tuple[Any, ...], value: Any, how: str) -> None:
        config = copy.deepcopy(whole)
        entry = config
        for key in place[:-1]:
            entry = entry[key]
        if how == "gone":
            del entry[place[-1]]
        elif how == "key" and isinstance(entry, dict) and not isinstance(value, list | dict):
            entry[value] = entry.pop(place[-1])
        else:
            entry[place[-1]] = value
        with suppress(ConfigError):
            configuration.load(config, [])

    tried()
