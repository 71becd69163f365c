"""What the page claims, against data made to tempt it to claim more."""

from __future__ import annotations

import html
import re
from typing import Any

import msgspec
import pyarrow as pa
import pytest
import yaml

import synthetic
from servebench import charts, configuration, schema, tables
from servebench.marks import mark
from servebench.report import answer, content, evaluated, published, questions, ranges, spoken
from servebench.report import page as page_
from servebench.words import LANGUAGES, labels, marks
from servebench.words.numbers import digits, span

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
    return synthetic.from_records(list(synthetic.records_of(rows, plan)), [], plan), plan


def keys(said: list[answer.Sentence]) -> list[str]:
    return [sentence.key.removeprefix("answer.") for sentence in said]


def test_ranges_that_overlap_are_not_told_apart() -> None:
    near = {"setting": "llama-np4", "users": 4, "output_tok_s_min": 102.0, "output_tok_s_max": 107.0}
    said = answer.answer(*made({"setting": "llama-np16", "users": 4}, near), "main")
    assert keys(said)[:2] == ["output", "not_separated"]
    assert said[0].values["setting"] == "llama-np4"
    assert "llama-np16" in said[1].values["settings"]
    assert "next" not in keys(said)[:2]


def test_a_run_is_headed_by_its_name_and_its_title() -> None:
    content_of, plan = made({"setting": "llama-np4", "users": 4})
    titled = msgspec.structs.replace(plan, runs={"main": {"title": {"en": "500 completions", "ja": "500 件の依頼"}}})
    head = '<h3 id="values-main"><span lang="en">Run “main”</span><span lang="ja">「main」の測定</span>'
    assert f"{head}</h3>" in page_.page(content_of, plan)
    title = '<span lang="en">500 completions</span><span lang="ja">500 件の依頼</span>'
    assert f"{head}: {title}</h3>" in page_.page(content_of, titled)


def test_the_answer_stands_on_the_console_as_on_the_page() -> None:
    found = made({"setting": "llama-np4", "users": 4})
    en, ja = (next(page_.answers(*found, language)) for language in ("en", "ja"))
    assert en == "With 4 users at once, llama-np4 had the highest output: 100–104 tokens/s."
    assert ja == "同時 4 人で全体の出力が最も高いのは llama-np4 の 100–104 トークン/秒でした。"


def test_what_reads_the_same_is_not_told_apart() -> None:
    one, other = ({"output_tok_s_min": v, "output_tok_s_max": v} for v in (200.9, 201.2))
    assert ranges.overlap(one, other, "output_tok_s")
    assert not ranges.overlap(one, {"output_tok_s_min": 201.6, "output_tok_s_max": 203.0}, "output_tok_s")


def test_ranges_apart_are_told_in_order() -> None:
    far = {"setting": "llama-np4", "users": 4, "output_tok_s_min": 202.0, "output_tok_s_max": 207.0}
    said = answer.answer(*made({"setting": "llama-np16", "users": 4}, far), "main")
    assert keys(said)[:2] == ["output", "next"]
    assert said[1].values["setting"] == "llama-np16"


def test_other_weights_are_told() -> None:
    far = {"setting": "vllm-bf16", "users": 4, "output_tok_s_min": 202.0, "output_tok_s_max": 207.0}
    said = answer.answer(*made({"setting": "llama-np16", "users": 4}, far), "main")
    assert said[2] == answer.Sentence("answer.weights", {"first": "BF16", "others": "Q4_K_M"})


def test_a_leading_row_with_a_mark_has_a_star_and_all_marked_rows_have_links() -> None:
    unstable = {"users": 4, "output_tok_s_min": 200.0, "output_tok_s_max": 260.0}
    cells = [{"setting": f"llama-np{slots}"} | unstable for slots in range(8, 17)]
    content_of, plan = made({"setting": "llama-np4", "users": 4}, *cells)
    said_first = answer.answer(content_of, plan, "main")
    assert re.fullmatch(r"llama-np\d+\*", said_first[0].values["setting"])
    assert said_first[1].values["settings"].count("* (200–260)") == 8
    line = next(sentence for sentence in said_first if sentence.key == "answer.line")
    assert line.values["settings"].startswith("llama-np4, llama-np8*, ")
    marked = asked(content_of, plan)["sure"][-1]
    assert marked.key == "question.sure_marked" and len(marked.rows) == marked.values["marked"] == 9


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
    assert without_candidate(answer.cards(*made(slow), "main")) == ["not_measured", "none_met", "not_measured"]
    content_of, plan = made(slow)
    empty = {name: table.slice(0, 0) for name, table in content_of.items()}
    assert keys(answer.answer(empty, plan, "main")) == ["nothing"]
    assert "Nothing is measured yet" in page_.page(empty, plan)
    failure = [mark("failed", reason="out of memory")]
    rows = [row | {"rounds": 0, "failure": failure} for row in schema.rows(content_of["settings"])]
    none = content_of | {"settings": tables.table("settings", rows)}
    assert [(s.key, s.values) for s in answer.answer(none, plan, "main")] == [("answer.failed", {"failed": 1})]


def without_candidate(cards: list[answer.Card]) -> list[str]:
    """Why each use has no candidate."""
    assert [card.use for card in cards] == ["one", "some", "many"]
    return [card.evidence[0].key.removeprefix("card.") for card in cards if not card.candidates]


def test_a_use_without_a_candidate_says_why() -> None:
    slow = {"setting": "llama-np16", "users": 2, "ttft_p50_s_max": 3.0, "ttft_p95_s_max": 3.2}
    content_of, plan = made(slow, {"setting": "llama-np16", "users": 8} | slow | {"users": 4})
    assert answer.cards(content_of, plan, "main")[1].evidence[0].values["judged"] == 2
    page = page_.page(content_of, plan)
    cards = page[page.index('id="h-cards"') : page.index('id="h-line"')]
    assert "No setting met the line in both rounds; combinations judged: 2." in cards
    assert "2 巡とも線を満たした設定はありません（判定した組み合わせ：2 通り）。" in cards
    assert cards.count("Not measured.") == cards.count("測定していません。") == 2
    rows = [row | {"meets_line_both_rounds": None, "rounds": 1} for row in schema.rows(content_of["settings"])]
    part = content_of | {"settings": tables.table("settings", rows)}
    assert without_candidate(answer.cards(part, plan, "main")) == ["not_measured", "not_judged", "not_measured"]


def test_a_card_says_where_the_candidate_does_not_fit() -> None:
    queued = {"setting": "llama-np16", "users": 32, "ttft_p50_s_max": 6.0, "ttft_p95_s_max": 6.8}
    cards = answer.cards(*made({"setting": "llama-np16", "users": 16}, queued), "main")
    found = [(card.use, card.users, list(card.candidates)) for card in cards]
    assert found == [("one", None, []), ("some", 16, ["llama-np16"]), ("many", None, [])]
    assert [(s.key, s.values["users"]) for s in cards[1].limits] == [("card.ttft", 32)]
    assert without_candidate(cards) == ["not_measured", "none_met"]
    alone = answer.cards(*made({"setting": "llama-np16", "users": 16}), "main")
    assert [s.key for s in alone[1].limits] == ["card.not_beyond"]


def asked(tables_: dict[str, pa.Table], plan: Any) -> dict[str, list[answer.Sentence]]:
    return {question.key: list(question.answer) for question in questions.questions(tables_, plan)}


def said(sentences: list[answer.Sentence]) -> list[str]:
    return [sentence.key.removeprefix("question.") for sentence in sentences]


def test_one_round_tells_nothing_apart() -> None:
    far = {"setting": "llama-np4", "users": 1, "output_tok_s_min": 202.0, "output_tok_s_max": 207.0}
    rows = [CELL | {"setting": "llama-np16", "users": 1}, CELL | far]
    plan = synthetic.plan_of(rows)
    first = [record for record in synthetic.records_of(rows, plan) if record.identity.round == 1]
    made_of = synthetic.from_records(first, [], plan)
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


@pytest.mark.parametrize(
    ("rounds", "en", "ja", "covered"),
    [
        (1, "met the line in the only round.", "1 巡だけの測定で線を満たしました", "One round"),
        (2, "met the line in both rounds.", "2 巡とも線を満たしました", "A range of 2 rounds"),
        (3, "met the line in all 3 rounds.", "3 巡すべてで線を満たしました", "A range of 3 rounds"),
    ],
)
def test_the_page_speaks_of_as_many_rounds_as_there_are(rounds: int, en: str, ja: str, covered: str) -> None:
    rows = [CELL | {"setting": setting, "users": 4} for setting in ("llama-np4", "llama-np16")]
    plan = msgspec.structs.replace(synthetic.plan_of(rows), rounds=rounds)
    records = list(synthetic.records_of(rows, plan))
    third = [synthetic.changed(r, identity={"round": 3}) for r in records if r.identity.round == 1]
    there = [record for record in [*records, *third] if record.identity.round <= rounds]
    content_of = synthetic.from_records(there, [], plan)
    page = page_.page(content_of | {"cost": tables.cost(content_of["settings"], 1.0)}, plan)
    said = re.sub(r"2 巡(?=以上|の測定が必要)|two rounds(?= or more| of each)", "", page)
    assert en in said and ja in said and covered in said
    named = {"one": r"only round|1 巡だけ", "two": r"both rounds|two rounds|2 巡(?!目)", "more": r"3 rounds|3 巡"}
    for form, words_ in named.items():
        assert (re.search(words_, said) is not None) == (form == {1: "one", 2: "two", 3: "more"}[rounds]), form


def test_what_a_range_of_rounds_covers() -> None:
    plan = made({"setting": "llama-np16", "users": 4})[1]
    shares = [answer.covered(msgspec.structs.replace(plan, rounds=n)).values.get("share") for n in (1, 2, 3, 4, 9)]
    assert shares == [None, "50", "75", "87.5", "99.6"]


def test_how_many_people_is_never_more_than_was_measured() -> None:
    slow = {"ttft_p50_s_max": 3.0, "ttft_p95_s_max": 3.2}
    cells = [{"setting": "llama-np16", "users": 4}, {"setting": "llama-np16", "users": 8} | slow]
    people = asked(*made(*cells))["people"]
    assert said(people) == ["people", "no_pause"]
    assert people[0].values["users"] == 4
    assert said(asked(*made(cells[0]))["people"]) == ["people", "people_more", "no_pause"]
    assert said(asked(*made(cells[1]))["people"]) == ["people_none", "no_pause"]


def test_with_think_time_the_page_says_how_many_people_a_stream_stands_for() -> None:
    content_of, plan = made({"setting": "llama-np16", "users": 16})
    settings = {
        name: msgspec.structs.replace(setting, workload=setting.workload | {"think": "exp:27"})
        for name, setting in plan.settings.items()
    }
    plan = msgspec.structs.replace(plan, settings=settings)
    (row,) = schema.rows(content_of["settings"])
    for low, high in ((1.6, 2.0), (None, None)):
        rows = [row | {"in_flight_mean_min": low, "in_flight_mean_max": high}]
        content_of["settings"] = tables.table("settings", rows)
        people = asked(content_of, plan)["people"]
        assert said(people) == ["people", "people_more", *(["pause"] if low else [])]
        if low:  # replies of 3 s and pauses of 27 s: one person keeps a tenth of a stream busy
            assert "16 users kept 1.60–2.00 requests in flight on average" in spoken.sentence(people[2])
            assert "stands for 8.00–10.0 such people" in spoken.sentence(people[2])


def test_what_was_not_measured_is_no_answer() -> None:
    found = asked(*made({"setting": "llama-np16", "users": 4}))
    assert said(found["alone"]) == ["alone_not"]
    assert said(found["answers"]) == ["answers_not"]
    assert "slots" not in found and "queue" not in found
    assert said(found["missing"]) == ["missing"]
    assert found["missing"][0].values == {"wanted": 2, "there": 2}


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
    assert list(differ.rows) == list(none.rows) == [("compared-mgsm", "mgsm")]
    assert "not the same as none" in spoken.sentence(none)


def test_every_sentence_has_its_values_and_every_row_link_its_row() -> None:
    cells = synthetic.quickstart_cells()
    plan = synthetic.plan_of(cells, "quickstart")
    made_of = synthetic.from_records(list(synthetic.records_of(cells, plan, 10)), [], plan)
    found = asked(made_of, plan)
    of_run = ["people", "alone", "slots", "speed", "queue", "slow", "energy"]
    assert list(found) == [*of_run, "answers", "cost", "memory", "sure", "missing"]
    page = page_.page(made_of, plan)
    links = re.findall(r'<a class="row" href="#([^"]+)"', page)
    assert len(links) > 8
    assert set(links) <= set(re.findall(r' id="([^"]+)"', page))
    assert {"start-main-llama-np1", "start-main-llama-np4"} & {id_ for id_, _ in found["memory"][0].rows}


def test_slow_requests_and_prefills_are_told_with_their_counts_or_as_not_known() -> None:
    content_of, plan = made({"setting": "llama-np16", "users": 4})
    counts = {"band_slow": 5, "band_total": 9, "other_slow": 1, "other_total": 30}
    place = {"run": "main", "setting": "llama-np16", "users": 4}
    content_of["slow_requests"] = tables.table("slow_requests", [place | counts | {"band_low": 580, "band_high": 599}])
    group = {"run": "main", "engine_kind": "llama-server", "micro_batch": 512, "users_most": 4}
    content_of["slow_by_micro_batch"] = tables.table(
        "slow_by_micro_batch", [group | counts | {"settings": ["llama-np16"]}]
    )
    prefill = {"band_low": 513, "band_high": 530}
    rows = [place | prefill | {"slow": 3, "total": 7}, place | prefill | {"users": 8, "slow": 0, "total": 2}]
    content_of["slow_prefills"] = tables.table("slow_prefills", rows)
    requests, prefills = asked(content_of, plan)["slow"]
    assert "at most 4 users: 5 of 9 requests of 580–599 prompt tokens" in spoken.sentence(requests)
    assert "and 1 of 30 of other lengths" in spoken.sentence(requests)
    assert "3 of 9 prompts with 513–530 newly computed tokens" in spoken.sentence(prefills)
    assert requests.rows == prefills.rows == [("row-main-llama-np16-4", "llama-np16 · 4")]
    for name in ("slow_by_micro_batch", "slow_prefills"):
        content_of[name] = tables.table(name, [])
    assert said(asked(content_of, plan)["slow"]) == ["slow_unknown", "prefills_unknown"]
    nothing = group | dict.fromkeys(counts, 0) | {"settings": ["llama-np16"], "other_total": 4}
    content_of["slow_by_micro_batch"] = tables.table("slow_by_micro_batch", [nothing, nothing | {"micro_batch": 2048}])
    content_of["slow_prefills"] = tables.table("slow_prefills", [place | prefill | {"slow": 0, "total": 0}])
    assert said(asked(content_of, plan)["slow"]) == ["slow_band_empty", "prefills_none"]
    assert "of other lengths, 0 of 8 took over 1 s" in spoken.sentence(asked(content_of, plan)["slow"][0])


def test_energy_is_told_from_the_least_to_the_most_or_as_not_known() -> None:
    content_of, plan = made(*({"setting": "llama-np16", "users": users} for users in (1, 4, 8)))
    assert said(asked(content_of, plan)["energy"]) == ["energy_unknown"]
    rows = schema.rows(content_of["settings"])
    for row, (low, high) in zip(rows, ((4.0, 5.0), (1.5, 1.6), (None, None)), strict=True):
        row |= {"joules_per_token_min": low, "joules_per_token_max": high}
    content_of["settings"] = tables.table("settings", rows)
    (sentence,) = asked(content_of, plan)["energy"]
    assert "from 1.50 J (llama-np16 · 4) to 5.00 J (llama-np16 · 1) for an output token" in spoken.sentence(sentence)
    assert "known for 2 of 3 combinations" in spoken.sentence(sentence)


def test_cost_is_told_with_paid_idle_time_or_as_not_known() -> None:
    content_of, plan = made(*({"setting": "llama-np16", "users": users} for users in (1, 4)))
    assert [s.key for s in asked(content_of, plan)["cost"]] == ["question.cost_unknown"]
    priced = msgspec.structs.replace(plan, cost={"price_per_hour": 3.6, "idle_after_min": 10})
    content_of["cost"] = tables.cost(content_of["settings"], 3.6)
    content_of["paid_idle"] = tables.paid_idle(content_of["sessions"], 3.6, 10)
    cost, start, idle = map(spoken.sentence, asked(content_of, priced)["cost"])
    assert "a million output tokens cost from 9.62 USD (llama-np16 · " in cost
    assert "took 4.50 s over 1 setting; it costs 0.0045 USD" in start  # 3.6 USD an hour, 4.5 s
    links = [[id_ for id_, _ in sentence.rows] for sentence in asked(content_of, priced)["cost"][1:]]
    assert links == [["start-main-llama-np16"], ["file-paid_idle.parquet"]]
    page = page_.page(content_of, priced)
    assert all(f' id="{id_}"' in page for ids in links for id_ in ids)
    assert "given back after 10 minutes without a request, as configured, which costs 0.60 USD each time" in idle
    content_of["paid_idle"] = tables.paid_idle(content_of["sessions"], 3.6, None)
    assert said(asked(content_of, priced)["cost"])[2] == "cost_idle_unknown"
    empty = content_of["sessions"].to_pylist()
    launches = tables.table("sessions", [row | {"first_token_s": None} for row in empty])
    content_of["paid_idle"] = tables.paid_idle(launches, 3.6, 10)
    assert said(asked(content_of, priced)["cost"])[1] == "cost_start_unknown"


def test_the_machine_stands_with_its_cores_and_memory_where_they_are_known() -> None:
    content_of, plan = made({"setting": "llama-np16", "users": 4})
    assert content.machines(content_of) == [("NVIDIA H200", 96, None)]
    assert "<dd>NVIDIA H200</dd>" in page_.page(content_of, plan)
    rows = [row | {"machine_memory_gib": 503.4} for row in content_of["sessions"].to_pylist()]
    page = page_.page(content_of | {"sessions": tables.table("sessions", rows)}, plan)
    assert "NVIDIA H200, in a machine with 96 cores and 503 GiB of memory" in page


def conditions(page: str) -> str:
    return page[page.index('id="h-conditions"') : page.index('id="h-reproduce"')]


def test_the_download_of_a_model_stands_beside_the_start_or_as_not_known() -> None:
    rows = [CELL | {"setting": "llama-np4", "users": 4}, CELL | {"setting": "vllm-bf16", "users": 4}]
    plan = synthetic.plan_of(rows)
    records = [
        synthetic.changed(record, provenance={"model": {"fetch_s": 271.5}})
        if record.identity.setting == "vllm-bf16"
        else record
        for record in synthetic.records_of(rows, plan)
    ]
    starts = content.cold_starts(synthetic.from_records(records, [], plan))
    assert {row["setting"]: row["model_fetch_s"] for row in starts} == {"llama-np4": "–", "vllm-bf16": "272"}


def test_deviations_and_what_is_not_verified_stand_under_conditions() -> None:
    plan = synthetic.plan_of([CELL | {"setting": name, "users": 4} for name in ("llama-np16", "vllm-bf16")])
    assert "Not verified" not in conditions(page_.page({}, plan))
    why = {"en": "No <revision> is published.", "ja": "リビジョンは未公開。"}
    models = {key: msgspec.structs.replace(model, sha256=None, unverified=why) for key, model in plan.models.items()}
    changed = msgspec.structs.replace(
        plan, models=models, deviations=("Prompts are ours.",), unverified=({"en": "Never run.", "ja": "未実行。"},)
    )
    text = conditions(page_.page({}, changed))
    assert "<p>Prompts are ours.</p>" in text
    named = "<code>models.qwen3-14b-q4_k_m, models.qwen3-14b-bf16</code>"
    assert f'{named}: <span lang="en">No &lt;revision&gt; is published.</span>' in text
    assert '<p><span lang="en">Never run.</span><span lang="ja">未実行。</span></p>' in text


def test_the_way_to_a_server_at_a_url_stands_under_conditions() -> None:
    content_of, plan = made({"setting": "llama-np16", "users": 4}, {"setting": "vllm-bf16", "users": 4})
    launches = {"sessions": content_of["sessions"]}
    assert "No network is between" in conditions(page_.page(launches, plan))
    far = msgspec.structs.replace(plan.settings["vllm-bf16"].engine, kind="url", url="https://far.invalid")
    settings = {
        name: msgspec.structs.replace(setting, engine=far) if name == "vllm-bf16" else setting
        for name, setting in plan.settings.items()
    }
    plan = msgspec.structs.replace(plan, settings=settings)
    assert "vllm-bf16: not measured." in conditions(page_.page(launches, plan))
    rows = content_of["sessions"].to_pylist()
    for row in rows:
        if row["setting"] == "vllm-bf16":
            row |= {"round_trip_p50_s": 0.02 * row["round"], "round_trip_min_s": 0.019, "round_trip_max_s": 0.3}
    launches["sessions"] = tables.table("sessions", rows)
    text = conditions(page_.page(launches, plan))
    assert "vllm-bf16: 20.0–40.0 ms (median at each launch), single ones 19.0–300 ms." in text
    assert "No network" not in text and "llama-np16: not measured" not in text


def plan_evaluated(under_load: bool) -> Any:
    """The plan of the quick start, with its evaluations."""
    config = yaml.safe_load((synthetic.ROOT / "config" / "config.yaml").read_text(encoding="utf-8"))
    if under_load:
        config["evaluations"]["under_load"] = {"users": 8, "task": "mgsm", "questions": 5}
    return configuration.load(config, ["config.yaml"])


def target(name: str, **changes: Any) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(tables.SCHEMAS["targets"].names)
    row |= {"target": name, "rank": 0, "baseline": False, "engine": "llama-cpp", "engine_kind": "llama-server"}
    row |= {"model": "m", "model_name": "SmolLM2", "quantization": name, "slots": 4, "concurrency": 4, "status": "ok"}
    row |= {
        "asked": 56,
        "answered": 56,
        "failures": 0,
        "reason": [],
        "marks": [],
        "sessions": 1,
        "model_sha256": "ab" * 32,
    }
    return row | changes


def test_targets_stand_with_file_engine_and_what_to_know_of_them() -> None:
    plan = plan_evaluated(under_load=False)
    assert "Nothing is asked yet." in page_.page({}, plan)
    doubts = [mark("unanswered", unanswered=6, asked=56), mark("other_prompts")]
    q4_0 = target("Q4_0", same_prompts=False, answered=50, marks=doubts)
    failed = target("Q4_1", reason=[mark("failed", reason="out of <memory>")], answered=0, model_sha256=None)
    rows = [q4_0, failed, target("Q8_0", baseline=True)]
    page = page_.page({"targets": tables.table("targets", rows)}, plan)
    text = page[page.index('id="h-evaluated"') : page.index('id="h-questions">')]
    assert "Each of 3 targets was asked 28 questions, 2 times; Q8_0 is the baseline." in text
    assert "50 of 56" in text and "sha256:abababababab…" in text
    assert "differ from the baseline&#39;s" in text
    assert "同じ問いのトークン列が基準と違う" in text and "回答なし：56 問のうち 6 問" in text
    assert "out of &lt;memory&gt;" in text
    assert text.count("Made from the Q4_1 file, so it can be no better than Q4_1.") == 2
    assert "were not to be evaluated" in text
    bare = {key: msgspec.structs.replace(model, note=None) for key, model in plan.models.items()}
    targets = {
        name: msgspec.structs.replace(setting, model=bare[setting.model.key])
        for name, setting in plan.evaluations.targets.items()
    }
    plain = msgspec.structs.replace(
        plan, models=bare, evaluations=msgspec.structs.replace(plan.evaluations, targets=targets)
    )
    page = page_.page({"targets": tables.table("targets", rows)}, plain)
    assert page.count("Made from SmolLM2-135M-Instruct Q4_1, so it can be no better than it.") == 2


def compared(**changes: Any) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(tables.SCHEMAS["comparisons"].names, 0)
    row |= {"measure": "mgsm", "target": "Q4_1", "baseline": "Q8_0", "repeat": 1, "n": 250, "questions": 250}
    row |= {"base_only": 12, "other_only": 5, "difference": -2.8, "low": -6.3, "high": 0.5, "p_holm": 0.43}
    row |= {"verdict": "none_detected", "detectable": 5.7, "equivalent": None, "noise_first_only": 3}
    return row | {"noise_second_only": 4} | changes


def test_each_comparison_with_the_baseline_stands_as_a_sentence_with_its_flips() -> None:
    lower = {"target": "Q4_0", "verdict": "difference", "difference": -9.6, "low": -14.0, "high": -5.0}
    none = {"target": "Q5_0", "verdict": "cannot_be_significant", "base_only": 1, "other_only": 0}
    rows = [
        compared(),
        compared(**lower, p_holm=0.001),
        compared(**none, noise_first_only=None, noise_second_only=None),
        compared(measure="proof_fixed", equivalent=True, margin=6.0),
    ]
    found = evaluated.comparisons({"comparisons": tables.table("comparisons", rows)})
    assert [(fold.id, len(fold.rows), fold.open) for fold in found] == [
        ("compared-mgsm", 3, True),
        ("compared-proof_fixed", 1, False),
    ]
    assert found[0].note is not None and found[0].note["en"] == (
        "a difference was found in 1 of 3 comparisons; 1 could not have become significant"
    )
    said = {str(row[0]): dict(row[2]) for row in found[0].rows}
    assert said["Q4_1"]["en"] == (
        "no difference detected (n discordant 17; a difference under 5.7 points would have been missed). Flips: 12 "
        "only of the baseline, 5 only of the target; of the baseline against itself, 3 only in its first repeat and 4 "
        "only in its second."
    )
    assert "Q4_0 is lower than Q8_0 by 9.6 points" in said["Q4_0"]["en"] and "after Holm" in said["Q4_0"]["en"]
    assert said["Q5_0"]["en"].startswith("cannot be significant: n discordant 1. Flips: 1 only of the baseline, 0 only")
    assert said["Q5_0"]["en"].endswith("how far the baseline differs from itself is not known.")
    assert (
        "基準だけ 12 問、対象だけ 5 問" in said["Q4_1"]["ja"]
        and "1 回目だけ 3 問、2 回目だけ 4 問" in said["Q4_1"]["ja"]
    )
    assert "有意になり得ない（不一致 1 問）" in said["Q5_0"]["ja"]
    page = page_.page({"comparisons": tables.table("comparisons", rows)}, plan_evaluated(under_load=False))
    text = html.unescape(page[page.index('id="h-evaluated"') : page.index('id="h-questions">')])
    for fold in found:
        for row in fold.rows:
            assert f'<span lang="en">{row[2]["en"]}</span><span lang="ja">{row[2]["ja"]}</span>' in text


def test_what_lies_behind_the_scores_stands_on_the_page() -> None:
    ways = dict.fromkeys(tables.SCHEMAS["proofreading"].names, 0) | {"target": "Q4_1"}
    sentences = [
        ways | {"repeat": repeat, "category": category, "n": n, "exact": exact, "other_edit": n - exact}
        for category, n, exacts in (("particle", 14, (9, 9)), ("all-errors", 200, (118, 120)))
        for repeat, exact in enumerate(exacts, 1)
    ]
    places = [
        {"target": "Q4_1", "repeat": 1, "position": n, "gold": 10, "correct": n, "chosen": 2 * n, "p": 0.025}
        for n in range(5)
    ]
    score = dict.fromkeys(tables.SCHEMAS["scores"].names, 0) | {"target": "Q4_1", "task": "mgsm", "measure": "mgsm"}
    score |= {
        "headline": True,
        "lower_is_better": False,
        "n": 250,
        "truncated": 3,
        "english": 7,
        "characters_mean": 181.3,
        "tokens_mean": 97.0,
    }
    made_of = {
        "proofreading": tables.table("proofreading", sentences),
        "positions": tables.table("positions", [row | {"chi_square": 11.1} for row in places]),
        "scores": tables.table("scores", [score | {"repeat": 1}, score | {"repeat": 2, "truncated": 4}]),
    }
    errors, particles = evaluated.proofreading(made_of)
    assert (errors.id, errors.open, particles.open) == ("proofread-all-errors", True, False)
    assert list(errors.rows) == [("Q4_1", "200", "118 · 120", "0", "0", "82 · 80", "0")]
    assert list(particles.rows) == [("Q4_1", "14", "9", "0", "0", "5", "0")]
    chosen = evaluated.positions(made_of)
    assert chosen is not None
    assert list(chosen.rows) == [("Q4_1", "1", "0/10 (0)", "1/10 (2)", "2/10 (4)", "3/10 (6)", "4/10 (8)", "0.03")]
    (replied,) = evaluated.replies(made_of)
    assert list(replied.rows) == [("Q4_1", "250", "181", "97.0", "3 · 4", "0", "0", "0", "0", "0", "7", "0")]
    assert [head["en"] for head in replied.heads[4:6]] == ["Cut off", "Empty"]
    page = page_.page(made_of, plan_evaluated(under_load=False))
    for name in made_of:
        assert page.count(f'href="../tables/{name}.parquet"') >= 2
    for said in ("Wrong particle", "助詞の誤り", "118 · 120", "4/10 (8)", "3 · 4"):
        assert said in page


def test_answers_under_load_stand_with_what_they_say() -> None:
    plan = plan_evaluated(under_load=True)
    content_of = {"targets": tables.table("targets", [target("Q8_0", baseline=True)])}
    page = page_.page(content_of, plan)
    assert "The first 5 questions of mgsm" in page and "Not measured." in page
    row: dict[str, Any] = dict.fromkeys(tables.SCHEMAS["under_load"].names, 0)
    row |= {"measure": "mgsm", "target": "Q8_0 (8 users)", "baseline": "Q8_0 (idle)", "verdict": "none_detected"}
    row |= {"n": 5, "questions": 5, "base_only": 1, "other_only": 0, "difference": -20.0, "low": -62.4, "high": 33.4}
    row |= {"detectable": None, "equivalent": None}
    content_of["under_load"] = tables.table("under_load", [row])
    page = page_.page(content_of, plan)
    assert "-20.0 (-62.4 – +33.4)" in page
    assert "no difference detected (n discordant 1;" in page and "差は検出されなかった（不一致 1 問" in page


def test_every_table_on_the_page_can_be_fetched() -> None:
    content_of, plan = made({"setting": "llama-np16", "users": 4})
    some = {name: content_of[name] for name in ("sessions", "slow_prefills")}
    page = page_.page(some | {"paid_idle": tables.paid_idle(content_of["sessions"], 3.6, 10)}, plan)
    for name in ("sessions.parquet", "slow_prefills.parquet", "paid_idle.parquet", "concurrency.json"):
        assert f'href="../tables/{name}"' in page
    assert "quantization.json" not in page and "cost.parquet" not in page


def test_a_chart_links_to_its_values_on_the_page_or_to_their_file() -> None:
    content_of, plan = made(*({"setting": f"llama-np{slots}", "users": 4} for slots in (4, 8)))
    page = page_.page(content_of, plan)
    links = dict(re.findall(r'<figure id="chart-(\w+)-main">.*?<p class="rows"><a href="([^"]+)"', page, re.S))
    assert links["output_bars"] == links["slots"] == "#values-main"
    assert links["timeline"] == "../tables/timeline.parquet" and links["ttft_ecdf"] == "../tables/ttft.parquet"
    for name, link in links.items():
        table = charts.CHARTS[name].table
        assert table in tables.SCHEMAS
        assert (table == "settings") == link.startswith("#")
        if table != "settings":
            assert not charts.runs_with_data(name, content_of | {table: content_of[table].slice(0, 0)}, ["main"])


def test_no_sentence_states_a_cause() -> None:
    causes = {
        "en": r"\b(because|caused|due to|thanks to|owing to)\b",
        "ja": r"(原因は.{0,12}である|のせいで|のおかげで)",
    }
    for section in ("answer", "card", "cards", "question", "evaluated", "compare"):
        for key, texts in labels()["page"][section].items():
            for language in LANGUAGES:
                assert not re.search(causes[language], texts[language]), f"{section}.{key}"


def test_what_failed_and_what_is_missing_is_listed_with_its_reason() -> None:
    cells = [CELL | {"setting": "llama-np16", "users": users} for users in (4, 8)]
    plan = synthetic.plan_of(cells)
    records = list(synthetic.records_of(cells, plan))
    records = [records[0], synthetic.failed(records[1], "CUDA <out of memory>"), records[2]]
    made_of = synthetic.from_records(records, [], plan)
    gaps = content.missing(made_of, plan)
    why = [mark("failed", reason="CUDA <out of memory>")]
    assert [(g["users"], g["round"], g["reason"]) for g in gaps] == [(4, 2, why), (8, 2, [])]
    missing = asked(made_of, plan)["missing"]
    assert said(missing) == ["missing", "missing_failed", "missing_absent"]
    assert [sentence.values.get("count") for sentence in missing] == [None, 1, 1]
    page = page_.page(made_of, plan)
    assert "CUDA &lt;out of memory&gt;" in page
    assert "CUDA <out of memory>" not in page


def test_facts_that_are_not_as_published_stand_beside_the_published() -> None:
    content_of, plan = made({"setting": "llama-np16", "users": 4})
    facts = [("n_ctx_slot", "4096", "4096", True), ("threads", "96", "8", False), ("build", "3b4d6ab3f", None, None)]
    row = {"run": "main", "setting": "llama-np16", "session_id": "s"}
    names = ("what", "published", "found", "met")
    rows = [row | {"round": n} | dict(zip(names, fact, strict=True)) for n in (1, 2) for fact in facts]
    content_of["expected"] = tables.table("expected", rows)
    found = published.expected(content_of)
    assert (found["met"], found["facts"]) == (2, 6)
    assert [(r["what"], r["published"], r["found"]) for r in found["others"]] == [
        ("threads", "96", "8"),
        ("build", "3b4d6ab3f", None),
    ]
    page = page_.page(content_of, plan)
    assert "As published: 2 of 6 facts" in page
    assert page.count("the server does not tell") == 1
    content_of["expected"] = tables.table("expected", [])
    assert "As published: " not in page_.page(content_of, plan)


def test_every_published_cell_stands_beside_what_was_found_here() -> None:
    content_of, plan = made({"setting": "llama-np16", "users": 4})
    reference = tables.read_reference(synthetic.REFERENCES / "h200-concurrency.csv")
    cells = [row for row in reference if row["setting"] == "llama-np16" and row["users"] in (4, 8)]
    content_of["reproduction"] = tables.reproduction(content_of["settings"], cells)
    (fold,) = published.cells(content_of)
    assert [row[0] for row in fold.rows] == ["llama-np16 · 4", "llama-np16 · 8"]
    row = next(row for row in content_of["reproduction"].to_pylist() if row["figure"] == "output_tok_s")
    told = f"{span(row['published_min'], row['published_max'])} → {span(row['measured_min'], row['measured_max'])}"
    column = [head["en"] for head in fold.heads].index("Output tok/s")
    assert fold.rows[0][column] == f"{told} ({digits(row['ratio'])} ×) ≈" and row["overlap"]
    assert fold.rows[1][column].endswith(" → –")
    page = page_.page(content_of, plan)
    assert fold.rows[0][column] in page and '<a href="../tables/reproduction.parquet">' in page


def test_all_values_can_be_filtered_by_engine_quantization_and_slots() -> None:
    content_of, plan = made({"setting": "llama-np4", "users": 4}, {"setting": "vllm-bf16", "users": 4})
    page = page_.page(content_of, plan)
    table = page[page.index('<table class="values">') :]
    cells = {
        re.findall(r"</?span[^>]*>([^<]+)</span></th>", row)[0]: re.findall(r"<td[^>]*>([^<]*)</td>", row)[:4]
        for row in re.findall(r"<tr id=.*?</tr>", table[: table.index("</table>")], re.S)
    }
    assert cells["llama-np4"] == ["llama-server", "Q4_K_M", "4", "4"]
    assert cells["vllm-bf16"] == ["vllm", "BF16", "256", "4"]
    heads = re.findall(r'data-column="\d+"><span lang="en">([^<]+)</span>', table[: table.index("</thead>")])
    assert heads[:5] == ["Setting", "Engine", "Quantization", "Slots", "Users"]


def test_the_table_of_the_line_tells_four_states_apart() -> None:
    cells = [CELL | {"setting": "llama-np16", "users": u} for u in (4, 8, 16)]
    plan = synthetic.plan_of([*cells, CELL | {"setting": "llama-np4", "users": 2}])
    records = list(synthetic.records_of(cells[:2], plan))
    records[2:] = [synthetic.failed(record, "no") for record in records[2:]]
    matrix = content.matrix(synthetic.from_records(records, [], plan), plan, "main")
    assert matrix["users"] == [2, 4, 8, 16]
    states = [cell and cell["state"] for cell in matrix["rows"][0]["cells"]]
    assert states == [None, "measured", "failed", "missing"]


def test_marks_are_told_in_both_languages_where_they_are_shown_and_where_they_are_pointed_at() -> None:
    content_of, plan = made(*({"setting": "llama-np16", "users": users} for users in (4, 8)))
    rows = schema.rows(content_of["settings"])
    changed = mark("unstable_rounds", figure="user_tok_s", first=2, second=3)
    rows[0]["marks"] = [changed, mark("missing_round", measured=1, rounds=2)]
    failures = [mark("all_failed", requests=7, statuses={"timeout": 7}), mark("failed", reason="CUDA <7>")]
    rows[1] |= {"rounds": 0, "failure": failures}
    page = page_.page(content_of | {"settings": tables.table("settings", rows)}, plan)
    for language in LANGUAGES:
        for said in (*rows[0]["marks"], failures[0]):
            assert f'<span lang="{language}">{marks.translated(said)[language]}</span>' in page
    assert f'data-title-ja="{marks.told(rows[0]["marks"], "ja")}"' in page
    assert f'title="{marks.told(rows[0]["marks"], "en")}" data-title-en' in page
    assert "CUDA &lt;7&gt;" in page and "CUDA <7>" not in page


CHANGED = " --config rounds=3 'title=a b'"


@pytest.mark.parametrize(
    ("files", "overrides", "named", "changed"),
    [
        (("config/config.yaml",), (), "", ""),
        (("config/h200.yaml", "config/rehearsal.yaml"), (), " --configfile config/h200.yaml config/rehearsal.yaml", ""),
        (("/path/to/my own.yaml",), (), " --configfile '/path/to/my own.yaml'", ""),
        (("config/config.yaml",), ("rounds=3", "title=a b"), " --configfile config/config.yaml", CHANGED),
    ],
)
def test_the_commands_name_the_files_the_plan_was_read_from_and_what_was_changed_beside(
    files: tuple[str, ...], overrides: tuple[str, ...], named: str, changed: str
) -> None:
    content_of, plan = made({"setting": "llama-np16", "users": 4})
    page = page_.page(content_of, msgspec.structs.replace(plan, files=files, overrides=overrides))
    commands = re.findall(r"^ *(?:<pre.*<code>)?((?:snakemake|servebench) .*?)(?:</code></pre>)?$", page, re.M)
    assert [html.unescape(command) for command in commands] == [
        f"snakemake --cores 1 all{named}{changed}",
        f"snakemake --cores 1 only_main_llama-np16{named}{changed}",
        f'servebench discard main llama-np16 --round 1 --users 4 --why "…"{named}{changed}',
        f"snakemake --cores 1 all{named}{changed}",
    ]


def test_csv_says_nothing_where_nothing_was_measured() -> None:
    table = tables.table("discarded", [])
    assert content.as_csv(table) == ",".join(table.schema.names) + "\n"
    rows = [CELL | {"setting": "llama-np16", "users": 4}]
    plan = synthetic.plan_of(rows)
    first = synthetic.failed(next(iter(synthetic.records_of(rows, plan))), "no")
    text = content.as_csv(tables.measurements([first], plan.line))
    header, row = (line.split(",") for line in text.splitlines())
    assert row[header.index("output_tok_s")] == ""
