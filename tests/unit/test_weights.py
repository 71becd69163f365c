"""The digest of a GGUF's weights: of tensors, whatever their order, file, and metadata."""

from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFWriter

from servebench.models import weights

TENSORS = {"a": np.arange(64, dtype=np.float32), "b": np.ones((2, 32), np.float16), "c": np.zeros(3, np.float32)}


def written(path: Path, names: str, **changed: np.ndarray) -> Path:
    """A GGUF with these tensors in this order, and lists as a tokenizer has them."""
    writer = GGUFWriter(path, arch="llama")
    writer.add_name(path.name)
    writer.add_token_list([f"token {n}" for n in range(7)])
    writer.add_array("numbers", [1.5, 2.5])
    for name in names:
        writer.add_tensor(name, changed.get(name, TENSORS[name]))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_the_same_tensors_in_another_order_and_in_parts_are_the_same_weights(tmp_path: Path) -> None:
    whole = weights.sha256(written(tmp_path / "one.gguf", "abc"))
    assert weights.sha256(written(tmp_path / "other.gguf", "cab")) == whole
    first = written(tmp_path / "m-00001-of-00002.gguf", "b")
    written(tmp_path / "m-00002-of-00002.gguf", "ca")
    assert weights.sha256(first) == whole


@pytest.mark.parametrize(
    "changed",
    [
        {"a": np.arange(1, 65, dtype=np.float32)},
        {"b": np.ones((1, 64), np.float16)},  # the same bytes in another shape
    ],
)
def test_other_tensors_are_other_weights(changed: dict[str, np.ndarray], tmp_path: Path) -> None:
    whole = weights.sha256(written(tmp_path / "one.gguf", "abc"))
    assert weights.sha256(written(tmp_path / "other.gguf", "abc", **changed)) != whole
    assert weights.sha256(written(tmp_path / "fewer.gguf", "ab")) != whole


def test_the_tensors_lie_where_gguf_reads_them(tmp_path: Path) -> None:
    path = written(tmp_path / "one.gguf", "abc")
    content = path.read_bytes()
    for tensor in weights.tensors(path):
        assert content[tensor.place : tensor.place + tensor.size] == TENSORS[tensor.name].tobytes()


def test_a_changed_file_is_read_again_and_a_cut_one_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "one.gguf", "abc")
    whole = weights.sha256(path)
    written(path, "ab")
    assert weights.sha256(path) != whole
    content = path.read_bytes()
    path.write_bytes(content[:-40])
    with pytest.raises(ValueError, match="ends within the tensor"):
        weights.sha256(path)
    for cut in range(24, 200):
        path.write_bytes(content[:cut])
        with pytest.raises(ValueError, match="claims more than the file has"):
            weights.tensors(path)
