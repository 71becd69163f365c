"""Published facts beside a server's own: equal, different, or not told."""

import pytest

from servebench.tables.expected import as_text, compare


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


def test_values_are_written_as_a_configuration_says_them():
    assert [as_text(value) for value in (True, 4096, 0.9, "b12242", None)] == ["true", "4096", "0.9", "b12242", None]
