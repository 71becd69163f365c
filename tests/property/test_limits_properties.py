"""Whoever says whether a measurement kept the line says the same."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

import judged
from servebench.load.line import Line
from servebench.load.objective import Objective
from servebench.marks import mark

SECONDS = st.one_of(st.sampled_from([2.0]), st.floats(0.001, 10))
MARKS = [
    mark("backlog_grows", start=1, end=9, due=40),
    mark("warmup_failed", failures=3, requests=4),
    mark("foreign_use", samples=2, share_percent=10.0),
]


@st.composite
def figures(draw):
    """Figures of a window: of any number of requests, of which any may have failed."""
    targets = draw(st.integers(0, 70))
    failures = draw(st.integers(0, targets)) if draw(st.booleans()) else 0
    first, last = sorted((draw(SECONDS), draw(SECONDS)))
    answered = targets > failures
    marks = draw(st.lists(st.sampled_from(MARKS), max_size=2, unique=True))
    return {
        "target_requests": targets,
        "failures": failures,
        "ttft_p50_s": first if answered else None,
        "ttft_p95_s": last if answered else None,
        "user_tok_s": draw(st.one_of(st.none(), st.just(10.0), st.floats(1, 100))) if answered else None,
        "invalid_reasons": marks,
        "valid": not marks and not failures,
    }


@settings(deadline=None, max_examples=100)
@given(figures(), st.integers(1, 60))
def test_a_search_and_the_page_judge_a_window_alike(found, min_targets):
    line = Line(min_targets=min_targets)
    plan = msgspec.structs.replace(judged.plan_of({"llama-np16": [4]}), line=line)
    kept = Objective.of(line).outcome(found).kept
    level = judged.only(judged.concluded(plan, judged.both(plan, "llama-np16", 4, **found)), "level")
    assert level.verdict in {True: ("met",), False: ("missed", "failed"), None: ("few_requests",)}[kept]
    if found["target_requests"] < max(20, min_targets):
        assert kept is not True  # the p95 of fewer than 20 requests is their slowest
