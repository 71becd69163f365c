"""What each turn of conversations finds in the prompt cache, by hand."""

import pyarrow as pa

from servebench.load.turns import by_turn


def row(prompt_id, prompt, cached, ttft_ms, phase="window", status="ok"):
    return {
        "prompt_id": prompt_id,
        "phase": phase,
        "status": status,
        "prompt_tokens": prompt,
        "cached_tokens": cached,
        "sent_ns": 1_000_000_000,
        "first_token_ns": None if ttft_ms is None else 1_000_000_000 + ttft_ms * 1_000_000,
    }


def test_each_turn_has_its_own_share_from_the_cache():
    rows = [
        row("a turn 1", 100, 0, 40),
        row("b turn 1", 300, 40, 60),
        row("a turn 2", 200, 150, 10),
        row("b turn 2", 400, None, 30),
        row("a turn 10", None, None, 20),
        row("c turn 1", 900, 900, 1, phase="warmup"),
        row("d turn 2", 900, 900, None, status="timeout"),
        row("no conversation", 5, 5, 5),
    ]
    assert by_turn(pa.Table.from_pylist(rows)) == [
        {"turn": 1, "requests": 2, "prompt_tokens_mean": 200, "cached_share": 0.1, "ttft_p50_s": 0.05},
        {"turn": 2, "requests": 2, "prompt_tokens_mean": 300, "cached_share": 0.75, "ttft_p50_s": 0.02},
        {"turn": 10, "requests": 1, "prompt_tokens_mean": None, "cached_share": None, "ttft_p50_s": 0.02},
    ]
    assert by_turn(pa.Table.from_pylist(rows[-1:])) == []
