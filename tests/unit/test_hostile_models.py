"""A model file that claims what it has not is refused in one sentence, soon, by kv-cache and by the fetch."""

from __future__ import annotations

import json
import struct
import time
from pathlib import Path

import pytest

from servebench.cli import kv_cache
from servebench.machine.infrastructure import InfrastructureError


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def pair(name: str, kind: int, value: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + value


def u32(name: str, value: int) -> bytes:
    return pair(name, 4, struct.pack("<I", value))


def gguf(*pairs: bytes, keys: int | None = None, tensors: int = 0, version: int = 3) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", version, tensors, len(pairs) if keys is None else keys)
    return head + b"".join(pairs) + bytes(64)


def model(blocks: int = 2, heads: int = 4, kv_heads: int = 2, embedding: int = 64) -> list[bytes]:
    sizes = {"block_count": blocks, "attention.head_count": heads, "attention.head_count_kv": kv_heads}
    sizes["embedding_length"] = embedding
    return [pair("general.architecture", 8, text("llama")), *(u32(f"llama.{key}", n) for key, n in sizes.items())]


def array(kind: int, count: int, values: bytes = b"") -> bytes:
    return pair("x", 9, struct.pack("<IQ", kind, count) + values)


HOSTILE = {
    "an array of 2^60 numbers": gguf(*model(), array(4, 2**60)),
    "an array of 2^60 strings": gguf(*model(), array(8, 2**60)),
    "an array of 2^60 bytes": gguf(*model(), array(0, 2**60)),
    "nested arrays": gguf(*model(), array(9, 1, struct.pack("<IQ", 9, 1) * 10_000)),
    "a string of 2^63 bytes": gguf(pair("general.architecture", 8, struct.pack("<Q", 2**63))),
    "2^63 keys": gguf(keys=2**63),
    "2^63 tensors": gguf(*model(), tensors=2**63),
    "tensors aligned to nothing": gguf(*model(), u32("general.alignment", 0)),
    "an unknown type": gguf(pair("x", 99, b"")),
    "an unknown version": gguf(version=77),
    "cut": gguf(*model())[:40],
    "2^32 - 1 blocks": gguf(*model(blocks=2**32 - 1)),
    "no block": gguf(*model(blocks=0)),
    "no head": gguf(*model(heads=0)),
    "nothing": b"GGUF",
}
CONFIG = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 64}
CONFIGS = {
    "10^9 layers": json.dumps({**CONFIG, "num_hidden_layers": 10**9}),
    "-1 layers": json.dumps({**CONFIG, "num_hidden_layers": -1}),
    "no heads": json.dumps({**CONFIG, "num_attention_heads": 0}),
    "nested": "[" * 10**5,
    "a list": "[]",
    "a number": "5",
    "null": "null",
    "infinite": '{"num_hidden_layers": 1e999}',
    "text in place of numbers": json.dumps(dict.fromkeys(CONFIG, "many")),
    "lists in place of numbers": json.dumps({key: [1] for key in CONFIG}),
}


@pytest.mark.outcome(
    "a GGUF: an array of 2^60 numbers",
    "a GGUF: nested arrays",
    "a GGUF: 2^32 - 1 blocks",
    "a GGUF: 2^63 keys",
    "a GGUF: cut",
    at="kv-cache, fetch",
    into="files",
    kept="all",
    again="–",
    reads="is not a complete GGUF",
    code="1",
)
@pytest.mark.parametrize("how", HOSTILE)
def test_a_gguf_that_claims_what_it_has_not_is_refused_soon(how: str, tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(HOSTILE[how])
    began = time.process_time()
    with pytest.raises(InfrastructureError, match=f"^{file}: is not a complete GGUF") as said:
        kv_cache.report(str(file), tokens=1)
    assert "ZeroDivision" not in str(said.value)
    assert time.process_time() - began < 5


@pytest.mark.parametrize("how", CONFIGS)
def test_a_config_that_describes_no_model_is_refused_soon(how: str, tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(CONFIGS[how], encoding="utf-8")
    with pytest.raises(InfrastructureError, match=f"^{file}: is not a complete config.json") as said:
        kv_cache.report(str(file), tokens=1)
    assert "ZeroDivision" not in str(said.value)


def test_a_small_whole_gguf_is_read(tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(gguf(*model()))
    # 2 layers × 2 KV heads × (16 + 16) elements × 2 bytes
    assert kv_cache.report(str(file), tokens=10)["bytes"] == 10 * 2 * 2 * 32 * 2


def test_a_model_without_a_cache_holds_any_number_of_tokens(tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(gguf(*model(kv_heads=0)))
    with pytest.raises(InfrastructureError, match="keeps no KV cache"):
        kv_cache.report(str(file), gib="1")
