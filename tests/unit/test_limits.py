"""What is predicted of a setting before it is measured."""

import pytest

import servebench
from servebench import configuration
from servebench.outlook.limits import bandwidth_gb_s, limits


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
    assert bandwidth_gb_s(device) == gb_s


def test_a_configured_bandwidth_counts_more_than_the_name():
    assert bandwidth_gb_s("NVIDIA L4", 250) == 250 == bandwidth_gb_s(None, 250)


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
