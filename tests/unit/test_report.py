"""The page says what is concluded and shows what was measured, and nothing else."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from typing import Any

import msgspec
import pyarrow as pa
import pytest
import yaml

import synthetic
from servebench import claims, configuration, schema, tables, verdicts
from servebench.marks import mark
from servebench.report import choice, content, evaluated, first, published
from servebench.report import page as page_
from servebench.verdicts.leaders import PAIRED
from servebench.words import LANGUAGES, labels, marks, spoken
from servebench.words import claims as spoken_claims
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
    return concluded(synthetic.from_records(list(synthetic.records_of(rows, plan)), [], plan), plan), plan


def concluded(content_of: dict[str, pa.Table], plan: Any) -> dict[str, pa.Table]:
    """Add what may be concluded from the tables to the tables."""
    return content_of | {"verdicts": claims.table(verdicts.conclude(content_of, plan))}


def test_a_run_is_headed_by_its_name_and_its_title() -> None:
    content_of, plan = made({"setting": "llama-np4", "users": 4})
    titled = msgspec.structs.replace(plan, runs={"main": {"title": {"en": "500 completions", "ja": "500 件の依頼"}}})
    head = '<h3 id="values-main"><span lang="en">Run “main”</span><span lang="ja">「main」の測定</span>'
    assert f"{head}</h3>" in page_.page(content_of, plan)
    title = '<span lang="en">500 completions</span><span lang="ja">500 件の依頼</span>'
    assert f"{head}: {title}</h3>" in page_.page(content_of, titled)


def test_each_value_of_a_setting_or_model_with_a_note_leads_to_it() -> None:
    content_of, plan = made(*({"setting": name, "users": 4} for name in ("llama-np4", "llama-np16")))
    note = {"en": "Not as published.", "ja": "公表と異なる。"}
    noted = plan.settings | {"llama-np4": msgspec.structs.replace(plan.settings["llama-np4"], note=note)}
    page = page_.page(content_of, msgspec.structs.replace(plan, settings=noted))
    values = page[page.index('id="h-values"') : page.index('id="h-missing"')]
    (row,) = [row for row in values.split("<tr ") if 'href="#h-notes"' in row]
    assert "llama-np4<" in row
    assert 'id="h-notes"' in page and note["en"] in page
    model = msgspec.structs.replace(plan.settings["llama-np16"].model, note=note)
    noted = {name: msgspec.structs.replace(setting, model=model) for name, setting in plan.settings.items()}
    page = page_.page(content_of, msgspec.structs.replace(plan, settings=noted, models={model.key: model}))
    assert page.count('href="#h-notes"') == 2


def answer_of(page: str) -> str:
    return html.unescape(unlinked(page[page.index('id="h-answer"') : page.index("<nav")]))


def unlinked(page: str) -> str:
    """The page without links to the glossary."""
    return re.sub(r'<a class="term"[^>]*>([^<]*)</a>', r"\1", page)


SLOW = {"ttft_p50_s_max": 3.0, "ttft_p95_s_max": 3.2}


def test_the_first_screen_says_the_claims_and_nothing_else() -> None:
    far = {"setting": "llama-np4", "users": 4, "output_tok_s_min": 202.0, "output_tok_s_max": 207.0}
    content_of, plan = made({"setting": "llama-np16", "users": 4}, far, {"setting": "llama-np16", "users": 8} | SLOW)
    found = claims.of(content_of, "main")
    shown = answer_of(page_.page(content_of, plan))
    leading = verdicts.headline(found)
    assert [claim.kind for claim in leading] == ["capacity", "people", "leader", "score"]
    for claim in leading:
        for language, text in spoken_claims.said(claim).items():
            assert f'<span lang="{language}">{text}</span>' in shown
    others = {spoken_claims.said(claim)["en"] for claim in found} - {
        spoken_claims.said(claim)["en"] for claim in leading
    }
    assert others and not any(text in shown for text in others)


def test_the_first_screen_names_machine_engine_model_dates_tokens_and_rounds() -> None:
    content_of, plan = made({"setting": "llama-np16", "users": 4}, {"setting": "vllm-bf16", "users": 4})
    found = first.facts(content_of, plan, "main")
    assert found["machines"] == [("NVIDIA H200", 96, None)]
    assert found["engines"] == ["llama-server 12242 (3b4d6ab3f)", "vllm 0.33.0"]
    assert found["models"] == ["Qwen3-14B Q4_K_M", "Qwen3-14B BF16"]
    assert (found["dates"], found["rounds"], found["window_s"]) == ("2026-11-15 – 2026-11-16", 2, "60")
    rows = schema.rows(content_of["settings"])
    assert found["reply_tokens"] == span(
        *(round(pick(r[f"output_tokens_mean_{end}"] for r in rows)) for end, pick in (("min", min), ("max", max)))
    )
    shown = answer_of(page_.page(content_of, plan))
    for text in ("NVIDIA H200", "vllm 0.33.0", "Qwen3-14B BF16", "2026-11-15 – 2026-11-16", "2 rounds × 60 s"):
        assert text in shown
    assert "vllm-bf16: vllm, Qwen3-14B BF16, 256 slots" in shown


def test_after_a_search_the_first_screen_opens_with_which_setting_for_how_many_users() -> None:
    tables_, plan = made(*({"setting": name, "users": 4} for name in ("llama-np4", "llama-np16")))
    searched = msgspec.structs.replace(plan, searched=("llama-np4", "llama-np16"))
    (opening, *_) = first.first(concluded(tables_, searched), searched, "main")["answers"]
    assert opening["question"] == "which" and [claim.kind for claim in opening["claims"]] == ["choice"]
    assert opening["where"] == first.CHOSEN and opening["claims"][0].users == 4
    assert first.first(tables_, plan, "main")["answers"][0]["question"] == "many"


@pytest.mark.parametrize(
    ("cells", "wanted"),
    [
        ([{"users": 4}], {"users": 4, "at_least": True, "valid": True}),
        ([{"users": 4}, {"users": 8} | SLOW], {"users": 4, "at_least": False, "valid": True}),
        ([{"users": 4} | SLOW], {"users": None, "at_least": False, "valid": True}),
    ],
)
def test_the_number_on_the_first_screen_is_a_limit_only_where_more_were_tried(cells: Any, wanted: Any) -> None:
    content_of, plan = made(*({"setting": "llama-np16"} | cell for cell in cells))
    found = first.first(content_of, plan, "main")["number"]
    anchor = found.pop("anchor")
    assert found == wanted
    assert anchor == (f"row-main-llama-np16-{found['users']}" if found["users"] else None)


def test_what_to_try_next_follows_from_what_the_claims_leave_open() -> None:
    def steps(*cells: Any) -> list[str]:
        content_of, plan = made(*cells)
        return [key for key, _ in first.first(content_of, plan, "main")["next"]]

    one = {"setting": "llama-np16", "users": 4}
    assert steps(one) == ["more_users", "nothing_evaluated"]
    assert steps(one, one | {"users": 8} | SLOW) == ["between", "nothing_evaluated"]
    assert steps(one | SLOW) == ["fewer_users", "nothing_evaluated"]
    few = {"users": 16, "target_requests_min": 8, "target_requests_max": 8}
    assert "few_requests" in steps(one, one | few)
    near = {"setting": "llama-np4", "users": 4, "output_tok_s_min": 102.0, "output_tok_s_max": 107.0}
    assert "more_rounds" in steps(one, near)


def test_warnings_are_counted_by_kind_on_the_first_screen() -> None:
    unstable = {"users": 4, "output_tok_s_min": 200.0, "output_tok_s_max": 260.0}
    content_of, plan = made({"setting": "llama-np4", "users": 4}, {"setting": "llama-np16"} | unstable)
    weak = first.first(content_of, plan, "main")["weak"]
    marked = [claim for claim in claims.of(content_of, "main", "level") if claim.caveats]
    assert (weak["marked"], weak["rows"]) == (len(marked), 2)
    assert ({"en": "rounds differ by 20 % or more", "ja": "回ごとの差が 2 割以上"}, 1) in weak["kinds"]
    assert "rounds differ by 20 % or more (1)" in answer_of(page_.page(content_of, plan))


def test_a_failure_stands_above_the_answer_and_without_a_measurement_there_is_none() -> None:
    rows = [CELL | {"setting": "llama-np16", "users": users} for users in (4, 8)]
    plan = synthetic.plan_of(rows)
    records = list(synthetic.records_of(rows, plan))
    records[3] = synthetic.failed(records[3], "out of memory")
    shown = answer_of(page_.page(concluded(synthetic.from_records(records, [], plan), plan), plan))
    assert '<p class="alarm"><span lang="en">1 of 4 planned measurements failed (llama-np16)' in shown
    assert "Nothing has been measured yet." in page_.page({}, plan)


def test_scores_stand_on_the_first_screen_with_the_verdict_on_each() -> None:
    score = dict.fromkeys(tables.SCHEMAS["scores"].names, 0) | {"task": "mgsm", "measure": "mgsm", "headline": True}
    score |= {"lower_is_better": False, "n": 8, "questions": 8, "count": 6, "target": "Q8_0"}
    content_of = {
        "scores": tables.table("scores", [score | {"repeat": 1}, score | {"repeat": 2, "count": 5}]),
        "targets": tables.table("targets", [target("Q8_0", baseline=True)]),
    }
    plan = plan_evaluated(under_load=False)
    found = first.scores(content_of, [])
    assert found is not None
    assert found["rows"] == [("Q8_0", [((11, 16), None)])] and found["measures"] == [("mgsm", False, 8)]
    compared_ = {"kind": "score", "verdict": "lower", "subjects": ["Q8_0", "x"], "figure": "mgsm"}
    values = {"target": "Q8_0", "baseline": "x", "measure": "mgsm", "points": -9.0, "low": -14.0, "high": -5.0}
    values |= {"changed": 3, "replies": 16, "lower_is_better": False}
    claim = claims.Claim(**compared_, values=values)
    shown = answer_of(page_.page(content_of | {"verdicts": claims.table([claim])}, plan))
    assert "68.8 %" in shown and "▼" in shown and "lower by more than chance in 1" in shown
    assert "Arithmetic (MGSM)" in shown


def test_the_cells_of_the_heat_map_have_the_state_that_was_concluded() -> None:
    cells = [CELL | {"setting": "llama-np16", "users": u} for u in (2, 4, 8, 16)]
    cells[1] |= SLOW
    plan = synthetic.plan_of([*cells, CELL | {"setting": "llama-np4", "users": 32}])
    records = list(synthetic.records_of(cells[:3], plan))
    records[4:] = [synthetic.failed(record, "no") for record in records[4:]]
    heat = content.heatmap(concluded(synthetic.from_records(records, [], plan), plan), plan, "main")
    assert heat["users"] == [2, 4, 8, 16, 32]
    row = heat["rows"][0]
    assert row["setting"].name == "llama-np16"
    assert [cell and cell["state"] for cell in row["cells"]] == ["sure", "missed", "failed", "not_measured", None]
    assert (row["cells"][1]["ttft"], list(row["cells"][1]["missed"])) == ("3.20", ["ttft_p95_s"])
    assert "ttft" not in row["cells"][2], "what failed has no figures"


def test_a_level_is_shown_as_certain_from_a_confidence_of_95_percent_and_never_where_it_is_not_valid() -> None:
    values = {"ttft_p95_s": [0.1, 0.2], "user_tok_s": [20.0, 21.0], "valid": True}
    values |= {"line": {"ttft_p95_s": 2.0, "user_tok_s": 10.0}, "mode": "closed", "rate": None}

    def level(confidence: float, valid: bool = True) -> claims.Claim:
        return claims.Claim(kind="level", verdict="met", confidence=confidence, values=values | {"valid": valid})

    assert [content.state(level(c)) for c in (0.2, 0.949, 0.95, 1.0)] == ["met", "met", "sure", "sure"]
    assert content.state(level(1.0, valid=False)) == "invalid"
    assert set(content.SIGNS) == set(labels()["page"]["state"])
    assert set(content.SIGNS) - {"sure", "invalid", "once"} == set(claims.KINDS["level"])


def test_settings_that_differ_in_one_thing_stand_as_a_table() -> None:
    far = {"setting": "llama-np16", "users": 4, "output_tok_s_min": 202.0, "output_tok_s_max": 207.0}
    content_of, _ = made({"setting": "llama-np4", "users": 4}, far)
    claim, *_ = found = claims.of(content_of, "main", "pair")
    assert [claim.figure for claim in found] == list(PAIRED)
    fold = content.pairs(content_of, "main")
    assert fold is not None and len(fold.rows) == 1
    names = {claim.values["first"], claim.values["second"]}
    assert set(fold.rows[0][:2]) == names == {"llama-np4", "llama-np16"}
    assert fold.rows[0][2] == {"en": "the number of slots", "ja": "同時処理数"}
    assert [text["en"] for text in fold.rows[0][4:]] == [
        *("2.01 ×: too few repeats", "1.00 ×: too few repeats", "1.00 ×: too few repeats"),
    ]
    assert content.pairs({}, "main") is None


def test_each_level_stands_with_its_confidence_lengths_of_prompts_and_replies_and_the_users_before_it() -> None:
    content_of, plan = made({"setting": "llama-np16", "users": 4}, {"setting": "llama-np16", "users": 8})
    rows = {row["users"]: row for row in content.values(content_of, "main")}
    assert {users: row["before"] for users, row in rows.items()} == {4: "–", 8: "4"}
    level = next(claim for claim in claims.of(content_of, "main", "level") if claim.users == 8)
    assert rows[8]["confidence"] == level.confidence is not None
    figures = {figure["name"]: figure["text"] for figure in rows[8]["figures"]}
    assert "–" not in {figures[name] for name in ("prompt_tokens_p50", "output_tokens_mean", "target_requests")}
    page = page_.page(content_of, plan)
    for head in ("prompt_tokens_p50", "output_tokens_mean", "line", "before"):
        assert spoken(f"page.values.{head}")["en"] in page
    assert f" {level.confidence:.2f}</td>" in page


def test_no_raw_name_of_a_measure_stands_where_a_person_reads() -> None:
    rows = [compared(measure=name) for name in labels()["claims"]["measures"]]
    page = page_.page({"comparisons": tables.table("comparisons", rows)}, plan_evaluated(under_load=True))
    read = re.sub(r"<script.*?</script>|<style.*?</style>|<[^>]+>", " ", page, flags=re.S)
    for name in ("mgsm", "jcommonsenseqa", "proof_fixed", "proof_rewritten", "output_tok_s", "ttft_p95_s"):
        assert name not in read, name


def test_the_first_use_of_each_term_leads_to_the_glossary_and_no_other() -> None:
    content_of, plan = made({"setting": "llama-np16", "users": 4}, {"setting": "llama-np4", "users": 4})
    page = page_.page(content_of, plan)
    links = re.findall(r'<a class="term" href="#term-(\w+)">([^<]+)</a>', page)
    names = {own["term"][language] for own in labels()["page"]["terms"].values() for language in LANGUAGES}
    assert len(links) > 10
    assert all(links.count(link) == 1 or link[1] == "TTFT p95" for link in links), "TTFT p95 is so called in both"
    assert {name for _, name in links} <= names
    assert all(f'<dt id="term-{key}">' in page for key in labels()["page"]["terms"])
    assert '<a class="term"' not in page[page.index('aria-labelledby="h-terms"') :]


def test_every_kind_of_claim_has_a_place_on_the_page() -> None:
    of_their_own = {"coverage", "capacity", "leader", "pair", "level", "choice", "outdone", "objective", "schedule"}
    of_their_own |= {"highest", *page_.ANSWERS}  # `highest` stands below a chart
    of_other_pages = {"once", "rate", "size"}  # of one load, of its search, of two experiments
    assert of_their_own | of_other_pages | set(page_.OTHERS) == set(claims.KINDS)
    assert not of_their_own & set(page_.OTHERS)


def test_no_link_leads_out_of_the_page() -> None:
    content_of, plan = made(*({"setting": f"llama-np{slots}", "users": 4} for slots in (4, 8)))
    page = page_.page(content_of, plan)
    links = set(re.findall(r'<a [^>]*href="([^"]*)"', page))
    assert any(link.startswith("#") for link in links)
    assert all(link.startswith(("#", "data:text/csv")) for link in links)
    assert {link[1:] for link in links if link.startswith("#")} <= set(re.findall(r' id="([^"]+)"', page))


def test_the_machine_stands_with_its_cores_and_memory_where_they_are_known() -> None:
    content_of, plan = made({"setting": "llama-np16", "users": 4})
    assert content.machines(content_of) == [("NVIDIA H200", 96, None)]
    assert "<dd>NVIDIA H200</dd>" in page_.page(content_of, plan)
    rows = [row | {"machine_memory_gib": 503.4} for row in content_of["sessions"].to_pylist()]
    page = page_.page(content_of | {"sessions": tables.table("sessions", rows)}, plan)
    assert spoken("page.conditions.machine_text", name="NVIDIA H200", cores=96, memory="503")["en"] in page


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
    assert "the servers ran on the machine" in conditions(page_.page(launches, plan))
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
    found = {"setting": "vllm-bf16", "p50": "20.0–40.0", "range": "19.0–300"}
    assert spoken("page.conditions.round_trip_text", **found)["en"] in text
    assert "no network" not in text and "llama-np16: not measured" not in text


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
    assert "Nothing has been asked yet." in page_.page({}, plan)
    doubts = [mark("unanswered", unanswered=6, asked=56), mark("other_prompts")]
    q4_0 = target("Q4_0", same_prompts=False, answered=50, marks=doubts)
    failed = target("Q4_1", reason=[mark("failed", reason="out of <memory>")], answered=0, model_sha256=None)
    rows = [q4_0, failed, target("Q8_0", baseline=True)]
    page = page_.page({"targets": tables.table("targets", rows)}, plan)
    text = unlinked(page[page.index('id="h-evaluated"') : page.index('id="h-charts">')])
    asked = {"targets": 3, "questions": 28, "repeats": 2, "baseline": "Q8_0"}
    assert spoken("page.evaluated.lead", **asked)["en"] in text
    assert "50 of 56" in text and "sha256:abababababab…" in text
    assert "differ from the baseline&#39;s" in text
    assert "同じ問いのトークン列が基準と違う" in text and "回答なし：依頼 56 件のうち 6 件" in text
    assert "out of &lt;memory&gt;" in text
    own_note = plan.models["smollm2-q4_0"].note
    assert own_note and text.count(own_note["en"]) == 2
    assert "under load was not planned" in text
    bare = {key: msgspec.structs.replace(model, note=None) for key, model in plan.models.items()}
    targets = {
        name: msgspec.structs.replace(setting, model=bare[setting.model.key])
        for name, setting in plan.evaluations.targets.items()
    }
    plain = msgspec.structs.replace(
        plan, models=bare, evaluations=msgspec.structs.replace(plan.evaluations, targets=targets)
    )
    page = page_.page({"targets": tables.table("targets", rows)}, plain)
    assert page.count(spoken("page.evaluated.requantized", source="SmolLM2-135M-Instruct Q4_1")["en"]) == 2


def test_a_note_on_a_target_stands_beside_it() -> None:
    plan = plan_evaluated(under_load=False)
    noted = msgspec.structs.replace(plan.evaluations.targets["Q8_0"], note={"en": "Asked last.", "ja": "最後。"})
    asked = msgspec.structs.replace(plan.evaluations, targets=plan.evaluations.targets | {"Q8_0": noted})
    rows = tables.table("targets", [target("Q8_0", baseline=True), target("Q4_0")])
    page = page_.page({"targets": rows}, msgspec.structs.replace(plan, evaluations=asked))
    text = page[page.index('id="h-evaluated"') : page.index('id="h-charts">')]
    assert [row.count("Asked last.") for row in text.split("<tr>")[-2:]] == [1, 0]


def compared(**changes: Any) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(tables.SCHEMAS["comparisons"].names, 0)
    row |= {"measure": "mgsm", "target": "Q4_1", "baseline": "Q8_0", "repeat": 1, "n": 250, "questions": 250}
    row |= {"base_only": 12, "other_only": 5, "difference": -2.8, "low": -6.3, "high": 0.5, "p_holm": 0.43}
    row |= {"verdict": "none_detected", "detectable": 5.7, "equivalent": None, "noise_first_only": 3}
    return row | {"noise_second_only": 4} | changes


def test_each_comparison_with_the_baseline_stands_with_its_flips_and_no_verdict_of_its_own() -> None:
    lower = {"target": "Q4_0", "verdict": "difference", "difference": -9.6, "low": -14.0, "high": -5.0}
    none = {"target": "Q5_0", "verdict": "cannot_be_significant", "base_only": 1, "other_only": 0}
    rows = [
        compared(),
        compared(**lower, p_holm=0.001),
        compared(**none, noise_first_only=None, noise_second_only=None),
        compared(measure="proof_fixed", equivalent=True, margin=6.0),
    ]
    found = evaluated.comparisons({"comparisons": tables.table("comparisons", rows)})
    assert [(fold.id, len(fold.rows)) for fold in found] == [("compared-mgsm", 3), ("compared-proof_fixed", 1)]
    assert found[0].name == {"en": "Arithmetic (MGSM)", "ja": "算数の文章題（MGSM）"}
    first_row, differs, once = found[0].rows
    assert first_row[:5] == ("Q4_1", "1", "-2.8 (-6.3 – +0.5)", "0.43", "250")
    assert dict(first_row[5])["en"] == "true only of the baseline 12, only of the target 5; baseline repeats 3/4"
    assert differs[2] == "-9.6 (-14.0 – -5.0)"
    assert dict(once[5])["ja"] == "基準だけ正答 1 問、対象だけ正答 0 問"
    page = page_.page({"comparisons": tables.table("comparisons", rows)}, plan_evaluated(under_load=False))
    assert "true only of the baseline 12" in page and "difference detected" not in page


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
    for said in ("Wrong particle", "助詞の誤り", "118 · 120", "4/10 (8)", "3 · 4"):
        assert said in page


def test_answers_under_load_stand_on_the_page() -> None:
    plan = plan_evaluated(under_load=True)
    content_of = {"targets": tables.table("targets", [target("Q8_0", baseline=True)])}
    page = page_.page(content_of, plan)
    assert "The first 5 questions of Arithmetic (MGSM)" in unlinked(page) and "Not measured." in page
    row: dict[str, Any] = dict.fromkeys(tables.SCHEMAS["under_load"].names, 0)
    row |= {"measure": "mgsm", "target": "Q8_0 (8 users)", "baseline": "Q8_0 (idle)", "verdict": "none_detected"}
    row |= {"n": 5, "questions": 5, "base_only": 1, "other_only": 0, "difference": -20.0, "low": -62.4, "high": 33.4}
    row |= {"detectable": None, "equivalent": None}
    content_of["under_load"] = tables.table("under_load", [row])
    page = page_.page(content_of, plan)
    assert "-20.0 (-62.4 – +33.4)" in page


def spoken_in(entry: dict[str, Any], language: str) -> list[str]:
    """List every text of one language below an entry of labels.yaml."""
    return [entry[language]] if language in entry else [t for own in entry.values() for t in spoken_in(own, language)]


def test_whatever_stays_open_has_words_for_what_to_try_next() -> None:
    every = set(claims.KINDS["coverage"]) - {"complete"} | {"nothing_evaluated", "too_few_questions", "not_judged"}
    assert every <= set(labels()["page"]["next"])
    assert set(first.VERDICTS) == set(labels()["page"]["score"]) == set(claims.KINDS["under_load"])


def test_no_sentence_states_a_cause() -> None:
    causes = {
        "en": r"\b(because|caused|due to|thanks to|owing to)\b",
        "ja": r"(原因は.{0,12}である|のせいで|のおかげで)",
    }
    for section in ("answer", "next", "weak", "compared", "evaluated", "compare"):
        for language in LANGUAGES:
            for text in spoken_in(labels()["page"][section], language):
                assert not re.search(causes[language], text), f"{section}: {text}"


def test_what_failed_and_what_is_missing_is_listed_with_its_reason() -> None:
    cells = [CELL | {"setting": "llama-np16", "users": users} for users in (4, 8)]
    plan = synthetic.plan_of(cells)
    records = list(synthetic.records_of(cells, plan))
    records = [records[0], synthetic.failed(records[1], "CUDA <out of memory>"), records[2]]
    made_of = synthetic.from_records(records, [], plan)
    gaps = content.missing(made_of, plan)
    why = [mark("failed", reason="CUDA <out of memory>")]
    assert [(g["users"], g["round"], g["reason"]) for g in gaps] == [(4, 2, why), (8, 2, [])]
    further = content.missing(made_of, msgspec.structs.replace(plan, rounds=1))
    assert [(g["users"], g["round"], g["reason"]) for g in further] == [(4, 2, why)], "in a round only a search made"
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
    assert "2 of 6 facts" in page
    assert page.count("not reported by the server") == 1
    content_of["expected"] = tables.table("expected", [])
    assert " facts agree" not in page_.page(content_of, plan)


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
    assert fold.rows[0][column] in page


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


def test_marks_are_told_in_both_languages_where_they_are_shown_and_where_they_are_pointed_at() -> None:
    content_of, plan = made(*({"setting": "llama-np16", "users": users} for users in (4, 8)))
    rows = schema.rows(content_of["settings"])
    changed = mark("unstable_rounds", figure="user_tok_s", first=2, second=3)
    rows[0]["marks"] = [changed, mark("missing_round", measured=1, rounds=2)]
    failures = [mark("all_failed", requests=7, statuses={"timeout": 7}), mark("failed", reason="CUDA <7>")]
    rows[1] |= {"rounds": 0, "failure": failures}
    del content_of["verdicts"]
    changed_tables = concluded(content_of | {"settings": tables.table("settings", rows)}, plan)
    page = page_.page(changed_tables, plan)
    for language in LANGUAGES:
        for said in (*rows[0]["marks"], failures[0]):
            assert f'<span lang="{language}">{marks.translated(said)[language]}</span>' in page
    caveats = claims.of(changed_tables, "main", "level")[0].caveats
    assert set(rows[0]["marks"]) <= set(caveats)
    assert f'data-title-ja="{html.escape(marks.told(caveats, "ja"))}"' in page
    assert f'title="{marks.told(caveats, "en")}"'.replace("'", "&#39;") in page
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


def test_the_values_show_the_cached_share_and_the_backlog_of_an_open_loop() -> None:
    rows = [CELL | {"setting": "llama-np4", "users": 4}]
    plan = synthetic.plan_of(rows)
    made_of = dict(synthetic.from_records(list(synthetic.records_of(rows, plan)), [], plan))
    assert shown_values(made_of, "backlog_end") == "–"  # a closed loop has none
    for table, column, values in (
        ("measurements", "backlog_end", [3, 5]),
        ("settings", "cached_share_min", [0.1]),
        ("settings", "cached_share_max", [0.25]),
    ):
        place, kind = made_of[table].schema.get_field_index(column), made_of[table].schema.field(column)
        made_of[table] = made_of[table].set_column(place, kind, pa.array(values, kind.type))
    assert (shown_values(made_of, "cached_share"), shown_values(made_of, "backlog_end")) == ("0.10–0.25", "3–5")


def shown_values(made_of: Mapping[str, pa.Table], name: str) -> str:
    (row,) = content.values(made_of, "main")
    return next(figure["text"] for figure in row["figures"] if figure["name"] == name)


def test_the_levels_on_which_other_limits_are_tried_are_those_of_the_worst_round() -> None:
    cells = [{"users": 4, "user_tok_s_min": 25.0, "ttft_p95_s_max": 0.4}, {"users": 8} | SLOW]
    few = {"users": 16, "target_requests_min": 8, "target_requests_max": 8}
    content_of, plan = made(*({"setting": "llama-np16"} | cell for cell in (*cells, few)))
    (found,) = choice.levels(content_of, plan, "main")
    assert [(one["users"], one["sign"]) for one in found["levels"]] == [(4, ""), (8, ""), (16, "?")]
    first_, second = found["levels"][:2]
    assert (first_["ttft"], first_["speed"], second["ttft"]) == tuple(pytest.approx(n) for n in (0.4, 25.0, 3.2))
    assert {plan.line.ttft_p95_s} < set(choice.offered(plan)["ttft"])


def test_what_a_schedule_loads_has_no_levels_to_try() -> None:
    content_of, plan = made({"setting": "llama-np16", "users": 4})
    (level,) = claims.of(content_of, "main", "level")
    of_schedule = {**content_of, "verdicts": claims.table([level])}  # which has no capacity
    assert choice.levels(content_of, plan, "main") and not choice.levels(of_schedule, plan, "main")


def test_a_title_may_be_in_english_alone() -> None:
    content_of, plan = made({"setting": "llama-np16", "users": 4})
    page = page_.page(content_of, msgspec.structs.replace(plan, title={"en": "One H100"}))
    assert 'data-title-ja="One H100"' in page


def test_the_choices_of_the_page_are_the_claims() -> None:
    far = {"setting": "llama-np4", "users": 4, "output_tok_s_min": 202.0, "output_tok_s_max": 207.0}
    content_of, _ = made({"setting": "llama-np16", "users": 4}, far)
    (claim,) = claims.of(content_of, "main", "choice")
    fold = choice.chosen(content_of, "main")
    assert fold is not None
    assert [row[2] for row in fold.rows] == claim.values["choose"] == ["llama-np4", "llama-np16"]
    assert fold.rows[0][3] == "202–207" and fold.rows[0][-1]["en"] == "answers not evaluated"
    alone = made({"setting": "llama-np16", "users": 4})[0]
    assert choice.chosen(alone, "main") is None
