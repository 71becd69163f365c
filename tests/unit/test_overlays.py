"""What a file says of its model and machine is left out where a later file changes these and does not say it again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from snakemake.utils import update_config

from servebench import ROOT, configuration
from servebench.configuration.overlays import without_stale

BASE: dict[str, Any] = {
    "experiment": "h200",
    "title": {"en": "One H200", "ja": "H200 1 基"},
    "reference": "h200",
    "cost": {"price_per_hour": 4.0},
    "deviations": ["ours"],
    "unverified": ["theirs"],
    "cpus": {"server": 8},
    "engines": {"vllm": {"kind": "vllm", "image": "one", "args": ["-a"], "expect": {"version": "1", "tokens": 2}}},
    "models": {"m": {"source": "hf://m", "sha256": "0" * 64}},
    "settings": {"s": {"engine": "vllm", "model": "m", "slots": 4, "users": [1], "expect": {"n_batch": 512}}},
    "workload": {"window_s": 60},
}
ALL = {"title", "reference", "cost", "deviations", "unverified", "expect"}


def merged(*overlays: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    config: dict[str, Any] = {}
    layers = [("h200.yaml", BASE), *((f"over{n}.yaml", one) for n, one in enumerate(overlays, 1))]
    for _, content in layers:
        update_config(config, content)
    return without_stale(config, layers)


def left_out(sentence: str) -> set[str]:
    return set(sentence.split(": ", 1)[1].split(";")[0].split(", "))


@pytest.mark.parametrize(
    "change",
    [
        {"engines": {"vllm": {"args": ["-b"]}}},
        {"engines": {"vllm": {"image": None, "runtime": "venv"}}},
        {"models": {"m": {"sha256": "1" * 64}}},
        {"settings": {"s": {"slots": 8}}},
        {"settings": {"s": {"args": ["-b"]}}},  # its first ones
        {"engines": {"vllm": {"env": {"A": "1"}}}},
        {"models": {"m": {"sha256": None, "source": "hf://n"}}},
        {"cpus": {"server": 4}},
        {"cpus": {"load": 2}},
        {"cpus": None},
    ],
)
def test_another_model_or_machine_leaves_out_what_was_said_of_the_first(change: dict[str, Any]) -> None:
    kept, (sentence,) = merged(change)
    assert not ALL & kept.keys()
    assert "expect" not in kept["engines"]["vllm"] and "expect" not in kept["settings"]["s"]
    assert sentence.startswith("over1.yaml changes ")
    assert left_out(sentence) == ALL


@pytest.mark.parametrize(
    "change",
    [
        {"experiment": "h200-tuesday"},
        {"workload": {"window_s": 10}},
        {"settings": {"s": {"users": [1, 4]}}},
        {"settings": {"s2": {"engine": "vllm", "model": "m", "slots": 8, "users": [1]}}},
        {"settings": {"s": None}},  # what is no longer there was not changed
        {"models": {"m": {"source": "https://elsewhere/m"}}},  # the same file, by its hash
        {"models": {"m": {"sha256": None}}},  # by its source
        {"engines": {"vllm": {"args": ["-a"]}}},  # as it was
    ],
)
def test_anything_else_leaves_everything(change: dict[str, Any]) -> None:
    kept, sentences = merged(change)
    assert sentences == []
    assert (
        kept["title"] == BASE["title"]
        and ALL - {"expect"} <= kept.keys()
        and kept["engines"]["vllm"]["expect"] == {"version": "1", "tokens": 2}
    )


def test_the_first_cpus_of_all_are_another_machine() -> None:
    config = {key: value for key, value in BASE.items() if key != "cpus"}
    layers = [("h200.yaml", config), ("mine.yaml", {"cpus": {"server": 4, "load": 2}})]
    kept, (sentence,) = without_stale(config | layers[1][1], layers)
    assert not ALL & kept.keys() and sentence.startswith("mine.yaml changes cpus,")


def test_what_is_said_again_stays_and_nothing_of_the_first_beside_it() -> None:
    own = {
        "title": {"en": "One H100"},
        "deviations": [],
        "engines": {"vllm": {"args": ["-b"], "expect": {"version": "1"}}},
    }
    kept, (sentence,) = merged(own)
    assert (kept["title"], kept["deviations"]) == ({"en": "One H100"}, [])
    assert kept["engines"]["vllm"]["expect"] == {"version": "1"}
    assert left_out(sentence) == {
        "title.ja",
        "reference",
        "cost",
        "unverified",
        "engines.vllm.expect.tokens",
        "settings.s.expect",
    }


def test_a_third_file_may_say_it_of_the_machine_that_a_second_has_changed() -> None:
    kept, (sentence,) = merged({"cpus": {"server": 4}}, {"reference": "l4-cloud"})
    assert kept["reference"] == "l4-cloud"
    assert left_out(sentence) == ALL - {"reference"}


def test_the_command_line_is_a_layer_too() -> None:
    plan = configuration.read([ROOT / "config" / "h200.yaml"], {"cpus": {"server": 1, "load": 1}})
    assert plan.reference is None and plan.title == "h200"
    assert plan.left_out[0].startswith("--config changes cpus")


def test_the_overlays_of_the_project_keep_their_published_figures() -> None:
    for files, reference in ((("h200", "rehearsal"), "h200"), (("l4-cloud", "l4-cloud-url"), "l4-cloud")):
        plan = configuration.read([ROOT / "config" / f"{file}.yaml" for file in files])
        assert plan.reference == reference
        assert all(not setting.expect for setting in plan.settings.values())


def test_the_plan_says_what_is_left_out(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from servebench.cli import app as cli

    overlay = tmp_path / "h100.yaml"
    overlay.write_text(yaml.safe_dump({"experiment": "h100", "cpus": None}), encoding="utf-8")
    said = CliRunner().invoke(
        cli.app, ["plan", "--configfile", f"{ROOT}/config/h200.yaml", "--configfile", str(overlay)]
    )
    assert f"{overlay} changes cpus" in said.output
