"""Start engines, check that they are what was asked for, and stop them so that no process is left."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from servebench import plan
from servebench.engines import devices, environment, launch, url
from servebench.engines.base import Adapter, AskedNotGot, Launch, LaunchFailed, Server, log_tail
from servebench.engines.llama_server import LlamaServer
from servebench.engines.ollama import Ollama
from servebench.engines.sglang import Sglang
from servebench.engines.simulator import Simulator
from servebench.engines.url import Url
from servebench.engines.vllm import Vllm
from servebench.machine.infrastructure import InfrastructureError, check_room

__all__ = [
    "ADAPTERS",
    "Adapter",
    "AskedNotGot",
    "InfrastructureError",
    "LaunchFailed",
    "Server",
    "devices",
    "environment",
    "launched",
]

# Adding an engine: a module with an Adapter, and its line here.
ADAPTERS: Mapping[str, type[Adapter]] = {
    "llama-server": LlamaServer,
    "ollama": Ollama,
    "sglang": Sglang,
    "simulator": Simulator,
    "url": Url,
    "vllm": Vllm,
}


@contextmanager
def launched(
    session: plan.Session,
    *,
    model_path: Path | None,
    environment: Mapping[str, Any] | None,
    runtime: plan.Runtime,
    log_path: Path,
) -> Iterator[Server]:
    """Launch the session's server, yield it once it has given a token, and stop it at the end of the block.

    Call it from a thread that lives as long as the block. Raises `LaunchFailed` when the engine does not start,
    `AskedNotGot` when the server is not what the setting asks for, `InfrastructureError` when the launch could not be
    tried. A full disk is no property of the setting: a `LaunchFailed` that a full disk caused, also one raised in the
    block, becomes an `InfrastructureError`.
    """
    setting = session.setting
    adapter_type = ADAPTERS[setting.engine.kind]
    with _full_disk_apart(log_path), ExitStack() as stack:
        held = devices.Devices()
        if not issubclass(adapter_type, Url):
            count, uses_gpu = adapter_type.gpus(setting), adapter_type.uses_gpu
            held = stack.enter_context(devices.held(runtime.device, count=count, uses_gpu=uses_gpu))
        adapter = adapter_type(
            Launch(
                setting=setting,
                label=f"{session.experiment}/{setting.run}/{setting.name}/round{session.round}",
                model_path=model_path,
                environment=environment,
                runtime=runtime,
                log_path=log_path,
                devices=held.gpus,
            )
        )
        opened = url.attached(adapter) if isinstance(adapter, Url) else launch.running(adapter, held)
        server = stack.enter_context(opened)
        if differences := server.check():
            raise AskedNotGot(differences, server.log_tail())
        yield server


@contextmanager
def _full_disk_apart(log_path: Path) -> Iterator[None]:
    """Convert `LaunchFailed` to `InfrastructureError` when the disk is full, or the log's last lines say so."""
    begun = log_path.stat().st_size if log_path.exists() else 0
    try:
        yield
    except LaunchFailed as error:
        check_room(log_path.parent, f"{error.reason}\n{log_tail(log_path, 30, begun)}")
        raise
