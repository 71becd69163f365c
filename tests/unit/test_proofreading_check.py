"""The checker of the proofreading set finds every kind of broken rule, and our own set has none."""

from dataclasses import replace
from pathlib import Path

import pytest

from servebench.tasks.proofreading import Edit, Sentence, read_sentences
from servebench.tasks.proofreading_check import COUNTS, main, problems

OWN = Path(__file__).parents[2] / "config" / "tasks" / "proofreading" / "sentences.jsonl"
GOOD = Sentence(
    id="a",
    category="same-reading",
    text="ご質問への解答は、明日の午後五時までにお送りいたします。",
    reference="ご質問への回答は、明日の午後五時までにお送りいたします。",
    accepted=(),
    edit=Edit(5, 6, "回"),
)
CLEAN = Sentence(
    id="c",
    category="clean",
    text="本日はお忙しい中お越しいただき、誠にありがとうございました。",
    reference="本日はお忙しい中お越しいただき、誠にありがとうございました。",
    accepted=(),
    edit=None,
)


def complaints(*sentences, counts=None):
    return [f"{key}: {problem}" for _, key, problem in problems(sentences, counts or {})]


def made(category, text, edit):
    reference = text[: edit.start] + edit.replacement + text[edit.end :]
    return Sentence(id="m", category=category, text=text, reference=reference, accepted=(), edit=edit)


def test_our_own_set_keeps_every_rule():
    sentences = read_sentences(OWN)
    assert problems(sentences) == []
    assert len(sentences) == sum(COUNTS.values()) == 300


def test_good_sentences_pass():
    assert complaints(GOOD, CLEAN, counts={"same-reading": 1, "clean": 1}) == []


@pytest.mark.parametrize(
    ("sentence", "complaint"),
    [
        (replace(GOOD, category="typo"), "category: 'typo' is unknown"),
        (replace(GOOD, edit=None), "edit: is null"),
        (replace(GOOD, edit=Edit(6, 7, "回")), "not the reference"),
        (replace(GOOD, edit=Edit(5, 99, "回")), "is not a span"),
        (replace(GOOD, edit=Edit(5, 7, "回答")), "begins or ends alike"),
        (replace(GOOD, text=GOOD.reference), "is itself the reference"),
        (replace(GOOD, accepted=(GOOD.text,)), "text: is itself the reference or accepted"),
        (replace(GOOD, accepted=(GOOD.reference,)), "accepted: repeats the reference"),
        (replace(GOOD, text=GOOD.text + " "), "text: has white space"),
        (replace(GOOD, reference="\u3000" + GOOD.reference), "reference: has white space"),
        (replace(GOOD, reference=GOOD.reference.replace("ご", "こ\u3099")), "reference: is not in Unicode form NFC"),
        (replace(GOOD, text=GOOD.text.replace("、", "、\t")), "text: has a line break, tab"),
        (replace(GOOD, text=GOOD.text.replace("、", "、\u200b")), "text: has a line break, tab or invisible"),
        (replace(CLEAN, text="短い文です。", reference="短い文です。"), "text: has 6 characters"),
        (replace(CLEAN, reference=GOOD.reference), "reference: differs from the text"),
        (replace(CLEAN, accepted=(GOOD.reference,)), "accepted: must be empty"),
        (replace(CLEAN, edit=Edit(0, 0, "")), "edit: must be null"),
        (made("extra", GOOD.text, Edit(0, 4, "")), "longer than 3 characters"),
        (made("missing", GOOD.text, Edit(5, 5, "ああああ")), "longer than 3 characters"),
    ],
)
def test_a_broken_rule_is_named(sentence, complaint):
    assert any(complaint in found for found in complaints(sentence)), complaints(sentence)


@pytest.mark.parametrize(
    ("category", "text", "edit", "fits"),
    [
        ("near-reading", "昨日いただいたメールへの変身が遅れ、申し訳ございません。", Edit(12, 14, "返信"), True),
        ("near-reading", "昨日いただいたメールへのへんが遅れ、申し訳ございません。", Edit(12, 14, "かえ"), False),
        ("missing", "添付の資料を、本日中に必ずご確認くださ。よろしくお願いします。", Edit(19, 19, "い"), True),
        ("missing", "添付の資料を、本日中に必ずご確認くださ。よろしくお願いします。", Edit(19, 20, ""), False),
        ("extra", "会議の資料のを、本日中に必ずご確認ください。よろしくお願いします。", Edit(5, 6, ""), True),
        ("extra", "会議の資料のを、本日中に必ずご確認ください。よろしくお願いします。", Edit(5, 7, ""), False),
        ("extra", "会議の資料をを、本日中に必ずご確認ください。よろしくお願いします。", Edit(6, 7, ""), False),
        ("repeated", "会議の資料をを、本日中に必ずご確認ください。よろしくお願いします。", Edit(6, 7, ""), True),
        ("repeated", "会議の資料のを、本日中に必ずご確認ください。よろしくお願いします。", Edit(5, 6, ""), False),
        ("repeated", "納品が遅れることことが分かりましたので、ご連絡いたします。", Edit(8, 10, ""), True),
        ("substitution", "御者のご都合のよい日時を、本日中にお知らせいただけますか。", Edit(1, 2, "社"), True),
        ("substitution", "御者のご都合のよい日時を、本日中にお知らせいただけますか。", Edit(1, 2, "社様"), False),
        ("transposition", "お手数をおかけしますが、よしろくお願い申し上げます。", Edit(13, 15, "ろし"), True),
        ("transposition", "お手数をおかけしますが、よしろくお願い申し上げます。", Edit(13, 15, "りす"), False),
        ("particle", "午後の打ち合わせは、三階の会議室に行いますのでご参集ください。", Edit(16, 17, "で"), True),
        ("particle", "午後の打ち合わせは、三階の会議室に行いますのでご参集ください。", Edit(15, 16, "館"), False),
        ("agreement", "納期は四月三十一日となりますので、ご承知おきください。", Edit(7, 8, ""), True),
    ],
)
def test_an_edit_is_of_the_kind_its_category_says(category, text, edit, fits):
    sentence = made(category, text, edit)
    wrong = [found for found in complaints(sentence) if found.startswith(("category", "edit"))]
    assert bool(wrong) is not fits, wrong


def test_a_sentence_stands_in_the_set_once():
    assert any("id: 'a' is already" in c for c in complaints(GOOD, replace(CLEAN, id="a")))
    copy = replace(CLEAN, id="d", text=GOOD.reference, reference=GOOD.reference)
    assert any("sentence: " in c and "already in sentence 1" in c for c in complaints(GOOD, copy))


def test_a_confusion_pair_stands_in_three_sentences_at_most_either_way_round():
    def nth(i, wrong, right):
        text = f"第{i}回の打ち合わせでいただいたご質問への{wrong}を、本日お送りします。"
        start = text.index(wrong)
        return replace(made("same-reading", text, Edit(start, start + 1, right)), id=str(i))

    four = [nth(i, *pair) for i, pair in enumerate([("解", "囘"), ("解", "囘"), ("囘", "解"), ("解", "囘")], 1)]
    assert complaints(*four[:3]) == []
    assert complaints(*four) == ["edit: 囘 / 解 occurs more than 3 times; choose another"]


def test_the_counts_are_those_of_the_set():
    assert complaints(GOOD, counts={"same-reading": 2}) == ["category: same-reading occurs 1 times; 2 are wanted"]


def test_the_command_prints_the_problems_and_fails(tmp_path, capsys):
    assert main([str(OWN)]) == 0
    broken = tmp_path / "s.jsonl"
    broken.write_text(OWN.read_text(encoding="utf-8").split("\n", 1)[1], encoding="utf-8")
    assert main([str(broken)]) == 1
    assert "wanted" in capsys.readouterr().err
    assert main([str(tmp_path / "absent")]) == 1
    assert main([]) == 2
