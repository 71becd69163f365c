"""Read from a server's log what its replies do not tell. Pure functions."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from servebench.marks import Mark, mark
from servebench.store.measurements import Record


def completed(record: Record) -> pa.Table:
    """Return the requests with `cached_tokens` and `timings` from the server's log, where no reply tells them (Ollama).

    The log does not say which of our requests its requests are. Those with the same numbers of prompt and output tokens
    are taken in order, where both sides have as many of them; the others stay unknown. A request that we broke off, the
    server may have finished nevertheless: where the log has more than we, those of our broken-off requests that have
    such a prompt and were sent first are counted among them.
    """
    requests, served = record.requests, record.served
    told = requests["cached_tokens"].null_count < len(requests) or requests["timings"].null_count < len(requests)
    if told or not any(served.get("all_prompt_tokens", ())):
        return requests
    names = ("status", "sent_ns", "prompt_id", "prompt_tokens", "completion_tokens")
    rows = list(zip(*(requests[name].to_pylist() for name in names), strict=True))
    ours: dict[tuple[int, int], list[int]] = defaultdict(list)
    lengths: dict[str, int] = {}
    broken_off: list[int] = []
    for place, (status, sent_ns, prompt_id, prompt, output) in sorted(enumerate(rows), key=lambda one: one[1][1] or 0):
        if status == "ok" and prompt is not None and output is not None:
            ours[prompt, output].append(place)
            lengths[prompt_id] = prompt
        elif sent_ns is not None:
            broken_off.append(place)
    theirs: dict[tuple[int, int], list[int]] = defaultdict(list)
    for place, key in enumerate(zip(served["all_prompt_tokens"], served["eval_tokens"], strict=True)):
        if None not in key:
            theirs[key].append(place)
    cached: list[int | None] = [None] * len(requests)
    timings: list[str | None] = [None] * len(requests)
    for key, places in ours.items():
        fitting = [place for place in broken_off if lengths.get(rows[place][2], key[0]) == key[0]]
        finished = fitting[: max(0, len(theirs[key]) - len(places))]
        broken_off = [place for place in broken_off if place not in finished]
        group = sorted([*places, *finished], key=lambda place: rows[place][1])
        if len(group) == len(theirs[key]):
            for place, logged in zip(group, theirs[key], strict=True):
                cached[place] = served["cached_tokens"][logged]
                timings[place] = json.dumps({"prompt_ms": served["prompt_ms"][logged]})
    return _with(_with(requests, "cached_tokens", cached), "timings", timings)


def _with(requests: pa.Table, name: str, values: list[Any]) -> pa.Table:
    field = requests.schema.field(name)
    return requests.set_column(requests.schema.get_field_index(name), field, pa.array(values, field.type))


def unsaid(record: Record) -> Iterator[Mark]:
    """Yield what the server did to requests of the load without telling it in a reply."""
    if prompts := (record.session.facts or {}).get("truncated_prompts"):
        yield mark("prompts_cut", prompts=prompts)
    if replies := sum(map(bool, record.served.get("truncated", ()))):
        yield mark("context_shifted", replies=replies)
