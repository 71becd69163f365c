"""From replies to outcomes: reasoning, nulls, truncation, refusals; and the file of scored replies."""

import json

import pytest
from typer.testing import CliRunner

from servebench.cli.verbs import app
from servebench.faults import Fault
from servebench.outlook import questions
from servebench.tasks import TASKS
from servebench.tasks.language import has_english, has_simplified_chinese
from servebench.tasks.scoring import has_reasoning, score, score_replies, without_reasoning
from servebench.tasks.task import OUTCOMES, DataError, Question, Reply

MGSM = Question(question_id="1", text="いくつ？", gold="18")
CHOICE = Question(question_id="1", text="どれ？", choices=("赤", "青", "黄", "緑", "白"), gold="2")
SENTENCE = Question(
    question_id="1",
    text="申し訳ございませんが、そのご要望には対応できまん。",
    gold="申し訳ございませんが、そのご要望には対応できません。",
    category="missing",
)


@pytest.mark.parametrize(
    ("text", "answer", "reasoned"),
    [
        ("答え: 18", "答え: 18", False),
        ("<think>\n\n</think>\n\n答え: 18", "\n\n答え: 18", False),
        ("<think>9×2</think>答え: 18", "答え: 18", True),
        ("9×2だから</think>答え: 18", "答え: 18", True),
        ("<think>答え: 9</think><think>違う</think>答え: 18", "答え: 18", True),
        ("<think>答え: 18", None, True),
        ("<think>", None, False),
        ("<think>a</think>答え: 18<think>でも", None, True),
        ("<THINK>a</ think >答え: 18", "答え: 18", True),
    ],
)
def test_reasoning_is_cut_off(text, answer, reasoned):
    assert without_reasoning(text) == (answer, reasoned)


@pytest.mark.parametrize(
    ("task", "question", "reply", "outcome", "extracted"),
    [
        ("mgsm", MGSM, Reply(text="答え: 18"), "correct", "18"),
        ("mgsm", MGSM, Reply(text="答え: 18", finish_reason="stop"), "correct", "18"),
        ("mgsm", MGSM, Reply(text="答え: 19"), "wrong", "19"),
        ("mgsm", MGSM, Reply(text="<think>9×2</think>答え: 18"), "correct", "18"),
        # Reasoning that was never closed is no answer, whatever stands in it
        ("mgsm", MGSM, Reply(text="<think>答え: 18"), "reasoning_leaked", None),
        ("mgsm", MGSM, Reply(text="<think>答え: 18", finish_reason="length"), "reasoning_leaked", None),
        ("mgsm", MGSM, Reply(text=None, reasoning="答え: 18"), "reasoning_leaked", None),
        ("mgsm", MGSM, Reply(text="", reasoning="答え: 18"), "reasoning_leaked", None),
        ("mgsm", MGSM, Reply(text="<think>答え: 18</think>"), "reasoning_leaked", None),
        ("mgsm", MGSM, Reply(text=None), "empty", None),
        ("mgsm", MGSM, Reply(text=None, reasoning=" "), "empty", None),
        ("mgsm", MGSM, Reply(text="\u3000\n"), "empty", None),
        ("mgsm", MGSM, Reply(text="<think>\n</think>\n"), "empty", None),
        # Cut by the token limit: wrong even if the right number stands there
        ("mgsm", MGSM, Reply(text="答え: 18", finish_reason="length"), "truncated", "18"),
        ("mgsm", MGSM, Reply(text="まず", finish_reason="length"), "truncated", None),
        ("mgsm", MGSM, Reply(text=None, finish_reason="content_filter"), "refused", None),
        ("mgsm", MGSM, Reply(text="申し訳ありませんが、この問題にはお答えできません。"), "refused", None),
        ("mgsm", MGSM, Reply(text="18個の問題には回答できません。"), "refused", "18"),
        ("mgsm", MGSM, Reply(text="I'm sorry, but I can't help with that."), "refused", None),
        ("mgsm", MGSM, Reply(text="確かには回答できませんが\n答え: 18"), "correct", "18"),
        ("mgsm", MGSM, Reply(text="わかりません"), "unparsable", None),
        ("jcommonsenseqa", CHOICE, Reply(text="2"), "correct", "2"),
        ("jcommonsenseqa", CHOICE, Reply(text="黄"), "correct", "2"),
        ("jcommonsenseqa", CHOICE, Reply(text="5"), "unparsable", None),
        ("jcommonsenseqa", CHOICE, Reply(text="2つの理由からお答えできません。"), "refused", None),
        ("proofreading", SENTENCE, Reply(text=SENTENCE.gold), "correct", SENTENCE.gold),
        ("proofreading", SENTENCE, Reply(text=SENTENCE.text), "wrong", SENTENCE.text),
        # A sentence that itself declines something is not taken for a refusal of the model where it is right
        ("proofreading", SENTENCE, Reply(text=SENTENCE.gold + "\n直しました"), "refused", None),
    ],
)
def test_outcomes(task, question, reply, outcome, extracted):
    scored = score(TASKS[task], question, reply)
    assert (scored.outcome, scored.extracted) == (outcome, extracted)
    assert scored.correct is (outcome == "correct")
    assert outcome in OUTCOMES


def test_a_refusing_phrase_of_the_sentence_itself_is_no_refusal():
    question = Question(question_id="1", text="本件には対応できませんん。よろしくお願いします。", gold="…")
    assert (
        score(TASKS["proofreading"], question, Reply(text="本件には対応できません。よろしくお願いします。")).outcome
        == "wrong"
    )


def test_reasoning_replies_are_seen_in_the_content_and_beside_it():
    assert has_reasoning(Reply(text="<think>あ</think>2"))
    assert has_reasoning(Reply(text="2", reasoning="考える"))
    assert not has_reasoning(Reply(text="<think>\n\n</think>2", reasoning=""))
    assert not has_reasoning(Reply(text=None))


@pytest.mark.parametrize(
    ("text", "chinese"),
    [
        ("这是错误的说法。", True),
        ("資料を确認してください。", True),
        ("国会で学習した内容を確認する。髙橋さんと﨑山さん。", False),
        ("カタカナとひらがな、ABC", False),
    ],
)
def test_simplified_chinese_is_what_japan_does_not_write(text, chinese):
    assert has_simplified_chinese(text) is chinese


@pytest.mark.parametrize(
    ("text", "english"),
    [
        ("First we multiply nine by two.", True),
        ("9 \\times 2 = 18 \\text{ドル}", False),
        ("$a \\quad b \\quad c + d + e + f$ です", False),
        ("Wi-Fi と USB-C を使う", False),
        ("Please see the attached file.", False),
    ],
)
def test_english_is_a_sentence_that_the_question_has_not(text, english):
    assert has_english(text, "「Please see the attached file.」を直す") is english


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "m.tsv"
    path.write_text("".join(f"問題{i}\t{i}\n" for i in (1, 2, 3, 4)), encoding="utf-8")
    return path


def written(path, *records):
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), encoding="utf-8")
    return path


def test_scored_replies_are_written_in_their_order(tmp_path, data):
    replies = written(
        tmp_path / "r.jsonl",
        {"question_id": 2, "reply": "答え: 2"},
        {"question_id": "1", "reply": "やはり\u2028答え: 3", "finish_reason": "stop", "latency": 1.5},
        {"question_id": "3", "reply": None},
    )
    totals = score_replies(TASKS["mgsm"], replies, lambda: data, tmp_path / "deep" / "out.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "deep" / "out.jsonl").read_text(encoding="utf-8").splitlines()]
    assert lines == [
        {"question_id": "2", "extracted": "2", "rule": "answer-line", "correct": True, "outcome": "correct"},
        {"question_id": "1", "extracted": "3", "rule": "answer-line", "correct": False, "outcome": "wrong"},
        {"question_id": "3", "extracted": None, "rule": None, "correct": False, "outcome": "empty"},
    ]
    assert str(totals) == (
        "mgsm: 1 of 3 replies correct (33.3 %); 1 of 4 questions have no reply; wrong 1; empty 1; rules answer-line 2"
    )


@pytest.mark.parametrize(
    ("records", "complaint"),
    [
        ([{"reply": "2"}], ":1: question_id: None "),
        ([{"question_id": "1", "reply": "2"}, {"question_id": 9, "reply": "2"}], ":2: question_id: '9' is not among"),
        ([{"question_id": "1", "reply": "2"}] * 2, ":2: question_id: '1' was answered in line 1 already"),
        ([{"question_id": "1"}], ":1: reply: missing"),
        ([{"question_id": "1", "reply": 2}], ":1: reply: 2 is not text"),
        ([{"question_id": "1", "reply": "2", "finish_reason": 1}], ":1: finish_reason: 1 is not text"),
        ([], ": file: holds no reply"),
    ],
)
def test_bad_replies_are_named_and_nothing_is_written(tmp_path, data, records, complaint):
    replies, out = written(tmp_path / "r.jsonl", *records), tmp_path / "out.jsonl"
    with pytest.raises(DataError, match=r"r\.jsonl" + complaint):
        score_replies(TASKS["mgsm"], replies, lambda: data, out)
    assert not out.exists()


def test_the_verb_prints_the_totals(tmp_path, data):
    replies, out = written(tmp_path / "r.jsonl", {"question_id": 2, "reply": "答え: 2"}), tmp_path / "out.jsonl"
    arguments = ["score", "--task", "mgsm", "--replies", str(replies), "--data", str(data), "--out", str(out)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "mgsm: 1 of 1 replies correct (100.0 %)" in result.output
    assert json.loads(out.read_text(encoding="utf-8"))["correct"] is True
    unknown = CliRunner().invoke(app, ["score", "--task", "gsm8k", *arguments[3:]])
    assert isinstance(unknown.exception, Fault)
    assert "--task: 'gsm8k' is unknown" in str(unknown.exception)


def test_nothing_is_fetched_for_replies_that_cannot_be_read(tmp_path, monkeypatch):
    fetched = []
    monkeypatch.setattr(questions, "find", lambda *_, **__: fetched.append(True))
    for name, content in (("nowhere", None), ("empty", ""), ("broken", "{"), ("other", '{"question_id": "1"}')):
        file = tmp_path / f"{name}.jsonl"
        if content is not None:
            file.write_text(content)
        out = tmp_path / "out.jsonl"
        result = CliRunner().invoke(app, ["score", "--task", "mgsm", "--replies", str(file), "--out", str(out)])
        assert isinstance(result.exception, Fault), name
        assert f"{name}.jsonl" in str(result.exception)
    assert not fetched
