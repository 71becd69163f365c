"""Run an engine as a binary, in a virtual environment, or in a container by digest (docker, podman, apptainer)."""

from __future__ import annotations

import shutil
import subprocess
import time
import uuid
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from servebench import ROOT, plan
from servebench.engines import images
from servebench.engines.base import Command, Container, Launch
from servebench.machine import cache
from servebench.machine.cpus import allot
from servebench.machine.gpu import Gpu
from servebench.machine.infrastructure import InfrastructureError

MODELS_INSIDE = PurePosixPath("/models")
LABEL = "servebench"
REMOVAL_TIMEOUT_S = 15.0
ANSWER_TIMEOUT_S = 60.0  # of docker and podman
TOOLS = ("docker", "apptainer", "podman")  # the first that is installed is used


def command(
    launch: Launch,
    argv: list[str],
    *,
    port: int,
    in_venv: list[str],
    in_image: list[str],
    env: dict[str, str] | None = None,
    mount: Path | None = None,
    writable: bool = False,
) -> Command:
    """Return the whole command for the engine's arguments `argv`.

    `in_venv` is what the environment's interpreter runs (a script, or -m and a module), `in_image` what the container
    runs before `argv` when that is not the image's own entry point. `mount` is the directory that a container sees as
    /models, read-only unless `writable`; by default the model's directory.
    """
    engine, env = launch.setting.engine, {**(env or {}), **launch.setting.env}
    if engine.runtime == "container":
        volume = f"{mount or _directory(launch)}:{MODELS_INSIDE}:{'rw' if writable else 'ro'}"
        return _container(launch, [*in_image, *argv], port, env, volume)
    if engine.runtime == "venv":
        if launch.environment is None:
            raise InfrastructureError(f"engines.{engine.key}.environment: {engine.environment} has not been made")
        return Command(argv=[launch.environment["python"], *in_venv, *argv], env=env)
    assert engine.binary  # config: runtime binary names one (configuration/faults.py)
    found = program(engine.binary)
    if found is None:
        raise InfrastructureError(
            f"engines.{engine.key}.binary: {engine.binary} is not a program here; install it or give its path"
        )
    return Command(argv=[found, *argv], env=env)


def program(binary: str) -> str | None:
    """Find an executable by its path, in which ~ is the home folder, or by its name on PATH."""
    return shutil.which(str(Path(binary).expanduser()))


def inside(launch: Launch, path: Path, mount: Path | None = None) -> str:
    """Return a path at or below `mount` (by default the model's directory) as the server sees it."""
    if launch.setting.engine.runtime == "container":
        return str(MODELS_INSIDE / path.relative_to(mount or _directory(launch)))
    return str(path)


def _directory(launch: Launch) -> Path:
    assert launch.model_path is not None  # an adapter that needs a model has refused before
    return launch.model_path.parent


def bind_address(launch: Launch) -> str:
    """Return what the server listens on: loopback, or all addresses of a container whose port is published on it."""
    engine = launch.setting.engine
    published = engine.runtime == "container" and _published(container_tool(engine))
    return "0.0.0.0" if published else "127.0.0.1"  # noqa: S104  inside the container


def _published(tool: str | None) -> bool:
    """Return whether a port has to be published: the host's network is not that of the daemon (rootless, a desktop's).

    Each published byte goes through another process, which is measured with the server (docs/engines.md).
    """
    if tool != "docker":
        return False
    told, _ = _answer("docker", "info", "--format", "{{.OperatingSystem}} {{.SecurityOptions}}")
    return "Docker Desktop" in told or "name=rootless" in told


def image(engine: plan.Engine) -> dict[str, Any]:
    """Return the engine's entry of envs/images.yaml: repository, tag, digest, cuda."""
    known = yaml.safe_load((ROOT / "envs" / "images.yaml").read_text(encoding="utf-8"))
    return dict(known[engine.image])


def newer_cuda(entry: Mapping[str, Any], device: Gpu) -> str | None:
    """Return the CUDA that an image is built for, where the device's driver is older; else None."""
    cuda = entry.get("cuda")
    return str(cuda) if cuda and _version(device.cuda) < _version(str(cuda)) else None


def container_tool(engine: plan.Engine) -> str | None:
    """Return the program that runs an engine's container: the one of its options, else the first that is here."""
    wanted = engine.options.get("container")
    return next((tool for tool in TOOLS if wanted in (None, tool) and shutil.which(tool)), None)


def _container(launch: Launch, argv: list[str], port: int, env: dict[str, str], volume: str) -> Command:
    engine, device = launch.setting.engine, launch.device
    entry = image(engine)
    if device and (cuda := newer_cuda(entry, device)):
        raise InfrastructureError(
            f"engines.{engine.key}.image: {engine.image} is built for CUDA {cuda}, but the driver "
            f"{device.driver} supports up to {device.cuda}; it would run on the CPU without a word: update the driver"
        )
    tool = container_tool(engine)
    if tool is None:
        wanted = engine.options.get("container") or f"{', '.join(TOOLS[:-1])} or {TOOLS[-1]}"
        raise InfrastructureError(f"engines.{engine.key}: needs {wanted} to run a container")
    if tool != "apptainer":
        name = f"{LABEL}-{uuid.uuid4().hex[:12]}"
        run = [tool, "run", "--rm", "--init", "--name", name, "--label", f"{LABEL}={launch.label}"]
        run += ["--shm-size", "8g", "--volume", volume]
        run += ["--publish", f"127.0.0.1:{port}:{port}"] if _published(tool) else ["--network", "host"]
        if tool == "docker":
            # Quoted: docker splits the option's value at commas.
            run += ["--gpus", f'"device={",".join(d.uuid for d in launch.devices)}"'] if device else []
            removal = [tool, "rm", "--force", name]
        else:
            # SELinux, where it is on, would keep the models and the GPUs (by their names in CDI) from the container.
            run += ["--security-opt", "label=disable"]
            run += [part for d in launch.devices for part in ("--device", f"nvidia.com/gpu={d.uuid}")]
            removal = [tool, "rm", "--force", "--time", "0", name]
        if server_cpus := allot(launch.setting.cpus).get("server"):
            run += ["--cpuset-cpus", ",".join(map(str, server_cpus))]
        run += [part for key, value in env.items() for part in ("--env", f"{key}={value}")]
        run += ["--entrypoint", entry["entrypoint"]] if entry.get("entrypoint") else []
        argv = [*run, images.reference(entry), *argv]
        return Command(argv=argv, cleanup=removal, container=Container(tool, name))
    run = ["apptainer", "exec", "--containall", "--writable-tmpfs", *(["--nv"] if device else [])]
    run += ["--bind", volume]
    if device:  # --nv shows all of them, and --containall leaves the client's own variables outside
        env = {"CUDA_VISIBLE_DEVICES": ",".join(d.uuid for d in launch.devices), **env}
    run += [part for key, value in env.items() for part in ("--env", f"{key}={value}")]
    entrypoint = entry.get("entrypoint")
    if not entrypoint:
        raise InfrastructureError(f"envs/images.yaml: {engine.image}: lacks entrypoint, which apptainer needs")
    pulled = images.path(entry, cache.root(launch.runtime.cache))
    source = str(pulled) if pulled.exists() else f"docker://{images.reference(entry)}"
    return Command(argv=[*run, source, entrypoint, *argv])


def container_pid(container: Container) -> int:
    """Return the pid of the container's first process on this machine: no child of ours, or not a known one."""
    told, complaint = _answer(container.tool, "inspect", "--format", "{{.State.Pid}}", container.name)
    if not told.isdigit():
        raise InfrastructureError(f"{container.tool} does not tell the process of {container.name}: {complaint}")
    return int(told)


def remove_container(container: Container) -> None:
    """Remove a container, if docker (or podman) still has it, and wait until it is no longer listed.

    Raises `InfrastructureError` with docker's words when it stays, or docker does not answer.
    """
    tool, name = container.tool, container.name
    deadline = time.monotonic() + REMOVAL_TIMEOUT_S
    while True:
        left, complaint = _answer(tool, "ps", "--all", "--quiet", "--filter", f"name={name}")
        if not left and not complaint:
            return
        if left:
            _, complaint = _answer(tool, "rm", "--force", name)
        if time.monotonic() >= deadline:
            raise InfrastructureError(
                f"the container {name} is not gone and may hold its GPU: {complaint or f'{tool} still lists it'}; "
                f"{tool} rm --force {name} removes it"
            )
        time.sleep(0.2)


def _answer(*command: str) -> tuple[str, str]:
    """Run docker or podman; returns its output and, when it fails, its error."""
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=ANSWER_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", str(error)
    return answer.stdout.strip(), (answer.stderr.strip() or "it failed") if answer.returncode else ""


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))
