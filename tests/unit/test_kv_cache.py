"""KV-cache arithmetic against published sizes."""

import json
from pathlib import Path

import pytest

from servebench.cli import kv_cache as command
from servebench.machine.infrastructure import InfrastructureError
from servebench.models import facts, kv_cache

LLAMA3_8B = {"num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 4096}
QWEN3_14B = {
    "num_hidden_layers": 40,
    "num_attention_heads": 40,
    "num_key_value_heads": 8,
    "hidden_size": 5120,
    "head_dim": 128,
    "sliding_window": None,
    "use_sliding_window": False,
}


def config(tmp_path: Path, content: dict[str, object]) -> str:
    """A config.json on disk."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return str(path)


def test_llama3_8b_32_streams_of_4096_tokens_take_16_gib(tmp_path: Path) -> None:
    found = command.report(config(tmp_path, LLAMA3_8B), tokens=4096, streams=32)
    assert found["gib"] == 16.0


def test_qwen3_14b_takes_160_kib_a_token_and_18_64_gib_for_122160(tmp_path: Path) -> None:
    model = config(tmp_path, QWEN3_14B)
    assert command.report(model, tokens=1)["bytes"] == 160 * 1024
    assert round(command.report(model, tokens=122_160)["gib"], 2) == 18.64


def test_48_more_slots_of_4096_tokens_take_30_gib(tmp_path: Path) -> None:
    assert command.report(config(tmp_path, QWEN3_14B), tokens=4096, streams=48)["gib"] == 30.0


def test_tokens_in_a_rounded_size_are_a_range_that_holds_the_published_number(tmp_path: Path) -> None:
    found = command.report(config(tmp_path, QWEN3_14B), gib="18.64")
    # 18.64 GiB ÷ 160 KiB = 122,159.1; 18.635 and 18.645 GiB are 122,126.3 and 122,191.9.
    assert (found["tokens"], found["tokens_min"], found["tokens_max"]) == (122_159, 122_127, 122_191)
    assert found["tokens_min"] <= 122_160 <= found["tokens_max"]
    assert "rounded down" in found["rounding"] and "18.635 to 18.645" in found["rounding"]


def test_streams_share_the_tokens_that_fit(tmp_path: Path) -> None:
    found = command.report(config(tmp_path, QWEN3_14B), gib="18.64", streams=4)
    assert (found["tokens"], found["streams"], found["tokens_of_each_stream"]) == (122_159, 4, 30_539)


@pytest.mark.parametrize("gib", ["0", "0.00", "-1", "1e3", "٣"])
def test_a_size_is_a_number_above_0(tmp_path: Path, gib: str) -> None:
    with pytest.raises(InfrastructureError, match=r"--gib.*above 0"):
        command.report(config(tmp_path, QWEN3_14B), gib=gib)


def test_a_quantized_cache_counts_its_scales(tmp_path: Path) -> None:
    model = config(tmp_path, QWEN3_14B)
    # q8_0: 34 bytes for 32 values; q4_0: 18.
    mixed = command.report(model, tokens=1024, key_type="q8_0", value_type="q4_0")
    assert mixed["bytes"] == 40 * 8 * 128 * 1024 * (34 + 18) // 32
    with pytest.raises(InfrastructureError, match=r"q9_9.*is not a cache type; use one of"):
        command.report(model, tokens=1, key_type="q9_9")


def test_a_sliding_window_bounds_its_layers(tmp_path: Path) -> None:
    model = config(
        tmp_path,
        {
            **LLAMA3_8B,
            "sliding_window": 1024,
            "layer_types": ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"] * 8,
        },
    )
    per_layer = 2 * 8 * 128 * 2
    assert command.report(model, tokens=8192)["bytes"] == per_layer * (24 * 1024 + 8 * 8192)
    assert command.report(model, tokens=512)["bytes"] == per_layer * 32 * 512


def test_gguf_metadata_gives_the_same_as_the_config() -> None:
    gguf = {
        "general.architecture": "qwen3",
        "qwen3.block_count": 40,
        "qwen3.attention.head_count": 40,
        "qwen3.attention.head_count_kv": 8,
        "qwen3.embedding_length": 5120,
        "qwen3.attention.key_length": 128,
        "qwen3.attention.value_length": 128,
    }
    assert kv_cache.from_gguf(gguf) == kv_cache.from_config(QWEN3_14B)


def test_gemma3_gguf_has_a_full_layer_after_every_five_windows() -> None:
    found = kv_cache.from_gguf(
        {
            "general.architecture": "gemma3",
            "gemma3.block_count": 26,
            "gemma3.attention.head_count": 4,
            "gemma3.attention.head_count_kv": 1,
            "gemma3.embedding_length": 1152,
            "gemma3.attention.key_length": 256,
            "gemma3.attention.value_length": 256,
            "gemma3.attention.sliding_window": 512,
        }
    )
    assert [i + 1 for i, layer in enumerate(found.layers) if layer.window is None] == [6, 12, 18, 24]


def test_a_window_without_known_layers_is_said_and_not_guessed() -> None:
    found = kv_cache.from_gguf(
        {
            "general.architecture": "unheardof",
            "unheardof.block_count": 2,
            "unheardof.attention.head_count": 2,
            "unheardof.embedding_length": 128,
            "unheardof.attention.sliding_window": 512,
        }
    )
    assert all(layer.window is None for layer in found.layers)
    assert "512" in found.notes[0]


def test_a_manifest_keeps_what_the_arithmetic_needs(tmp_path: Path) -> None:
    kinds = ["sliding_attention", "full_attention"] * 16
    config(tmp_path, {**LLAMA3_8B, "sliding_window": 1024, "layer_types": kinds})
    found = facts.cache(json.loads(json.dumps(facts.of(tmp_path))))
    assert found is not None
    assert (found.windowed, found.all_layers, len(found.layers)) == (True, 32, 32)
    whole = command.of(str(tmp_path))
    assert [found.bytes(n, 3, "q8_0", "f16") for n in (1, 4096)] == [
        whole.bytes(n, 3, "q8_0", "f16") for n in (1, 4096)
    ]


def test_of_a_file_without_facts_no_cache_is_known() -> None:
    assert facts.cache({}) is None


def test_latent_attention_and_layers_without_a_cache() -> None:
    latent = {"num_hidden_layers": 3, "num_attention_heads": 16, "hidden_size": 2048}
    assert kv_cache.from_config({**latent, "kv_lora_rank": 512, "qk_rope_head_dim": 64}).bytes(1) == 3 * 576 * 2
    hybrid = {**LLAMA3_8B, "layer_types": ["linear_attention"] * 24 + ["full_attention"] * 8}
    assert kv_cache.from_config(hybrid).bytes(4096, 32) == 4 * 2**30


@pytest.mark.parametrize("content", [b"x", b"{}", b"[1]", b"\xff", b"GGUF\x03\0\0\0" + b"\xff" * 16, b"GGUF"])
def test_a_file_that_is_no_model_is_said_to_be_none(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(InfrastructureError, match=r"model\.gguf: .*(GGUF|config\.json)"):
        command.report(str(path), tokens=1)


def test_one_of_two_options_is_asked_for_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match=r"^give either --tokens \(and --streams\) or --gib$"):
        command.report(config(tmp_path, LLAMA3_8B))


@pytest.mark.parametrize("asked", [{"gib": "much"}, {"gib": "-1"}, {"gib": "1/0"}, {"tokens": 0}, {"tokens": -5}])
def test_amounts_that_are_none(tmp_path: Path, asked: dict[str, object]) -> None:
    with pytest.raises(InfrastructureError, match=r"is not a number of GiB|are not positive integers"):
        command.report(config(tmp_path, LLAMA3_8B), **asked)  # type: ignore[arg-type]
