"""Published facts beside a server's own: equal, different, or not told."""

import pytest

from servebench.expected import compare, sentence


@pytest.mark.parametrize(
    ("expected", "got", "met"),
    [
        (4096, 4096, True),
        (4096, 40960, False),
        (4096, None, None),
        (False, False, True),
        (False, 0, False),
        ("0.40.16", "0.40.16", True),
        ("0.6", "0.6.5", True),
        ("0.6", "0.60.1", False),
        ("0.6", "10.6", False),
        ("0.19", "0.0.19", False),
        ("3b4d6ab3f", "b12242-3b4d6ab3f", True),
        ("3b4d6ab3f", "b12242-3b4d6ab3f0", False),
        ("8", 8, True),
    ],
)
def test_a_fact_is_met_not_met_or_not_told(expected, got, met):
    (fact,) = compare({"what": expected}, {"what": got, "other": 1})
    assert fact.met is met


def test_sentences():
    facts = compare({"kv_cache_tokens": 122160, "threads": 96}, {"kv_cache_tokens": 98304})
    assert [sentence(fact) for fact in facts] == [
        "kv_cache_tokens: published 122160, here 98304",
        "threads: published 96, the server does not tell",
    ]
