"""Reproduce publicly reported faults (docs/engines.md, by its numbers) with a server that misbehaves on purpose."""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

import nvml_double
from nvml_double import GIB, NO_PERMISSION, NOT_AVAILABLE
from processes import below
from servebench import engines, plan
from servebench.engines import ADAPTERS, launch, vllm
from servebench.engines.base import Command, Difference, Launch
from servebench.engines.simulator import Simulator
from servebench.machine import gpu

SERVER = Path(__file__).parents[1] / "misbehaving_double.py"


@pytest.fixture(autouse=True)
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks of this test's own."""
    monkeypatch.setenv("SERVEBENCH_LOCKS", str(tmp_path / "locks"))


class Misbehaving(Simulator):
    """The simulator's adapter, with the misbehaving server in the simulator's place."""

    def command(self, port: int) -> Command:
        options = self.setting.engine.options
        return Command(argv=[sys.executable, str(SERVER), json.dumps({**options, "port": port})])


@contextmanager
def started(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    adapter: type[Simulator] = Misbehaving,
    ready_timeout_s: float = 60,
    **options: Any,
) -> Iterator[engines.Server]:
    """A launch of the misbehaving server."""
    monkeypatch.setitem(ADAPTERS, "simulator", adapter)  # type: ignore[misc]
    with engines.launched(
        session("simulator", options=options),
        model_path=None,
        environment=None,
        runtime=plan.Runtime(ready_timeout_s=ready_timeout_s, stop_timeout_s=3),
        log_path=tmp_path / "engine.log",
    ) as server:
        yield server


def session(kind: str, options: dict[str, Any] | None = None, **setting: Any) -> plan.Session:
    """A session of one setting of this kind."""
    engine = plan.Engine(key=kind, kind=kind, runtime="binary", binary=kind, options=options or {})
    model = setting.pop("model", plan.Model(key="m", name="M"))
    made = plan.Setting(
        name="test", run="main", engine=engine, model=model, slots=2, context=512, users=(1,), **setting
    )
    return plan.Session(experiment="test", round=1, rank=0, setting=made)


def adapter_of(kind: str, tmp_path: Path, **setting: Any) -> Any:
    """The kind's adapter, not started."""
    model_path = tmp_path / "models" / "0" / "m.gguf"
    model_path.parent.mkdir(parents=True)
    model_path.write_bytes(b"GGUF")
    return ADAPTERS[kind](
        Launch(
            setting=session(kind, **setting).setting,
            label="test",
            model_path=model_path,
            environment=None,
            runtime=plan.Runtime(),
            log_path=tmp_path / "engine.log",
            devices=(),
        )
    )


@pytest.fixture
def foreign() -> Iterator[type[Simulator]]:
    """Return an adapter whose port another server holds, a healthy one unless the engine shares the port."""
    processes = []

    class Foreign(Misbehaving):
        def command(self, port: int) -> Command:
            # Where both listen the kernel chooses who answers; only the engine's own answer leads on.
            healthy_after_s = 1e9 if self.setting.engine.options.get("share_port") else 0
            options = json.dumps({"port": port, "share_port": True, "healthy_after_s": healthy_after_s})
            other = subprocess.Popen([sys.executable, str(SERVER), options], stdout=subprocess.PIPE)
            processes.append(other)
            assert other.stdout
            assert other.stdout.readline() == b"listening\n"
            return super().command(port)

    yield Foreign
    for process in processes:
        process.kill()
        process.communicate()


@pytest.mark.outcome(
    "another server on the port",
    at="start",
    into="simulator",
    kept="all before it",
    again="by retry",
    reads="a failed row with the reason",
    code="0",
)
@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: SO_REUSEPORT shares a port between processes there")
def test_14_another_server_on_the_same_port_is_noticed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, foreign: type[Simulator]
) -> None:
    with (
        pytest.raises(engines.LaunchFailed, match=r"port \d+ is shared with another process: \d+"),
        started(monkeypatch, tmp_path, foreign, share_port=True),
    ):
        pass
    assert "listening" in (tmp_path / "engine.log").read_text()  # the engine did get the port, and would have been used


def test_15_an_engine_that_waits_while_another_answers_on_its_port_is_noticed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, foreign: type[Simulator]
) -> None:
    with (
        pytest.raises(engines.LaunchFailed, match=r"port \d+ is answered by another process than the engine"),
        started(monkeypatch, tmp_path, foreign, listen=False),
    ):
        pass


def test_14_an_engine_alone_on_a_shareable_port_is_accepted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with started(monkeypatch, tmp_path, share_port=True) as server:
        assert server.alive()


def test_a_port_taken_between_choice_and_start_is_given_up_for_another(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    taken = []

    class Late(Misbehaving):
        def command(self, port: int) -> Command:
            if not taken:
                taken.append(socket.socket())
                taken[0].bind(("127.0.0.1", port))  # without listening: nobody answers there
            return super().command(port)

    try:
        with started(monkeypatch, tmp_path, Late) as server:
            assert server.url != f"http://127.0.0.1:{taken[0].getsockname()[1]}"
    finally:
        taken[0].close()


def test_16_healthy_is_not_ready_while_requests_fail(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with started(monkeypatch, tmp_path, refuse_first=3) as server:
        said = (tmp_path / "engine.log").read_text().splitlines()
        chats = [line.split()[-1] for line in said if "chat" in line]
        assert chats[:4] == ["503", "503", "503", "200"]
        assert server.cold_start_s["healthy_s"] < server.cold_start_s["first_token_s"]
    with (  # time is up while a request waits: what was said before says more
        pytest.raises(engines.LaunchFailed, match=r"was not ready after 8 s \(first token: HTTP 503.*EngineCore"),
        started(monkeypatch, tmp_path, ready_timeout_s=8, refuse_first=10**6, silent_after=3),
    ):
        pass


def test_17_a_list_of_models_is_not_readiness(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """/v1/models says 200 from the start; ready is when a token came, a second and more later."""
    with started(monkeypatch, tmp_path, healthy_after_s=0.7, chat_after_s=1.4) as server:
        assert httpx.get(f"{server.url}/v1/models", trust_env=False).status_code == 200
        assert server.cold_start_s["first_token_s"] >= 1.4 > server.cold_start_s["healthy_s"] >= 0.7


@pytest.mark.outcome(
    "a core that dies behind a good health",
    at="the check",
    into="simulator",
    kept="all before it",
    again="by retry",
    reads="a failed row with the reason",
    code="0",
)
def test_20_a_dead_core_behind_a_good_health_is_noticed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The first token, the check before the first user, and then the core is gone."""
    with started(monkeypatch, tmp_path, fail_after=2) as server:
        assert httpx.get(f"{server.url}/health", trust_env=False).status_code == 200
        (difference,) = server.check()
        assert (difference["what"], difference["asked"]) == ("a short request", "a reply")
        assert "EngineCore is not there" in difference["got"]


def test_20_a_frozen_core_is_noticed_by_requests_that_never_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(vllm, "IDLE_TIMEOUT_S", 0.3)
    answer = httpx.Response(200, text='vllm:num_requests_running{engine="0"} 3.0\n')
    with httpx.Client(transport=httpx.MockTransport(lambda _: answer), base_url="http://vllm.invalid") as client:
        found = adapter_of("vllm", tmp_path).probe(client)
    assert found == [{"what": "requests running", "asked": 0, "got": 3}]


def test_23_the_next_engine_waits_until_the_memory_is_back(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    driver = nvml_double.install(monkeypatch, nvml_double.Nvml())
    (device,) = gpu.gpus()
    driver.used = 40 * 2**30
    freed = threading.Timer(1.0, lambda: setattr(driver, "used", 2 * 2**30))
    began = time.monotonic()
    freed.start()
    launch.wait_for_memory(device, 2 * 2**30)
    assert 1.0 <= time.monotonic() - began < 60
    assert caplog.records == []
    monkeypatch.setattr(launch, "MEMORY_TIMEOUT_S", 0.3)
    driver.used = 40 * 2**30
    with caplog.at_level(logging.WARNING, "servebench"):
        launch.wait_for_memory(device, 2 * 2**30)
    assert "40.0 GiB in use after the engine's end, 2.0 before its start" in caplog.text


@pytest.mark.parametrize(
    ("holders", "accepted"),
    [
        ({"engine": 30 * GIB}, True),
        ({"engine": NOT_AVAILABLE, "another": 2 * GIB}, True),  # the driver names it without its memory
        ({}, False),
        ({"another": 2 * GIB}, False),
        ({"elsewhere": 2 * GIB}, True),  # pids of another namespace: ours may be among them
        (None, True),  # the driver gives no list
    ],
)
def test_24_a_server_that_fell_back_to_the_cpu_stops_the_setting_before_anything_is_measured(
    holders: dict[str, int] | None,
    accepted: bool,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    driver = nvml_double.install(monkeypatch, nvml_double.Nvml())
    if holders is None:
        driver.refuses["nvmlDeviceGetComputeRunningProcesses_v3"] = NO_PERMISSION

    class OnGpu(Misbehaving):
        uses_gpu = True

        def probe(self, client: httpx.Client) -> list[Difference]:
            """The driver lists its processes once the server is there."""
            (guard,) = below(holding="guard.py")
            pids = {"engine": guard.children()[0].pid, "another": os.getpid(), "elsewhere": 2**30}
            driver.processes = {pids[name]: used for name, used in (holders or {}).items()}
            return super().probe(client)

    if accepted:
        with started(monkeypatch, tmp_path, OnGpu) as server:
            assert server.devices == driver.uuids
        return
    with (
        pytest.raises(engines.AskedNotGot, match=r"GPU memory of the server: asked some, got none: the driver does"),
        started(monkeypatch, tmp_path, OnGpu),
    ):
        pass


def test_38_a_models_own_sampling_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name, *_, **__: f"/bin/{name}")
    argv = adapter_of("vllm", tmp_path).command(8000).argv
    assert argv[argv.index("--generation-config") + 1] == "vllm"


@pytest.mark.parametrize("refusal", [(200, {"error": "llama-quantize: bad magic"}), (400, {"error": "bad magic"})])
def test_46_what_ollama_will_not_create_fails_with_its_words(tmp_path: Path, refusal: tuple[int, Any]) -> None:
    asked = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append((request.method, request.url.path.partition(":")[0]))
        if request.url.path == "/api/tags":
            return httpx.Response(200, json={"models": []})
        if request.method == "HEAD":
            return httpx.Response(404)
        return httpx.Response(refusal[0], json=refusal[1]) if request.url.path == "/api/create" else httpx.Response(201)

    with (
        httpx.Client(transport=httpx.MockTransport(answer), base_url="http://ollama.invalid") as client,
        pytest.raises(engines.LaunchFailed, match=r"ollama could not create m:[0-9a-f]{64} from m\.gguf: .*bad magic"),
    ):
        adapter_of("ollama", tmp_path).prepare(client)
    assert asked == [
        ("GET", "/api/tags"),
        ("HEAD", "/api/blobs/sha256"),
        ("POST", "/api/blobs/sha256"),
        ("POST", "/api/create"),
    ]
