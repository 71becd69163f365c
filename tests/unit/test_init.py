"""`servebench init`: what it writes for a GPU or a CPU loads, is planned, and fits; what is there stays."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

import nvml_double
from nvml_double import GIB, Nvml
from servebench import ROOT, configuration
from servebench.cli import app as cli
from servebench.faults import Fault
from servebench.plan import Plan

FLAGS = ("--engines", "llama-server", "--context", "1024", "--users", "4")


def init(*given: str, typed: str = "") -> Result:
    return CliRunner().invoke(cli.app, ["init", *given], input=typed)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder, on a machine without a GPU or any program."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path


@pytest.fixture
def with_gpu(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Nvml]:
    """Put a GPU into that machine, beside docker unless without."""

    def make(gib: int, used_gib: int = 0, double: type[Nvml] = Nvml, docker: bool = True) -> Nvml:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
        if docker:
            program(folder, "docker")
        driver = nvml_double.install(monkeypatch, double())
        driver.total, driver.used = gib * GIB, used_gib * GIB
        return driver

    return make


def program(folder: Path, name: str) -> None:
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "bin" / name).write_text("#!/bin/sh\n")
    (folder / "bin" / name).chmod(0o755)


def planned(file: Path) -> Plan:
    return configuration.read([file])


def slots(plan: Plan) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for setting in plan.settings.values():
        found.setdefault(setting.engine.kind, []).append(setting.slots)
    return found


def test_without_a_gpu_it_is_llama_server_on_the_cpu_with_the_quick_starts_model(folder: Path) -> None:
    done = init("--out", "config/laptop.yaml", "--model", "smollm2", *FLAGS)
    assert done.exit_code == 0, done.output
    plan = planned(folder / "config" / "laptop.yaml")
    (engine,) = plan.engines.values()
    assert (plan.experiment, engine.kind, engine.runtime, engine.environment) == (
        "laptop",
        "llama-server",
        "venv",
        "llama-cpp",
    )
    assert [model.key for model in plan.models.values()] == ["smollm2-q4_1"]
    assert {setting.users for setting in plan.settings.values()} == {(1, 4)}
    assert slots(plan) == {"llama-server": [1, 4]}


def test_four_questions_are_asked_and_an_empty_answer_takes_what_is_proposed(folder: Path) -> None:
    done = init("--out", "mine.yaml", typed="\n\n\n6\n")
    assert done.exit_code == 0, done.output
    assert done.output.count("]:") == 4
    plan = planned(folder / "mine.yaml")
    assert {(setting.context, setting.users) for setting in plan.settings.values()} == {(1024, (1, 4, 6))}


def test_what_is_given_is_not_asked(folder: Path) -> None:
    assert "]:" not in init("--out", "mine.yaml", "--model", "smollm2", *FLAGS).output


def refused(*given: str, typed: str = "") -> str:
    done = init(*given, typed=typed)
    assert isinstance(done.exception, Fault), done.output
    return str(done.exception)


def test_for_sglang_it_says_what_to_give(folder: Path, with_gpu: Callable[..., Nvml]) -> None:
    with_gpu(141)
    asked = ("--out", "mine.yaml", "--model", "qwen3-14b", "--context", "2048", "--users", "16")
    assert "docs/engines.md" in refused(*asked, "--engines", "sglang,vllm")
    assert "### SGLang" in (ROOT / "docs" / "engines.md").read_text(encoding="utf-8")


def test_input_that_ends_names_the_option(folder: Path) -> None:
    assert "--users" in refused("--out", "mine.yaml", "--model", "smollm2", *FLAGS[:-2])
    assert not (folder / "mine.yaml").exists()


def test_nothing_is_overwritten(folder: Path) -> None:
    (folder / "mine.yaml").write_text("mine\n")
    assert "mine.yaml" in refused("--out", "mine.yaml", "--model", "smollm2", *FLAGS)
    assert (folder / "mine.yaml").read_text() == "mine\n"


def test_the_commands_that_it_prints_can_be_pasted_whatever_the_files_name(folder: Path) -> None:
    (folder / "my own").mkdir()
    done = init("--out", "my own/mine.yaml", "--model", "smollm2", *FLAGS)
    assert "servebench plan --configfile 'my own/mine.yaml'" in done.output


def test_the_plan_of_what_it_writes_lacks_nothing(folder: Path) -> None:
    assert init("--out", "mine.yaml", "--model", "smollm2", *FLAGS).exit_code == 0
    done = CliRunner().invoke(cli.app, ["plan", "--configfile", "mine.yaml"])
    assert done.exit_code == 0, done.output


def test_on_24_gib_40_contexts_fit_beside_the_weights_and_vllm_does_not(
    folder: Path, with_gpu: Callable[..., Nvml]
) -> None:
    """Weights 9.1 GiB, 160 KiB a token: (0.9 x 24 - 9.1) / (2048 x 160 KiB) = 12.5 / 0.3125 = 40; BF16 has 30.8 GiB."""
    with_gpu(24)
    done = init("--out", "mine.yaml", typed="\n\n\n\n")
    assert done.exit_code == 0, done.output
    assert slots(planned(folder / "mine.yaml")) == {"llama-server": [16, 40], "ollama": [16, 40]}
    assert "vllm is left out" in done.output
    assert set(yaml.safe_load((folder / "mine.yaml").read_text())["models"]) == {"qwen3-14b-q4_k_m"}


def test_what_others_use_of_the_gpu_is_not_given_to_vllm(folder: Path, with_gpu: Callable[..., Nvml]) -> None:
    """Of 141 GiB others use 40: 0.9 x 101 / 141 = 0.6447."""
    with_gpu(141, used_gib=40)
    assert init("--out", "mine.yaml", typed="\n\n\n\n").exit_code == 0
    content: dict[str, Any] = yaml.safe_load((folder / "mine.yaml").read_text())
    assert content["engines"]["vllm"]["args"] == ["--gpu-memory-utilization", "0.64"]
    assert slots(planned(folder / "mine.yaml")) == {
        "llama-server": [16, 64],
        "ollama": [16, 64],
        "vllm": [16, 64],
    }


def test_a_small_gpu_gets_the_small_model(folder: Path, with_gpu: Callable[..., Nvml]) -> None:
    with_gpu(6)
    assert init("--out", "mine.yaml", typed="\n\n\n\n").exit_code == 0
    assert set(planned(folder / "mine.yaml").models) == {"smollm2-q4_1"}


def test_an_engine_that_was_asked_for_and_does_not_fit_is_an_error(folder: Path, with_gpu: Callable[..., Nvml]) -> None:
    with_gpu(24)
    told = refused(
        "--out", "mine.yaml", "--model", "qwen3-14b", "--engines", "vllm", "--context", "2048", "--users", "4"
    )
    assert "vllm" in told and "--context" in told
    assert not (folder / "mine.yaml").exists()


class OldDriver(Nvml):
    def c_SystemGetCudaDriverVersion(self, version: Any) -> int:
        nvml_double.put(version, 12040)
        return nvml_double.SUCCESS


def test_an_image_for_a_newer_cuda_than_the_drivers_is_not_chosen(folder: Path, with_gpu: Callable[..., Nvml]) -> None:
    with_gpu(24, double=OldDriver)
    told = refused("--out", "mine.yaml", "--model", "smollm2", *FLAGS)
    assert "llama-server" in told and "driver" in told
    program(folder, "llama-server")
    assert init("--out", "mine.yaml", "--model", "smollm2", *FLAGS).exit_code == 0
    (engine,) = planned(folder / "mine.yaml").engines.values()
    assert (engine.runtime, engine.binary) == ("binary", "llama-server")


def test_a_gpu_without_any_engine_says_what_to_install(folder: Path, with_gpu: Callable[..., Nvml]) -> None:
    with_gpu(24, docker=False)
    assert "docker" in refused("--out", "mine.yaml")


@pytest.mark.parametrize(
    ("model", "kinds"),
    [
        ("hf://owner/repository", {"vllm"}),
        ("hf://owner/repository/model-Q4_K_M.gguf", {"llama-server", "ollama"}),
        (f"hf://owner/repository@{'0' * 40}", {"vllm"}),
        ("ollama://qwen3:14b", {"llama-server", "ollama"}),
    ],
)
def test_a_model_gets_the_engines_that_load_it(
    model: str, kinds: set[str], folder: Path, with_gpu: Callable[..., Nvml]
) -> None:
    with_gpu(80)
    assert init("--out", "mine.yaml", "--model", model, typed="\n\n\n").exit_code == 0
    assert {engine.kind for engine in planned(folder / "mine.yaml").engines.values()} == kinds


def test_a_file_of_ones_own_is_pinned_by_its_hash(folder: Path) -> None:
    import numpy as np
    from gguf import GGUFWriter

    file = folder / "My model.gguf"
    writer = GGUFWriter(file, "llama")
    writer.add_block_count(2)
    writer.add_embedding_length(64)
    writer.add_head_count(4)
    writer.add_tensor("token_embd.weight", np.zeros((8, 64), dtype=np.float32))
    for step in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file, writer.close):
        step()
    assert init("--out", "mine.yaml", "--model", file.name, *FLAGS).exit_code == 0
    (model,) = planned(folder / "mine.yaml").models.values()
    assert (model.key, model.sha256) == ("my-model", hashlib.sha256(file.read_bytes()).hexdigest())


def test_a_server_that_is_running_is_given_by_option_or_as_the_answer(folder: Path) -> None:
    url = "http://127.0.0.1:8000"
    assert init("--out", "mine.yaml", "--url", url, "--model", "a/b", "--users", "16").exit_code == 0
    (setting,) = planned(folder / "mine.yaml").settings.values()
    assert (setting.engine.kind, setting.engine.url, setting.model.name, setting.users) == (
        "url",
        url,
        "a/b",
        (1, 4, 16),
    )
    done = init("--out", "other.yaml", typed=f"{url}\n8\n")
    assert (done.exit_code, done.output.count("]:")) == (0, 2), done.output
    assert "this machine" not in (folder / "mine.yaml").read_text() + (folder / "other.yaml").read_text()
    content = yaml.safe_load((folder / "other.yaml").read_text())
    assert content["settings"] == {"now": {"engine": "mine", "users": [1, 4, 8]}}
    assert "--context" in refused("--out", "third.yaml", "--url", url, "--context", "512")


@pytest.mark.parametrize("name", ["missing.gguf", "notes.txt", "folder"])
def test_what_is_no_model_is_refused(name: str, folder: Path) -> None:
    (folder / "notes.txt").write_text("no model")
    (folder / "folder").mkdir()
    assert "--model" in refused("--out", "mine.yaml", "--model", name, *FLAGS)
