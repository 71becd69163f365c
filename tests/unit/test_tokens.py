"""Counting with the model's own tokenizer."""

import pytest

from servebench.faults import Fault
from servebench.load.tokens import counter


@pytest.fixture
def tokenizer(tmp_path):
    tokenizers = pytest.importorskip("tokenizers", reason="needs the package tokenizers")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"one": 0, "two": 1, "?": 2, "[BOS]": 3}, unk_token="?"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    words.post_processor = tokenizers.processors.TemplateProcessing(single="[BOS] $A", special_tokens=[("[BOS]", 3)])
    words.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def test_counts_without_special_tokens(tokenizer):
    assert counter(str(tokenizer))("one two three") == 3
    assert counter(str(tokenizer / "tokenizer.json"))("") == 0


def test_no_tokenizer_named():
    assert counter(None) is None


def test_not_there_or_not_a_tokenizer(tmp_path):
    with pytest.raises(Fault, match=r"tokenizer\.json is not a file"):
        counter(str(tmp_path))
    (tmp_path / "tokenizer.json").write_text("{}")
    pytest.importorskip("tokenizers", reason="needs the package tokenizers")
    with pytest.raises(Fault, match="give the model's own"):
        counter(str(tmp_path))
