"""What holds for every text: edits rebuild their target, extraction reads back what was written."""

import unicodedata
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from servebench.tasks import TASKS, mgsm, proofreading
from servebench.tasks.edits import character_edits, distance
from servebench.tasks.scoring import score
from servebench.tasks.task import OUTCOMES, Question, Reply

SHORT = st.text(alphabet="あいうを資料", max_size=12)
FULL_WIDTH = str.maketrans("0123456789,.-", "０１２３４５６７８９，．－")
QUESTION = Question(question_id="1", text="会議の資料を送ります。", gold="0", choices=("甲", "乙", "丙", "丁", "戊"))


def apply(source, edits):
    deleted = {place for kind, place, _ in edits if kind == "delete"}
    replaced = {place: text for kind, place, text in edits if kind == "replace"}
    inserted: dict[int, str] = {}
    for kind, place, text in edits:
        if kind == "insert":
            inserted[place] = inserted.get(place, "") + text
    kept = (inserted.get(i, "") + ("" if i in deleted else replaced.get(i, c)) for i, c in enumerate(source))
    return "".join(kept) + inserted.get(len(source), "")


def slow_distance(source, target):
    if not source or not target:
        return len(source) + len(target)
    if source[0] == target[0]:
        return slow_distance(source[1:], target[1:])
    return 1 + min(
        slow_distance(source[1:], target),
        slow_distance(source, target[1:]),
        slow_distance(source[1:], target[1:]),
    )


@given(SHORT, SHORT)
def test_edits_make_the_target_of_the_source(source, target):
    assert apply(source, character_edits(source, target)) == target


@given(st.text(alphabet="あいを", max_size=6), st.text(alphabet="あいを", max_size=6))
def test_edits_are_as_few_as_can_be(source, target):
    assert distance(character_edits(source, target)) == slow_distance(source, target)


@given(st.integers(-(10**12), 10**12), st.booleans(), st.booleans(), st.sampled_from(["", "円", " 個", "ドルです。"]))
def test_a_number_is_read_back_however_it_is_written(value, commas, wide, unit):
    written = f"{value:,}" if commas else str(value)
    reply = f"答え: {written.translate(FULL_WIDTH) if wide else written}{unit}"
    found = mgsm.extract(reply, QUESTION)
    assert (found.extracted, found.rule) == (str(value), "answer-line")


@given(st.decimals(min_value=0, max_value=10**6, places=3, allow_nan=False))
def test_decimals_are_compared_by_value(value):
    found = mgsm.extract(f"答え: {value}", QUESTION)
    assert Decimal(found.extracted or "") == value


@given(st.integers(1, 9999), st.integers(0, 9999))
def test_myriads(high, low):
    assert mgsm.extract(f"答え: {high}万{low or ''}円", QUESTION).extracted == str(10_000 * high + low)


@given(
    st.sampled_from(list(TASKS)),
    st.one_of(
        st.none(), st.text(max_size=60), st.text(alphabet="答え:は=()0123456789,.-万億\\boxed{}<think/>\n", max_size=40)
    ),
    st.sampled_from([None, "stop", "length", "content_filter"]),
)
def test_any_reply_whatever_has_an_outcome(task, text, finish_reason):
    scored = score(TASKS[task], QUESTION, Reply(text=text, finish_reason=finish_reason))
    assert scored.outcome in OUTCOMES
    assert (scored.extracted is None) == (scored.rule is None)
    if scored.correct:
        assert scored.extracted is not None
        assert TASKS[task].is_correct(scored.extracted, QUESTION)


@given(st.text(alphabet="ABc１２，？㈱…①会議の資料、。 ", min_size=1, max_size=30))
def test_strict_normalisation_folds_no_width(text):
    question = Question(question_id="1", text=f"文{text}文", gold=f"文{text}文")
    folded = unicodedata.normalize("NFKC", question.text)
    found = proofreading.extract(folded, question)
    assert (found.extracted is not None and proofreading.is_correct(found.extracted, question)) == (
        folded == question.text
    )
