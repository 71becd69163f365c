"""What must hold for every stream: it does not matter where the network cuts it, and no token is lost or made up."""

from bisect import bisect_right
from itertools import accumulate, pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from exchanges import DONE, delta, event, exchange, usage
from servebench.load.records import check_chunks, check_requests
from servebench.load.stream import credit, parse, to_tables

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
PIECES = st.one_of(
    TEXTS.map(lambda text: delta(content=text)),
    TEXTS.map(lambda text: delta(reasoning=text)),
    TEXTS.map(lambda text: delta(reasoning_content=text, content="")),
    st.sampled_from([b": ping\n\n", b"\n", delta(role="assistant"), delta(content=""), event(choices=[], id="x")]),
)
ENDS = st.sampled_from(
    [
        delta("stop") + usage(17) + DONE,
        delta("length") + DONE,
        delta("stop"),
        usage(3),
        event(error={"message": "no"}),
        b"data: {",
        b"",
    ]
)


def blocks_of(body: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({cut % (len(body) + 1) for cut in cuts} | {0, len(body)})
    return [body[start:end] for start, end in pairwise(places)]


def facts(parsed):
    """Everything but the arrivals."""
    return [
        getattr(parsed, name) for name in parsed.__slots__ if name not in ("arrival_ns", "tokens", "first_answer_ns")
    ]


@settings(deadline=None)
@given(
    st.lists(PIECES, max_size=8),
    ENDS,
    st.sampled_from([b"\n", b"\r\n", b"\r"]),
    st.lists(st.integers(0, 10**4), max_size=20),
)
def test_cuts_change_nothing_but_the_arrivals(pieces, end, newline, cuts):
    pieces = [piece.replace(b"\n", newline) for piece in (*pieces, end)]
    body = b"".join(pieces)
    whole, blocks = parse(exchange(body)), blocks_of(body, cuts)
    cut = parse(exchange(*blocks))
    assert facts(cut) == facts(whole)
    assert cut.tokens.tolist() == whole.tokens.tolist()
    # Each chunk arrives with the block that holds the last byte of its data line, found here by counting bytes.
    starts, ends = [0, *accumulate(map(len, pieces))], list(accumulate(map(len, blocks)))
    told = [
        start + len(piece.rstrip(b"\r\n")) - 1
        for start, piece in zip(starts, pieces, strict=False)
        if len(parse(exchange(piece, complete=False)).arrival_ns)
    ]
    assert cut.arrival_ns.tolist() == [(bisect_right(ends, byte) + 1) * 1_000_000 for byte in told]


@settings(deadline=None)
@given(st.lists(PIECES, max_size=8), ENDS)
def test_a_ping_before_a_reply_changes_no_fact(pieces, end):
    body = b"".join((*pieces, end))
    bare, pinged = parse(exchange(b"", body)), parse(exchange(b": ping\n\n", body))
    assert (bare.error is None) == (pinged.error is None)  # the evidence shows the ping
    bare.error = pinged.error = None
    assert facts(pinged) == facts(bare)
    assert (pinged.arrival_ns.tolist(), pinged.tokens.tolist()) == (bare.arrival_ns.tolist(), bare.tokens.tolist())


@settings(deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 5000))
def test_credited_tokens_add_up(tokens, chunks):
    credited = credit(tokens, chunks)
    assert len(credited) == chunks
    assert credited.sum() == tokens
    assert np.ptp(credited) <= 1  # spread evenly
    assert credited.min() >= 0


@settings(deadline=None)
@given(st.lists(st.tuples(st.lists(PIECES, max_size=6), ENDS), max_size=5))
def test_tables_of_any_streams_keep_their_promises(streams):
    exchanges = [exchange(*pieces, end, request_id=i) for i, (pieces, end) in enumerate(streams)]
    requests, chunks = to_tables(exchanges, None)
    check_chunks(chunks, check_requests(requests))
    counted = [row for row in requests.to_pylist() if row["chunks"]]
    assert sum(row["completion_tokens"] for row in counted) == sum(chunks["tokens"].to_pylist())
    for row in requests.to_pylist():
        assert (row["status"] == "ok") == (row["error"] is None)
        if row["status"] == "ok":
            assert row["completion_tokens"] > 0
            assert row["first_token_ns"] is not None
