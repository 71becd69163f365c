"""Ask a server questions: which responses are failed replies, and which faults are our own."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import httpx
import msgspec
import pytest

from servebench.load.endpoint import Endpoint
from servebench.sessions.client import Asked, complete
from servebench.store.replies import Answer, AnswerFile, Reply
from servebench.tasks import TASKS
from servebench.tasks.scoring import score
from servebench.tasks.task import Question


def completed(content: bytes) -> Answer:
    """Return the answer that results from a response of these bytes."""

    async def ask() -> Answer:
        transport = httpx.MockTransport(lambda _: httpx.Response(200, content=content))
        async with httpx.AsyncClient(transport=transport) as client:
            return await complete(client, "http://there/v1/chat/completions", {})

    return asyncio.run(ask())


def test_content_in_parts_is_read_as_its_text_and_reasoning_stands_apart() -> None:
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "答え: 1"}]
    choice = {"message": {"content": parts}, "finish_reason": "stop"}
    reply = completed(json.dumps({"choices": [choice], "usage": {"completion_tokens": 9}}).encode())
    assert (reply.text, reply.reasoning, reply.tokens) == ("答え: 1", "hm", 9)


def test_no_content_stays_null() -> None:
    assert completed(b'{"choices": [{"message": {"content": null}, "finish_reason": ""}]}').text is None


@pytest.mark.parametrize(
    "content",
    [
        b"[1]",
        b'{"choices": []}',
        b'{"choices": [{"delta": {}}]}',
        b'{"choices": [{"message": {"content": 7}}]}',
        b'{"choices": [{"message": {"content": "a"}, "finish_reason": "abort"}]}',
        b'{"choices": [{"message": {"content": "a"}}], "usage": {"completion_tokens": -1}}',
        b'{"error": {"message": "out of memory"}}',
        b'{"x": ' + b"[" * 100_000,
        b"<html>",
    ],
)
def test_a_reply_of_another_shape_is_a_failed_one_with_its_evidence(content: bytes) -> None:
    assert content[:20].decode() in (completed(content).failed or "")


@pytest.mark.outcome(
    "a reply that no record can hold (NaN, 2^70 tokens, a list for text, nested deep)",
    at="an evaluation",
    into="scripted server",
    kept="it, as failed, with its reason",
    again="by retry",
    reads="the reason, with the beginning of the reply",
    code="0",
)
@pytest.mark.parametrize(
    ("content", "kept"),
    [
        (rb'{"choices": [{"message": {"content": "half \ud83d"}}]}', "half \ufffd"),
        (b'{"choices": [{"message": {"content": "a"}}], "usage": {"completion_tokens": NaN}}', None),
        (b'{"choices": [{"message": {"content": [1]}}]}', None),
        (b'{"choices": [{"message": {"content": 5}}]}', None),
        (b'{"choices": [{"message": {"content": "a"}, "finish_reason": ["stop"]}]}', None),
        (b'{"choices": [{"message": {"content": "a"}}], "usage": {"completion_tokens": "many"}}', None),
        (b'{"choices": [{"message": {"content": "a"}}], "usage": {"completion_tokens": %d}}' % 2**70, None),
        (b'{"choices": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", None),
    ],
    ids=["surrogate", "NaN", "a list", "a number", "reason a list", "tokens a word", "tokens 2^70", "deep"],
)
def test_a_reply_that_ended_an_evaluation_is_kept_and_read_and_scored_and_not_asked_again(
    content: bytes, kept: str | None, tmp_path: Path
) -> None:
    answer = completed(content)
    assert (answer.text, answer.failed is None) == (kept, kept is not None)
    file = AnswerFile(tmp_path / "a.jsonl")
    file.append(Reply(repeat=1, question_id="q", session_id="s", **msgspec.structs.asdict(answer)))
    file.close()
    again = AnswerFile(tmp_path / "a.jsonl")
    assert not again.missing(1, "q", retry_failed=False)
    reply = again.replies[1, "q"]
    assert (reply.text, reply.failed) == (answer.text, answer.failed)
    assert score(TASKS["mgsm"], Question(question_id="q", text="問", gold="1"), reply).correct is False


def test_the_task_has_the_last_word_on_a_request_and_null_takes_a_key_out() -> None:
    question = Question(question_id="1", text="問", gold="1")
    endpoint = Endpoint(url="http://there", model="m", extra={"top_k": None, "stop": ["x"], "min_p": 1, "seed": None})
    asked = Asked("mgsm", 1, question, 64, {"stop": ["。"], "min_p": None, "max_completion_tokens": 9})
    body = asked.body(endpoint, seed=7)
    assert body == {
        "model": "m",
        "messages": asked.messages,
        "max_completion_tokens": 9,
        "temperature": 0,
        "top_p": 1.0,
        "stop": ["。"],
    }


def test_a_reply_that_cannot_be_decompressed_is_a_failed_one_and_is_not_asked_for_again() -> None:
    asked = []

    def broken(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(200, headers={"content-encoding": "gzip"}, stream=httpx.ByteStream(b"no gzip"))

    async def ask() -> Answer:
        async with httpx.AsyncClient(transport=httpx.MockTransport(broken)) as client:
            return await complete(client, "http://there/v1/chat/completions", {})

    failed = asyncio.run(ask()).failed
    assert failed and failed.startswith("DecodingError: ")
    assert len(asked) == 1


def test_a_refused_question_says_the_status_the_address_asked_and_where_it_points() -> None:
    moved = httpx.Response(307, headers={"location": "https://elsewhere.invalid/"}, content=b"moved")

    async def asked() -> Answer:
        async with httpx.AsyncClient(transport=httpx.MockTransport(lambda _: moved)) as client:
            return await complete(client, "http://there/v1/chat/completions?key=a", {})

    told = "HTTP 307 (Location https://elsewhere.invalid/) for POST http://there/v1/chat/completions: moved"
    assert asyncio.run(asked()).failed == told
