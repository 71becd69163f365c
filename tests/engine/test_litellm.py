"""LiteLLM's proxy before a server: its stream, its errors, and its own delay beside the direct one.

It is installed (480 MB) by `make gateway-test` and where SERVEBENCH_TEST_LITELLM=1 is set, as in CI.
"""

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import yaml

from http_double import HttpDouble, Request
from servebench.load.endpoint import Endpoint
from servebench.load.figures import measurement_figures
from servebench.load.line import Line
from servebench.load.measurement import Measurement
from servebench.load.run import measure
from servebench.load.workload import Workload
from servebench.tables import read
from waiting import until
from workspace import Workspace

EVENTS = (
    b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":"word "}}]}\n\n' * 4
    + b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
    + b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":4,"total_tokens":11}}\n\ndata: [DONE]\n\n'
)
WHOLE = {
    "id": "1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Paris"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 7, "completion_tokens": 4, "total_tokens": 11},
}
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n" % len(EVENTS)
LOAD = Workload(mode="count", requests=60, max_tokens=4, timeout_s=30)


class Upstream(HttpDouble):
    """Answer at once; a model called `busy` is told to come back in 7 s."""

    def respond(self, request: Request) -> list[bytes]:
        if request.body.get("model") == "busy":
            told = {"error": {"message": "too many", "type": "rate_limit", "code": "429"}}
            return [request.response(told, 429, {"retry-after": "7"})]
        if request.method == "GET":
            return [request.response({"object": "list", "data": [{"id": "m", "object": "model"}]})]
        return [HEAD + EVENTS if request.body.get("stream") else request.response(WHOLE)]


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with Upstream() as server:
        yield server


@pytest.fixture(scope="module")
def proxy(litellm: Path, upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """LiteLLM's address, its models: m, busy, and one whose server is down."""
    folder = tmp_path_factory.mktemp("litellm")
    at = {"m": upstream.url, "busy": upstream.url, "down": "http://127.0.0.1:9"}
    models = [
        {"model_name": name, "litellm_params": {"model": f"openai/{name}", "api_base": f"{url}/v1", "api_key": "none"}}
        for name, url in at.items()
    ]
    config = {
        "model_list": models,
        "litellm_settings": {"num_retries": 0, "telemetry": False},
        "router_settings": {"num_retries": 0, "disable_cooldowns": True},
        "general_settings": {"master_key": "sk-test"},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(litellm), "--config", "config.yaml", "--host", "127.0.0.1", "--port", str(port)]
    with (folder / "log").open("wb") as log:
        started = subprocess.Popen(
            command, cwd=folder, stdout=log, stderr=log, env={**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
        )
    url = f"http://127.0.0.1:{port}"
    try:
        until(lambda: answers(url) or started.poll() is not None, 180, "LiteLLM's proxy")
        assert started.poll() is None, (folder / "log").read_text()[-2000:]
        yield url
    finally:
        started.terminate()
        started.wait(30)


def answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health/liveliness", timeout=5).is_success
    except httpx.TransportError:
        return False


def loaded(
    url: str, model: str, monkeypatch: pytest.MonkeyPatch, key: str = "sk-test", requests: int = 60
) -> Measurement:
    monkeypatch.setenv("GATEWAY_KEY", key)
    load = Workload(**{**LOAD.to_dict(), "requests": requests})
    return measure(Endpoint(url=url, model=model, api_key_env="GATEWAY_KEY"), load, 1)


def test_its_stream_is_read_as_the_server_s_own_and_its_delay_stands_beside(
    upstream: Upstream, proxy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {}
    for name, url in {"direct": upstream.url, "proxy": proxy}.items():
        measured = loaded(url, "m", monkeypatch)
        figures = measurement_figures(measured.requests, measured.chunks, measured.meta, Line())
        assert figures["failures"] == 0
        rows = measured.requests.to_pylist()
        assert {(row["completion_tokens"], row["prompt_tokens"], row["tokens_from"]) for row in rows} == {
            (4, 7, "usage")
        }
        assert {(row["finish_reason"], row["done"]) for row in rows} == {("stop", True)}
        found[name] = figures["ttft_p50_s"]
    print("TTFT p50:", {name: f"{1000 * seconds:.2f} ms" for name, seconds in found.items()})
    assert found["direct"] < found["proxy"] < 2


def test_it_is_measured_by_the_workflow_beside_the_server_itself(
    upstream: Upstream, proxy: str, tmp_path: Path
) -> None:
    """`kind: url` on both, in one experiment: the rows differ by the proxy's own delay."""
    made = Workspace(tmp_path)
    made.env["GATEWAY_KEY"] = "sk-test"
    at = {"direct": f"{upstream.url}/v1", "proxy": f"{proxy}/v1"}
    made.config["rounds"] = 1
    made.config["engines"] = {
        name: {"kind": "url", "url": url, "api_key_env": "GATEWAY_KEY", "options": {"model": "m"}}
        for name, url in at.items()
    }
    made.config["models"] = {"m": {"source": "hf://a/b", "unverified": "The server is a double."}}
    made.config["workload"] = {"prompts": "en-short", "mode": "count", "requests": 20, "max_tokens": 4}
    made.config["settings"] = {name: {"engine": name, "model": "m", "slots": 1, "users": [1]} for name in at}
    made.snakemake("results/reruns/tables/measurements.parquet")
    found = read(made.results / "tables/measurements.parquet").to_pylist()
    rows = {row["setting"]: row for row in found}
    assert [row["reason"] for row in found] == [[], []]
    assert {(row["status"], row["failures"], row["target_requests"]) for row in found} == {("ok", 0, 20)}
    assert {row["tokens_from_usage"] for row in found} == {20}
    print("TTFT p50:", {name: f"{1000 * rows[name]['ttft_p50_s']:.2f} ms" for name in at})
    assert rows["direct"]["ttft_p50_s"] < rows["proxy"]["ttft_p50_s"]


@pytest.mark.parametrize(
    ("model", "key", "status", "words"),
    [
        ("m", "sk-wrong", 400, "No connected db"),  # without a database it cannot look other keys up
        ("busy", "sk-test", 429, "too many"),
        ("down", "sk-test", 500, "Connection error"),
    ],
)
def test_its_errors_are_failed_requests_with_its_words(
    proxy: str, monkeypatch: pytest.MonkeyPatch, model: str, key: str, status: int, words: str
) -> None:
    rows = loaded(proxy, model, monkeypatch, key, requests=2).requests.to_pylist()
    assert {(row["status"], row["http_status"]) for row in rows} == {("http_error", status)}
    assert all(words in row["error"] for row in rows)


def test_it_passes_on_when_to_come_back_under_a_name_of_its_own(proxy: str) -> None:
    body = {"model": "busy", "messages": [{"role": "user", "content": "?"}], "stream": True}
    key = {"Authorization": "Bearer sk-test"}
    told = httpx.post(f"{proxy}/v1/chat/completions", json=body, headers=key, timeout=30)
    found = [told.headers.get(name) for name in ("retry-after", "llm_provider-retry-after")]
    assert (told.status_code, found) == (429, [None, "7"])
