"""Tell the turns of conversations apart: how the context grows, and what the prompt cache has of it. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa

from servebench.load.percentiles import mean, median

_TURN = re.compile(r" turn (\d+)$")


def by_turn(requests: pa.Table) -> list[dict[str, Any]]:
    """Return for each turn of the window's conversations: requests, prompt tokens, cached share, median TTFT (s).

    Only successful target requests count. A value is None where no server told it; [] without conversations.
    """
    turns: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in requests.select(_COLUMNS).to_pylist():
        found = _TURN.search(row["prompt_id"])
        if found and row["phase"] == "window" and row["status"] == "ok":
            turns[int(found[1])].append(row)
    return [{"turn": turn, **_turn(rows)} for turn, rows in sorted(turns.items())]


_COLUMNS = ["prompt_id", "phase", "status", "prompt_tokens", "cached_tokens", "sent_ns", "first_token_ns"]


def _turn(rows: list[dict[str, Any]]) -> dict[str, Any]:
    prompts = np.array([row["prompt_tokens"] for row in rows if row["prompt_tokens"] is not None], dtype=np.float64)
    told = [row for row in rows if row["prompt_tokens"] and row["cached_tokens"] is not None]
    ttft_s = np.array([(row["first_token_ns"] - row["sent_ns"]) / 1e9 for row in rows], dtype=np.float64)
    cached, whole = (sum(row[f"{what}_tokens"] for row in told) for what in ("cached", "prompt"))
    return {
        "requests": len(rows),
        "prompt_tokens_mean": mean(prompts),
        "cached_share": cached / whole if told else None,
        "ttft_p50_s": median(ttft_s),
    }
