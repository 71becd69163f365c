"""Every kind of mark has words in both languages, with all of its values and nothing else in braces."""

import re
import string
from typing import Any

import pytest

from servebench import schema
from servebench.load.records import STATUSES
from servebench.marks import KINDS, Mark, mark
from servebench.store.replies import AskingSession, Counts
from servebench.tables.evaluated import targets
from servebench.tables.watched import SLOWING
from servebench.words import LANGUAGES, labels, marks

# For each value that is not a plain number: an example, and how it reads in English and in Japanese.
EXAMPLES: dict[str, tuple[Any, str, str]] = {
    "statuses": (
        {"http_error": 3, "timeout": 4},
        "HTTP error 3, timed out 4",
        "HTTP エラー 3、時間内に終わらず 4",
    ),
    "throttles": ({"sw_thermal": 2}, "thermal limit of the driver 2", "ドライバーの温度制限 2"),
    "outcomes": ({"truncated": 4, "empty": 3}, "cut off 4, empty 3", "打ち切り 4、空 3"),
    "figure": ("user_tok_s", "Speed of a reply, tok/s", "応答 1 件の速度（トークン/秒）"),
    "devices": (["0-1", "0-2"], "0-1 / 0-2", "0-1 / 0-2"),
    "differs": (
        ["engine_version", "protocol"],
        "the version of the server software / the version of the load protocol",
        "サーバーソフトのバージョン / 測定手順のバージョン",
    ),
    "found": (["1.2", None], "1.2 / –", "1.2 / –"),
    "task": ("proofreading", "Proofreading", "校正"),
    "reason": ("＜理由＞", "＜理由＞", "＜理由＞"),
    "what": ("＜項目＞", "＜項目＞", "＜項目＞"),
    "asked": (True, "true", "true"),
    "got": (None, "–", "–"),
}


def sample(kind: str) -> Mark:
    """Make a mark of this kind in which every number is 7."""
    return mark(kind, **{name: EXAMPLES[name][0] if name in EXAMPLES else 7 for name in KINDS[kind]})


def test_the_kinds_with_words_are_those_that_exist() -> None:
    assert list(labels()["marks"]) == list(KINDS)
    assert set(labels()["named"]) <= {name for names in KINDS.values() for name in names}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("language", LANGUAGES)
def test_the_words_of_a_kind_hold_each_of_its_values(kind: str, language: str) -> None:
    texts = labels()["marks"][kind]
    for text in [form[language] for form in texts.values()] if "fewer" in texts else [texts[language]]:
        assert sorted(name for _, name, _, _ in string.Formatter().parse(text) if name) == sorted(KINDS[kind])


@pytest.mark.parametrize(
    ("tokens", "en", "ja"),
    [(-300.0, "300 tokens fewer", "300 トークン少ない"), (2.0, "2 tokens more", "2 トークン多い")],
)
def test_what_differs_is_said_as_more_or_fewer(tokens: float, en: str, ja: str) -> None:
    said = marks.translated(mark("other_prompt_tokens", tokens=tokens, than="np4"))
    assert en in said["en"] and ja in said["ja"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_mark_is_said_in_both_languages_with_its_values(kind: str) -> None:
    said = marks.translated(sample(kind))
    for name in KINDS[kind]:
        english, japanese = EXAMPLES[name][1:] if name in EXAMPLES else ("7", "7")
        assert english in said["en"] and japanese in said["ja"]
    own = re.sub(r"\b(CPU|HTTP|true)\b|＜\S+?＞", "", said["ja"])
    assert not re.search("[A-Za-z]{2,}", own), "Japanese but for names"
    assert kind == "failed" or re.search("[ぁ-んァ-ヶ一-龠]", own)
    assert not re.search("[ぁ-んァ-ヶ一-龠]", re.sub(r"＜\S+?＞", "", said["en"]))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "failed"])  # a failure is its reason
def test_the_phrase_of_a_kind_has_no_value_of_a_single_mark(kind: str) -> None:
    said = marks.phrase(kind)
    assert set(said) == set(LANGUAGES)
    for language, text in said.items():
        assert text and "{" not in text
        assert marks.translated(sample(kind))[language].startswith(text)


def test_every_name_that_a_value_may_hold_has_words() -> None:
    named = labels()["named"]
    assert set(named["statuses"]) == set(STATUSES) - {"ok", "cancelled"}
    assert set(named["throttles"]) == set(SLOWING)
    assert set(named["outcomes"]) == set(targets.NO_ANSWER)


def test_numbers_read_as_people_write_them() -> None:
    english = [
        marks.translated(said)["en"]
        for said in (
            mark("reasoning_seen", replies=1),
            mark("few_requests", requests=1),
            mark("unstable_rounds", figure="ttft_p95_s", first=1.23456, second=0.5),
            mark("unsteady_window", ratio=2 / 3),
            mark("foreign_use", samples=12, share_percent=5.0),
        )
    ]
    assert english == [
        "replies with reasoning: 1",
        "for reference only: 1 target request",
        "rounds differ by 20 % or more: TTFT p95, s 1.23 → 0.50",
        "unsteady window: output of its second half ÷ output of its first = 0.67",
        "others used the device: 12 samples of 5 % or more",
    ]


def test_all_marks_of_a_row_are_one_line() -> None:
    two = [mark("no_output"), mark("failed", reason="out of memory: 3 GiB")]
    assert marks.told(two, "en") == "no output in the window; out of memory: 3 GiB"
    assert marks.told(two, "ja") == "測定時間に出力なし。out of memory: 3 GiB"
    assert marks.told([], "ja") == "–"
    assert (marks.starred("np4", two), marks.starred("np4", [])) == ("np4 *", "np4")


@pytest.mark.parametrize(
    ("kind", "values"), [("no such kind", {}), ("few_requests", {}), ("few_requests", {"requests": 1, "users": 2})]
)
def test_no_mark_is_of_another_kind_or_has_other_values(kind: str, values: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="is not a mark"):
        Mark(kind, values)


def test_marks_are_equal_by_kind_and_values_in_whatever_order() -> None:
    one = mark("not_as_asked", what="slots", asked=8, got=1)
    assert {one, mark("not_as_asked", got=1, asked=8, what="slots")} == {one}
    assert one != mark("not_as_asked", what="slots", asked=8, got=2)


def test_a_table_holds_kind_and_values_and_gives_the_marks_back() -> None:
    columns = schema.schema("users int!\nmarks marks!")
    rows = [
        {"users": 1, "marks": [mark("few_requests", requests=3), mark("failed", reason='空き「0」; "no"')]},
        {"users": 2, "marks": []},
    ]
    made = schema.table("two", columns, rows)
    assert made["marks"].to_pylist()[0][0] == {"kind": "few_requests", "values": '{"requests": 3}'}
    assert schema.rows(made) == rows


def test_a_table_with_a_mark_of_an_unknown_kind_is_refused_by_name() -> None:
    columns = schema.schema("marks marks!")
    made = schema.table("one", columns, [{"marks": [mark("no_output")]}]).to_pylist()
    made[0]["marks"][0]["kind"] = "of tomorrow"
    with pytest.raises(schema.TableError, match=r"^marks: of tomorrow: .* make the tables again$"):
        schema.rows(schema.pa.Table.from_pylist(made, schema=columns))


@pytest.mark.parametrize(
    ("replies", "failures", "found"),
    [
        (0, 0, []),
        (0, 3, [mark("no_load", requests=3, reason="HTTP 400")]),
        (5, 0, []),
        (5, 3, [mark("load_failed", failures=3, requests=8, reason="HTTP 400")]),
    ],
)
def test_a_load_that_was_answered_has_not_failed_as_a_whole_whatever_was_asked_under_it(
    replies: int, failures: int, found: list[Mark]
) -> None:
    why = "HTTP 400" if failures else None
    loads = [
        None,
        Counts(users=3, replies=replies, failures=failures, failed=why),
        Counts(users=3, replies=0, failures=0),
    ]
    sessions = [AskingSession(session_id=str(n), load=load) for n, load in enumerate(loads)]
    assert list(targets.load_marks(sessions)) == found
