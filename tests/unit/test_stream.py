"""Parse awkward streams that servers really send, given as bytes from which the result can be read."""

import hashlib
import json
import time

import pytest

from exchanges import DONE, MS, delta, event, exchange, usage
from servebench.load import stream
from servebench.load.stream import credit, failed, parse, phase, to_tables

# As llama-server sends it: the role with the first token, timings beside usage, all choices empty then.
LLAMA = [
    delta(role="assistant", content=None) + delta(content="東京"),
    delta(content="です。"),
    delta("stop"),
    event(
        choices=[],
        usage={"completion_tokens": 5, "prompt_tokens": 30, "prompt_tokens_details": {"cached_tokens": 12}},
        timings={"cache_n": 12, "prompt_n": 18, "prompt_ms": 40.5, "predicted_n": 5},
    )
    + DONE,
]


def ms(parsed):
    return [stamp / MS for stamp in parsed.arrival_ns.tolist()]


def test_llama_server():
    parsed = parse(exchange(*LLAMA))
    assert (parsed.status, parsed.error, parsed.finish_reason, parsed.done) == ("ok", None, "stop", True)
    assert parsed.text == "東京です。"
    assert ms(parsed) == [1, 2]
    assert parsed.tokens.tolist() == [2, 3]
    assert (parsed.prompt_tokens, parsed.completion_tokens, parsed.cached_tokens) == (30, 5, 12)
    assert parsed.tokens_from == "usage"
    assert json.loads(parsed.timings)["prompt_ms"] == 40.5


def test_vllm_role_chunk_is_no_token():
    parsed = parse(
        exchange(
            delta(role="assistant", content=""),
            delta(content="a"),
            delta("length", content="b"),
            usage(2) + DONE,
        )
    )
    assert ms(parsed) == [2, 3]  # not 1: an empty role delta is no token
    assert parsed.finish_reason == "length"


def test_ollama_reasoning_beside_empty_content():
    parsed = parse(
        exchange(
            delta(role="assistant", content="", reasoning="hm"),
            delta(content="", reasoning="!"),
            delta(content="yes"),
            delta("stop"),
            usage(7),
        )
    )
    assert parsed.status == "ok"  # no [DONE]: wanted, not required
    assert not parsed.done
    assert parsed.reasoning_chars == 3
    assert parsed.text == "yes"
    assert (ms(parsed), parsed.first_answer_ns) == ([1, 2, 3], 3 * MS)


@pytest.mark.parametrize("key", ["reasoning", "reasoning_content"])
def test_both_names_of_reasoning(key):
    parsed = parse(exchange(delta(**{key: "why"}), delta("stop", **{key: ""})))
    assert (parsed.reasoning_chars, len(parsed.arrival_ns), parsed.first_answer_ns) == (3, 1, None)


def test_reasoning_sent_under_both_names_counts_once():
    assert parse(exchange(delta(reasoning="why", reasoning_content="why"))).reasoning_chars == 3


def test_tool_calls_are_output():
    call = [{"index": 0, "function": {"name": "f", "arguments": "{}"}}]
    parsed = parse(exchange(delta(role="assistant"), delta(tool_calls=call), delta("tool_calls"), usage(9)))
    assert (parsed.status, ms(parsed), parsed.tokens.tolist()) == ("ok", [2], [9])
    assert parsed.first_answer_ns == 2 * MS
    assert parse(exchange(delta(tool_calls=[]), delta("stop"))).status == "empty"


def test_several_events_in_a_block_and_one_event_over_three():
    whole = delta(content="a") + delta(content="b")
    cut = delta(content="c")
    parsed = parse(exchange(whole, cut[:9], cut[9:20], cut[20:], delta("stop")))
    assert ms(parsed) == [1, 1, 4]


def test_arrival_is_the_last_byte_of_the_data_line():
    line = delta(content="a").rstrip(b"\n")
    assert ms(parse(exchange(line, b"\n\n", delta("stop")))) == [1]
    assert ms(parse(exchange(line[:-1], line[-1:] + b"\n\n", delta("stop")))) == [2]


def test_utf8_cut_inside_a_character():
    whole = delta(content="京")
    cut = whole.index("京".encode()) + 1
    parsed = parse(exchange(whole[:cut], whole[cut:], delta("stop")))
    assert (parsed.text, ms(parsed)) == ("京", [2])


def test_server_that_cuts_a_character_in_two_events():
    broken = delta(content="@").replace(b"@", "京".encode()[:2])
    parsed = parse(exchange(broken, delta("stop")))
    assert (parsed.status, parsed.text) == ("ok", "\ufffd")


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
def test_line_endings(newline):
    body = event(newline, choices=[{"delta": {"content": "a\n\nb"}}]) + event(
        newline, choices=[{"delta": {}, "finish_reason": "stop"}]
    )
    parsed = parse(exchange(body, b"data: [DONE]" + 2 * newline))
    assert (parsed.status, parsed.text, parsed.done) == ("ok", "a\n\nb", True)


def test_comments_pings_ids_and_named_events():
    body = b": ping\n\nid: 7\nretry: 10\nevent: message\n" + delta(content="a") + b":\n\n" + delta("stop")
    parsed = parse(exchange(body))
    assert (parsed.status, parsed.text) == ("ok", "a")


def test_events_that_are_not_chunks_are_passed_over():
    parsed = parse(exchange(event(type="ping"), event(prompt_progress={"total": 9}), delta(content="a"), delta("stop")))
    assert (parsed.status, ms(parsed)) == ("ok", [3])


def test_data_without_a_space_and_without_a_blank_line():
    lines = (delta(content="a") + delta("stop")).replace(b"data: ", b"data:").replace(b"\n\n", b"\n")
    assert parse(exchange(lines)).status == "ok"


def test_one_event_over_several_data_lines():
    body = b'data: {"choices": [{"delta":\ndata: {"content": "a"}}]}\n\n' + delta("stop")
    assert parse(exchange(body)).text == "a"


def test_last_event_without_its_blank_line():
    parsed = parse(exchange(delta(content="a"), delta("stop").rstrip(b"\n")))
    assert (parsed.status, parsed.finish_reason) == ("ok", "stop")


def test_usage_together_with_choices_and_last_usage_wins():
    def counted(text, tokens):
        return event(choices=[{"delta": {"content": text}}], usage={"prompt_tokens": 4, "completion_tokens": tokens})

    parsed = parse(exchange(counted("a", 1), counted("bc", 3), delta("stop")))
    assert (parsed.completion_tokens, parsed.tokens.tolist(), parsed.tokens_from) == (3, [1, 2], "usage")


def test_usage_null_in_every_chunk_but_the_last():
    chunk = event(choices=[{"delta": {"content": "a"}, "finish_reason": "stop"}], usage=None)
    assert parse(exchange(chunk, usage(4))).tokens.tolist() == [4]


def test_more_chunks_than_tokens():
    parsed = parse(exchange(*[delta(content="x")] * 4, delta("stop"), usage(2)))
    assert parsed.tokens.tolist() == [0, 1, 0, 1]


def test_no_usage_counts_with_the_tokenizer_or_the_chunks():
    stream = [delta(reasoning="ab"), delta(content="cde"), delta("stop")]
    by_length = parse(exchange(*stream), len)
    assert (by_length.completion_tokens, by_length.tokens_from, by_length.tokens.tolist()) == (5, "tokenizer", [2, 3])
    by_chunks = parse(exchange(*stream))
    assert (by_chunks.completion_tokens, by_chunks.tokens_from) == (2, "chunks")


def test_zero_in_usage_beside_output_is_no_count():
    assert parse(exchange(delta("stop", content="a"), usage(0))).tokens_from == "chunks"


def test_a_tool_call_is_not_counted_with_the_tokenizer():
    call = [{"function": {"name": "f", "arguments": "{}"}}]
    assert parse(exchange(delta("tool_calls", tool_calls=call)), len).tokens_from == "chunks"


def test_broken_stream_counts_its_chunks_even_with_a_tokenizer():
    parsed = parse(exchange(delta(content="abc"), delta(content="d"), failure="reset", error="ECONNRESET"), len)
    assert (parsed.status, parsed.completion_tokens, parsed.tokens_from) == ("reset", 2, "chunks")
    assert parsed.error.startswith("ECONNRESET")
    assert "2 chunks" in parsed.error


def test_stream_torn_inside_an_event():
    parsed = parse(exchange(delta(content="a"), delta(content="b")[:-9], failure="truncated"))
    assert (parsed.status, parsed.text) == ("truncated", "a")


def test_clean_end_without_finish_reason_is_truncated():
    # Ollama's repeat limit, and its way of ending a stream whose runner failed (engines.md 5, 29).
    parsed = parse(exchange(delta(content="a"), delta(content="")))
    assert parsed.status == "truncated"
    assert "without finish_reason" in parsed.error


def test_finish_reason_but_the_message_did_not_end():
    assert parse(exchange(delta("stop", content="a") + DONE, failure="truncated")).status == "truncated"
    assert parse(exchange(delta("stop", content="a") + DONE, complete=False)).status == "truncated"


@pytest.mark.parametrize("absent", ["", "null", "None", None])
def test_a_finish_reason_that_says_nothing_is_none(absent):
    begun = [delta(absent, content="a"), delta(absent, content="b")]
    assert parse(exchange(*begun, usage(2), DONE)).status == "truncated"
    whole = parse(exchange(*begun, delta("length"), delta(absent), usage(2), DONE))
    assert (whole.status, whole.finish_reason) == ("ok", "length")


THOUGHT = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]


def test_content_in_parts_is_its_text_and_reasoning_stands_apart():
    text = [{"type": "text", "text": "Pa"}, {"type": "text", "text": "ris"}]
    parsed = parse(exchange(delta(content=THOUGHT), delta(content=text), delta("stop", content=[]), usage(3)))
    assert (parsed.status, parsed.text, parsed.reasoning_chars) == ("ok", "Paris", 2)
    assert (ms(parsed), parsed.first_answer_ns) == ([1, 2], 2 * MS)


@pytest.mark.parametrize(
    "part",
    [
        {"type": "reasoning", "text": "why"},
        {"type": "reasoning", "reasoning": "why"},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "why"}]},
        {"type": "thinking", "thinking": "why"},
    ],
)
def test_parts_of_reasoning(part):
    parsed = parse(exchange(delta("stop", content=[part, {"type": "text", "text": "a"}])))
    assert (parsed.text, parsed.reasoning_chars) == ("a", 3)


def test_half_a_surrogate_pair_is_a_replacement_mark():
    whole = delta("stop", content="@").replace(b"@", rb"\\ud83d \ud83d\ude00 \ud83d a\uDE00")
    parsed = parse(exchange(whole))
    assert (parsed.status, parsed.text) == ("ok", "\\ud83d \N{GRINNING FACE} \ufffd a\ufffd")


@pytest.mark.parametrize(
    ("shape", "where"),
    [
        ({"choices": {}}, "$.choices"),
        ({"choices": [1]}, "$.choices[0]"),
        ({"choices": [{"delta": {"content": 7}}]}, "content"),
        ({"choices": [{"delta": {"content": [1, 2]}}]}, "content[0]"),
        ({"choices": [{"delta": {"content": [{"type": "image_url"}]}}]}, "image_url"),
        ({"choices": [{"delta": {"content": "a"}, "finish_reason": ["stop"]}]}, "finish_reason"),
        ({"usage": [1]}, "$.usage"),
        ({"usage": {"completion_tokens": "5"}}, "completion_tokens"),
        ({"usage": {"completion_tokens": -5}}, "completion_tokens"),
        ({"usage": {"prompt_tokens": 2**31}}, "prompt_tokens"),
    ],
)
def test_another_shape_is_a_failed_request_that_says_where(shape, where):
    for parsed in (parse(exchange(delta(content="a"), event(**shape))), parse(exchange(json.dumps(shape).encode()))):
        assert parsed.status == "in_band_error"
        assert where in parsed.error


@pytest.mark.parametrize(
    "text", [b'{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", b'{"usage": NaN}', b"[1]", b"7", b'"a"', b"null"]
)
def test_json_that_is_no_chunk_is_a_failed_request(text):
    assert parse(exchange(delta(content="a"), b"data: " + text + b"\n\n", delta("stop"))).status == "in_band_error"


def test_reasoning_that_is_counted_and_never_streamed_is_credited_to_no_chunk():
    counted = usage(208, completion_tokens_details={"reasoning_tokens": 200})
    parsed = parse(exchange(delta(content="a"), delta("stop", content="b"), counted))
    assert (parsed.completion_tokens, parsed.reasoning_tokens, parsed.tokens.tolist()) == (208, 200, [4, 4])
    streamed = parse(exchange(delta(reasoning="hm"), delta("stop", content="b"), counted))
    assert (streamed.reasoning_tokens, streamed.tokens.tolist()) == (200, [104, 104])
    apart = usage(8, completion_tokens_details={"reasoning_tokens": 200})  # not among the completion's tokens
    assert parse(exchange(delta(content="a"), delta("stop", content="b"), apart)).tokens.tolist() == [4, 4]
    untold = parse(exchange(delta(content="a"), delta("stop", content="b"), usage(208)))
    assert (untold.reasoning_tokens, untold.tokens.tolist()) == (None, [104, 104])


@pytest.mark.parametrize(
    "bad",
    [
        event(error={"message": "Context size has been exceeded.", "code": 500}),
        event(error="Context size has been exceeded."),
        b'error: {"message": "Context size has been exceeded."}\n\n',
        b'event: error\ndata: {"message": "Context size has been exceeded."}\n\n',
        event(object="error", message="Context size has been exceeded."),
    ],
)
def test_in_band_error_is_a_failure_with_its_words(bad):
    parsed = parse(exchange(delta(content="a"), bad))
    assert (parsed.status, parsed.completion_tokens) == ("in_band_error", 1)
    assert "Context size" in parsed.error
    # Even when the server goes on as if nothing had been, or the connection then breaks.
    assert parse(exchange(delta(content="a"), bad, delta("stop"), DONE)).status == "in_band_error"
    assert parse(exchange(delta(content="a"), bad, failure="reset")).status == "in_band_error"


def test_the_first_error_is_the_evidence():
    parsed = parse(exchange(event(error="out of memory"), event(error="task gone")))
    assert "out of memory" in parsed.error
    assert "task gone" not in parsed.error


def test_an_error_event_without_data_is_no_event():
    assert parse(exchange(b"event: error\n\n", delta("stop", content="a"))).status == "ok"


def test_error_null_is_none():
    chunk = event(error=None, choices=[{"delta": {"content": "a"}, "finish_reason": "stop"}])
    assert parse(exchange(chunk)).status == "ok"


@pytest.mark.parametrize("reason", ["abort", "error"])
def test_finish_reasons_of_a_server_that_gave_up(reason):
    assert parse(exchange(delta(content="a"), delta(reason))).status == "in_band_error"


def test_garbage_in_the_stream():
    parsed = parse(exchange(delta(content="a"), b"data: {nonsense\n\n", delta("stop")))
    assert parsed.status == "in_band_error"
    assert "{nonsense" in parsed.error
    assert parse(exchange(event(choices=[{"delta": {"content": 7}}]))).status == "in_band_error"


def test_empty_replies():
    assert parse(exchange()).status == "empty"
    finished = parse(exchange(delta(role="assistant", content=""), delta("stop"), usage(0), DONE))
    assert (finished.status, finished.completion_tokens, finished.tokens_from) == ("empty", 0, "usage")
    assert finished.text is None
    page = parse(exchange(b"<html>It works!</html>"))
    assert page.status == "empty"
    assert "It works!" in page.error


def test_tokens_that_nobody_saw_are_empty_too():
    parsed = parse(exchange(delta("stop"), usage(3)))
    assert (parsed.status, parsed.completion_tokens, parsed.tokens.tolist()) == ("empty", 3, [])


def test_http_errors():
    body = b'{"error":{"message":"Loading model","code":503}}'
    parsed = parse(exchange(body, http_status=503))
    assert (parsed.status, parsed.error, parsed.completion_tokens) == ("http_error", f"HTTP 503: {body.decode()}", None)
    refusal = "HTTP 503 for POST http://server/v1/chat/completions"
    assert parse(exchange(body, http_status=503, refusal=refusal)).error == f"{refusal}: {body.decode()}"
    assert parse(exchange(http_status=503, refusal=refusal)).error == refusal
    assert parse(exchange(body[:9], http_status=500, failure="reset")).status == "http_error"
    assert parse(exchange(b"moved", http_status=301)).status == "http_error"


GOOD = {
    "stream": LLAMA,
    "one token": [delta(content="a"), delta("length") + usage(1) + DONE],
    "reasoning": [delta(reasoning_content="a"), delta("stop") + DONE],
    "document": [b'{"choices": [{"message": {"content": "a"}, "finish_reason": "stop"}]}'],
    "words of errors": [delta(content='"error": 1, error: 2\nevent: error'), delta("stop") + DONE],
    "an error that is null": [event(choices=[{"delta": {"content": "a"}, "finish_reason": "stop"}], error=None)],
    "long": [*[delta(content="word ")] * 500, delta("stop") + usage(500) + DONE],
}
BAD = {
    "nothing": [],
    "[DONE] alone": [DONE],
    "no output": [delta(role="assistant", content=""), delta("stop") + usage(3) + DONE],
    "cut": [delta(content="a")],
    "unfinished": [delta(content="a"), delta("null") + DONE],
    "aborted": [delta(content="a"), delta("abort") + DONE],
    "an error": [event(error={"message": "no room"}), DONE],
    "an error behind tokens": [delta(content="a"), delta("stop"), event(error="no room")],
    "an error as object": [delta(content="a"), delta("stop"), event(object="error", message="no room")],
    "an error event": [delta(content="a"), delta("stop"), b"event: error\ndata: {}\n\n"],
    "llama.cpp's older error": [delta(content="a"), delta("stop"), b"error: {}\n\n"],
    "a page": [b"<!doctype html><title>Log in</title>"],
    "a document without text": [b'{"choices": [{"message": {"content": ""}, "finish_reason": "stop"}]}'],
    "long, cut": [delta(content="word ")] * 500,
}


@pytest.mark.parametrize("blocks", [*GOOD.values(), *BAD.values()], ids=[*GOOD, *BAD])
def test_a_failure_inside_a_200_is_one_before_the_records_are_read(blocks):
    whole = exchange(*blocks)
    assert failed(whole) == (parse(whole).status != "ok") == (blocks in BAD.values())
    bytewise = exchange(*(bytes([byte]) for byte in b"".join(blocks)))
    assert failed(bytewise) == failed(whole)


@pytest.mark.parametrize("blocks", GOOD.values(), ids=GOOD)
def test_a_good_reply_is_not_parsed_while_the_load_runs(blocks, monkeypatch):
    monkeypatch.setattr(stream, "parse", lambda _: pytest.fail("parsed"))
    assert not failed(exchange(*blocks))


def test_a_finish_far_from_the_end_is_found():
    assert not failed(exchange(delta(content="a"), delta("stop"), *[b": ping\n\n"] * 1000))


def test_a_reply_left_open_after_done_is_good_and_a_cut_one_is_not():
    whole = exchange(*LLAMA, complete=False, left_open=True)
    assert (parse(whole).status, failed(whole)) == ("ok", False)
    unfinished = exchange(delta(content="a"), DONE, complete=False, left_open=True)
    assert (parse(unfinished).status, failed(unfinished)) == ("truncated", True)
    waiting = parse(exchange(delta(content="a"), delta("stop"), failure="timeout"))
    assert waiting.status == "timeout"
    assert "finish_reason stop, neither [DONE]" in waiting.error


@pytest.mark.parametrize("failure", ["connect_error", "timeout", "idle_timeout", "reset", "truncated", "cancelled"])
def test_failures_of_the_transport(failure):
    parsed = parse(exchange(failure=failure, error="because", http_status=None))
    assert (parsed.status, parsed.error) == (failure, "because (after 0 bytes and 0 chunks)")
    assert parsed.arrival_ns.tolist() == []


def test_server_that_does_not_stream():
    reply = {
        "choices": [{"message": {"role": "assistant", "content": "abc"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 3},
    }
    body = json.dumps(reply, indent=1).encode()
    parsed = parse(exchange(body[:20], body[20:], b"\n"))
    assert (parsed.status, parsed.text, ms(parsed), parsed.tokens.tolist()) == ("ok", "abc", [2], [3])


def test_json_documents_that_are_no_reply():
    assert parse(exchange(b'{"error": {"message": "no"}}')).status == "in_band_error"
    assert parse(exchange(b'{"choices": [')).status == "in_band_error"


def test_cached_tokens_from_timings_when_usage_does_not_say():
    last = event(choices=[], usage={"completion_tokens": 1}, timings={"cache_n": 44, "prompt_ms": 1.5})
    assert parse(exchange(delta("stop", content="a"), last)).cached_tokens == 44


@pytest.mark.parametrize("timings", [[1], "fast", None, {"prompt_ms": "fast"}, {"cache_n": 10**30}])
def test_timings_that_are_not_llama_cpps_are_none(timings):
    parsed = parse(exchange(delta(content="a"), delta("stop", content="b"), event(choices=[], timings=timings)))
    assert (parsed.status, parsed.timings, parsed.cached_tokens) == ("ok", None, None)


@pytest.mark.parametrize("tokens", [2**31, 2**62, 10**30, -1, -(2**70)])
def test_a_usage_that_is_no_number_of_tokens_fails_the_request_and_nothing_else(tokens):
    told = event(choices=[], usage={"prompt_tokens": 3, "completion_tokens": tokens})
    requests, chunks = to_tables([exchange(delta("stop", content="a"), told)], None)
    assert requests["status"].to_pylist() == ["in_band_error"]
    assert str(tokens) in requests["error"][0].as_py()
    assert chunks["tokens"].to_pylist() == [1]


def test_credit_by_hand():
    assert credit(7, 3).tolist() == [2, 2, 3]  # ⌊7/3⌋=2, ⌊14/3⌋−2=2, 7−4=3
    assert credit(3, 3).tolist() == [1, 1, 1]
    assert credit(0, 2).tolist() == [0, 0]
    assert credit(5, 0).tolist() == []


def test_phases_are_half_open():
    window = (10, 20)
    assert [phase(t, window) for t in (9, 10, 19, 20)] == ["warmup", "window", "window", "after"]
    assert phase(9, None) == "window"


def test_tables():
    late = exchange(*LLAMA, request_id=3, user=2, scheduled_ns=5, sent_ns=25, resent=True)
    never = exchange(request_id=4, failure="connect_error", http_status=None, scheduled_ns=12, sent_ns=None)
    requests, chunks = to_tables(iter([late, never]), (10, 20), keep_text=True)
    rows = requests.to_pylist()
    assert [row["phase"] for row in rows] == ["after", "window"]
    assert [row["status"] for row in rows] == ["ok", "connect_error"]
    assert rows[0]["resent"]
    assert (rows[0]["first_token_ns"], rows[0]["last_token_ns"]) == (MS, 2 * MS)
    assert rows[0]["text"] == "東京です。"
    assert rows[0]["text_sha256"] == hashlib.sha256("東京です。".encode()).hexdigest()
    assert (rows[1]["completion_tokens"], rows[1]["text_sha256"], rows[1]["chunks"]) == (None, None, 0)
    assert chunks.to_pylist() == [
        {"request_id": 3, "arrival_ns": MS, "tokens": 2},
        {"request_id": 3, "arrival_ns": 2 * MS, "tokens": 3},
    ]
    by_schedule, _ = to_tables([late, never], (10, 20), by_schedule=True)
    assert by_schedule["phase"].to_pylist() == ["warmup", "window"]
    assert by_schedule["text"].to_pylist() == [None, None]


def test_no_exchanges_at_all():
    requests, chunks = to_tables([], (0, 1))
    assert (requests.num_rows, chunks.num_rows) == (0, 0)


DEEP = b'{"choices": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"


@pytest.mark.parametrize(
    "line", [b'{"choices":[]},{"choices":[]}', b'{"choices":[]', b"[]", b"3", b'"a","b"', b"", DEEP], ids=len
)
def test_data_that_is_not_one_object_is_an_error_between_good_events(line):
    body = delta(content="a") + b"data: " + line + b"\n\n" + delta("stop", content="b") + usage(2) + DONE
    parsed = parse(exchange(body))
    if line:
        assert (parsed.status, parsed.tokens.tolist()) == ("in_band_error", [1, 1])
    else:
        assert parsed.status == "ok"


LINES = {
    "half a document on each": lambda size: b"data: {\n" * (size // 8),
    "a string that goes on": lambda size: b'data: {"a": "\n' + b"data: xxxxxxxx\n" * (size // 15),
    "a list that goes on": lambda size: b'data: {"a": [1\n' + b"data: ,1\n" * (size // 9),
    "nothing but line ends": lambda size: b"\r\n" * (size // 2),
    "one line": lambda size: b"data: " + b"x" * size,
    "one document": lambda size: b'{"choices": [' + b" " * size,
    "escapes of half a character": lambda size: b'data: {"a": "' + rb"\ud800" * (size // 6),
}


@pytest.mark.parametrize("how", LINES)
def test_a_long_reply_of_any_form_is_read_soon(how):
    """A reply of 1.6 MB takes a few seconds at most; it was more than a minute."""

    one = exchange(LINES[how](1_600_000))
    began = time.process_time()
    parse(one)
    assert time.process_time() - began < 10
