"""What `servebench load` says of what it has measured, and meanwhile."""

import pytest

from servebench.figures import Line
from servebench.load import command

MET = {"meets_line": True, "target_requests": 20, "failures": 0, "ttft_p95_all_s": 2.0, "user_tok_s": 10.0}


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({}, "yes"),
        ({"target_requests": 3}, "no: 3 requests of 20"),
        ({"failures": 2, "ttft_p95_all_s": None}, "no: 2 failed"),
        ({"ttft_p95_all_s": 2.5}, "no: TTFT p95 2.500 s, at most 2"),
        ({"user_tok_s": 9.96, "target_requests": 5}, "no: 5 requests of 20; 10.0 tok/s for one user, at least 10"),
        ({"user_tok_s": None}, "no: no reply in more than one piece, so no speed"),
    ],
)
def test_a_line_that_is_missed_says_by_what(found, said):
    assert command.verdict({**MET, "meets_line": not found, **found}, Line()) == said


def test_one_user_is_one():
    assert [command.counted(count) for count in (1, 2)] == ["1 user", "2 users"]
