"""What is predicted of a setting before it is measured."""

import pytest
from msgspec import structs

import servebench
from servebench import configuration
from servebench.machine import bandwidth as probe
from servebench.outlook.limits import Bandwidth, bandwidth, limits
from servebench.plan import canonical, from_json, reported


@pytest.mark.parametrize(
    ("device", "gb_s"),
    [
        ("NVIDIA H200", 4800),
        ("NVIDIA GH200 480GB", 4000),
        ("NVIDIA H100 80GB HBM3", 3350),
        ("NVIDIA H100 PCIe", 2000),
        ("NVIDIA L4", 300),
        ("NVIDIA L40S", 864),
        ("NVIDIA GeForce RTX 4090", 1008),
        ("NVIDIA A100-SXM4-80GB", 2039),
        ("NVIDIA A100-PCIE-40GB", 1555),
        ("Tesla T4", 320),
        ("a device of tomorrow", None),
        ("NVIDIA RTX A1000", None),
        ("NVIDIA T400 4GB", None),
        ("NVIDIA A100X", None),
        ("NVIDIA GH200 144G HBM3e", None),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("NVIDIA GeForce RTX 3090 Ti", None),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None),
        (None, None),
    ],
)
def test_a_device_is_known_by_its_name(device, gb_s):
    assert bandwidth(device) == (gb_s and Bandwidth(gb_s=gb_s, source="data_sheet"))


def test_a_configured_bandwidth_counts_more_than_the_name_or_a_probe():
    configured = Bandwidth(gb_s=250, source="configured")
    assert bandwidth("NVIDIA L4", 250) == configured == bandwidth(None, 250, 12)


def test_a_probe_counts_for_a_cpu_alone():
    assert bandwidth(None, None, 12.5) == Bandwidth(gb_s=12.5, source="copied")
    assert bandwidth("a device of tomorrow", None, 12.5) is None


def test_copying_memory_is_measured_once_for_a_machine(tmp_path, monkeypatch):
    monkeypatch.setattr(probe, "COPIED_BYTES", 2**20)
    first = probe.measured(tmp_path, "0123")
    assert first > 0.01 and [path.name for path in (tmp_path / "bandwidth").iterdir()] == ["0123.json"]
    monkeypatch.setattr(probe, "copied_gb_s", lambda: -1.0)
    assert probe.measured(tmp_path, "0123") == first and probe.measured(tmp_path, "4567") == -1.0
    assert probe.measured(tmp_path, "0123", again=True) == first, "a copy beside other work"
    monkeypatch.setattr(probe, "copied_gb_s", lambda: first + 1)
    assert probe.measured(tmp_path, "0123", again=True) == probe.measured(tmp_path, "0123") == first + 1
    monkeypatch.setattr(probe, "copied_gb_s", lambda: -1.0)
    (tmp_path / "bandwidth" / "0123.json").write_text("{")
    assert probe.measured(tmp_path, "0123") == -1.0, "a damaged figure is measured again"


def test_the_h200_settings_get_at_most_what_reading_all_weights_allows(tmp_path):
    plan = configuration.read([servebench.ROOT / "config" / "h200.yaml"])
    found = {one.setting: one for one in limits(plan, tmp_path, tmp_path, memory_gib=140, bandwidth_gb_s=4800)}
    np16 = found["llama-np16"]
    gib = plan.settings["llama-np16"].model.about.gib or plan.settings["llama-np16"].model.size_bytes / 2**30
    assert np16.stream_tok_s == pytest.approx(4800e9 / (gib * 2**30))
    # Qwen3 14B keeps 160 KiB a token: 4,096 tokens are 0.625 GiB a slot.
    assert np16.slots == int((140 - gib) / 0.625)
    assert found["vllm-bf16"].stream_tok_s < np16.stream_tok_s / 3


def test_what_is_unknown_is_not_predicted(tmp_path):
    plan = configuration.read([servebench.ROOT / "config" / "h200.yaml"])
    assert {one.stream_tok_s for one in limits(plan, tmp_path, tmp_path, memory_gib=140, bandwidth_gb_s=None)} == {None}


def test_a_saved_plan_keeps_the_configured_bandwidth_and_nothing_else_of_how_it_is_run():
    plan = configuration.read([servebench.ROOT / "config" / "config.yaml"])
    assert "runtime" not in reported(plan)
    configured = structs.replace(plan, runtime=structs.replace(plan.runtime, bandwidth_gb_s=43.0))
    assert reported(configured)["runtime"] == {"bandwidth_gb_s": 43.0}
    assert from_json(canonical(reported(configured))).runtime.bandwidth_gb_s == 43
