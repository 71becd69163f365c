"""Every configuration that the documentation prints is run, with a server and a file in the places it leaves to you.

`make examples` runs them as they stand, `make test` one setting of each, with one user and a short window. What only
other machines can run is planned (tests/unit/test_printed.py) and named here with the reason.
"""

import hashlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from snakemake.utils import update_config

from printed import completed, printed
from servebench import configuration, plan
from servebench.engines.llama_server import LAUNCHER
from servebench.store import measurements
from servebench.tables import read
from waiting import until
from workspace import BIN, Workspace

WHOLE = "EXAMPLES" in os.environ  # make examples
# Printed configurations that cannot be run here; they are planned (tests/unit).
ELSEWHERE = {
    "docs/evaluations.md": "its question sets come from the internet, and two models answer all of them for hours",
    "docs/slurm.md": "its scratch folder is that of a SLURM job",
}
SHORT = {"rounds": 1, "workload": {"warmup_s": 0.1, "window_s": 0.5, "max_tokens": 4, "min_targets": 1}}


RUN = {place: content for place, content in printed().items() if not place.startswith(tuple(ELSEWHERE))}


@pytest.fixture
def practice() -> Iterator[None]:
    """The server that is already running: the one of `servebench practice`."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", 8000))
        except OSError:
            pytest.skip("needs port 8000, which the examples name")
    started = subprocess.Popen([sys.executable, str(BIN / "servebench"), "practice"], stdout=subprocess.DEVNULL)
    try:
        until(lambda: answers(8000), 120, "the practice server")
        yield
    finally:
        started.terminate()
        started.wait(60)


def answers(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize("content", RUN.values(), ids=RUN)
def test_it_is_run(
    content: dict[str, Any],
    quickstart: plan.Plan,
    llama_environment: dict[str, Any],
    smollm2: Path,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    # SmolLM2 is at hand as Q4_1, and as what can be made from it: no Q4_K_M.
    config = yaml.safe_load(yaml.safe_dump(completed(content)).replace("Q4_K_M", "Q4_1"))
    if any("url" in engine for engine in config["engines"].values()):
        request.getfixturevalue("practice")
    server = tmp_path / "llama-server"
    server.write_text(f'#!/bin/sh\nexec "{llama_environment["python"]}" "{LAUNCHER}" "$@"\n')
    server.chmod(0o755)
    file = {"source": smollm2.as_uri(), "sha256": hashlib.sha256(smollm2.read_bytes()).hexdigest()}
    for engine in config["engines"].values():
        if "binary" in engine:
            engine["binary"] = str(server)
    for model in config.get("models", {}).values():
        model |= file
    for model in [one for one in config.get("models", {}).values() if one.get("quantization") == "Q8_0"]:
        del model["source"]
        model |= {"requantize": {"from": "qwen3-14b-q4_k_m", "to": "Q8_0"}}
        model["sha256"] = quickstart.models["smollm2-q8_0"].sha256
    update_config(config, {"runtime": {"foreign_use": {"action": "mark"}, "beyond_calibration": "mark"}})
    if not WHOLE:
        config.setdefault("workload", {"prompts": "en-short"})  # as without any
        update_config(config, SHORT)
        for setting in config["settings"].values():
            setting["users"] = setting["users"][:1]
    made = Workspace(tmp_path)
    made.config = config
    made.results = tmp_path / "results" / config["experiment"]
    if not WHOLE:  # one setting
        name = next(iter(configuration.load(config, [tmp_path / "config.yaml"]).settings))
        made.snakemake(f"only_main_{name}")
        (record,) = map(measurements.read, (made.results / "measurements").rglob("*.parquet"))
        assert (record.status, record.reason) == ("ok", [])
        return
    made.snakemake("all", timeout_s=3600)
    rows = read(made.results / "tables" / "measurements.parquet").to_pylist()
    assert rows and {(row["status"], row["failures"]) for row in rows} == {("ok", 0)}
    print(f"{len(rows)} measurements, {sum(row['target_requests'] for row in rows)} requests")
