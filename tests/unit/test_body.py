"""Build the body of a request: precedence of keys, keys removed by null, the limit that is sent."""

from __future__ import annotations

import pytest

from servebench.load.body import build, token_limit


def test_what_comes_later_goes_over_what_comes_before_and_null_takes_out() -> None:
    base = {"max_tokens": 8, "seed": 0, "temperature": 0}
    body = build(base, {"seed": None, "top_k": 1}, {"top_k": None, "temperature": 1})
    assert body == {"max_tokens": 8, "temperature": 1}
    assert build(base, {"seed": None}, {"seed": 5})["seed"] == 5


def test_one_limit_is_sent() -> None:
    assert build({"max_tokens": 8}, {"max_completion_tokens": 9}) == {"max_completion_tokens": 9}
    assert build({"max_tokens": 8}, {"max_completion_tokens": None}) == {"max_tokens": 8}


@pytest.mark.parametrize(
    ("asked", "limit"),
    [
        ({"max_tokens": 8}, 8),
        ({"max_tokens": 8, "max_completion_tokens": 9}, 9),
        ({"max_tokens": None, "max_completion_tokens": 9}, 9),
        ({"max_tokens": 8, "max_completion_tokens": None}, 8),
        ({"max_tokens": None}, None),
        ({"max_tokens": "8"}, None),
    ],
)
def test_the_limit_in_force(asked: dict, limit: int | None) -> None:
    assert token_limit(asked) == limit
