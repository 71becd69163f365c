"""The prompt sets as the H200 experiment wants them, and the builder of documents on paragraphs made for the case."""

import json
from collections import Counter
from pathlib import Path

import pytest
import yaml

from servebench.load.documents import Paragraph, documents

SETS = Path(__file__).parents[2] / "config" / "prompts"


def lines_of(file):
    return [json.loads(line) for line in (SETS / file).read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def paragraphs():
    return [Paragraph(**line) for line in lines_of("ja-business/paragraphs.jsonl")]


def made(topic, lengths):
    """Paragraphs of one topic with these lengths, no two alike."""
    return [Paragraph(f"{topic}-{i}", topic, chr(0x4E00 + i) * (n - len(topic)) + topic) for i, n in enumerate(lengths)]


def test_the_set_has_enough_paragraphs_topics_and_no_paragraph_twice(paragraphs):
    assert len(paragraphs) >= 160
    assert len({p.topic for p in paragraphs}) >= 20
    assert len({p.text for p in paragraphs}) == len({p.id for p in paragraphs}) == len(paragraphs)


def test_every_paragraph_is_one_line_of_220_to_320_characters(paragraphs):
    assert [p.id for p in paragraphs if not 220 <= len(p.text) <= 320 or p.text != " ".join(p.text.split())] == []


def test_400_different_documents_of_760_to_840_characters(paragraphs):
    made_of_set = documents(paragraphs)
    assert len(made_of_set) == 400
    assert len({d.text for d in made_of_set}) == len({d.id for d in made_of_set}) == 400
    assert [d.id for d in made_of_set if not 760 <= len(d.text) <= 840] == []


def test_a_document_is_whole_paragraphs_of_one_topic_in_the_order_of_the_file(paragraphs):
    known = {p.id: p for p in paragraphs}
    place = {p.id: i for i, p in enumerate(paragraphs)}
    for document in documents(paragraphs):
        parts = document.id.split("+")
        assert document.text.split("\n") == [known[i].text for i in parts]
        assert {known[i].topic for i in parts} == {document.topic}
        assert parts == sorted(parts, key=place.__getitem__)


def test_topics_differ_by_one_document_and_every_paragraph_is_used_about_as_often_as_the_others(paragraphs):
    made_of_set = documents(paragraphs)
    by_topic = Counter(d.topic for d in made_of_set)
    assert set(by_topic) == {p.topic for p in paragraphs}
    assert max(by_topic.values()) - min(by_topic.values()) <= 1
    uses = Counter(i for d in made_of_set for i in d.id.split("+"))
    assert set(uses) == {p.id for p in paragraphs}
    assert max(uses.values()) - min(uses.values()) <= 2


def test_the_same_input_gives_the_same_documents_and_a_seed_gives_others():
    paragraphs = made("a", [260] * 8)
    # Written down once: fails when the choice comes to depend on the machine, the Python or the run.
    assert [d.id for d in documents(paragraphs, count=3)] == ["a-1+a-5+a-6", "a-2+a-3+a-4", "a-0+a-3+a-7"]
    assert documents(paragraphs, count=4, seed=1) != documents(paragraphs, count=4)


def test_lengths_count_the_line_breaks_and_both_limits_are_meant():
    assert len(documents(made("a", [379, 380]), count=1)[0].text) == 760
    assert len(documents(made("a", [279, 279, 280]), count=1)[0].text) == 840
    for lengths in ([379, 379], [279, 280, 280]):
        with pytest.raises(ValueError, match="0 combinations"):
            documents(made("a", lengths), count=1)


def test_different_numbers_of_paragraphs_may_make_one_length():
    assert {d.id for d in documents(made("a", [400, 400, 190, 190]), count=3)} == {
        "a-0+a-1",
        "a-0+a-2+a-3",
        "a-1+a-2+a-3",
    }


def test_too_few_combinations_are_an_error_that_names_topic_numbers_and_remedy():
    plenty, few = made("plenty", [260] * 8), made("few", [260] * 4)
    assert len(documents(plenty + few, count=8)) == 8
    with pytest.raises(ValueError, match=r"topic 'few': 4 combinations of its 4 paragraphs .* 5 are needed: add"):
        documents(plenty + few, count=10)


def test_repeated_ids_or_texts_nothing_to_compose_of_and_no_documents_are_errors():
    one, other = made("a", [800, 800])
    with pytest.raises(ValueError, match="'a-0' and 'a-0' have the same id or text"):
        documents([one, Paragraph("a-0", "a", other.text)], count=1)
    with pytest.raises(ValueError, match="'a-0' and 'a-1' have the same id or text"):
        documents([one, Paragraph("a-1", "a", one.text)], count=1)
    with pytest.raises(ValueError, match="no paragraphs"):
        documents([], count=1)
    with pytest.raises(ValueError, match=r"^count: 0 "):
        documents([one], count=0)


def test_the_short_english_documents_are_at_least_60_different_ones_of_35_to_50_words():
    short = lines_of("en-short/documents.jsonl")
    assert len({d["text"] for d in short}) == len({d["id"] for d in short}) == len(short) >= 60
    assert [d["id"] for d in short if not 35 <= len(d["text"].split()) <= 50] == []


def test_the_japanese_instruction_is_the_published_one_and_every_set_says_its_licence():
    about = {path.parent.name: yaml.safe_load(path.read_text(encoding="utf-8")) for path in SETS.glob("*/set.yaml")}
    assert about["ja-business"]["instruction"] == "次の文書を、要点を3つにまとめて200字程度で要約してください。"
    for name, keys in about.items():
        assert set(keys) == {"language", "system", "instruction", "license"}, name
        assert "CC BY 4.0" in keys["license"] and "LLM" in keys["license"], name
