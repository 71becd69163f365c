"""Run the workflow with `runtime: binary`, a real server that the configuration names by its path."""

import hashlib
from pathlib import Path

import pytest

from servebench.engines.llama_server import LAUNCHER
from servebench.store import measurements, replies
from workspace import Workspace


def program(folder: Path, python: str) -> str:
    """Return an executable llama-server: the wheel's, under another name."""
    folder.mkdir()
    path = folder / "llama-server"
    path.write_text(f'#!/bin/sh\nexec "{python}" "{LAUNCHER}" "$@"\n')
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def workspace(llama_environment, smollm2, tmp_path):
    """One measurement and two targets, each on a server that is a program."""
    made = Workspace(tmp_path / "experiment")
    made.folder.mkdir()
    binary = program(tmp_path / "here", llama_environment["python"])
    model = {"source": smollm2.as_uri(), "sha256": hashlib.sha256(smollm2.read_bytes()).hexdigest()}
    setting = {"engine": "llama", "model": "smollm2", "slots": 2, "context": 512}
    made.config["rounds"] = 1
    made.config["engines"] = {"llama": {"kind": "llama-server", "runtime": "binary", "binary": binary}}
    made.config["models"] = {"smollm2": {**model, "quantization": "Q4_1"}}
    made.config["settings"] = {"one": {**setting, "users": [1]}}
    made.config["evaluations"] = {
        "baseline": "A",
        "concurrency": 2,
        "tasks": {"jcommonsenseqa": {"set": "small", "limit": 2, "max_tokens": 4}},
        "targets": {"A": {**setting, "args": ["-t", "1"], "env": {"LLAMA_KEYED": "1"}}, "B": setting},
    }
    return made


def test_it_is_measured_and_asked_wherever_it_lies(workspace, llama_environment, tmp_path):
    workspace.snakemake("results/reruns/tables/measurements.parquet")
    record = measurements.read(workspace.results / "measurements/main/one/round1/users001.parquet")
    assert (record.status, record.reason) == ("ok", [])
    assert record.session.argv[0] == workspace.config["engines"]["llama"]["binary"]
    facts = replies.read(workspace.results / "evaluations/A.parquet").facts
    assert (facts.status, facts.asked, facts.answered) == ("ok", 4, 4)
    (asked,) = facts.sessions
    assert asked.argv and asked.argv[-2:] == ["-t", "1"] and (asked.env or {})["LLAMA_KEYED"] == "1"
    assert asked.argv[asked.argv.index("-c") + 1] == str(2 * 512)
    moved = program(tmp_path / "elsewhere", llama_environment["python"])
    workspace.config["engines"]["llama"]["binary"] = moved
    (tmp_path / "here" / "llama-server").unlink()
    assert set(workspace.planned()) == {"plan", "tables", "charts", "pictures", "report"}
