"""What must hold for every measurement."""

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from exchanges import delta, exchange, load_meta, usage
from servebench.load.figures import measurement_figures
from servebench.load.line import Line
from servebench.load.percentiles import line_confidence, percentile
from servebench.load.stream import to_tables

SECONDS = st.floats(0, 1e6, allow_nan=False)
STREAMS = st.lists(
    st.tuples(st.integers(0, 100), st.lists(st.integers(0, 100), min_size=1, max_size=6), st.integers(1, 40)),
    max_size=6,
)


def tokens_in(streams, start_ns, end_ns):
    exchanges = []
    for i, (sent_ns, gaps, tokens) in enumerate(streams):
        stamps = [int(stamp) for stamp in sent_ns + np.cumsum(gaps)]
        blocks = [(stamp, delta(content="x")) for stamp in stamps] + [(stamps[-1], delta("stop") + usage(tokens))]
        facts = {"sent_ns": sent_ns, "first_byte_ns": sent_ns, "end_ns": stamps[-1], "blocks": blocks}
        exchanges.append(exchange(request_id=i, **facts))
    requests, chunks = to_tables(exchanges, (start_ns, end_ns))
    found = measurement_figures(requests, chunks, load_meta((start_ns, end_ns)), Line())
    assert found["target_requests"] == sum(start_ns <= sent_ns < end_ns for sent_ns, _, _ in streams)
    return round((found["output_tok_s"] or 0) * found["window_s"])


@settings(deadline=None)
@given(STREAMS, st.lists(st.integers(1, 999), max_size=5, unique=True))
def test_windows_side_by_side_hold_every_token_once(streams, edges):
    places = [0, *sorted(edges), 1000]
    parts = [tokens_in(streams, start, end) for start, end in pairwise(places)]
    assert sum(parts) == tokens_in(streams, 0, 1000) == sum(tokens for _, _, tokens in streams)


@settings(deadline=None)
@given(st.lists(SECONDS, min_size=1, max_size=200), st.integers(1, 100))
def test_percentile_is_the_nearest_rank(values, percent):
    rank = math.ceil(Fraction(percent, 100) * len(values))
    assert percentile(np.array(values), percent) == sorted(values)[rank - 1]


@settings(deadline=None)
@given(st.integers(1, 3000), st.integers(0, 200))
def test_confidence_is_the_binomials(requests, misses):
    passes = max(0, requests - misses)
    expected = binom.sf(requests - passes, requests, 0.05)
    assert line_confidence(passes, requests) == pytest.approx(expected, abs=1e-9)
