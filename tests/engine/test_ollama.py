"""Run Ollama's double: settings that it silently changes are found in its log."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest
from engine_sessions import session

from servebench import engines, plan
from servebench.engines import ADAPTERS, llama_server, ollama
from servebench.engines.base import Launch
from servebench.machine.gpu import Gpu

DOUBLE = Path(__file__).with_name("doubles") / "ollama"
# As Ollama writes them; the batch sizes are those published for 16 slots of 4,096 tokens.
START = (
    'time=2026-11-29T10:00:00.000Z level=INFO source=server.go msg="starting llama-server" '
    'cmd="/usr/lib/ollama/llama-server --model /m/blobs/sha256-00 --port 40001 --host 127.0.0.1'
    " --no-webui --offline -c 65536 -np 16 --log-verbosity 4"
    ' --no-jinja --chat-template chatml --flash-attn auto -b 2048 -ub 2048"\n'
    "initializing, n_slots = 16, n_ctx_slot = 4096, kv_unified = 'false'\n"
    "load_tensors: offloaded 41/41 layers to GPU\n"
)


def facts(log: str, loaded: dict[str, Any], tmp_path: Path) -> tuple[dict[str, Any], list[tuple[str, Any, Any]]]:
    """Return the facts that the adapter reads from a log and /api/ps, and the differences."""
    model = plan.Model(key="qwen3", name="Qwen3-14B", source="ollama://qwen3:14b", quantization="Q4_K_M")
    engine = plan.Engine(key="ollama", kind="ollama", runtime="binary", binary="ollama")
    (tmp_path / "log").write_text(log, encoding="utf-8")
    adapter = ADAPTERS["ollama"](
        Launch(
            setting=session(engine, model=model, slots=16, context=4096).setting,
            label="test",
            model_path=tmp_path / "blobs" / "sha256-00",
            environment=None,
            runtime=plan.Runtime(),
            log_path=tmp_path / "log",
            devices=(Gpu(uuid="GPU-1", name="H200", memory_gib=140.0, driver="580", cuda="13.0", mig=False),),
        )
    )
    answers = {
        "/api/version": {"version": "0.40.16"},
        "/api/ps": {"models": [{"name": "qwen3:14b", "digest": "d", "details": {}, **loaded}]},
    }
    transport = httpx.MockTransport(lambda request: httpx.Response(200, json=answers[request.url.path]))
    with httpx.Client(transport=transport, base_url="http://ollama.invalid") as client:
        found = adapter.inspect(client)
    return found, [(d["what"], d["asked"], d["got"]) for d in adapter.compare(found)]


WHOLE = {"size": 100, "size_vram": 100, "context_length": 4096}


def test_the_inner_server_is_read_from_the_log(tmp_path: Path) -> None:
    found, differences = facts(START, WHOLE, tmp_path)
    assert differences == []
    assert (found["slots"], found["n_ctx_slot"], found["kv_unified"]) == (16, 4096, False)
    assert (found["n_batch"], found["n_ubatch"], found["kv_cache_tokens"]) == (2048, 2048, 65536)
    assert (found["jinja"], found["chat_template"]) == (False, "chatml")
    assert found["inner_argv"][-6:] == ["--flash-attn", "auto", "-b", "2048", "-ub", "2048"]
    assert (found["gpu_share"], found["offloaded_layers"], found["version"]) == (1.0, 41, "0.40.16")


@pytest.mark.parametrize(
    ("log", "loaded", "difference"),
    [
        (START.replace("-np 16", "-np 1").replace("n_slots = 16", "n_slots = 1"), WHOLE, ("slots", 16, 1)),
        (START.replace("n_ctx_slot = 4096", "n_ctx_slot = 2048"), WHOLE, ("n_ctx_slot", 4096, 2048)),
        (START + START, WHOLE, ("runner_starts", 1, 2)),
        (START, {**WHOLE, "size_vram": 40}, ("gpu_share", 1.0, 0.4)),
        (START + 'level=WARN msg="truncating input prompt" limit=2048\n', WHOLE, ("truncated_prompts", 0, 1)),
        (START, {**WHOLE, "name": "other:latest"}, ("loaded", True, False)),
        (START, {**WHOLE, "details": {"quantization_level": "Q8_0"}}, ("quantization", "Q4_K_M", "Q8_0")),
    ],
)
def test_what_it_does_otherwise_is_a_difference(
    log: str, loaded: dict[str, Any], difference: tuple[str, Any, Any], tmp_path: Path
) -> None:
    assert difference in facts(log, loaded, tmp_path)[1]


REWORDED = START.replace("starting llama-server", "launching the runner")
STARTED = 'level=INFO msg="llama-server started in 1.23 seconds"\n'


@pytest.mark.parametrize(
    ("log", "starts"),
    [
        (START + STARTED, 1),
        (REWORDED, 1),  # by the inner server's own line
        (STARTED, 1),
        ("another release, which writes none of these lines\n", None),
    ],
)
def test_lines_that_are_worded_differently_are_no_difference(log: str, starts: int | None, tmp_path: Path) -> None:
    found, differences = facts(log, WHOLE, tmp_path)
    assert found["runner_starts"] == starts
    assert differences == []


@pytest.mark.parametrize("log", [REWORDED, STARTED, START + STARTED])
def test_a_second_start_is_noticed_by_any_of_its_lines(log: str, tmp_path: Path) -> None:
    assert facts(log * 2, WHOLE, tmp_path)[1] == [("runner_starts", 1, 2)]


def start(
    llama_environment: dict[str, Any], model: Path, tmp_path: Path, **env: str
) -> AbstractContextManager[engines.Server]:
    """The double with a model in a store of the test's own."""
    known = {
        "OLLAMA_DOUBLE_PYTHON": llama_environment["python"],
        "OLLAMA_DOUBLE_LAUNCHER": str(llama_server.LAUNCHER),
    }
    place = tmp_path / "models" / "0"
    place.mkdir(parents=True)
    (place / model.name).hardlink_to(model)
    engine = plan.Engine(key="ollama", kind="ollama", runtime="binary", binary=str(DOUBLE))
    return engines.launched(
        session(engine, slots=4, env={**known, **env}),
        model_path=place / model.name,
        environment=None,
        runtime=plan.Runtime(ready_timeout_s=120, stop_timeout_s=20),
        log_path=tmp_path / "ollama.log",
    )


def test_a_family_that_is_served_one_by_one_stops_the_setting(
    llama_environment: dict[str, Any], smollm2: Path, tmp_path: Path
) -> None:
    with (
        pytest.raises(engines.AskedNotGot, match="slots: asked 4, got 1"),
        start(llama_environment, smollm2, tmp_path, OLLAMA_DOUBLE_SERIAL="1"),
    ):
        pass
    assert ollama.NOT_PARALLEL.search((tmp_path / "ollama.log").read_text(errors="replace"))
