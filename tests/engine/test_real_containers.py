"""Run llama.cpp's server in containers of a real docker and podman (tests/container/up.sh): what only they show."""

import hashlib
import json
import os
import shutil
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
from servebench.store import measurements
from waiting import until
from workspace import ROOT, Workspace

UP = Path(__file__).parents[1] / "container" / "up.sh"
STATE = Path(os.environ.get("CONTAINER_TEST_STATE", "/var/tmp/servebench-container"))


@pytest.fixture(scope="session")
def daemon(llama_environment: dict[str, Any]) -> dict[str, str]:
    """What tests/container/up.sh prints: DOCKER_HOST, IMAGE, CONTAINERS_…, of a docker that it has started before."""
    if not (STATE / "docker.sock").exists():
        pytest.skip("needs a docker: tests/container/up.sh")
    told = subprocess.run([str(UP), llama_environment["python"]], capture_output=True, text=True, check=True).stdout
    return dict(line.split("=", 1) for line in told.splitlines())


@pytest.fixture(params=["docker", "podman"])
def tool(request: pytest.FixtureRequest) -> str:
    """The program that runs the containers."""
    if request.param == "podman" and not (STATE / "podman").exists():
        pytest.skip("needs a podman: tests/container/up.sh PYTHON --podman")
    return str(request.param)


@pytest.fixture
def images(daemon: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`images(digest=…)` writes envs/images.yaml; at first it holds the image as it is."""
    repository, _, digest = daemon["IMAGE"].partition("@")
    for name, value in daemon.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(runtime, "ROOT", tmp_path)

    def write(**changed: str) -> None:
        entry = {"repository": repository, "digest": digest, "entrypoint": "/app/llama-server", **changed}
        (tmp_path / "envs").mkdir(exist_ok=True)
        (tmp_path / "envs" / "images.yaml").write_text(yaml.safe_dump({"wheel": entry}))

    write()
    return write


@contextmanager
def launched(
    tool: str, model: Path, tmp_path: Path, stop_timeout_s: float = 20, **setting: Any
) -> Iterator[engines.Server]:
    options = {"container": tool}
    engine = plan.Engine(key="boxed", kind="llama-server", runtime="container", image="wheel", options=options)
    with engines.launched(
        session(engine, slots=2, **setting),
        model_path=model,
        environment=None,
        runtime=plan.Runtime(ready_timeout_s=120, stop_timeout_s=stop_timeout_s, device="cpu"),
        log_path=tmp_path / "client.log",
    ) as server:
        yield server


def said(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def containers(tool: str) -> list[str]:
    return said(tool, "ps", "--all", "--format", "{{.Names}}", "--filter", "label=servebench").split()


def named(server: engines.Server) -> str:
    return server.argv[server.argv.index("--name") + 1]


DEAD = [{"what": "server", "asked": "alive", "got": "dead"}]


def test_an_image_is_pulled_by_its_digest_run_and_gone(
    tool: str, images: Callable[..., None], daemon: dict[str, str], smollm2: Path, tmp_path: Path
) -> None:
    repository, image = daemon["IMAGE"].partition("@")[0], daemon["IMAGE"]
    subprocess.run([tool, "rmi", "--force", image], check=False, capture_output=True)
    try:
        with launched(tool, smollm2, tmp_path, cpus={"server": 1}) as server:
            assert server.check() == []
            name = named(server)
            assert containers(tool) == [name]
            assert server.pid == int(said(tool, "inspect", "--format", "{{.State.Pid}}", name))
            inside = below(server.pid)
            assert any("llama-server" in " ".join(argv(process)) for process in inside)
            (cpu,) = inside[-1].cpu_affinity()
            assert said(tool, "inspect", "--format", "{{.HostConfig.CpusetCpus}}", name) == str(cpu)
            assert said(tool, "inspect", "--format", "{{.HostConfig.NetworkMode}}", name) == "host"
            (mount,) = json.loads(said(tool, "inspect", "--format", "{{json .Mounts}}", name))
            assert (mount["Destination"], mount["RW"]) == ("/models", False)
            written = [tool, "exec", name, "/usr/bin/python3", "-c", "open('/models/x', 'w')"]
            assert "Read-only file system" in subprocess.run(written, capture_output=True, text=True).stderr
            said(tool, "kill", name)
            until(lambda: not server.alive(), 10, "the end of the client")
            assert server.check() == DEAD
        assert containers(tool) == []
    finally:
        if tool == "docker":  # up.sh looks for the tag
            said(tool, "tag", said(tool, "images", "--quiet", "--no-trunc", repository), f"{repository}:wheel")


def test_a_server_that_takes_more_memory_than_its_container_may_is_dead_and_gone(
    tool: str, images: Callable[..., None], smollm2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel kills the server, and not what then takes its memory: `oom_score_adj`."""
    monkeypatch.chdir(tmp_path)  # podman's conmon writes a file `oom`
    shim(tool, tmp_path, monkeypatch, "--memory 1g --memory-swap 1g")
    with launched(tool, smollm2, tmp_path) as server:
        name = named(server)
        for process in below(server.pid):
            Path(f"/proc/{process.pid}/oom_score_adj").write_text("1000")
        eater = "import time; taken = b'1' * 2**30; time.sleep(60)"
        subprocess.run([tool, "exec", name, "/usr/bin/python3", "-c", eater], check=False, capture_output=True)
        until(lambda: not server.alive(), 60, "the end of the client")
        assert server.check() == DEAD
    assert containers(tool) == []


def shim(tool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: str, before: str = "") -> None:
    """Put a program of the tool's name before it on PATH, which adds options to `run`, as an administrator may."""
    real = shutil.which(tool)
    (tmp_path / "bin").mkdir()
    run = f'[ "$1" = run ] && {{ shift; exec {before} {real} run {options} "$@"; }}'
    told = f'#!/bin/sh\n{run}\nexec {before} {real} "$@"\n'
    (tmp_path / "bin" / tool).write_text(told)
    (tmp_path / "bin" / tool).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")


def test_two_sessions_at_once_have_containers_of_their_own(
    tool: str, images: Callable[..., None], smollm2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On two devices, here two folders of locks; the end of one leaves the other alone."""
    with launched(tool, smollm2, tmp_path) as first:
        monkeypatch.setenv("SERVEBENCH_LOCKS", str(tmp_path / "others"))
        with launched(tool, smollm2, tmp_path) as second:
            assert sorted(containers(tool)) == sorted([named(first), named(second)])
            assert first.url != second.url and second.check() == []
        assert containers(tool) == [named(first)]
        assert first.check() == []
    assert containers(tool) == []


def test_it_is_measured_by_the_workflow(
    tool: str, images: Callable[..., None], daemon: dict[str, str], smollm2: Path, tmp_path: Path
) -> None:
    """`engines.<engine>.image`, in a copy of this checkout whose envs/images.yaml has the image."""
    source = tmp_path / "checkout"
    for part in ("Snakefile", "rules", "scripts", "config", "envs", "pyproject.toml"):
        copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
        source.mkdir(exist_ok=True)
        copy(ROOT / part, source / part)
    with (source / "envs" / "images.yaml").open("a") as file:
        file.write((tmp_path / "envs" / "images.yaml").read_text())
    made = Workspace(tmp_path, source)
    made.env["PYTHONPATH"] = str(source / "scripts")
    made.config["rounds"] = 1
    made.config["engines"] = {
        "boxed": {
            "kind": "llama-server",
            "runtime": "container",
            "image": "wheel",
            "options": {"container": tool},
        }
    }
    sha256 = hashlib.sha256(smollm2.read_bytes()).hexdigest()
    made.config["models"] = {"m": {"source": smollm2.as_uri(), "sha256": sha256, "quantization": "Q4_1"}}
    made.config["settings"] = {"one": {"engine": "boxed", "model": "m", "slots": 1, "context": 512, "users": [1]}}
    made.config["runtime"] |= {"ready_timeout_s": 120, "device": "cpu"}
    made.snakemake("results/reruns/tables/measurements.parquet")
    record = measurements.read(made.results / "measurements/main/one/round1/users001.parquet")
    assert (record.status, record.reason) == ("ok", [])
    assert record.session.argv and record.session.argv[0] == tool and daemon["IMAGE"] in record.session.argv
    assert record.session.memory_gib and record.session.memory_gib > 0.05
    assert containers(tool) == []


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"digest": "sha256:" + "0" * 64}, "manifest unknown|not found"),
        ({"entrypoint": "/app/nothing"}, "/app/nothing"),
    ],
)
def test_a_container_that_cannot_be_made_is_no_result_of_the_setting(
    tool: str, images: Callable[..., None], smollm2: Path, tmp_path: Path, changed: dict[str, str], words: str
) -> None:
    images(**changed)
    with (
        pytest.raises(engines.InfrastructureError, match=rf"engines\.boxed: {tool}.*({words})"),
        launched(tool, smollm2, tmp_path),
    ):
        pass


@pytest.mark.parametrize(
    ("host", "user", "words"),
    [
        ("unix:///nowhere/docker.sock", "", "Cannot connect to the Docker daemon"),
        (None, "setpriv --reuid 65534 --regid 65534 --clear-groups", "permission denied"),
    ],
    ids=["down", "not-this-user-s"],
)
def test_a_daemon_that_does_not_answer_is_no_result_of_the_setting(
    images: Callable[..., None],
    smollm2: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    host: str | None,
    user: str,
    words: str,
) -> None:
    monkeypatch.setattr(runtime, "REMOVAL_TIMEOUT_S", 0.3)
    monkeypatch.setenv("HOME", "/")  # not root's, which another user may not read
    shim("docker", tmp_path, monkeypatch, "", user)
    if host:
        monkeypatch.setenv("DOCKER_HOST", host)
    with (
        pytest.raises(engines.InfrastructureError, match=rf"engines\.boxed.*{words}"),
        launched("docker", smollm2, tmp_path),
    ):
        pass


def test_a_port_that_somebody_took_meanwhile_is_replaced(
    tool: str, images: Callable[..., None], smollm2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        ports = iter([other.getsockname()[1], launch.free_port(plan.Runtime().ports)])
        monkeypatch.setattr(launch, "free_port", lambda _: next(ports))
        with launched(tool, smollm2, tmp_path) as server:
            assert server.alive()
    assert next(ports, None) is None


SESSION = """
import sys; from pathlib import Path
sys.path[:0] = sys.argv[4:]
from servebench.engines import runtime
runtime.ROOT = Path(sys.argv[2])
from test_real_containers import launched, named
with launched(sys.argv[3], Path(sys.argv[1]), Path(sys.argv[2])) as server:
    print(named(server), flush=True)
    sys.stdin.read()
"""


def test_what_a_killed_session_and_guard_leave_is_removed_by_the_next(
    tool: str, images: Callable[..., None], smollm2: Path, tmp_path: Path
) -> None:
    paths = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    killed = subprocess.Popen(
        [sys.executable, "-c", SESSION, str(smollm2), str(tmp_path), tool, *paths],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert killed.stdout
    name = killed.stdout.readline().strip()
    assert containers(tool) == [name]
    family = psutil.Process(killed.pid).children(recursive=True)
    killed.send_signal(signal.SIGKILL)
    # podman's container is a descendant, too.
    ours = [
        one for one in family if {"guard.py", tool} & {Path(word).name for word in (*argv(one)[:1], *argv(one)[2:3])}
    ]
    assert len(ours) == 2, "the guard, and docker's or podman's client"
    for process in ours:
        process.send_signal(signal.SIGKILL)
    killed.wait()
    psutil.wait_procs(ours, timeout=10)
    assert containers(tool) == [name]
    with launched(tool, smollm2, tmp_path) as server:
        assert containers(tool) == [named(server)] != [name]
    assert containers(tool) == []


def test_a_daemon_that_hangs_at_the_end_is_said_and_its_container_removed_by_the_next(
    images: Callable[..., None],
    smollm2: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    usual = runtime.REMOVAL_TIMEOUT_S, runtime.ANSWER_TIMEOUT_S
    monkeypatch.setattr(runtime, "REMOVAL_TIMEOUT_S", 0.5)
    monkeypatch.setattr(runtime, "ANSWER_TIMEOUT_S", 1.0)
    monkeypatch.setattr(launch, "GUARD_TIMEOUT_S", 2.0)
    dockerd = psutil.Process(int((STATE / "docker.pid").read_text()))
    try:
        with launched("docker", smollm2, tmp_path, stop_timeout_s=1) as server:
            name = named(server)
            dockerd.suspend()
        assert f"the container {name} is not gone and may hold its GPU" in caplog.text
    finally:
        dockerd.resume()
    monkeypatch.setattr(runtime, "REMOVAL_TIMEOUT_S", usual[0])
    monkeypatch.setattr(runtime, "ANSWER_TIMEOUT_S", usual[1])
    with launched("docker", smollm2, tmp_path):
        assert name not in containers("docker")
    assert containers("docker") == []
