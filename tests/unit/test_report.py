"""What the page claims, against data made to tempt it to claim more."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pytest

import synthetic
from servebench import report, tables
from servebench.charts.style import LANGUAGES, labels, words
from servebench.report import answer, content, questions

CELL = {
    "run": "main",
    "output_tok_s_min": 100.0,
    "output_tok_s_max": 104.0,
    "user_tok_s_min": 30.0,
    "user_tok_s_max": 31.0,
    "ttft_p50_s_min": 0.1,
    "ttft_p50_s_max": 0.1,
    "ttft_p95_s_min": 0.2,
    "ttft_p95_s_max": 0.2,
    "target_requests_min": 60,
    "target_requests_max": 60,
}


def made(*cells: dict[str, Any]) -> tuple[dict[str, pa.Table], Any]:
    rows = [CELL | cell for cell in cells]
    plan = synthetic.plan_of(rows)
    return tables.make(list(synthetic.records_of(rows, plan)), [], plan), plan


def keys(said: list[answer.Sentence]) -> list[str]:
    return [sentence.key.removeprefix("answer.") for sentence in said]


def test_ranges_that_overlap_are_not_told_apart() -> None:
    near = {"setting": "llama-np4", "users": 4, "output_tok_s_min": 102.0, "output_tok_s_max": 107.0}
    said = answer.answer(*made({"setting": "llama-np16", "users": 4}, near), "main")
    assert keys(said)[:2] == ["output", "not_separated"]
    assert said[0].values["setting"] == "llama-np4"
    assert "llama-np16" in said[1].values["settings"]
    assert "next" not in keys(said)[:2]


def test_what_reads_the_same_is_not_told_apart() -> None:
    one, other = ({"output_tok_s_min": v, "output_tok_s_max": v} for v in (200.9, 201.2))
    assert answer.overlap(one, other, "output_tok_s")
    assert not answer.overlap(one, {"output_tok_s_min": 201.6, "output_tok_s_max": 203.0}, "output_tok_s")


def test_ranges_apart_are_told_in_order() -> None:
    far = {"setting": "llama-np4", "users": 4, "output_tok_s_min": 202.0, "output_tok_s_max": 207.0}
    said = answer.answer(*made({"setting": "llama-np16", "users": 4}, far), "main")
    assert keys(said)[:2] == ["output", "next"]
    assert said[1].values["setting"] == "llama-np16"


def test_other_weights_are_told() -> None:
    far = {"setting": "vllm-bf16", "users": 4, "output_tok_s_min": 202.0, "output_tok_s_max": 207.0}
    said = answer.answer(*made({"setting": "llama-np16", "users": 4}, far), "main")
    assert said[2] == answer.Sentence("answer.weights", {"first": "BF16", "others": "Q4_K_M"})


def test_a_gap_below_the_most_users_is_told() -> None:
    slow = {"ttft_p50_s_max": 3.0, "ttft_p95_s_max": 3.2}
    cells = [{"setting": "llama-np16", "users": 2} | slow, {"setting": "llama-np16", "users": 8}]
    said = answer.answer(*made(*cells), "main")
    line = next(s for s in said if s.key == "answer.line")
    assert (line.values["users"], line.values["met"], line.values["judged"]) == (8, 1, 2)
    assert answer.Sentence("answer.gaps", {"settings": "llama-np16"}) in said


def test_nothing_met_and_nothing_measured() -> None:
    slow = {"setting": "llama-np16", "users": 2, "ttft_p50_s_max": 3.0, "ttft_p95_s_max": 3.2}
    said = answer.answer(*made(slow), "main")
    assert "line_nowhere" in keys(said)
    assert answer.cards(*made(slow), "main") == []
    content_of, plan = made(slow)
    empty = {name: table.slice(0, 0) for name, table in content_of.items()}
    assert keys(answer.answer(empty, plan, "main")) == ["nothing"]
    assert "Nothing is measured yet" in report.page(empty, plan)


def test_a_card_says_where_the_candidate_does_not_fit() -> None:
    queued = {"setting": "llama-np16", "users": 32, "ttft_p50_s_max": 6.0, "ttft_p95_s_max": 6.8}
    cards = answer.cards(*made({"setting": "llama-np16", "users": 16}, queued), "main")
    assert [(card.use, card.users, card.candidates) for card in cards] == [("some", 16, ["llama-np16"])]
    assert [(s.key, s.values["users"]) for s in cards[0].limits] == [("card.ttft", 32)]
    alone = answer.cards(*made({"setting": "llama-np16", "users": 16}), "main")
    assert [s.key for s in alone[0].limits] == ["card.not_beyond"]


def asked(tables_: dict[str, pa.Table], plan: Any) -> dict[str, list[answer.Sentence]]:
    return {question.key: list(question.answer) for question in questions.questions(tables_, plan)}


def said(sentences: list[answer.Sentence]) -> list[str]:
    return [sentence.key.removeprefix("question.") for sentence in sentences]


def test_one_round_tells_nothing_apart() -> None:
    far = {"setting": "llama-np4", "users": 1, "output_tok_s_min": 202.0, "output_tok_s_max": 207.0}
    rows = [CELL | {"setting": "llama-np16", "users": 1}, CELL | far]
    plan = synthetic.plan_of(rows)
    first = [record for record in synthetic.records_of(rows, plan) if record.identity["round"] == 1]
    made_of = tables.make(first, [], plan)
    assert keys(answer.answer(made_of, plan, "main"))[:2] == ["output", "one_round"]
    assert "slots" in asked(made_of, plan)
    assert said(asked(made_of, plan)["slots"]) == ["changed_same"]
    assert said(asked(made_of, plan)["alone"]) == ["alone", "alone_close"]


def test_more_slots_are_only_told_apart_where_ranges_are() -> None:
    for low, high, key in ((202.0, 207.0, "higher"), (50.0, 52.0, "lower"), (103.0, 120.0, "same")):
        more = {"setting": "llama-np16", "users": 4, "output_tok_s_min": low, "output_tok_s_max": high}
        (sentence,) = asked(*made({"setting": "llama-np4", "users": 4}, more))["slots"]
        assert sentence.key == f"question.changed_{key}"
        assert sentence.values["setting"] == "llama-np16 (16)"
        assert [id_ for id_, _ in sentence.rows] == ["row-main-llama-np16-4", "row-main-llama-np4-4"]


def test_how_many_people_is_never_more_than_was_measured() -> None:
    slow = {"ttft_p50_s_max": 3.0, "ttft_p95_s_max": 3.2}
    cells = [{"setting": "llama-np16", "users": 4}, {"setting": "llama-np16", "users": 8} | slow]
    people = asked(*made(*cells))["people"]
    assert said(people) == ["people", "no_pause"]
    assert people[0].values["users"] == 4
    assert said(asked(*made(cells[0]))["people"]) == ["people", "people_more", "no_pause"]
    assert said(asked(*made(cells[1]))["people"]) == ["people_none", "no_pause"]


def test_what_was_not_measured_is_no_answer() -> None:
    found = asked(*made({"setting": "llama-np16", "users": 4}))
    assert said(found["alone"]) == ["alone_not"]
    assert said(found["answers"]) == ["answers_not"]
    assert "slots" not in found and "queue" not in found
    assert said(found["missing"]) == ["missing"]
    assert found["missing"][0].values == {"wanted": 2, "there": 2, "failed": 0, "absent": 0}


def test_no_difference_found_is_not_called_no_difference() -> None:
    made_of, plan = made({"setting": "llama-np16", "users": 4})
    row: dict[str, Any] = dict.fromkeys(tables.SCHEMAS["comparisons"].names, 0)
    row |= {"measure": "mgsm", "target": "q4", "baseline": "bf16", "verdict": "none_detected", "equivalent": None}
    row |= {"low": -2.5, "high": 4.0, "n": 250}
    other = row | {"target": "q2", "verdict": "difference", "difference": -9.6, "low": -14.0, "high": -5.0}
    made_of["comparisons"] = tables.table("comparisons", [row, other])
    differ, none = asked(made_of, plan)["answers"]
    assert (differ.key, differ.values["target"], differ.values["difference"]) == (
        "question.answers_differ",
        "q2",
        "-9.6",
    )
    assert none.key == "question.answers_none"
    assert (none.values["low"], none.values["high"], none.values["count"]) == ("-2.5", "+4.0", 1)
    assert "not the same as none" in report.sentence(none)


def test_every_sentence_has_its_values_and_every_row_link_its_row() -> None:
    cells = synthetic.quickstart_cells()
    plan = synthetic.plan_of(cells, "quickstart")
    made_of = tables.make(list(synthetic.records_of(cells, plan, 10)), [], plan)
    found = asked(made_of, plan)
    assert list(found) == ["people", "alone", "slots", "speed", "queue", "answers", "memory", "sure", "missing"]
    page = report.page(made_of, plan)
    links = re.findall(r'<a class="row" href="#([^"]+)"', page)
    assert len(links) > 8
    assert set(links) <= set(re.findall(r'<tr id="([^"]+)"', page))


def test_no_sentence_states_a_cause() -> None:
    causes = {
        "en": r"\b(because|caused|due to|thanks to|owing to)\b",
        "ja": r"(原因は.{0,12}である|のせいで|のおかげで)",
    }
    for section in ("answer", "card", "cards", "question", "compare"):
        for key, texts in labels()["page"][section].items():
            for language in LANGUAGES:
                assert not re.search(causes[language], texts[language]), f"{section}.{key}"


def test_what_failed_and_what_is_missing_is_listed_with_its_reason() -> None:
    cells = [CELL | {"setting": "llama-np16", "users": users} for users in (4, 8)]
    plan = synthetic.plan_of(cells)
    records = list(synthetic.records_of(cells, plan))
    records = [records[0], synthetic.failed(records[1], "CUDA <out of memory>"), records[2]]
    made_of = tables.make(records, [], plan)
    gaps = content.missing(made_of, plan)
    assert [(g["users"], g["round"], g["reason"]) for g in gaps] == [(4, 2, "CUDA <out of memory>"), (8, 2, None)]
    page = report.page(made_of, plan)
    assert "CUDA &lt;out of memory&gt;" in page
    assert "CUDA <out of memory>" not in page


def test_facts_that_are_not_as_published_stand_beside_the_published() -> None:
    content_of, plan = made({"setting": "llama-np16", "users": 4})
    facts = [("n_ctx_slot", "4096", "4096", True), ("threads", "96", "8", False), ("build", "3b4d6ab3f", None, None)]
    row = {"run": "main", "setting": "llama-np16", "session_id": "s"}
    names = ("what", "published", "found", "met")
    rows = [row | {"round": n} | dict(zip(names, fact, strict=True)) for n in (1, 2) for fact in facts]
    content_of["expected"] = tables.table("expected", rows)
    found = content.expected(content_of)
    assert (found["met"], found["facts"]) == (2, 6)
    assert [(r["what"], r["published"], r["found"]) for r in found["others"]] == [
        ("threads", "96", "8"),
        ("build", "3b4d6ab3f", None),
    ]
    page = report.page(content_of, plan)
    assert "2 of 6 facts are as published" in page
    assert page.count("the server does not tell") == 1
    content_of["expected"] = tables.table("expected", [])
    assert "facts are as published" not in report.page(content_of, plan)


def test_the_table_of_the_line_tells_four_states_apart() -> None:
    cells = [CELL | {"setting": "llama-np16", "users": u} for u in (4, 8, 16)]
    plan = synthetic.plan_of([*cells, CELL | {"setting": "llama-np4", "users": 2}])
    records = list(synthetic.records_of(cells[:2], plan))
    records[2:] = [synthetic.failed(record, "no") for record in records[2:]]
    matrix = content.matrix(tables.make(records, [], plan), plan, "main")
    assert matrix["users"] == [2, 4, 8, 16]
    states = [cell and cell["state"] for cell in matrix["rows"][0]["cells"]]
    assert states == [None, "measured", "failed", "missing"]


def test_every_mark_that_can_be_made_is_translated() -> None:
    source = "".join(
        path.read_text(encoding="utf-8")
        for name in ("figures.py", "tables/derived.py", "tables/measured.py")
        for path in [synthetic.ROOT / "scripts" / "servebench" / name]
    )
    said = re.findall(r'(?:append|yield|found\.append)\(?\s*f?"([a-z][a-z ]+)(?::|")', source)
    kinds = {kind for kind in said if " " in kind}
    assert len(kinds) >= 8
    for kind in kinds:
        assert words(f"marks.{kind}")
    assert "2 巡で 2 割以上違う: 1 人あたり 2" in report.mark("unstable pair: user_tok_s 2")
    assert report.mark("never heard of: <x>") == "never heard of: &lt;x&gt;"


@pytest.mark.parametrize("experiment", ["quickstart", "h200"])
def test_the_commands_name_the_experiment(experiment: str) -> None:
    rows = [CELL | {"setting": "llama-np16", "users": 4}]
    plan = synthetic.plan_of(rows, experiment)
    page = report.page(tables.make(list(synthetic.records_of(rows, plan)), [], plan), plan)
    assert ("--configfile config/h200.yaml" in page) == (experiment == "h200")


def test_csv_says_nothing_where_nothing_was_measured() -> None:
    table = tables.table("discarded", [])
    assert content.as_csv(table) == ",".join(table.schema.names) + "\n"
    rows = [CELL | {"setting": "llama-np16", "users": 4}]
    plan = synthetic.plan_of(rows)
    first = synthetic.failed(next(iter(synthetic.records_of(rows, plan))), "no")
    text = content.as_csv(tables.measurements([first], plan.line))
    header, row = (line.split(",") for line in text.splitlines())
    assert row[header.index("output_tok_s")] == ""
