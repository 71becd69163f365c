"""Start a server on a free port, wait until it is ready, and stop it so that no process is left."""

from __future__ import annotations

import json
import logging
import os
import random
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil

from servebench.engines import leftovers, runtime
from servebench.engines.base import (
    UNREADABLE,
    Adapter,
    Command,
    Difference,
    LaunchFailed,
    Server,
    ask,
    inspected,
    log_tail,
)
from servebench.engines.devices import Devices
from servebench.load import bounded
from servebench.machine import gpu, host
from servebench.machine.cpus import allot, numa_nodes
from servebench.machine.infrastructure import InfrastructureError
from servebench.machine.lifeline import adopt_orphans
from servebench.machine.untrusted import shown

GUARD = Path(__file__).with_name("guard.py")
ALLOWED = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|TERM|LANG|LANGUAGE|LC_\w+|TZ|TMPDIR|LD_LIBRARY_PATH|XDG_\w+|DOCKER_\w+|APPTAINER_\w+"
    r"|CONTAINERS_\w+|DBUS_SESSION_BUS_ADDRESS|REGISTRY_AUTH_FILE"  # podman
    r"|SSL_CERT_\w+|CUDA_HOME|CUDA_PATH|NVIDIA_\w+"
)
# Not passed, and logged when they were set: each changes what some engine does.
SCRUBBED = re.compile(
    r"(LLAMA_ARG|LLAMA|OLLAMA|VLLM|SGLANG|GGML|CUDA|HIP|ROCR|NCCL|OMP|GOMP|KMP|MKL|OPENBLAS|HF|TORCH|PYTORCH|PYTHON)_\w+"
)
POLL_S = 0.05
PORT_ATTEMPTS = 3
PORT_TAKEN = re.compile(r"couldn't bind|address already in use|bind: address|port is already allocated", re.IGNORECASE)
# What `docker run` and `podman run` exit with when the container could not be made or its program not be run.
NOT_CONTAINED = (125, 126, 127)
NO_PROGRAM = "failed to exec pid1"  # of podman's init, which then ends with status 1
GUARD_TIMEOUT_S = 30.0  # for a guard's own work, behind the engine's time to stop
MEMORY_MARGIN_BYTES = 256 * 2**20
MEMORY_TIMEOUT_S = 60.0
log = logging.getLogger("servebench")


class Process:
    """Run an engine under its guard, from its launch on; once it is ready, a `Server` stands for it."""

    def __init__(
        self, command: Command, env: Mapping[str, str], log_path: Path, stop_timeout_s: float, cpus: Sequence[int]
    ) -> None:
        """Start the engine, on `cpus` if any are given. Its output goes to the log; `pid` is the engine's own."""
        log_path.parent.mkdir(parents=True, exist_ok=True)
        options = json.dumps({"stop_timeout_s": stop_timeout_s, "cleanup": command.cleanup, "cpus": cpus})
        adopt_orphans(True)  # of the guard, if it is killed
        self.launched_ns, self._launched_s, self._stopped = time.monotonic_ns(), time.time(), False
        with log_path.open("ab") as log_file:
            self._guard = subprocess.Popen(
                [sys.executable, "-I", str(GUARD), options, *command.argv],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log_file,
                env=dict(env),
                start_new_session=True,
            )
        self.command, self.env, self._stop_timeout_s = command, env, stop_timeout_s
        assert self._guard.stdout and self._guard.stdin
        self.pid = int(self._guard.stdout.readline())
        self.process_s = self.age_s()

    def age_s(self) -> float:
        """Return the seconds since the launch."""
        return (time.monotonic_ns() - self.launched_ns) / 1e9

    def lives(self) -> bool:
        """Return whether the engine has not ended."""
        return self.exit_status is None

    @property
    def exit_status(self) -> int | None:
        """Return the engine's exit status: None while it lives, 128 + signal when a signal ended it.

        Raises `InfrastructureError` when the guard was killed: what the engine did then says nothing about it.
        """
        status = self._guard.poll()
        if status is not None and status < 0 and not self._stopped:
            raise InfrastructureError(f"the guard of the engine was killed by signal {-status}; run the same again")
        return status

    def stop(self) -> bool:
        """Send SIGTERM, wait, send SIGKILL to every process that is left, and remove the container.

        Returns whether nothing of the engine is left.
        """
        assert self._guard.stdin and self._guard.stdout
        self._stopped = True
        self._guard.stdin.close()
        try:
            self._guard.wait(self._stop_timeout_s + GUARD_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._guard.kill()  # a descendant is stuck in the kernel; the guard's end takes the engine with it
            self._guard.wait()
        self._guard.stdout.close()
        left = leftovers.killed(self._left)
        adopt_orphans(False)
        leftovers.reap()
        gone = not left
        if left:
            log.error("what is left of the engine cannot be ended: %s", ", ".join(str(each.pid) for each in left))
        if self.command.container:
            try:
                runtime.remove_container(self.command.container)
            except InfrastructureError as error:
                gone = False
                log.error("%s", error)
        return gone

    def _left(self) -> list[psutil.Process]:
        """Find what is left of the engine after the guard's end: nothing, unless the guard was killed."""
        locks = self.env.get(leftovers.MARK, "").split(os.pathsep)
        return [*leftovers.marked(filter(None, locks)), *leftovers.adopted(self._launched_s)]


@contextmanager
def running(adapter: Adapter, devices: Devices) -> Iterator[Server]:
    """Start the adapter's server, yield it once it has given a token, and stop it at the end of the block.

    Raises `LaunchFailed` when the server does not become ready, `InfrastructureError` when it could not be started.
    """
    leftovers.end(devices.paths)
    for container in devices.left():
        runtime.remove_container(container)
    devices.forget()
    baseline = [_memory_used(device) for device in devices.gpus]
    process, server = _start(adapter, devices)
    try:
        yield server
    finally:
        if process.stop():
            devices.forget()
        for device, used in zip(devices.gpus, baseline, strict=True):
            wait_for_memory(device, used)


def _start(adapter: Adapter, devices: Devices) -> tuple[Process, Server]:
    launch = adapter.launch
    env, dropped = environment(os.environ, devices.gpus)
    server_cpus = allot(launch.setting.cpus).get("server", [])
    cpus = server_cpus or host.cpus()
    given = {"scrubbed_env": dropped, "cpus": cpus, "numa_nodes": numa_nodes(cpus)}
    for attempt in range(1, PORT_ATTEMPTS + 1):
        port = free_port(launch.runtime.ports)
        command = adapter.command(port)
        size = launch.log_path.stat().st_size if launch.log_path.exists() else 0
        adapter.log_start = size
        if command.container:
            devices.remember(command.container)
        whole = {**env, **command.env, **leftovers.mark(devices.paths)}
        process = Process(command, whole, launch.log_path, launch.runtime.stop_timeout_s, server_cpus)
        try:
            return process, ready(adapter, process, port, devices, given)
        except BaseException as error:
            if gone := process.stop():
                devices.forget()
            with launch.log_path.open("rb") as file:
                file.seek(size)
                said = file.read().decode(errors="replace")
            failed = isinstance(error, LaunchFailed) and process.exit_status  # else somebody ended us meanwhile
            if attempt == PORT_ATTEMPTS or not failed or not gone or not PORT_TAKEN.search(said):
                if command.container and failed and (failed in NOT_CONTAINED or NO_PROGRAM in said):
                    raise InfrastructureError(_not_contained(adapter, command, said)) from error
                raise
            log.warning("port %d was taken by another process in the meantime; trying another", port)
    raise AssertionError("unreachable: the last attempt returns or raises")


def _not_contained(adapter: Adapter, command: Command, said: str) -> str:
    words = [line for line in said.splitlines() if line.strip() and not line.startswith(("See ", "Run "))]
    why = " ".join(words[-2:]) or "it says nothing"
    if NO_PROGRAM in said:
        why += f"; is {runtime.image(adapter.setting.engine).get('entrypoint')} a program of the image?"
    return f"engines.{adapter.setting.engine.key}: {command.argv[0]} could not run its container: {why}"


def ready(adapter: Adapter, process: Process, port: int, devices: Devices, given: Mapping[str, Any]) -> Server:
    """Wait until the process serves: it is healthy and has given one real token. Then ask what it is.

    `given` are the facts known before: what the process was started with.
    """
    url = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + adapter.launch.runtime.ready_timeout_s
    command = process.command
    with _client(url) as client:
        client.until = deadline
        _until(adapter, process, "healthy", deadline, lambda: adapter.healthy(client))
        healthy_s = process.age_s()
        if command.container:
            pid = runtime.container_pid(command.container)
        else:
            pid = process.pid
            _verify_owner(process, port)
        _until(adapter, process, "prepared", deadline, lambda: adapter.prepare(client))
        _until(adapter, process, "first token", deadline, lambda: ask(adapter, client, max_tokens=1))
        first_token_s = process.age_s()
        try:
            told = inspected(adapter, client)
        except UNREADABLE as error:
            raise _failed(adapter, f"does not tell what it is: {type(error).__name__}: {error}") from error
    facts = {**given, **told}
    version, build = adapter.version(told)

    def differences() -> list[Difference]:
        with _client(url) as client:
            now = inspected(adapter, client)
            facts.update(now)
            return [*adapter.compare(now), *adapter.probe(client), *_off_device(pid, devices)]

    return Server(
        url=url,
        model=adapter.model,
        extra=adapter.extra,
        argv=command.argv,
        env={**{key: value for key, value in process.env.items() if key.startswith("CUDA")}, **command.env},
        pid=pid,
        devices=devices.names,
        watched=tuple(device.uuid for device in devices.gpus),
        version=version,
        build=build,
        launched_ns=process.launched_ns,
        cold_start_s={"process_s": process.process_s, "healthy_s": healthy_s, "first_token_s": first_token_s},
        facts=facts,
        log_path=adapter.launch.log_path,
        is_alive=process.lives,
        differences=differences,
    )


def _client(url: str) -> bounded.Client:
    return bounded.Client(url, timeout_s=10.0)


def _until(adapter: Adapter, process: Process, stage: str, deadline: float, attempt: Callable[[], object]) -> None:
    """Try until the attempt neither fails nor returns False; raises `LaunchFailed` at `deadline` or the engine's end.

    `deadline` is in monotonic seconds.
    """
    last = ""
    while True:
        if (status := process.exit_status) is not None:
            raise _failed(
                adapter, f"ended with status {status} before it was ready{_memory_hint(adapter)}{_last_line(adapter)}"
            )
        if time.monotonic() >= deadline:
            timeout_s = adapter.launch.runtime.ready_timeout_s
            raise _failed(adapter, f"was not ready after {timeout_s:g} s ({stage}: {last or 'nothing'})")
        try:
            if attempt() is not False:
                return
        except UNREADABLE as error:
            time_was_up = isinstance(error, httpx.TimeoutException) and time.monotonic() >= deadline
            if not (last and time_was_up):  # what the server said before says more
                last = str(error) or type(error).__name__
        time.sleep(POLL_S)


def _last_line(adapter: Adapter) -> str:
    """Return the last line of the engine's log, which mostly says why it ended, as the end of a sentence."""
    lines = [line.strip() for line in log_tail(adapter.launch.log_path, 30).splitlines() if line.strip()]
    return f": {shown(lines[-1])[:300]}" if lines else ""


def _failed(adapter: Adapter, why: str) -> LaunchFailed:
    return LaunchFailed(f"{adapter.setting.engine.kind} {why}", log_tail(adapter.launch.log_path, 30))


def _off_device(pid: int | None, devices: Devices) -> list[Difference]:
    """Find a silent fall back to the CPU: the driver lists the GPU's processes, and the server's are not among them.

    No difference when the driver gives no list, or that of another process namespace (with a pid unknown here).
    """
    own = {process.pid for process in host.tree(pid)}
    lists = []
    for device in devices.gpus:
        sampler = gpu.Sampler(device.uuid)
        lists.append(sampler.holders())
        sampler.close()
    known = [pid for holders in lists if holders is not None for pid in holders]
    if not lists or None in lists or own & set(known) or not all(psutil.pid_exists(pid) for pid in known):
        return []
    return [Difference(what="GPU memory of the server", asked="some", got="none: the driver does not list its process")]


def environment(environ: Mapping[str, str], devices: Sequence[gpu.Gpu]) -> tuple[dict[str, str], list[str]]:
    """Return the part of `environ` that an engine gets, and the names of engine variables left out.

    Devices are passed by UUID.
    """
    passed = {key: value for key, value in environ.items() if ALLOWED.fullmatch(key)}
    dropped = sorted(key for key in environ if key not in passed and SCRUBBED.fullmatch(key))
    if dropped:
        log.info("not passed to the engine: %s", ", ".join(dropped))
    if devices:
        passed["CUDA_VISIBLE_DEVICES"] = ",".join(device.uuid for device in devices)
    return passed, dropped


def free_port(ports: tuple[int, int]) -> int:
    """Return a port of the range that can be bound now, tried in random order so that two sessions seldom meet."""
    first, last = ports
    candidates = range(first, last + 1)
    for port in random.sample(candidates, len(candidates)):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise InfrastructureError(f"runtime.ports: no port of {first} to {last} is free; widen the range")


def _verify_owner(process: Process, port: int) -> None:
    """Check that the port is our server's alone: two servers can share a port (SO_REUSEPORT)."""
    ours = {p.pid for p in host.tree(process.pid)}
    owners: set[int | None] = set()
    for owned in host.tree(process.pid):
        with suppress(psutil.Error):
            owners |= {owned.pid for connection in owned.net_connections("tcp") if _listens(connection, port)}
    if not owners:
        raise LaunchFailed(f"port {port} is answered by another process than the engine that was started")
    with suppress(psutil.AccessDenied):  # macOS shows other processes' sockets to root only
        owners |= {connection.pid for connection in psutil.net_connections("tcp") if _listens(connection, port)}
    if others := owners - ours:
        raise LaunchFailed(f"port {port} is shared with another process: {', '.join(map(str, others))}")


def _listens(connection: Any, port: int) -> bool:
    return bool(connection.status == psutil.CONN_LISTEN and connection.laddr.port == port)


def _memory_used(device: gpu.Gpu) -> int | None:
    sampler = gpu.Sampler(device.uuid)
    try:
        return sampler.used_bytes()
    finally:
        sampler.close()


def wait_for_memory(device: gpu.Gpu, baseline: int | None) -> None:
    """Wait until the device's memory is free again: a driver frees it late, and the next engine would get less."""
    if baseline is None:
        return
    deadline = time.monotonic() + MEMORY_TIMEOUT_S
    while (used := _memory_used(device)) is not None and used > baseline + MEMORY_MARGIN_BYTES:
        if time.monotonic() >= deadline:
            log.warning(
                "%s: %.1f GiB in use after the engine's end, %.1f before its start",
                device.name,
                used / 2**30,
                baseline / 2**30,
            )
            return
        time.sleep(0.2)


def _memory_hint(adapter: Adapter) -> str:
    """Return " (out of memory)" when the log says so."""
    words = ("out of memory", "failed to allocate", "cudamalloc failed", "no available memory", "insufficient memory")
    return " (out of memory)" if any(word in adapter.log().lower() for word in words) else ""
