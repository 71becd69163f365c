"""Keys of the configuration that only a model's file or a real engine shows, in one small experiment (docs/keys.md)."""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from servebench import plan
from servebench.store import measurements
from servebench.tables import read
from workspace import Workspace

REPOSITORY = "someone/SmolLM2-135M-Instruct-GGUF"
FILE = "smollm2.gguf"


def made_of(quickstart: plan.Plan) -> str | None:
    """Return the SHA-256 of the quick start's Q8_0, which is made from the same file."""
    return quickstart.models["smollm2-q8_0"].sha256


@pytest.fixture(scope="module")
def measured(
    quickstart: plan.Plan,
    llama_environment: dict[str, Any],
    smollm2: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Workspace:
    """One setting on a file of a mirror that nothing pins, and one on a file made from it."""
    folder = tmp_path_factory.mktemp("keys")
    made = Workspace(folder)
    (folder / "mirror").mkdir()
    shutil.copy(smollm2, folder / "mirror" / FILE)
    made.config["rounds"] = 1
    made.config["engines"] = {"llama": {"kind": "llama-server", "runtime": "venv", "environment": "llama-cpp"}}
    made.config["models"] = {
        "mirrored": {"source": f"hf://{REPOSITORY}/{FILE}", "unverified": "Nobody publishes a revision."},
        "made": {
            "requantize": {"from": "mirrored", "to": "Q8_0"},
            "sha256": made_of(quickstart),
            "quantization": "Q8_0",
        },
    }
    setting = {"engine": "llama", "slots": 1, "context": 512, "users": [1]}
    made.config["settings"] = {
        "one": {**setting, "model": "mirrored", "args": ["-t", "1", "-lv", "4"], "env": {"LLAMA_KEYED": "1"}},
        "other": {**setting, "model": "made"},
    }
    made.config["runtime"] |= {"mirror": str(folder / "mirror"), "scratch": str(folder / "scratch"), "device": "cpu"}
    made.config["runtime"]["bandwidth_gb_s"] = 43
    made.snakemake("results/reruns/tables/measurements.parquet")
    return made


def record(workspace: Workspace, setting: str) -> measurements.Record:
    return measurements.read(workspace.results / f"measurements/main/{setting}/round1/users001.parquet")


def test_how_an_engine_is_started(measured: Workspace, llama_environment: dict[str, Any]) -> None:
    """`engines.<engine>.kind`, `runtime`, `environment`; `settings.<setting>.args`, `env`."""
    session = record(measured, "one").session
    assert session.argv and session.facts
    assert session.argv[0] == llama_environment["python"]
    assert (session.facts["threads"], session.env["LLAMA_KEYED"] if session.env else None) == (1, "1")


def test_where_a_model_comes_from(measured: Workspace, smollm2: Path, quickstart: plan.Plan) -> None:
    """`models.<model>.source`, `requantize`, `sha256`, `unverified`; `runtime.mirror`, `scratch`."""
    found = {row["setting"]: row for row in read(measured.results / "tables/measurements.parquet").to_pylist()}
    own = hashlib.sha256(smollm2.read_bytes()).hexdigest()
    assert {name: row["model_sha256"] for name, row in found.items()} == {"one": own, "other": made_of(quickstart)}
    manifest = json.loads((measured.results / "models/mirrored.json").read_text())
    assert "by its name alone" in manifest["unverified"]
    argv = record(measured, "one").session.argv or []
    assert argv[argv.index("-m") + 1].startswith(str(measured.folder / "scratch"))


def test_what_is_predicted_follows_from_the_configured_bandwidth(measured: Workspace, smollm2: Path) -> None:
    """`runtime.bandwidth_gb_s`."""
    (row,) = [row for row in read(measured.results / "tables/predicted.parquet").to_pylist() if row["setting"] == "one"]
    assert (row["bandwidth_gb_s"], row["bandwidth_from"]) == (43, "configured")
    assert row["stream_tok_s"] == pytest.approx(43e9 / smollm2.stat().st_size, rel=0.01)


def test_what_pins_a_file_or_fetches_it_from_elsewhere_measures_nothing_again(
    measured: Workspace, smollm2: Path
) -> None:
    """The session is planned, for its spec is another, and finds everything in the store."""
    before = measured.measured()
    pinned = {"source": smollm2.as_uri(), "sha256": hashlib.sha256(smollm2.read_bytes()).hexdigest()}
    measured.config["models"]["mirrored"] = pinned
    measured.snakemake("only_main_one")
    assert measured.measured() == before


def test_an_engine_gets_only_so_much_time_to_start_and_to_stop(smollm2: Path, tmp_path: Path) -> None:
    """`runtime.ready_timeout_s`, `stop_timeout_s`: it never serves, and takes a minute when it is told to stop."""
    stubborn = tmp_path / "stubborn"
    stubborn.write_text("#!/bin/sh\ntrap 'sleep 60; touch stopped-well' TERM\nsleep 3600 & wait\nwait\n")
    stubborn.chmod(0o755)
    made = Workspace(tmp_path)
    made.config["rounds"] = 1
    made.config["engines"] = {"llama": {"kind": "llama-server", "runtime": "binary", "binary": str(stubborn)}}
    sha256 = hashlib.sha256(smollm2.read_bytes()).hexdigest()
    made.config["models"] = {"m": {"source": smollm2.as_uri(), "sha256": sha256}}
    made.config["settings"] = {"one": {"engine": "llama", "model": "m", "slots": 1, "context": 512, "users": [1]}}
    made.config["runtime"] |= {"ready_timeout_s": 1, "stop_timeout_s": 1, "device": "cpu"}
    made.snakemake("results/reruns/tables/measurements.parquet")
    (row,) = read(made.results / "tables/measurements.parquet").to_pylist()
    assert row["status"] == "failed" and "not ready after 1 s" in json.dumps(row["reason"])
    assert not (tmp_path / "stopped-well").exists()
