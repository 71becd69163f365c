"""Run the workflow with Ollama's double beside llama-server, with the same file: what the rows say."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from engine_sessions import OLLAMA, ollama_variables

from servebench.engines.llama_server import LAUNCHER
from servebench.tables import read
from servebench.tables.files import rows_of
from workspace import Workspace


@pytest.fixture
def workspace(llama_environment: dict[str, Any], smollm2: Path, tmp_path: Path) -> Workspace:
    """One measurement on each of two servers of the same file, and replies that outgrow a context."""
    made = Workspace(tmp_path / "experiment")
    made.folder.mkdir()
    binary = tmp_path / "llama-server"
    binary.write_text(f'#!/bin/sh\nexec "{llama_environment["python"]}" "{LAUNCHER}" "$@"\n')
    binary.chmod(0o755)
    setting = {"model": "smollm2", "slots": 2, "context": 512, "users": [1]}
    made.config["rounds"] = 1
    prompts = tmp_path / "prompts.jsonl"  # without a system message
    prompts.write_text("".join(f'{{"prompt": "Say the number {number}."}}\n' for number in ("one", "two", "six")))
    made.config["workload"] |= {"window_s": 2, "timeout_s": 120, "prompts": str(prompts)}
    made.config["engines"] = {
        "llama": {"kind": "llama-server", "runtime": "binary", "binary": str(binary)},
        "ollama": {
            "kind": "ollama",
            "runtime": "binary",
            "binary": str(OLLAMA),
            "env": ollama_variables(llama_environment),
        },
    }
    made.config["models"] = {
        "smollm2": {
            "name": "SmolLM2",
            "source": smollm2.as_uri(),
            "sha256": hashlib.sha256(smollm2.read_bytes()).hexdigest(),
            "quantization": "Q4_1",
        }
    }
    made.config["settings"] = {name: {"engine": name, **setting} for name in ("llama", "ollama")}
    asked = {"engine": "ollama", "model": "smollm2", "slots": 1}
    made.config["evaluations"] = {
        "baseline": "wide",
        "concurrency": 1,
        "tasks": {"mgsm": {"set": "small", "limit": 1, "max_tokens": 24}},
        "targets": {"wide": {**asked, "context": 2048}, "narrow": {**asked, "context": 256}},
    }
    made.env["SERVEBENCH_CACHE"] = str(tmp_path / "cache")
    return made


def test_ollama_is_measured_and_not_taken_for_asked_the_same(workspace: Workspace) -> None:
    workspace.snakemake("results/reruns/tables/measurements.parquet")
    found = {name: read(workspace.results / "tables" / f"{name}.parquet") for name in ("measurements", "sessions")}
    rows = {row["setting"]: row for row in found["measurements"].to_pylist()}
    assert {name: row["status"] for name, row in rows.items()} == {"llama": "ok", "ollama": "ok"}
    # What Ollama's replies do not tell is in its log.
    assert rows["ollama"]["engine_build"] == "b0-unknown"
    assert 0 <= rows["ollama"]["cached_share"] < 1
    assert 0 < rows["ollama"]["prefill_p50_s"] <= rows["ollama"]["ttft_p50_s"]
    facts = {row["setting"]: json.loads(row["facts"]) for row in found["sessions"].to_pylist()}["ollama"]
    assert facts["blob_sha256"] != rows["ollama"]["model_sha256"] == rows["llama"]["model_sha256"]
    assert (facts["truncated_prompts"], facts["template_selected"]) == (0, "go_template")
    # The template in the file adds a system prompt of 21 tokens, Ollama's own does not (captured: 33 and 12 tokens).
    made = {"settings": read(workspace.results / "tables" / "settings.parquet")}
    settings = {row["setting"]: row for row in rows_of(made, "settings")}
    (other,) = [found for found in settings["ollama"]["marks"] if found.kind == "other_prompt_tokens"]
    assert other.values == {"than": "llama", "tokens": -21.0}
    assert not [found for found in settings["llama"]["marks"] if found.kind == "other_prompt_tokens"]
    # A question of 236 tokens leaves room for 20: the reply goes on without the oldest ones, which it does not tell.
    targets = {row["target"]: row for row in read(workspace.results / "tables" / "targets.parquet").to_pylist()}
    assert {name: (row["status"], row["answered"]) for name, row in targets.items()} == {
        "wide": ("ok", 2),
        "narrow": ("ok", 2),
    }
    kinds = {name: {one["kind"] for one in row["marks"]} for name, row in targets.items()}
    assert "context_shifted" in kinds["narrow"] and "context_shifted" not in kinds["wide"]


def test_what_it_would_drop_of_a_request_is_refused_before_anything_is_started(workspace: Workspace) -> None:
    request = {"max_completion_tokens": 8, "ignore_eos": True, "min_tokens": 8, "grammar": "root ::= [0-4]"}
    workspace.config["settings"]["ollama"]["request"] = request
    said = workspace.snakemake("-n", code=1)
    assert [key for key in request if f"settings.ollama.request.{key}: is ignored by ollama; " in said] == [*request]
    workspace.config["settings"]["ollama"]["request"] = {"response_format": {"type": "json_object"}}
    assert workspace.planned()["session_main_ollama"]
