"""Real engines for the tests: made once, kept in the user's cache like those of a measurement."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from engine_sessions import session

from servebench import cache, configuration, engines, models, plan

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test neither waits for a measurement that is going on nor holds one up."""
    monkeypatch.setenv("SERVEBENCH_LOCKS", str(tmp_path / "locks"))


@pytest.fixture(scope="session")
def quickstart() -> plan.Plan:
    """The quick start's plan, whose models and engine the tests use."""
    return configuration.read([ROOT / "config" / "config.yaml"])


@pytest.fixture(scope="session")
def llama_environment() -> dict[str, Any]:
    """llama.cpp's server out of its wheel."""
    return engines.environment.make("llama-cpp", ROOT / "envs" / "llama-cpp.lock", cache.root())


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
