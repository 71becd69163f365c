"""Sessions for tests of engines, without a configuration file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from servebench import plan
from servebench.engines import llama_server

OLLAMA = Path(__file__).with_name("doubles") / "ollama"


def ollama_variables(llama_environment: Mapping[str, Any]) -> dict[str, str]:
    """The variables that Ollama's double needs: which llama-server is its inner one."""
    return {
        "OLLAMA_DOUBLE_PYTHON": llama_environment["python"],
        "OLLAMA_DOUBLE_LAUNCHER": str(llama_server.LAUNCHER),
    }


def session(engine: plan.Engine, **setting: Any) -> plan.Session:
    """A session of one setting with this engine and the quick start's model."""
    model = plan.Model(key="smollm2-q4_1", name="SmolLM2-135M-Instruct", quantization="Q4_1")
    entry: dict[str, Any] = {"name": "test", "run": "main", "slots": 2, "context": 512, "users": (1,)}
    entry |= {"workload": {}, "prompts_sha256": "", "engine": engine, "model": model, **setting}
    return plan.Session(experiment="test", round=1, rank=0, setting=plan.Setting(**entry))
