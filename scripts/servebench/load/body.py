"""Build the JSON body of a request, for the load, the probe and the evaluations alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Names of the most output tokens of a reply; the first that a body has is the one in force.
LIMITS = ("max_completion_tokens", "max_tokens")


def build(base: Mapping[str, Any], *over: Mapping[str, Any]) -> dict[str, Any]:
    """Lay each of `over` on top of `base`, in this order, and return the body to send.

    The order, lowest first: what the load, the probe or the evaluation asks by itself; what the engine needs
    (`Adapter.extra`); the `request` of the setting or target; the `request` of the task. A null takes a key out,
    whoever put it there. Where `max_completion_tokens` is given, `max_tokens` is not sent beside it: servers that
    want the one refuse the other.
    """
    merged = dict(base)
    for more in over:
        merged |= more
    body = {key: value for key, value in merged.items() if value is not None}
    if "max_completion_tokens" in body:
        body.pop("max_tokens", None)
    return body


def token_limit(body: Mapping[str, Any]) -> int | None:
    """Return the most output tokens a body allows; None when it sets no limit."""
    limits = [body[name] for name in LIMITS if body.get(name) is not None]
    return limits[0] if limits and type(limits[0]) is int else None
