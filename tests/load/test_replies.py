"""Load servers that answer in shapes of their own, and check their replies in records and figures."""

import json
from collections import Counter

import pytest
from scripted_server import DONE, END, HEAD, ScriptedServer, event, framed, refusal, reply, token

from servebench.load.endpoint import Endpoint
from servebench.load.figures import measurement_figures
from servebench.load.line import Line
from servebench.load.run import measure
from servebench.load.workload import Workload


def loaded(script, **extra):
    """Load with twelve requests by two users; return (requests as rows, figures)."""
    with ScriptedServer(script) as server:
        endpoint = Endpoint(url=server.url, model="scripted", extra=extra)
        workload = Workload(mode="count", requests=12, max_tokens=512, timeout_s=20)
        measured = measure(endpoint, workload, 2, seed=1)
    found = measurement_figures(measured.requests, measured.chunks, measured.meta, Line(min_targets=1))
    return measured.requests.to_pylist(), found


def chunk(finish_reason=None, **delta):
    return framed(event({"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]}))


def counted(completion_tokens, **details):
    usage = {"prompt_tokens": 9, "completion_tokens": completion_tokens, "completion_tokens_details": details or None}
    return framed(event({"choices": [], "usage": usage}))


@pytest.mark.parametrize("absent", ["", "null", "None"])
@pytest.mark.parametrize("whole", [True, False])
def test_a_stream_cut_short_behind_finish_reasons_that_say_nothing_is_no_success(absent, whole):
    def script(received):
        last = [chunk("length"), counted(3), framed(DONE)] if whole else []
        return [HEAD, *(chunk(absent, content=f"w{i} ") for i in range(3)), *last, END]

    requests, found = loaded(script)
    expected = ("ok", "length") if whole else ("truncated", None)
    assert Counter((row["status"], row["finish_reason"]) for row in requests) == {expected: 12}
    assert found["failures"] == (0 if whole else 12)


def test_content_in_parts_is_read_and_its_reasoning_seen():
    thinking = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm "}]}]
    text = [{"type": "text", "text": "Paris "}]

    def script(received):
        chunks = [chunk(content=thinking), chunk(content=text), chunk(content=text), chunk("stop", content="")]
        return [HEAD, *chunks, counted(3), framed(DONE), END]

    requests, found = loaded(script)
    assert {(row["status"], row["chunks"], row["reasoning_chars"]) for row in requests} == {("ok", 3, 3)}
    assert found["reasoning_replies"] == 12


def test_a_server_that_refuses_keys_it_does_not_know_gets_none_when_null_takes_them_out():
    allowed = {"model", "messages", "stream", "stream_options", "max_completion_tokens", "top_p"}

    def script(received):
        strange = sorted(set(received.body) - allowed)
        return refusal(422, json.dumps({"refused": strange}).encode()) if strange else reply(4)

    refused, _ = loaded(script)
    assert {row["http_status"] for row in refused} == {422}
    assert all(row["error"].endswith('{"refused": ["max_tokens", "seed", "temperature"]}') for row in refused)
    requests, found = loaded(script, max_completion_tokens=8, temperature=None, seed=None)
    assert {row["status"] for row in requests} == {"ok"}
    assert found["failures"] == 0


@pytest.mark.parametrize("told", [True, False])
def test_reasoning_that_is_never_streamed_makes_no_speed_or_is_doubted(told):
    """200 tokens nobody sees, then 8 of them 20 ms apart: 7 in 0.14 s are 50 a second at most."""

    def script(received):
        yield HEAD
        for _ in range(8):
            yield framed(token())
            yield 0.02
        yield chunk("stop") + counted(208, **({"reasoning_tokens": 200} if told else {})) + framed(DONE) + END

    requests, found = loaded(script)
    assert {(row["status"], row["completion_tokens"]) for row in requests} == {("ok", 208)}
    assert {row["reasoning_tokens"] for row in requests} == {200 if told else None}
    kinds = [doubt.kind for doubt in found["invalid_reasons"]]
    if told:
        assert found["user_tok_s"] <= 50
        assert "reasoning_seen" in kinds
    else:
        assert "many_tokens_a_chunk" in kinds
