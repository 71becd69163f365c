"""JCommonsenseQA: what is read from a reply, and by which rule."""

import json

import pytest

from servebench.tasks.jcommonsenseqa import CHOICES, extract, load, prompt
from servebench.tasks.task import DataError, Question

QUESTION = Question(
    question_id="9010",
    text=" 立体を出力する機械はどれ？",
    choices=("信号機", "大人", "3Dプリンター", "天津飯", "教室 "),
    gold="2",
)
NUMBERS = Question(question_id="1", text="小銭はどれ？", choices=("ビル", "スプーン", "1円玉", "鉄", "鉛"), gold="2")


@pytest.mark.parametrize(
    ("reply", "extracted", "rule"),
    [
        ("2", "2", "index"),
        (" 2\n", "2", "index"),
        ("２", "2", "index"),
        ("「2」", "2", "index"),
        ("（2）。", "2", "index"),
        ("2.", "2", "index"),
        ("2：", "2", "index"),
        ("2. 3Dプリンター", "2", "index-first"),
        ("2.3Dプリンター", "2", "index-first"),
        ("4．教室", "4", "index-first"),
        ("2：3Dプリンター", "2", "index-first"),
        ("0 信号機", "0", "index-first"),
        ("3Dプリンター", "2", "choice"),
        ("３Ｄプリンター", "2", "choice"),
        ("教室", "4", "choice"),
        ("2番です。", "2", "index-within"),
        ("答えは2です。", "2", "index-marked"),
        ("正解は「2」（3Dプリンター）です。", "2", "index-marked"),
        ("答え: 1、やはり答えは2", "2", "index-marked"),
        ("5", None, None),
        ("10", None, None),
        ("12", None, None),
        ("2と3のどちらか", None, None),
        ("プリンター", None, None),
        ("わかりません", None, None),
    ],
)
def test_extraction(reply, extracted, rule):
    found = extract(reply, QUESTION)
    assert (found.extracted, found.rule) == (extracted, rule)


# Written by hand in the manner of Qwen, Gemma and Llama models; none is a model's own.
@pytest.mark.parametrize(
    ("reply", "extracted", "rule"),
    [
        ("**2**", "2", "index"),
        ("【2】", "2", "index"),
        ("**2. 3Dプリンター**", "2", "index-first"),
        ("2. 3Dプリンター\n\n立体物を作れる機械です。", "2", "index-first"),
        ("2\n\n立体物を作れる機械は3Dプリンターです。", "2", "index-first"),
        ("0信号機", "0", "index-first"),
        ("3Dプリンターです。", "2", "choice"),
        ("「3Dプリンター」", "2", "choice"),
        ("答えは**3Dプリンター**です。", "2", "choice"),
        ("答え：2\n\n理由：0の信号機や1の大人は機械ではありません。", "2", "index-marked"),
        ("2つの立体を比べました。1つ目は信号機です。正解は選択肢4です。", "4", "index-marked"),
        ("0. 信号機\n1. 大人\n2. 3Dプリンター\n\n答え：2", "2", "index-marked"),
        ("The correct answer is 2. 3Dプリンター", "2", "index-marked"),
        ("\\boxed{2}", "2", "index-marked"),
        ("答えは2.3Dプリンターです", "2", "index-marked"),
        ("答えは0ではなく2です。", "2", "index-within"),
        ("6番目ではなく2が正解です", "2", "index-within"),
        ("2ではないでしょうか", "2", "index-within"),
        # A count is no index, nor is the first of several
        ("この中から1つ選ぶなら、立体を作る機械です。", None, None),
        ("2 つの機械があります。", None, None),
        ("2人で使う機械です。", None, None),
        ("3か月かかります。", None, None),
        ("2番目に大きい機械です。", None, None),
        ("0.5倍です。", None, None),
        ("0ではありません。", None, None),
        ("答えは2か3です。", None, None),
        ("答えは「2」または「3」です。", None, None),
        ("0. 信号機\n1. 大人\n2. 3Dプリンター", None, None),
        # A choice that is only spoken of is not looked for: it may be one that is ruled out
        ("立体物を作れるのは3Dプリンターという機械です。", None, None),
    ],
)
def test_replies_as_chat_models_write_them(reply, extracted, rule):
    found = extract(reply, QUESTION)
    assert (found.extracted, found.rule) == (extracted, rule)


# Gemma 3 270M writes 「1. 」 before whichever choice it means (the first three forms; the choices are ours).
@pytest.mark.parametrize(
    ("reply", "extracted"),
    [
        (" 1. 信号機\n", None),
        (" 1. 大人\n", "1"),
        (" 1. 立体を出力する機械は大人です。\n", "1"),
        ("1信号機", None),
        ("1\n\n信号機です。", None),
        ("3. 3Dプリンター", None),
        ("答え: 1. 「信号機」", None),
        ("答え: 2番の信号機です。", None),
        ("正解は4（3Dプリンター）です。", None),
        ("正解は2（3Dプリンター）です。", "2"),
        ("1番の「信号機」です。", None),
        ("2. 信号機は立体を出力しないので、機械はこれです。", "2"),
        ("1. 信号機\n答え: 2", "2"),
    ],
)
def test_an_index_before_the_text_of_another_choice_is_no_answer(reply, extracted):
    assert extract(reply, QUESTION).extracted == extracted


@pytest.mark.parametrize(
    ("reply", "extracted"),
    [
        ("1円玉", "2"),
        ("答え: 4. 1円玉", None),
        ("答えは1円玉です。", "2"),
        ("正解は4（1円玉ではない）です。", "4"),
        ("1円玉が最も小さい硬貨です。", None),
        ("1", "1"),
    ],
)
def test_a_digit_in_the_text_of_a_choice_is_no_index(reply, extracted):
    assert extract(reply, NUMBERS).extracted == extracted


def test_a_text_that_two_choices_share_is_no_answer():
    twice = Question(question_id="1", text="?", choices=("赤", "青", "赤", "緑", "黄"), gold="0")
    assert extract("赤", twice).extracted is None
    assert extract("青", twice).extracted == "1"


def test_the_prompt_has_the_question_and_its_numbered_choices_without_outer_spaces():
    text = prompt(QUESTION)
    assert "質問: 立体を出力する機械はどれ？\n" in text
    assert text.endswith("0. 信号機\n1. 大人\n2. 3Dプリンター\n3. 天津飯\n4. 教室")


def _record(**changes):
    choices = {f"choice{i}": f"選択肢{i}" for i in range(CHOICES)}
    return {"q_id": 7, "question": "どれ？", **choices, "label": 3, **changes}


def test_load_reads_the_published_format(tmp_path):
    path = tmp_path / "q.json"
    path.write_text("".join(json.dumps(_record(q_id=i), ensure_ascii=False) + "\n" for i in (7, 8)), encoding="utf-8")
    first, second = load(path)
    assert (first.question_id, first.gold, first.choices[4]) == ("7", "3", "選択肢4")
    assert second.question_id == "8"


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        (["{"], ":1: line: is not JSON"),
        (["[]"], ":1: line: is a list"),
        ([json.dumps(_record(label=5))], ":1: label: 5 "),
        ([json.dumps(_record(label=True))], ":1: label: True is not of type int"),
        ([json.dumps(_record()), json.dumps(_record())], ":2: question_id: '7' occurs twice"),
        ([json.dumps({k: v for k, v in _record().items() if k != "choice3"})], ":1: choice3: missing"),
        ([], "holds no question"),
    ],
)
def test_load_says_where_a_file_is_wrong(tmp_path, lines, complaint):
    path = tmp_path / "q.json"
    path.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(DataError, match=f"{path}.*{complaint}"):
        load(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"absent\.json: file: does not exist"):
        load(tmp_path / "absent.json")


@pytest.mark.parametrize(
    ("reply", "extracted"),
    [
        ("2.0", "2"),
        ("3.", "3"),
        ("-1", None),
        ("−1", None),
        ("答え: -1", None),
        ("1.5", None),
        ("- 1", "1"),
        ("0-4", None),
    ],
)
def test_a_digit_inside_another_number_is_no_index(reply, extracted):
    question = Question(question_id="1", text="", gold="0", choices=("犬", "猫", "鳥", "魚", "馬"))
    assert extract(reply, question).extracted == extracted
