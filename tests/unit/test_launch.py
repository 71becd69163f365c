"""What an engine is given: environment, port, arguments."""

import dataclasses
import socket
from pathlib import Path
from typing import Any

import pytest

from servebench import plan
from servebench.engines import ADAPTERS, launch, llama_server
from servebench.engines.base import Launch, LaunchFailed
from servebench.engines.devices import Devices
from servebench.engines.llama_server import LlamaServer
from servebench.machine.gpu import Gpu
from servebench.machine.infrastructure import InfrastructureError

GPU = Gpu(uuid="GPU-0123", name="NVIDIA H200", memory_gib=140.0, driver="580.65.06", cuda="13.0", mig=False)


def adapter(device: Gpu | None = None, **setting: Any) -> LlamaServer:
    """An adapter as the wheel's launcher would be given."""
    entry = {"name": "np4", "run": "main", "slots": 4, "context": 512, "users": (1,), "workload": {}, **setting}
    engine = plan.Engine(key="llama-cpp", kind="llama-server", runtime="venv", environment="llama-cpp")
    model = plan.Model(key="small", name="Small", quantization="Q4_K_M")
    return LlamaServer(
        Launch(
            setting=plan.Setting(engine=engine, model=model, prompts_sha256="", **entry),
            label="test",
            model_path=Path("/m/small.gguf"),
            environment={"python": "/e/bin/python", "packages": {"xllamacpp": "1"}},
            runtime=plan.Runtime(),
            log_path=Path("/nowhere/log"),
            devices=(device,) if device else (),
        )
    )


def facts(**entry: Any) -> dict[str, Any]:
    """What a server as asked for by `adapter()` says."""
    return {
        "slots": 4,
        "n_ctx_slot": 512,
        "n_ctx_train": 8192,
        "kv_unified": False,
        "truncated_prompts": 0,
        "model_alias": "small",
        "model_path": "/m/small.gguf",
        "quantization": "Q4_K_M",
        "threads": 2,
        "n_ctx": 2048,
        "n_batch": 2048,
        "n_ubatch": 512,
        "cache_ram_mib": 8192,
        "offloaded_layers": None,
        "all_layers": None,
        **entry,
    }


def test_engine_variables_of_the_job_are_not_passed_on() -> None:
    passed, dropped = launch.environment(
        {
            "PATH": "/bin",
            "HOME": "/h",
            "LLAMA_ARG_CTX_SIZE": "1",
            "OLLAMA_HOST": "x",
            "VLLM_LOGGING_LEVEL": "x",
            "GGML_CUDA": "1",
            "CUDA_VISIBLE_DEVICES": "3",
            "OMP_NUM_THREADS": "1",
            "HF_TOKEN": "secret",
            "SOMETHING": "else",
        },
        (),
    )
    assert passed == {"PATH": "/bin", "HOME": "/h"}
    assert dropped == [
        "CUDA_VISIBLE_DEVICES",
        "GGML_CUDA",
        "HF_TOKEN",
        "LLAMA_ARG_CTX_SIZE",
        "OLLAMA_HOST",
        "OMP_NUM_THREADS",
        "VLLM_LOGGING_LEVEL",
    ]


def test_the_device_is_passed_by_its_uuid() -> None:
    passed, dropped = launch.environment({"CUDA_VISIBLE_DEVICES": "3"}, (GPU,))
    assert passed == {"CUDA_VISIBLE_DEVICES": "GPU-0123"}
    assert dropped == ["CUDA_VISIBLE_DEVICES"]


@pytest.mark.parametrize(
    ("unified", "n_ctx", "n_ctx_slot", "tokens"),
    [
        (False, None, 4096, 65_536),  # 16 slots of 4,096
        (True, 65_536, 40_960, 65_536),  # a slot may hold what the model was made for, the cache is larger
        (True, None, 40_960, None),
        (True, None, 8192, 8192),
        (None, None, 4096, None),  # a build that does not say
        (None, 65_536, 4096, 65_536),
    ],
)
def test_tokens_of_the_cache_are_what_the_server_says_of_them(
    unified: bool | None, n_ctx: int | None, n_ctx_slot: int, tokens: int | None
) -> None:
    told = {"kv_unified": unified, "n_ctx": n_ctx}
    assert llama_server.cache_tokens(told, n_ctx_slot, 16, 40_960) == tokens


def test_a_taken_port_is_not_chosen() -> None:
    with socket.socket() as taken, socket.socket() as free:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(InfrastructureError, match=rf"runtime\.ports: no port of {port} to {port} is free"):
            launch.free_port((port, port))
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        assert launch.free_port((port, port)) == port
    with pytest.raises(InfrastructureError, match=r"runtime\.ports: no port of 3000 to 2000 is free; widen the range"):
        launch.free_port((3000, 2000))


class Ended:
    """Stand in for an engine that could not open its port and ended."""

    exit_status, pid, started = 1, 1, 0

    def __init__(self, command: Any, env: Any, log_path: Path, stop_timeout_s: float, cpus: Any) -> None:
        Ended.started += 1
        with log_path.open("a") as file:
            file.write("couldn't bind to the port\n")

    def stop(self) -> bool:
        return True


@pytest.mark.parametrize(("end", "starts"), [(SystemExit(143), 1), (LaunchFailed("ended"), launch.PORT_ATTEMPTS)])
def test_a_taken_port_is_another_try_and_a_signal_meanwhile_is_the_end(
    end: BaseException, starts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ends(*_: Any) -> None:
        raise end

    monkeypatch.setattr(Ended, "started", 0)
    monkeypatch.setattr(launch, "Process", Ended)
    monkeypatch.setattr(launch, "ready", ends)
    asked = adapter()
    asked.launch = dataclasses.replace(asked.launch, log_path=tmp_path / "log")
    with pytest.raises(type(end)), launch.running(asked, Devices()):
        pass
    assert Ended.started == starts


def test_arguments_follow_from_the_setting_and_its_own_win() -> None:
    argv = adapter().command(8080).argv
    assert argv[0] == "/e/bin/python" and argv[1].endswith("llama_wheel.py")
    assert " ".join(argv[2:]) == (
        "-m /m/small.gguf --alias small --host 127.0.0.1 --port 8080 -np 4 -c 2048 "
        "--jinja --metrics --reasoning-budget 0"
    )
    on_gpu = adapter(GPU, args=("-c", "2048", "--kv-unified", "--reasoning-budget", "100")).command(8080).argv
    assert " ".join(on_gpu[2:]).endswith("-np 4 -ngl 99 --jinja --metrics -c 2048 --kv-unified --reasoning-budget 100")


@pytest.mark.parametrize(
    ("argv", "tokens"),
    [
        (["llama-server", "-b", "2048", "-ub", "2048"], 2048),
        (["llama-server", "-np", "16"], 512),  # llama-server's default
        (["llama-server", "-ub", "512", "--ubatch-size=1024"], 1024),
        (["llama-server", "--ubatch_size", "256"], 256),
    ],
)
def test_the_micro_batch_is_the_last_one_given(argv: list[str], tokens: int) -> None:
    assert ADAPTERS["llama-server"].micro_batch(argv) == tokens
    assert ADAPTERS["vllm"].micro_batch(argv) is None


@pytest.mark.parametrize(
    ("setting", "got", "difference"),
    [
        ({}, {}, None),
        ({}, {"slots": 1, "n_ctx_slot": 2048}, ("slots", 4, 1)),
        ({}, {"n_ctx_slot": 256}, ("n_ctx_slot", 512, 256)),
        ({}, {"kv_unified": True}, ("kv_unified", False, True)),
        ({}, {"kv_unified": None}, None),  # a build that does not say
        ({"args": ("--kv-unified",)}, {"kv_unified": True, "n_ctx_slot": 2048}, None),
        # One shared cache of 65,536 tokens: a slot may hold what the model was made for, 40,960 for Qwen3 14B.
        (
            {"slots": 16, "context": 4096, "args": ("--kv-unified",)},
            {"slots": 16, "kv_unified": True, "n_ctx_slot": 40_960, "n_ctx_train": 40_960},
            None,
        ),
        ({"context": 100}, {"n_ctx_slot": 256}, None),  # rounded up by llama.cpp
        ({"args": ("-t", "8")}, {"threads": 96}, ("threads", 8, 96)),
        ({"args": ("-t", "8")}, {"threads": 8}, None),
        ({"args": ("-b", "512", "-ub", "256")}, {"n_batch": 512, "n_ubatch": 512}, ("n_ubatch", 256, 512)),
        ({"args": ("-b", "512")}, {}, ("n_batch", 512, 2048)),
        ({"args": ("-b", "4096", "-ub", "4096")}, {"n_ubatch": 2048}, None),  # no larger than the context
        ({"args": ("-b", "512", "-ub", "256")}, {"n_ctx": None, "n_batch": None, "n_ubatch": None}, None),
        ({"args": ("--cache-ram", "0")}, {}, ("cache_ram_mib", 0, 8192)),
        ({"args": ("--cache-ram", "0")}, {"cache_ram_mib": 0}, None),
        ({}, {"model_path": "/m/other.gguf"}, ("model_path", "/m/small.gguf", "/m/other.gguf")),
        ({}, {"quantization": "Q8_0"}, ("quantization", "Q4_K_M", "Q8_0")),
    ],
)
def test_asked_and_got(setting: dict[str, Any], got: dict[str, Any], difference: tuple[str, Any, Any] | None) -> None:
    found = [(d["what"], d["asked"], d["got"]) for d in adapter(**setting).compare(facts(**got))]
    assert (difference in found) if difference else (found == [])


def test_layers_left_on_the_cpu_are_noticed() -> None:
    found = adapter(GPU).compare(facts(offloaded_layers=30, all_layers=41))
    assert found == [{"what": "offloaded_layers", "asked": 41, "got": 30}]
    assert adapter(GPU, args=("-ngl", "30")).compare(facts(offloaded_layers=30, all_layers=41)) == []
