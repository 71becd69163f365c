"""MGSM: which number a reply answers, in the many ways that models write numbers."""

import pytest

from answer_forms import FORMS
from servebench.tasks import mgsm
from servebench.tasks.mgsm import extract, is_correct, is_damaged, load
from servebench.tasks.task import DataError, Question


def question(gold, question_id="1"):
    return Question(question_id=question_id, text="いくつ？", gold=gold)


@pytest.mark.parametrize(
    ("reply", "extracted"),
    [
        ("答え: 18", "18"),
        ("答え：18", "18"),
        ("16−3−4=9、9×2=18\n答え: 18", "18"),
        # Full width, units, workings in brackets, myriads, kanji numerals: where other harnesses fail.
        ("答え：１８ドル", "18"),
        ("答え: 2，125 円", "2125"),
        ("答え: 18ドル（1日あたり9個×2ドル）", "18"),
        ("答え: 18ドル（16-3-4=9、9×2=18、残り0個=0）", "18"),
        ("答え: 7万ドル", "70000"),
        ("答え: 十八", "18"),
        ("答えは十八ドルです。", "18"),
        ("答え: 七万", "70000"),
        ("答え: 二〇", "20"),
        ("答え: 百二十三", "123"),
        ("答えは18です。以上が解答です。", "18"),
        ("答えは、18ドルです。", "18"),
        ("**答え**: **18**", "18"),
        ("**答え: 18**", "18"),
        ("答え: 9 × 2 = 18ドル", "18"),
        ("答え: x = 18", "18"),
        ("答え: (18)", "18"),
        ("答え: \\( 9 \\times 2 = 18 \\)", "18"),
        ("答え: \\boxed{18}", "18"),
        ("答え: $18$", "18"),
        ("答え: 約18個", "18"),
        ("答え: 18。3日分です。", "18"),
        # Commas and decimals
        ("答え: 2,125", "2125"),
        ("答え: 114,200", "114200"),
        ("答え: 276,000", "276000"),
        ("答え: 5,600", "5600"),
        ("答え: $70,000.00", "70000"),
        ("答え: 1,234,567円", "1234567"),
        ("答え: 2{,}125", "2125"),
        ("答え: 18.00", "18"),
        ("答え: 2.5", "2.5"),
        ("答え: .5", "0.5"),
        ("答え: 18.", "18"),
        ("答え: 0", "0"),
        ("答え: 72です,以上", "72"),
        # Myriads with more attached
        ("答え: 7万5千円", "75000"),
        ("答え: 1億2,000万円", "120000000"),
        ("答え: 2万5000", "25000"),
        ("答え: 1.5万", "15000"),
        ("答え: 7 万ドル", "70000"),
        ("答え: 3百万", "3000000"),
        ("答え: 5千", "5000"),
        # Signs: ASCII, U+2212, full width, en dash, in words; ranges and differences have none
        ("答え: -5", "-5"),
        ("答え: −5", "-5"),
        ("答え: －5", "-5"),
        ("答え: –5", "-5"),
        ("答え: -$5", "-5"),
        ("答え: マイナス5", "-5"),
        ("答えは約-5です", "-5"),
        ("答え: 16–18", "16"),
        ("答え: -0", "0"),
        # The last answer line counts, and only an answer line is one
        ("答え: 9\n見直すと違いました。\n答え: 18", "18"),
        ("答え: 18\nこれが答えです。全部で3つの手順でした。", "18"),
        ("答え: 18\n検算は9×2です。この答えは正しいです。", "18"),
        # The base of a rate, exponents, fractions, near-equality
        ("答え: 1日あたり18ドル", "18"),
        ("答え: 1キロワット時当たり30円", "30"),
        ("答え: 1人につき1,260円", "1260"),
        ("答え: 1人あたり", "1"),
        ("答え: 171cm²", "171"),
        ("答え: 3/4", "0.75"),
        ("答え: −1 / 4", "-0.25"),
        ("答え: \\dfrac{270}{3}", "90"),
        ("答え: 18/0", "18"),
        ("答え: 18ドル/日", "18"),
        ("答え: 1,500−1,140≒360", "360"),
        ("答え: 54 / 3 \\approx 18", "18"),
        # 「答」 alone, as a reply of Gemma 3 270M has it; with more after it the last number is another
        (" 16 × 4 = 64個\n答: 64個\n", "64"),
        ("16-3-4=9\n答：18ドル\n検算: 9×2", "18"),
        ("ゆえに答は18ドルです。3日分です。", "18"),
    ],
)
def test_the_answer_line(reply, extracted):
    found = extract(reply, question("18"))
    assert (found.extracted, found.rule) == (extracted, "answer-line")


@pytest.mark.parametrize(
    ("reply", "extracted", "rule"),
    [
        ("9×2=18 なので \\boxed{18} です。確認: 2×9", "18", "boxed"),
        ("\\boxed{9}、訂正して \\boxed{x = 18}", "18", "boxed"),
        ("\\boxed{18\\text{ドル}}", "18", "boxed"),
        ("\\boxed{\\$70{,}000}", "70000", "boxed"),
        ("\\boxed {２，１２５}", "2125", "boxed"),
        ("\\boxed{18", "18", "last-number"),
        # Written by hand in the manner of Qwen, Gemma and Llama models; none is a model's own.
        ("答え:\n18", "18", "answer-below"),
        ("**答え:**\n\n- 18ドル\n\n検算: 9×2", "18", "answer-below"),
        ("### 最終的な答え\n**18ドル**\n\n検算: 9×2", "18", "answer-below"),
        ("### 答え\n16-3-4=9\n9×2=18", "18", "last-number"),
        ("【答】\n18ドル", "18", "answer-below"),
        ("解答: 16-3-4で9個\n売り上げは18ドル", "18", "last-number"),
        ("## 答え\n\\[\n\\boxed{18}\n\\]", "18", "boxed"),
        ("売り上げは次のとおりです。\n- 18ドル", "18", "last-number"),
        ("残りは 18 cm² です。", "18", "last-number"),
        ("残りは 18 cm^2 です。", "18", "last-number"),
        ("残りは \\(18\\text{ cm}^{2}\\) です。", "18", "last-number"),
        ("残りは 18㎡ です。", "18", "last-number"),
        ("残りは 18 m2 です。", "18", "last-number"),
        ("【答え】18ドル", "18", "last-number"),
        ("Answer: 18", "18", "last-number"),
        ("毎日18ドルです", "18", "last-number"),
        ("18ドルです。,", "18", "last-number"),
        ("全部で10-5", "5", "last-number"),
        ("残りは−5です", "-5", "last-number"),
        ("答えは求められません", None, None),
        ("十八", None, None),
        ("わかりません", None, None),
        ("", None, None),
    ],
)
def test_what_else_is_read_is_marked_as_not_the_format(reply, extracted, rule):
    found = extract(reply, question("18"))
    assert (found.extracted, found.rule) == (extracted, rule)
    assert rule not in mgsm.TASK.strict_rules


@pytest.mark.parametrize(
    ("extracted", "gold", "right"),
    [
        ("2125", "2,125", True),
        ("114200", "114,200", True),
        ("276000", "276,000", True),
        ("5600", "5,600", True),
        ("18", "18", True),
        ("-5", "5", False),
        ("2.5", "25", False),
        ("18.5", "18", False),
        ("7", "70000", False),
    ],
)
def test_comparison_is_of_values(extracted, gold, right):
    assert is_correct(extracted, question(gold)) is right


def test_the_damaged_items_are_those_of_the_published_file_only():
    assert [is_damaged(question(gold, row)) for row, gold in mgsm.DAMAGED.items()] == [True] * 4
    assert not is_damaged(question("101", "78"))
    assert not is_damaged(question("100", "79"))


def test_load_reads_rows_with_quotes_and_commas_as_they_are(tmp_path):
    path = tmp_path / "m.tsv"
    path.write_text('"引用"のある問題\t2,125\r\n次の問題。\t7\n', encoding="utf-8")
    first, second = load(path)
    assert (first.question_id, first.text, first.gold) == ("1", '"引用"のある問題', "2,125")
    assert (second.question_id, second.gold) == ("2", "7")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("問題 18\n", ":1: line: has 0 tabs"),
        ("問題\t1\t2\n", ":1: line: has 2 tabs"),
        ("問題\t1\n問題\t十八\n", ":2: answer: '十八' is not a number"),
        ("問題\t１８\n", ":1: answer: '１８' is not a number"),
        ("問題\t12,34\n", ":1: answer: '12,34' is not a number"),
    ],
)
def test_load_says_where_a_file_is_wrong(tmp_path, content, complaint):
    path = tmp_path / "m.tsv"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=complaint):
        load(path)


def test_the_prompt_ends_with_the_problem():
    assert mgsm.prompt(question("1")).endswith("\n\nいくつ？")
    assert "答え: " in mgsm.prompt(question("1"))


@pytest.mark.parametrize(
    ("reply", "extracted"),
    [
        # A reply corrects itself: the last mark counts, of a line as well.
        ("答え：最初3個あり、2個もらったので、答えは5個です。", "5"),
        ("ステップごとの答え：皿に3枚あり、あとで母が1枚、父が1枚くれた。3+1+1=5。答えは5です。", "5"),
        ("答えは4です。いや、答えは5です。", "5"),
        ("答え: 4\n見直すと、答え: 5", "5"),
        ("答え: 18ドル（前の答えは20）", "18"),
        ("答えを確認します。答え: 12。よって答えは12個になる。", "12"),
        # A mark that states no number answers nothing.
        ("答え: 18\n答えは合っています。2回確認", "18"),
        ("答え: 18\n答えは正しいか、9 × 2 を計算し直した。", "18"),
        ("答えは次のとおりです。18個", "18"),
        # The result of an equation, on either side.
        ("答え: 8 = 5+3", "8"),
        ("答え: 8個 = 5個 + 3個", "8"),
        ("答え: 5 + 3 = 8", "8"),
        ("答え: 10-3=7", "7"),
        # Not the answer: a share's count, what is denied.
        ("答え: 2人で18個", "18"),
        ("答え: 3日で21個です", "21"),
        ("答え: 18分で終わります", "18"),
        ("答え: 5個ではなく8個です", "8"),
        # A Japanese comma between thousands.
        ("答え: 1、234", "1234"),
        ("答え: 1、234、567円", "1234567"),
        ("答え: 18、以上", "18"),
    ],
)
def test_the_number_that_is_stated_counts(reply, extracted):
    assert extract(reply, question("1")).extracted == extracted


GOLDS = ("1", "5", "10", "18", "42", "99", "100", "230", "999", "2,125", "5,600", "114,200", "276,000", "70000", "12.5")


@pytest.mark.parametrize("form", FORMS)
def test_every_gold_is_read_in_every_form(form):
    for gold in GOLDS:
        for written in {gold, gold.replace(",", "")}:
            extracted = extract(form.format(n=written), question(gold)).extracted
            assert extracted is not None and is_correct(extracted, question(gold)), (form, written, extracted)
