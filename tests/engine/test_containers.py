"""Run servers in containers on a double of docker: they are found, watched and removed though not our descendants."""

import dataclasses
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

import psutil
import pytest
from engine_sessions import session

import servebench
from processes import below
from servebench import engines, plan
from servebench.engines import llama_server, runtime
from servebench.engines.base import Container, Launch
from servebench.engines.llama_server import LlamaServer
from servebench.machine.gpu import Gpu
from waiting import until

DOUBLES = Path(__file__).with_name("doubles")
ENGINE = plan.Engine(key="boxed", kind="llama-server", runtime="container", image="llama-cpp-b12242")
H200 = Gpu(uuid="GPU-1", name="NVIDIA H200", memory_gib=140.0, driver="580.65.06", cuda="13.0", mig=False)


class Daemon(threading.Thread):
    """Run the containers, so that neither the client nor the guard is their parent."""

    def __init__(self, state: Path, program: list[str]) -> None:
        super().__init__(daemon=True)
        self.state, self.program, self.ended = state, program, threading.Event()

    def run(self) -> None:
        running: dict[Path, subprocess.Popen[bytes]] = {}
        while not self.ended.is_set() or running:
            for wanted in self.state.glob("*.run"):
                entry = json.loads(wanted.read_text())
                assert entry["entrypoint"] == "/app/llama-server"
                with wanted.with_suffix(".log").open("wb") as log:
                    running[wanted] = subprocess.Popen([*self.program, *entry["command"]], stderr=log)
                wanted.with_suffix(".pid").write_text(str(running[wanted].pid))
                wanted.unlink()
            for wanted, process in list(running.items()):
                if (status := process.poll()) is not None:
                    wanted.with_suffix(".exit").write_text(str(status if status >= 0 else 128 - status))
                    del running[wanted]
            time.sleep(0.02)


@pytest.fixture
def docker(llama_environment: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A docker whose only image is llama.cpp's server."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "docker").symlink_to(DOUBLES / "docker")
    state = tmp_path / "docker"
    state.mkdir()
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("DOCKER_DOUBLE_STATE", str(state))
    daemon = Daemon(state, [llama_environment["python"], str(llama_server.LAUNCHER)])
    daemon.start()
    yield state
    daemon.ended.set()
    daemon.join(20)


@contextmanager
def launched(model: Path, tmp_path: Path) -> Iterator[engines.Server]:
    """The server in its container. The double mounts nothing, so the models are where they are outside."""
    opened = engines.launched(
        session(ENGINE, slots=2),
        model_path=model,
        environment=None,
        runtime=plan.Runtime(ready_timeout_s=120, stop_timeout_s=20, device="cpu"),
        log_path=tmp_path / "client.log",
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runtime, "MODELS_INSIDE", PurePosixPath(model.parent))
        with opened as server:
            yield server


def test_a_container_is_found_by_its_runtime_and_stopped(docker: Path, smollm2: Path, tmp_path: Path) -> None:
    with launched(smollm2, tmp_path) as server:
        (told,) = docker.glob("*.pid")
        assert server.pid == int(told.read_text())
        guards = below(holding="guard.py")
        assert server.pid not in [p.pid for guard in guards for p in guard.children(recursive=True)]
        assert server.check() == []
        assert server.facts["model_path"].endswith(smollm2.name)
    assert not psutil.pid_exists(server.pid)


def test_killing_the_client_leaves_no_container(docker: Path, smollm2: Path, tmp_path: Path) -> None:
    with launched(smollm2, tmp_path) as server:
        guard = below(holding="guard.py")[0]
        (client,) = guard.children()
        client.send_signal(signal.SIGKILL)
        psutil.wait_procs([guard], timeout=60)
        assert not server.alive()
        until(lambda: not psutil.pid_exists(server.pid), 60, "the end of the container")


def test_a_container_that_stays_is_said_and_nothing_is_started_beside_it(
    docker: Path,
    smollm2: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(runtime, "REMOVAL_TIMEOUT_S", 0.3)
    with launched(smollm2, tmp_path) as server:
        name = server.argv[server.argv.index("--name") + 1]
        (docker / "stuck").touch()
    stays = f"the container {name} is not gone and may hold its GPU: Error response from daemon: cannot remove"
    assert stays in caplog.text
    with pytest.raises(engines.InfrastructureError, match=stays), launched(smollm2, tmp_path):
        pass
    assert len(list(docker.glob("*.pid"))) == 1, "no other one was started"

    (docker / "stuck").unlink()
    caplog.clear()
    with launched(smollm2, tmp_path) as server:
        assert server.alive()
    assert "is not gone" not in caplog.text
    assert [lock.read_text() for lock in (tmp_path / "locks").iterdir()] == [""]


def test_what_docker_does_not_answer_is_not_taken_for_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "REMOVAL_TIMEOUT_S", 0.0)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(engines.InfrastructureError, match=r"the container c1 is not gone .*No such file"):
        runtime.remove_container(Container("docker", "c1"))
    (tmp_path / "docker").write_text("#!/bin/sh\necho Cannot connect to the Docker daemon >&2\nexit 1\n")
    (tmp_path / "docker").chmod(0o755)
    with pytest.raises(engines.InfrastructureError, match="is not gone and may hold its GPU: Cannot connect"):
        runtime.remove_container(Container("docker", "c1"))


def adapter(*devices: Gpu, env: dict[str, str] | None = None, **engine: Any) -> LlamaServer:
    """An adapter for a container, without starting it."""
    known = {"key": "boxed", "kind": "llama-server", "runtime": "container", "image": "llama-cpp-b12242"}
    return LlamaServer(
        Launch(
            setting=session(plan.Engine(**{**known, **engine}), cpus={"server": 1}, env=env or {}).setting,
            label="h200/main/x/round1",
            model_path=Path("/data/models/m.gguf"),
            environment=None,
            runtime=plan.Runtime(),
            log_path=Path("/nowhere"),
            devices=devices,
        )
    )


def test_the_command_of_docker(docker: Path) -> None:
    command = adapter(H200).command(8080)
    words = " ".join(command.argv)
    image = servebench.ROOT / "envs" / "images.yaml"
    digest = runtime.image(ENGINE)["digest"]
    assert digest in image.read_text()
    assert f"ghcr.io/ggml-org/llama.cpp@{digest} -m /models/m.gguf" in words
    assert '--gpus "device=GPU-1"' in words
    assert "--network host" in words and "--publish" not in words and "--host 127.0.0.1 --port 8080" in words
    assert "--volume /data/models:/models:ro" in words
    assert "--cpuset-cpus 0" in words
    assert command.container and command.cleanup == ["docker", "rm", "--force", command.container.name]


@pytest.mark.parametrize("info", ["Debian GNU/Linux 12 [name=seccomp name=rootless]", "Docker Desktop [name=seccomp]"])
def test_a_docker_whose_network_is_not_the_host_s_publishes_the_port(
    docker: Path, monkeypatch: pytest.MonkeyPatch, info: str
) -> None:
    monkeypatch.setenv("DOCKER_DOUBLE_INFO", info)
    words = " ".join(adapter().command(8080).argv)
    assert "--publish 127.0.0.1:8080:8080" in words and "--host 0.0.0.0 --port 8080" in words
    assert "--network" not in words


def test_the_command_of_podman(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "podman").write_text("#!/bin/sh\n")
    (tmp_path / "podman").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    command = adapter(H200, dataclasses.replace(H200, uuid="GPU-2"), env={"GGML_X": "1"}).command(8080)
    words = " ".join(command.argv)
    assert words.startswith("podman run --rm --init --name servebench-")
    assert "--device nvidia.com/gpu=GPU-1 --device nvidia.com/gpu=GPU-2" in words and "--gpus" not in words
    assert "--network host" in words and "--publish" not in words and "--host 127.0.0.1 --port 8080" in words
    assert "--volume /data/models:/models:ro" in words and "--cpuset-cpus 0" in words and "--env GGML_X=1" in words
    name = command.argv[command.argv.index("--name") + 1]
    assert command.container == Container("podman", name)
    assert command.cleanup == ["podman", "rm", "--force", "--time", "0", name]
    assert "nvidia.com" not in " ".join(adapter().command(8080).argv)


def test_docker_comes_first_and_the_option_chooses(docker: Path, tmp_path: Path) -> None:
    (tmp_path / "bin" / "podman").symlink_to("/bin/true")
    assert adapter().command(8080).argv[0] == "docker"
    assert adapter(options={"container": "podman"}).command(8080).argv[0] == "podman"
    with pytest.raises(engines.InfrastructureError, match="needs true to run a container"):
        adapter(options={"container": "true"}).command(8080)


@pytest.fixture
def apptainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with apptainer and no docker."""
    (tmp_path / "apptainer").write_text("#!/bin/sh\n")
    (tmp_path / "apptainer").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))


def test_the_command_of_apptainer(apptainer: None) -> None:
    words = " ".join(adapter(H200, env={"GGML_X": "1"}).command(8080).argv)
    assert words.startswith(
        "apptainer exec --containall --writable-tmpfs --nv --bind /data/models:/models:ro"
        " --env CUDA_VISIBLE_DEVICES=GPU-1 --env GGML_X=1 docker://"
    )
    assert "/app/llama-server -m /models/m.gguf" in words and "--host 127.0.0.1" in words


def test_in_apptainer_only_the_devices_that_are_held_are_seen(apptainer: None) -> None:
    both = adapter(H200, dataclasses.replace(H200, uuid="GPU-2")).command(8080).argv
    assert both[both.index("--env") + 1] == "CUDA_VISIBLE_DEVICES=GPU-1,GPU-2"
    none = adapter().command(8080).argv
    assert "--nv" not in none and "--env" not in none


def test_an_old_driver_is_said_and_not_found_by_a_silent_cpu_run(docker: Path) -> None:
    old = Gpu(uuid="GPU-1", name="NVIDIA L4", memory_gib=22.0, driver="535.10", cuda="12.2", mig=False)
    with pytest.raises(engines.InfrastructureError, match=r"CUDA 13\.0, but the driver 535\.10 supports up to 12\.2"):
        adapter(old).command(8080)


def test_no_container_program_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(engines.InfrastructureError, match=r"engines\.boxed: needs docker, apptainer or podman"):
        adapter().command(8080)
