"""Make exchanges from a server's bytes, for tests of the parser and of the figures."""

import json
from typing import Any

from servebench.load.exchange import Exchange
from servebench.load.measurement import LoadMeta

MS = 1_000_000
DONE = b"data: [DONE]\n\n"


def event(newline: bytes = b"\n", **content: Any) -> bytes:
    return b"data: " + json.dumps(content, ensure_ascii=False).encode() + 2 * newline


def delta(finish_reason: str | None = None, **delta: Any) -> bytes:
    return event(choices=[{"index": 0, "delta": delta, "finish_reason": finish_reason}])


def usage(completion_tokens: int, prompt_tokens: int = 100, **more: Any) -> bytes:
    return event(choices=[], usage={"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens, **more})


def exchange(*blocks: bytes, **facts: Any) -> Exchange:
    """Make an exchange sent at 0 whose block i arrives at (i + 1) ms; complete, status 200, unless `facts` differ."""
    facts = {"complete": facts.get("failure") is None, "http_status": 200} | facts
    stamped = [((i + 1) * MS, block) for i, block in enumerate(blocks)]
    end_ns = (len(blocks) + 1) * MS
    first_byte_ns = MS if blocks else None
    base = {"request_id": 0, "user": 0, "process": 0, "prompt_id": "p", "scheduled_ns": 0, "sent_ns": 0}
    return Exchange(**(base | {"first_byte_ns": first_byte_ns, "end_ns": end_ns, "blocks": stamped} | facts))


def load_meta(window: tuple[int, int], **facts: Any) -> LoadMeta:
    """Make a load with the window [start, end), ns, of one user in a closed loop unless `facts` differ."""
    stamps = {"load_start_ns": window[0], "window_start_ns": window[0]}
    stamps |= {"window_end_ns": window[1], "load_end_ns": window[1]}
    return LoadMeta(**({"mode": "closed", "users": 1} | stamps | facts))
