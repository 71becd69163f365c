"""Read Ollama's log as captured from a real one, and run its double: what it silently changes is found."""

import json
import re
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import captured_ollama
import httpx
import psutil
import pytest
from captured_ollama import (
    CHUNK,
    CUT,
    FINISH,
    FIRST,
    INNER,
    LISTED,
    LOAD,
    LOADED,
    NO_THINKING,
    REQUEST,
    SHIFT,
    SHOWN,
    SPAWN,
    STARTED,
    TAG,
    THINKING,
    TRUNCATED,
    UNKNOWN_MODEL,
    UP,
    USAGE,
    VERSION,
)
from engine_sessions import OLLAMA, ollama_variables, session

from exchanges import DONE, exchange
from processes import alive, argv, below
from servebench import engines, plan
from servebench.engines import ADAPTERS, llama_log, ollama
from servebench.engines.base import Launch
from servebench.engines.llama_server import LAUNCHER
from servebench.load.endpoint import Endpoint
from servebench.load.run import measure
from servebench.load.stream import Parsed, parse
from servebench.load.workload import Workload
from servebench.machine.gpu import Gpu
from servebench.models import weights

START = UP + SPAWN + INNER + STARTED
BLOB = "941f309b54caaad6747569ba43712bcde44a2be3bae16c3282ff499c37c54af5"


def facts(log: str, loaded: dict[str, Any], tmp_path: Path, blob: str = BLOB) -> tuple[dict[str, Any], list[Any]]:
    """Return the facts that the adapter reads from a log and /api/ps, and the differences, of a pulled model."""
    model = plan.Model(key="small", name="SmolLM2", source="ollama://smollm2", quantization="Q4_1")
    engine = plan.Engine(key="ollama", kind="ollama", runtime="binary", binary="ollama")
    (tmp_path / "log").write_text(log, encoding="utf-8")
    adapter = ADAPTERS["ollama"](
        Launch(
            setting=session(engine, model=model, slots=4, context=512).setting,
            label="test",
            model_path=tmp_path / "blobs" / f"sha256-{blob}",
            environment=None,
            runtime=plan.Runtime(),
            log_path=tmp_path / "log",
            devices=(Gpu(uuid="GPU-1", name="H200", memory_gib=140.0, driver="580", cuda="13.0", mig=False),),
        )
    )
    answers = {"/api/version": VERSION, "/api/show": SHOWN, "/api/ps": {"models": [LOADED | loaded]}}
    transport = httpx.MockTransport(lambda request: httpx.Response(200, json=answers[request.url.path]))
    with httpx.Client(transport=transport, base_url="http://ollama.invalid") as client:
        found = adapter.inspect(client)
    return found, [(d["what"], d["asked"], d["got"]) for d in adapter.compare(found)]


WHOLE = {"size_vram": LOADED["size"]}  # as on a GPU


def test_the_captured_start_is_read(tmp_path: Path) -> None:
    found, differences = facts(START + REQUEST, WHOLE, tmp_path)
    assert differences == []
    assert (found["version"], found["build"]) == ("0.0.0", "b0-unknown")
    assert (found["slots"], found["n_ctx_slot"], found["kv_unified"], found["threads"]) == (4, 512, False, 2)
    assert (found["n_batch"], found["n_ubatch"], found["kv_cache_tokens"]) == (512, 512, 2048)
    assert (found["jinja"], found["chat_template"], found["template_selected"]) == (False, "chatml", "go_template")
    assert found["stop"] == ["<|im_start|>", "<|im_end|>"]
    assert found["sampling_defaults"] == {}
    assert len(found["chat_template_sha256"]) == 64
    assert found["blob_sha256"] == BLOB
    assert found["weights_sha256"] is None  # the store of this test lacks the blob
    assert found["runner_starts"] == 1  # though "llama-server started" stands twice
    assert found["inner_argv"][-3:] == ["--context-shift", "--keep", "4"]
    assert "OLLAMA_NUM_PARALLEL:4" in found["server_config"]


@pytest.mark.parametrize(
    ("log", "loaded", "difference"),
    [
        (START.replace("-np 4", "-np 1"), WHOLE, ("slots", 4, 1)),
        (START.replace("n_ctx_slot = 512", "n_ctx_slot = 256"), WHOLE, ("n_ctx_slot", 512, 256)),
        (START + SPAWN, WHOLE, ("runner_starts", 1, 2)),
        (START, {}, ("gpu_share", 1.0, 0.0)),
        (START, {**WHOLE, "name": "other:latest"}, ("loaded", True, False)),
        (START, {**WHOLE, "details": {"quantization_level": "Q8_0"}}, ("quantization", "Q4_1", "Q8_0")),
    ],
)
def test_what_it_does_otherwise_is_a_difference(
    log: str, loaded: dict[str, Any], difference: tuple[str, Any, Any], tmp_path: Path
) -> None:
    assert difference in facts(log, loaded, tmp_path)[1]


def test_another_blob_than_the_pulled_one_is_a_difference(tmp_path: Path) -> None:
    assert facts(START, WHOLE, tmp_path, "0" * 64)[1] == [("blob_sha256", "0" * 64, BLOB)]


def test_a_spawn_line_that_is_worded_otherwise_is_unknown_and_no_difference(tmp_path: Path) -> None:
    found, differences = facts(START.replace("starting llama-server", "launching the runner"), WHOLE, tmp_path)
    assert (found["runner_starts"], found["blob_sha256"], found["slots"]) == (None, None, 4)
    assert differences == []


def test_the_captured_requests_are_read() -> None:
    (request,) = llama_log.requests(INNER + REQUEST)
    assert (request.all_prompt_tokens, request.cached_tokens, request.prompt_tokens) == (12, 0, 12)
    assert (request.prompt_ms, request.eval_tokens, request.started_s) == (47.03, 6, None)
    (shifted,) = llama_log.requests(launched(0) + SHIFT)
    assert (shifted.context_shifts, shifted.truncated) == (3, True)
    assert ollama.Ollama.counted(START + TRUNCATED) == {"truncated_prompts": 1}


def streamed(*chunks: dict[str, Any], done: bool = True) -> Parsed:
    """Read a reply that came in these chunks."""
    lines = [b"data: " + json.dumps(chunk, separators=(",", ":")).encode() + b"\n\n" for chunk in chunks]
    return parse(exchange(*lines, *([DONE] if done else [])))


def test_the_captured_streams_are_read() -> None:
    reply = streamed(FIRST, CHUNK, FINISH, USAGE)
    assert (reply.status, reply.text, reply.finish_reason) == ("ok", "I'm", "length")
    assert (reply.prompt_tokens, reply.completion_tokens, reply.cached_tokens) == (12, 6, None)
    cut = streamed(FIRST, CHUNK, CUT, done=False)  # its inner server was killed, and the HTTP message ended well
    assert (cut.status, cut.finish_reason, cut.done) == ("truncated", None, False)
    thinking = streamed(*THINKING)
    assert (thinking.status, thinking.text, thinking.completion_tokens) == ("ok", "", 4)
    assert (thinking.reasoning_chars, len(thinking.arrival_ns)) == (len("I'm here"), 3)


def launched(slot: int) -> str:
    """The captured line of a request that gets a slot, for this slot."""
    line = next(line for line in REQUEST.splitlines() if "processing task" in line)
    return line.replace("id  3", f"id  {slot}") + "\n"


@pytest.fixture
def models(smollm2: Path, tmp_path: Path) -> Path:
    """A cache of the test's own with the model in it."""
    place = tmp_path / "models" / "0"
    place.mkdir(parents=True)
    (place / smollm2.name).hardlink_to(smollm2)
    return place / smollm2.name


def start(
    llama_environment: dict[str, Any], model: Path, tmp_path: Path, **env: str
) -> AbstractContextManager[engines.Server]:
    """The double with a model in a store of the test's own."""
    engine = plan.Engine(key="ollama", kind="ollama", runtime="binary", binary=str(OLLAMA))
    return engines.launched(
        session(engine, slots=4, env={**ollama_variables(llama_environment), **env}),
        model_path=model,
        environment=None,
        runtime=plan.Runtime(ready_timeout_s=120, stop_timeout_s=20),
        log_path=tmp_path / "ollama.log",
    )


def test_a_created_model_is_served_under_its_digest_with_the_same_weights(
    llama_environment: dict[str, Any], models: Path, tmp_path: Path
) -> None:
    with start(llama_environment, models, tmp_path) as server:
        first = server.facts
        assert server.model.split(":")[1] == ollama.remembered(models)[0]
        assert first["blob_sha256"] != ollama.remembered(models)[0]  # written anew
        assert first["weights_sha256"] == weights.sha256(models)
    # Another file under the same key of the configuration is another model.
    store = models.parent.parent / "ollama-created"
    place = next((store / "manifests").rglob(server.model.split(":")[1]))
    other = place.with_name("0" * 64)
    place.rename(other)
    blobs = {path.name for path in (store / "blobs").iterdir()}
    with start(llama_environment, models, tmp_path) as again:
        assert again.model == server.model
    assert {path.name for path in (store / "blobs").iterdir()} == blobs


def test_other_weights_than_those_asked_for_are_a_difference(
    llama_environment: dict[str, Any], models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a store may hold that an earlier version filled: the name is right and the weights are others."""
    asked = weights.sha256(models)
    told = {models: "1" * 64}
    real = weights.sha256
    monkeypatch.setattr(weights, "sha256", lambda path: told.get(path) or real(path))
    with (
        pytest.raises(engines.AskedNotGot, match=f"weights_sha256: asked {'1' * 64}, got {asked}"),
        start(llama_environment, models, tmp_path),
    ):
        pass


def test_a_family_that_is_served_one_by_one_stops_the_setting(
    llama_environment: dict[str, Any], models: Path, tmp_path: Path
) -> None:
    with (
        pytest.raises(engines.AskedNotGot, match="slots: asked 4, got 1"),
        start(llama_environment, models, tmp_path, OLLAMA_DOUBLE_SERIAL="1"),
    ):
        pass


def worded(log: str) -> list[str]:
    """Return what Ollama itself says in a log, without the times, numbers and paths of one start."""
    own = [line for line in log.splitlines() if line.startswith(("time=", "[GIN]"))]
    return [re.sub(r"\d+", "N", re.sub(r"\S*/\S+|OLLAMA_\w+:\S*", "", line)) for line in own]


def shape(said: Any) -> Any:
    """Return the names and types of a JSON answer, of a list those of its first entry."""
    if isinstance(said, dict):
        return {key: shape(value) for key, value in said.items()}
    return [shape(entry) for entry in said[:1]] if isinstance(said, list) else type(said)


def test_the_double_says_what_was_captured_and_nothing_else(
    llama_environment: dict[str, Any], models: Path, tmp_path: Path
) -> None:
    with start(llama_environment, models, tmp_path) as server:
        asked = {"model": server.model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}
        with httpx.Client(base_url=server.url, timeout=60) as client:
            pages = {path: client.get(path).json() for path in ("/api/version", "/api/tags", "/api/ps", "/v1/models")}
            shown = client.post("/api/show", json={"model": server.model}).json()
            loaded = client.post("/api/generate", json={"model": server.model}).json()
            unknown = client.post("/v1/chat/completions", json=asked | {"model": "nope"})
            thinking = client.post("/v1/chat/completions", json=asked | {"reasoning_effort": "low"})
            whole = client.post("/v1/chat/completions", json=asked).json()
            streaming = asked | {"stream": True, "stream_options": {"include_usage": True}}
            events = client.post("/v1/chat/completions", json=streaming).text.split("\n\n")
    assert worded((tmp_path / "ollama.log").read_text(errors="replace")) == worded(UP + SPAWN + STARTED)
    assert pages["/api/version"] == VERSION
    assert shape(pages["/api/tags"]["models"]) == [shape(TAG)]
    assert shape(pages["/api/ps"]["models"]) == [shape(LOADED)]
    assert shape(pages["/v1/models"]["data"]) == [shape(LISTED)]
    assert (shown, shape(loaded)) == (SHOWN, shape(LOAD))
    assert (unknown.status_code, unknown.json()) == (404, UNKNOWN_MODEL)
    assert (thinking.status_code, thinking.json()) == (400, NO_THINKING)
    assert shape(whole) == shape(captured_ollama.WHOLE)
    chunks = [shape(json.loads(event.removeprefix("data: "))) for event in events if event.startswith("data: {")]
    first, *others, last, usage = chunks
    assert (first, last, usage) == (shape(FIRST), shape(FINISH), shape(USAGE))
    assert others
    assert all(chunk == shape(CHUNK) for chunk in others)
    assert events[-2:] == ["data: [DONE]", ""]


def test_more_requests_than_it_queues_are_failures_and_what_it_cuts_is_counted(
    llama_environment: dict[str, Any], models: Path, tmp_path: Path
) -> None:
    load = Workload(mode="count", requests=12, max_tokens=4, timeout_s=60)
    long = {"messages": [{"role": "user", "content": "The quick brown fox. " * 240}], "max_tokens": 4}
    with start(llama_environment, models, tmp_path, OLLAMA_MAX_QUEUE="1") as server:
        said = httpx.post(f"{server.url}/v1/chat/completions", json={"model": server.model, **long}, timeout=60)
        cut = said.json()["usage"]["prompt_tokens"]
        assert 250 <= cut <= 262  # captured: 258 of a context of 512, with status 200
        assert ollama.Ollama.counted((tmp_path / "ollama.log").read_text(errors="replace"))["truncated_prompts"] == 1
        found = measure(Endpoint(url=server.url, model=server.model, extra=server.extra), load, 4).requests.to_pylist()
    assert {(row["status"], row["http_status"]) for row in found} == {("ok", 200), ("http_error", 503)}


SESSION = """
import json, sys
from pathlib import Path
sys.path[:0] = sys.argv[4:]
from test_ollama import start
with start(json.loads(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])):
    print("up", flush=True)
    sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: elsewhere a killed guard leaves its engine")
def test_its_llama_server_that_outlives_session_guard_and_ollama_is_ended_by_the_next_session(
    llama_environment: dict[str, Any], models: Path, tmp_path: Path
) -> None:
    paths = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    command = [sys.executable, "-c", SESSION, json.dumps(llama_environment), str(models), str(tmp_path), *paths]
    killed = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert killed.stdout and killed.stdout.readline() == "up\n"
    (guard,) = (process for process in below(killed.pid) if any(word.endswith("guard.py") for word in argv(process)))
    inner = [process for process in below(killed.pid) if argv(process)[1:2] == [str(LAUNCHER)]]
    assert inner
    for victim in (guard, psutil.Process(killed.pid)):
        victim.suspend()
    for victim in (guard, psutil.Process(killed.pid)):
        victim.kill()
    killed.communicate(timeout=60)
    assert alive(inner) == inner, "it is no child of the guard, whose death ends `ollama serve` only"
    with start(llama_environment, models, tmp_path) as server:
        assert server.alive()
        assert alive(inner) == []
