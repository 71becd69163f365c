"""Proofreading: exactly right or not, and what else happened to a sentence."""

import json

import pytest

from servebench.tasks.edits import character_edits, distance
from servebench.tasks.proofreading import (
    EditCounts,
    compare,
    extract,
    f_beta,
    is_correct,
    lenient,
    load,
    prompt,
    read_sentences,
    touches_form_only,
)
from servebench.tasks.task import DataError, Question

DOUBLED = Question(
    question_id="e1",
    text="来週の会議で使う資料をを、本日中に御社へお送りいたします。",
    gold="来週の会議で使う資料を、本日中に御社へお送りいたします。",
    accepted=("来週の会議で使う資料は、本日中に御社へお送りいたします。",),
    category="repeated",
)
CLEAN = Question(
    question_id="c1",
    text="型番ＡＢ-12（③）の㈱表記は、そのまま〜で結構です。",
    gold="型番ＡＢ-12（③）の㈱表記は、そのまま〜で結構です。",
    category="clean-hard",
)


def right(reply, question):
    found = extract(reply, question)
    return found.extracted is not None and is_correct(found.extracted, question)


@pytest.mark.parametrize(
    "around", ["{}", " {}\n", "\u3000{}\u3000", "\ufeff{}", "{}\r\n", "\n\n{}\n", " \ufeff {} \ufeff"]
)
def test_outer_white_space_is_no_difference(around):
    assert right(around.format(DOUBLED.gold), DOUBLED)


def test_the_reply_is_composed_but_not_folded():
    decomposed = "ご確認ください。この資料は本日中にお送りいたします。"
    question = Question(question_id="x", text="ご確認くださ。" + decomposed[8:], gold=decomposed)
    assert right(decomposed.replace("ご", "こ\u3099").replace("だ", "た\u3099"), question)
    for changed in (CLEAN.gold.replace("ＡＢ", "AB"), CLEAN.gold.replace("③", "3"), CLEAN.gold.replace("㈱", "(株)")):
        assert not right(changed, CLEAN)


def test_an_accepted_alternative_is_right_and_inner_spaces_are_not_dropped():
    assert right(DOUBLED.accepted[0], DOUBLED)
    assert not right(DOUBLED.gold.replace("、", "、 "), DOUBLED)
    assert not right(DOUBLED.text, DOUBLED)


@pytest.mark.parametrize(
    "reply",
    [
        DOUBLED.gold + "\n「をを」を「を」に直しました。",
        "",
        "申し訳ありませんが、この文の訂正はお手伝いできません。別の文をお送りいただけますでしょうか。",
        "誤りはありません。",
    ],
)
def test_lines_and_explanations_are_no_sentence(reply):
    assert extract(reply, DOUBLED).extracted is None


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        (DOUBLED.gold, (True, False)),
        (f"「{DOUBLED.gold}」", (True, True)),
        (f"『{DOUBLED.gold}』", (True, True)),
        (f"修正文：{DOUBLED.gold}", (True, True)),
        (f"訂正後: {DOUBLED.gold}", (True, True)),
        (f"訂正後：「{DOUBLED.gold}」", (True, True)),
        (f"{DOUBLED.gold}\n以上です。", (True, True)),
        # Written by hand in the manner of Qwen, Gemma and Llama models; none is a model's own.
        (f"訂正後の文：\n{DOUBLED.gold}", (True, True)),
        (f"**訂正後の文：**\n\n「{DOUBLED.gold}」", (True, True)),
        (f"訂正後：**{DOUBLED.gold}**", (True, True)),
        (f"修正された文：{DOUBLED.gold}", (True, True)),
        (f"正しい文: {DOUBLED.gold}", (True, True)),
        (f"**{DOUBLED.gold}**", (True, True)),
        (f"```\n{DOUBLED.gold}\n```", (True, True)),
        (f"`{DOUBLED.gold}`", (True, True)),
        (f"> {DOUBLED.gold}", (True, True)),
        (f"{DOUBLED.gold}\n\n（修正箇所：「をを」→「を」）", (True, True)),
        (f"誤りがありました。\n{DOUBLED.gold}", (False, True)),
        (DOUBLED.gold.replace("資料を", "**資料を**"), (False, False)),
        (f"{DOUBLED.gold}（誤りはもうありません）", (False, False)),
        (DOUBLED.text, (False, False)),
        (f"「{DOUBLED.text}」", (False, True)),
    ],
)
def test_leniency_forgives_form_and_says_so(reply, verdict):
    assert lenient(reply, DOUBLED) == verdict


def test_leniency_takes_no_quotation_marks_that_the_input_had():
    quoted = Question(question_id="q", text="「はい」と「いいえ」", gold="「はい」と「いいえ」", category="clean")
    assert lenient("「はい」と「いいえ」", quoted) == (True, False)
    assert lenient(CLEAN.gold.replace("ＡＢ", "AB"), CLEAN) == (True, False)


@pytest.mark.parametrize(
    ("extracted", "split", "counts"),
    [
        (DOUBLED.gold, "exact", EditCounts(1, 1, 1)),
        (DOUBLED.accepted[0], "exact", EditCounts(2, 2, 2)),
        ("次週の会議で使う資料を、本日中に御社へお送りいたします。", "fixed_with_extra_edits", EditCounts(2, 1, 1)),
        ("来週の会議で使う資料を、本日中に御社へお送りします。", "fixed_with_extra_edits", EditCounts(3, 1, 1)),
        (DOUBLED.text, "unchanged", EditCounts(0, 1, 0)),
        ("来週の会議で使う資料をを、今日中に御社へお送りいたします。", "other_edit", EditCounts(1, 1, 0)),
        (None, "unparsable", None),
    ],
)
def test_five_things_that_may_become_of_an_error(extracted, split, counts):
    assert compare(extracted, DOUBLED) == (split, counts)


def test_a_clean_sentence_is_left_alone_or_not():
    assert compare(CLEAN.text, CLEAN) == ("exact", EditCounts(0, 0, 0))
    assert compare(CLEAN.text.replace("そのまま", "このまま"), CLEAN) == ("other_edit", EditCounts(1, 0, 0))
    assert touches_form_only(CLEAN.text.replace("ＡＢ", "AB").replace("〜", "～"), CLEAN)
    assert not touches_form_only(CLEAN.text.replace("結構", "けっこう"), CLEAN)
    assert not touches_form_only(CLEAN.text, CLEAN)


@pytest.mark.parametrize(
    ("counts", "figures"),
    [
        (EditCounts(4, 2, 2), (0.5, 1.0, 1.25 * 2 / (4 + 0.25 * 2))),
        (EditCounts(3, 3, 3), (1.0, 1.0, 1.0)),
        (EditCounts(0, 2, 0), (None, 0.0, 0.0)),
        (EditCounts(0, 0, 0), (None, None, None)),
    ],
)
def test_precision_recall_and_f05(counts, figures):
    assert f_beta(counts) == figures


@pytest.mark.parametrize(
    ("source", "target", "edits"),
    [
        ("解答", "回答", [("replace", 0, "回")]),
        ("資料をを確認", "資料を確認", [("delete", 2, "")]),
        ("本資料をを確認", "資料を確認", [("delete", 0, ""), ("delete", 3, "")]),
        ("くださ", "ください", [("insert", 3, "い")]),
        ("よしろく", "よろしく", [("replace", 1, "ろ"), ("replace", 2, "し")]),
        ("ことことが", "ことが", [("delete", 0, ""), ("delete", 1, "")]),
        ("同じ", "同じ", []),
    ],
)
def test_character_edits(source, target, edits):
    assert character_edits(source, target) == edits


def test_distance_counts_each_character_of_an_insertion():
    assert distance(character_edits("お送りします", "お送りいたします")) == 2
    assert distance(character_edits("kitten", "sitting")) == 3


def _record(**changes):
    fields = {"id": "a", "category": "clean", "text": "文", "reference": "文", "accepted": [], "edit": None}
    return {**fields, **changes}


def test_load_and_prompt(tmp_path):
    path = tmp_path / "s.jsonl"
    edit = {"start": 1, "end": 2, "replacement": ""}
    record = _record(category="extra", text="文あ", edit=edit, accepted=["文章"])
    path.write_text(json.dumps(record, ensure_ascii=False) + "\n", encoding="utf-8")
    (question,) = load(path)
    assert (question.text, question.gold, question.accepted, question.category) == ("文あ", "文", ("文章",), "extra")
    assert prompt(question).endswith("\n\n文あ")


@pytest.mark.parametrize(
    ("record", "complaint"),
    [
        (_record(text=1), ":1: text: 1 is not of type str"),
        (_record(accepted="文"), ":1: accepted: '文' is not of type list"),
        (_record(accepted=[1]), ":1: accepted: .* is not a list of sentences"),
        (_record(note="x"), ":1: note: "),
        ({k: v for k, v in _record().items() if k != "edit"}, ":1: edit: missing"),
        (_record(edit={"start": 0, "end": 1}), ":1: replacement: missing"),
    ],
)
def test_a_sentence_of_another_form_is_named(tmp_path, record, complaint):
    path = tmp_path / "s.jsonl"
    path.write_text(json.dumps(record, ensure_ascii=False), encoding="utf-8")
    with pytest.raises(DataError, match=complaint):
        read_sentences(path)
