"""llama.cpp's real server from its wheel: flags of the extra run, what it says of itself, its launcher."""

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from servebench import engines
from servebench.engines import llama_log, llama_server
from servebench.load.endpoint import Endpoint
from servebench.load.run import measure
from servebench.load.workload import Workload
from waiting import until


@pytest.mark.parametrize(
    ("setting", "facts"),
    [
        ({"slots": 8, "context": 256}, {"slots": 8, "n_ctx_slot": 256, "kv_unified": False, "kv_cache_tokens": 2048}),
        ({"args": ("--kv-unified",)}, {"n_ctx_slot": 1024, "kv_unified": True, "kv_cache_tokens": 1024}),
        ({"args": ("-t", "1", "--cache-ram", "0")}, {"threads": 1, "cache_ram_mib": 0}),
        # At its usual verbosity it says nothing of these; nothing is made up then.
        ({"args": ("-b", "256", "-ub", "128")}, {"n_batch": None, "n_ubatch": None, "cache_ram_mib": None}),
        (
            {"context": 1024, "args": ("-b", "2048", "-ub", "2048", "-lv", "4")},
            {"n_ctx": 2048, "n_batch": 2048, "n_ubatch": 2048, "cache_ram_mib": 8192},
        ),
        ({"args": ("-b", "2048", "-ub", "2048", "-lv", "4")}, {"n_ctx": 1024, "n_batch": 1024, "n_ubatch": 1024}),
    ],
)
def test_flags_of_the_extra_run(llama: Callable[..., Any], setting: dict[str, Any], facts: dict[str, Any]) -> None:
    with llama(**{"slots": 2, "context": 512, **setting}) as server:
        assert {name: server.facts[name] for name in facts} == facts
        assert server.check() == []

        def logged() -> bool:
            requests = llama_log.requests(server.log_path.read_text(errors="replace"))
            return bool(requests) and all(request.prompt_ms for request in requests)

        until(logged, 60, "the log of the requests, which the server writes after its answers")


def test_a_context_the_model_was_not_made_for_stops_the_setting(llama: Callable[..., Any]) -> None:
    with (
        pytest.raises(engines.AskedNotGot, match="n_ctx_slot: asked"),
        llama(slots=2, context=150_000),
    ):
        pass


def test_a_broken_model_gives_the_servers_last_words(llama_environment: dict[str, Any], tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(100))
    command = [llama_environment["python"], str(llama_server.LAUNCHER), "-m", str(broken), "--port", "0"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode not in (0, 2)
    assert "broken.gguf" in ended.stderr


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--no-such-flag", "3"], "--no-such-flag is not a flag of llama-server that this launcher knows"),
        (["-np", "four"], "argument -np/--parallel: 'four' is not a number"),
        (["-fa", "perhaps"], "argument -fa/--flash-attn: 'perhaps' is not one of on, off, auto"),
        ([], "-m MODEL is missing"),
    ],
)
def test_the_launcher_ignores_nothing(llama_environment: dict[str, Any], flags: list[str], message: str) -> None:
    given = flags and ["-m", "x.gguf", *flags]
    command = [llama_environment["python"], str(llama_server.LAUNCHER), *given]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert ended.stderr == f"llama_wheel: {message}; run it with --help for the flags it knows\n"


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("moment", ["llama_wheel:", "listening on"])
def test_a_signal_ends_the_server_at_once_also_while_it_loads(
    llama_environment: dict[str, Any], smollm2: Path, tmp_path: Path, moment: str, signum: signal.Signals
) -> None:
    command = [llama_environment["python"], str(llama_server.LAUNCHER), "-m", str(smollm2), "-c", "256", "--port", "0"]
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(command, stderr=log)
    until(lambda: moment in (tmp_path / "log").read_text(errors="replace"), 60, "the server's start")
    server.send_signal(signum)
    assert server.wait(10) == -signum


def test_prompts_and_replies_of_a_length_are_what_the_server_counts(llama: Callable[..., Any]) -> None:
    workload = Workload(mode="count", requests=6, prompt_tokens=300, reply_tokens=20)
    with llama(slots=2, context=512) as server:
        measured = measure(Endpoint(url=server.url, model=server.model, extra=server.extra), workload, 2)
    rows = measured.requests.to_pylist()
    assert [abs(row["prompt_tokens"] - 300) <= 3 for row in rows] == [True] * 6
    assert [(row["completion_tokens"], row["finish_reason"]) for row in rows] == [(20, "length")] * 6
    assert measured.meta.prompts
    assert measured.meta.prompts.counted_by == "/tokenize"
