"""Build the JSON body of a request, for the load, the probe and the evaluations alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Names under which a body limits a reply's output tokens; the first of them that a body has is in force.
LIMITS = ("max_completion_tokens", "max_tokens")


def build(base: Mapping[str, Any], *over: Mapping[str, Any]) -> dict[str, Any]:
    """Merge `base` and each of `over`, later over earlier, and return the body to send.

    From lowest to highest precedence: the keys of the load, the probe or the evaluation itself; those the engine needs
    (`Adapter.extra`); the `request` of the setting or target; the `request` of the task. A null removes a key,
    whichever layer set it. `max_tokens` is not sent beside `max_completion_tokens`: servers that want the latter
    refuse the former.
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
