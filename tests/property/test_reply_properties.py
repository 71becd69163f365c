"""Whatever JSON a server sends, its reader says what it is or why it is no reply, and never breaks."""

import json

import httpx
from hypothesis import given, settings
from hypothesis import strategies as st

from exchanges import exchange
from servebench.load.records import check_chunks, check_requests
from servebench.load.reply import ReplyError, completion
from servebench.load.stream import to_tables

KEYS = (
    *("choices", "delta", "message", "content", "reasoning", "reasoning_content", "thinking", "tool_calls"),
    *("finish_reason", "usage", "prompt_tokens", "completion_tokens", "completion_tokens_details"),
    *("reasoning_tokens", "prompt_tokens_details", "cached_tokens", "timings", "cache_n", "prompt_ms"),
    *("error", "object", "type", "text", "summary"),
)
WORDS = st.one_of(st.text(max_size=4), st.sampled_from(["text", "thinking", "reasoning", "stop", "null", "error", ""]))
NUMBERS = st.one_of(st.integers(), st.integers(-2, 2**33), st.floats())
SHAPES = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, WORDS, st.just("\ud83d")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=20,
)
# Almost a completion, with anything in one place of it.
DELTAS = st.fixed_dictionaries({}, optional=dict.fromkeys(("content", "reasoning", "thinking", "tool_calls"), SHAPES))
CHOICES = st.lists(
    st.fixed_dictionaries({"delta": DELTAS, "message": DELTAS}, optional={"finish_reason": SHAPES}), max_size=2
)
COMPLETIONS = st.fixed_dictionaries({"choices": CHOICES}, optional={"usage": SHAPES, "timings": SHAPES})
EVENTS = st.one_of(SHAPES, COMPLETIONS).map(lambda value: json.dumps(value).encode())


@settings(deadline=None)
@given(st.lists(EVENTS, max_size=4))
def test_a_stream_of_any_json_becomes_records(events):
    body = b"".join(b"data: " + event + b"\n\n" for event in events)
    requests, chunks = to_tables([exchange(body), exchange(*events[:1], request_id=1)], None, keep_text=True)
    check_chunks(chunks, check_requests(requests))
    assert all((row["status"] == "ok") == (row["error"] is None) for row in requests.to_pylist())


@settings(deadline=None)
@given(st.one_of(EVENTS, st.binary(max_size=40)))
def test_a_document_of_any_bytes_is_a_completion_or_a_reason(document):
    try:
        reply = completion(httpx.Response(200), document)
    except ReplyError as error:
        assert str(error).encode()  # text that a table can hold
    else:
        assert f"{reply.text}{reply.reasoning}{reply.finish_reason}".encode()
        assert all(count is None or 0 <= count < 2**31 for count in (reply.prompt_tokens, reply.completion_tokens))
