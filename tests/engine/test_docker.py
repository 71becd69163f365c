"""Run llama.cpp's server in containers of a real docker (tests/container/up.sh): what only a real daemon shows."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from engine_sessions import session

from processes import argv, below
from servebench import engines, plan
from servebench.engines import launch, runtime
from waiting import until

UP = Path(__file__).parents[1] / "container" / "up.sh"
STATE = Path(os.environ.get("CONTAINER_TEST_STATE", "/var/tmp/servebench-container"))
ENGINE = plan.Engine(key="boxed", kind="llama-server", runtime="container", image="wheel")


@pytest.fixture(scope="session")
def daemon(llama_environment: dict[str, Any]) -> dict[str, str]:
    """What tests/container/up.sh prints: DOCKER_HOST and IMAGE, of a docker that it has started before."""
    if not (STATE / "docker.sock").exists():
        pytest.skip("needs a docker: tests/container/up.sh")
    told = subprocess.run([str(UP), llama_environment["python"]], capture_output=True, text=True, check=True).stdout
    return dict(line.split("=", 1) for line in told.splitlines())


@pytest.fixture
def images(daemon: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`images(digest=…)` writes envs/images.yaml; at first it holds the image as it is."""
    repository, _, digest = daemon["IMAGE"].partition("@")
    monkeypatch.setenv("DOCKER_HOST", daemon["DOCKER_HOST"])
    monkeypatch.setattr(runtime, "ROOT", tmp_path)

    def write(**changed: str) -> None:
        entry = {"repository": repository, "digest": digest, "entrypoint": "/app/llama-server", **changed}
        (tmp_path / "envs").mkdir(exist_ok=True)
        (tmp_path / "envs" / "images.yaml").write_text(yaml.safe_dump({"wheel": entry}))

    write()
    return write


@contextmanager
def launched(model: Path, tmp_path: Path, stop_timeout_s: float = 20, **setting: Any) -> Iterator[engines.Server]:
    with engines.launched(
        session(ENGINE, slots=2, **setting),
        model_path=model,
        environment=None,
        runtime=plan.Runtime(ready_timeout_s=120, stop_timeout_s=stop_timeout_s, device="cpu"),
        log_path=tmp_path / "client.log",
    ) as server:
        yield server


def docker(*words: str) -> str:
    return subprocess.run(["docker", *words], capture_output=True, text=True, check=True).stdout.strip()


def containers() -> list[str]:
    return docker("ps", "--all", "--format", "{{.Names}}", "--filter", "label=servebench").split()


def test_an_image_is_pulled_by_its_digest_run_and_gone(
    images: Callable[..., None], daemon: dict[str, str], smollm2: Path, tmp_path: Path
) -> None:
    docker("rmi", "--force", daemon["IMAGE"])
    try:
        with launched(smollm2, tmp_path, cpus={"server": 1}) as server:
            assert server.check() == []
            name = server.argv[server.argv.index("--name") + 1]
            assert containers() == [name]
            assert server.pid == int(docker("inspect", "--format", "{{.State.Pid}}", name))
            inside = below(server.pid)
            assert any("llama-server" in " ".join(argv(process)) for process in inside)
            (cpu,) = inside[-1].cpu_affinity()
            assert docker("inspect", "--format", "{{.HostConfig.CpusetCpus}}", name) == str(cpu)
            (mount,) = json.loads(docker("inspect", "--format", "{{json .Mounts}}", name))
            assert (mount["Destination"], mount["RW"]) == ("/models", False)
            written = ["exec", name, "/usr/bin/python3", "-c", "open('/models/x', 'w')"]
            assert (
                "Read-only file system" in subprocess.run(["docker", *written], capture_output=True, text=True).stderr
            )
            docker("kill", name)
            until(lambda: not server.alive(), 10, "the end of the client")
            assert server.check() == [{"what": "server", "asked": "alive", "got": "dead"}]
        assert containers() == []
    finally:
        docker("tag", docker("images", "--quiet", "--no-trunc", daemon["IMAGE"].partition("@")[0]), tagged(daemon))


def tagged(daemon: dict[str, str]) -> str:
    return daemon["IMAGE"].partition("@")[0] + ":wheel"


@pytest.mark.parametrize(
    ("changed", "host", "words"),
    [
        ({"digest": "sha256:" + "0" * 64}, None, "manifest unknown|not found"),
        ({"entrypoint": "/app/nothing"}, None, "/app/nothing"),
        ({}, "unix:///nowhere/docker.sock", "Cannot connect to the Docker daemon"),
    ],
)
def test_a_container_that_cannot_be_made_is_no_result_of_the_setting(
    images: Callable[..., None],
    smollm2: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changed: dict[str, str],
    host: str | None,
    words: str,
) -> None:
    images(**changed)
    monkeypatch.setattr(runtime, "REMOVAL_TIMEOUT_S", 0.3)
    if host:
        monkeypatch.setenv("DOCKER_HOST", host)
    with (
        pytest.raises(engines.InfrastructureError, match=rf"engines\.boxed.*({words})"),
        launched(smollm2, tmp_path),
    ):
        pass


def test_a_port_that_somebody_took_meanwhile_is_replaced(
    images: Callable[..., None], smollm2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        ports = iter([other.getsockname()[1], launch.free_port(plan.Runtime().ports)])
        monkeypatch.setattr(launch, "free_port", lambda _: next(ports))
        with launched(smollm2, tmp_path) as server:
            assert server.alive()
    assert next(ports, None) is None


SESSION = """
import sys; from pathlib import Path
sys.path[:0] = sys.argv[3:]
from servebench.engines import runtime
runtime.ROOT = Path(sys.argv[2])
from test_docker import launched
with launched(Path(sys.argv[1]), Path(sys.argv[2])) as server:
    print(server.argv[server.argv.index("--name") + 1], flush=True)
    sys.stdin.read()
"""


def test_what_a_killed_session_and_guard_leave_is_removed_by_the_next(
    images: Callable[..., None], smollm2: Path, tmp_path: Path
) -> None:
    paths = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    killed = subprocess.Popen(
        [sys.executable, "-c", SESSION, str(smollm2), str(tmp_path), *paths],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert killed.stdout
    name = killed.stdout.readline().strip()
    assert containers() == [name]
    family = psutil.Process(killed.pid).children(recursive=True)
    killed.send_signal(signal.SIGKILL)
    for process in family:  # the guard, and docker's client
        process.send_signal(signal.SIGKILL)
    killed.wait()
    psutil.wait_procs(family, timeout=10)
    assert containers() == [name]
    with launched(smollm2, tmp_path) as server:
        assert containers() == [server.argv[server.argv.index("--name") + 1]] != [name]
    assert containers() == []


def test_a_daemon_that_hangs_at_the_end_is_said_and_its_container_removed_by_the_next(
    images: Callable[..., None],
    smollm2: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    usual = runtime.REMOVAL_TIMEOUT_S, runtime.DOCKER_TIMEOUT_S
    monkeypatch.setattr(runtime, "REMOVAL_TIMEOUT_S", 0.5)
    monkeypatch.setattr(runtime, "DOCKER_TIMEOUT_S", 1.0)
    monkeypatch.setattr(launch, "GUARD_TIMEOUT_S", 2.0)
    dockerd = psutil.Process(int((STATE / "docker.pid").read_text()))
    try:
        with launched(smollm2, tmp_path, stop_timeout_s=1) as server:
            name = server.argv[server.argv.index("--name") + 1]
            dockerd.suspend()
        assert f"the container {name} is not gone and may hold its GPU" in caplog.text
    finally:
        dockerd.resume()
    monkeypatch.setattr(runtime, "REMOVAL_TIMEOUT_S", usual[0])
    monkeypatch.setattr(runtime, "DOCKER_TIMEOUT_S", usual[1])
    with launched(smollm2, tmp_path):
        assert name not in containers()
    assert containers() == []
