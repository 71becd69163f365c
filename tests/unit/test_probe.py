"""Probe a server: one short reply shows what is wrong with it before and after the measurement."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from servebench import plan
from servebench.engines import ADAPTERS, metrics
from servebench.engines.base import Launch


def probe(
    answer: Any, status: int = 200, *, options: dict[str, Any] | None = None, request: dict[str, Any] | None = None
) -> list[tuple[str, Any, Any]]:
    """Return what the probe finds in this answer of a server at a URL; a function answers the request's body."""
    engine = plan.Engine(key="far", kind="url", url="http://far.invalid", options=options or {})
    setting = plan.Setting(
        name="s",
        run="main",
        engine=engine,
        model=plan.Model(key="m", name="M"),
        slots=1,
        users=(1,),
        request=request or {},
    )
    launch = Launch(
        setting=setting,
        label="test",
        model_path=None,
        environment=None,
        runtime=plan.Runtime(),
        log_path=Path("/nowhere"),
        devices=(),
    )

    def answered(request: httpx.Request) -> httpx.Response:
        content = answer(json.loads(request.content)) if callable(answer) else answer
        return httpx.Response(status, text=json.dumps(content))

    transport = httpx.MockTransport(answered)
    with httpx.Client(transport=transport, base_url="http://far.invalid") as client:
        return [(d["what"], d["asked"], d["got"]) for d in ADAPTERS["url"](launch).probe(client)]


def reply(finish: str | None = "stop", usage: dict[str, int] | None = None, **message: Any) -> dict[str, Any]:
    """Make a complete chat completion."""
    return {"choices": [{"message": message, "finish_reason": finish}], "usage": usage or {"prompt_tokens": 9}}


def test_a_good_reply_brings_nothing() -> None:
    assert probe(reply(content="Paris.")) == []
    assert probe({"choices": [{"message": {"content": "Paris."}, "finish_reason": "stop"}]}) == []  # no usage at all


@pytest.mark.parametrize(
    "message",
    [
        {"content": "", "reasoning_content": "Let me see"},  # llama.cpp, older vLLM
        {"content": None, "reasoning": "Let me see"},  # Ollama, vLLM
        {"content": "<think>\nLet me see"},  # nobody took it out
    ],
)
def test_reasoning_is_found_under_every_name(message: dict[str, Any]) -> None:
    ((what, asked, got),) = probe(reply(**message))
    assert (what, asked) == ("thinking", "off")
    assert got.endswith("characters of reasoning")
    assert probe(reply(**message), options={"thinking": True}) == []


def test_reasoning_in_parts_or_only_counted_is_found_too() -> None:
    parts = [{"type": "thinking", "thinking": "Let me see"}, {"type": "text", "text": "Paris."}]
    assert probe(reply(content=parts)) == [("thinking", "off", "10 characters of reasoning")]
    counted = {"completion_tokens": 9, "completion_tokens_details": {"reasoning_tokens": 7}}
    assert probe(reply(content="Paris.", usage=counted)) == [("thinking", "off", "7 tokens of reasoning")]


@pytest.mark.parametrize(
    "shape",
    [
        [],
        7,
        {"choices": {}},
        {"choices": [1]},
        {"choices": [{"message": {"content": 7}, "finish_reason": "stop"}]},
        {"choices": [{"message": {"content": [1, 2]}, "finish_reason": "stop"}]},
        {"choices": [{"message": {"content": "a"}, "finish_reason": ["stop"]}]},
        {"choices": [{"message": {"content": "a"}, "finish_reason": "stop"}], "usage": [1]},
        {"choices": [{"message": {"content": "a"}, "finish_reason": "null"}]},
    ],
)
def test_a_reply_of_another_shape_is_none(shape: Any) -> None:
    ((what, asked, got),) = probe(shape)
    assert (what, asked) == ("a short request", "a reply")
    assert json.dumps(shape) in got


def test_the_setting_decides_what_the_probe_sends() -> None:
    sent = []

    def answered(body: dict[str, Any]) -> dict[str, Any]:
        sent.append(body)
        return reply(content="Paris.")

    assert probe(answered, request={"max_tokens": None, "max_completion_tokens": 8, "temperature": None}) == []
    assert [set(body) for body in sent] == [{"model", "messages", "max_completion_tokens"}]


def test_an_empty_think_block_is_no_reasoning() -> None:
    assert probe(reply(content="<think>\n\n</think>\n\nParis.")) == []


def test_a_reply_of_one_character_is_what_broken_logits_look_like() -> None:
    assert probe(reply(content="!" * 16)) == [("a short request", "a sensible reply", "!" * 16)]


def test_a_failed_or_endless_request_is_no_reply() -> None:
    assert probe({"error": {"message": "boom"}}, 500)[0][2].startswith(
        "HTTP 500 for POST http://far.invalid/v1/chat/completions: "
    )
    assert probe(reply(finish=None, content="Par"))[0][2].startswith("no token came")
    assert probe({"choices": []})[0][2].startswith("not a chat completion")
    assert probe(reply(usage={"prompt_tokens": 0}, content="Paris.")) == [("usage.prompt_tokens", "at least 1", 0)]


def test_prometheus_text() -> None:
    found = metrics.parse(
        "# HELP vllm:num_preemptions_total Preemptions.\n"
        'vllm:num_preemptions_total{engine="0",model_name="x"} 9.0\n'
        'vllm:num_preemptions_total{engine="1",model_name="x"} 1.0\n'
        'vllm:cache_config_info{block_size="128",kv_cache_size_tokens="8192",note="a \\"b\\", c"} 1.0\n'
        "llamacpp:requests_processing 0\n"
    )
    assert found.total("vllm:num_preemptions_total") == 10.0
    assert found.total("vllm:absent") is None
    assert found.labels("vllm:cache_config_info")["kv_cache_size_tokens"] == "8192"
    assert found.total("llamacpp:requests_processing") == 0.0
