"""Two experiments side by side: what is called separated, and what differs beside the figures."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
import yaml

import synthetic
from servebench import configuration, tables
from servebench import plan as planning
from servebench.cli import compare
from servebench.faults import Fault
from servebench.report import comparison, comparison_page
from servebench.words import spoken
from servebench.words.claims import said

CELL = {
    "run": "main",
    "setting": "llama-np4",
    "users": 4,
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


def experiment(*cells: dict[str, Any], name: str = "h200", rounds: int = 2, **machine: Any) -> comparison.Experiment:
    rows = [CELL | cell for cell in cells]
    plan = synthetic.plan_of(rows, name)
    records = list(synthetic.records_of(rows, plan, machine=synthetic.changed(synthetic.H200, **machine)))
    records = [record for record in records if record.identity.round <= rounds]
    return comparison.Experiment(folder=Path(name), plan=plan, tables=synthetic.from_records(records, [], plan))


def pairs(found: comparison.Comparison) -> dict[tuple[int, str], comparison.Pair]:
    return {(pair.users, pair.figure): pair for pair in found.pairs}


def verdicts(found: comparison.Comparison, figure: str = "output_tok_s") -> set[str | None]:
    return {pair.claim and pair.claim.verdict for pair in found.pairs if pair.figure == figure}


def many(factor: float = 1.0, name: str = "h200", **more: Any) -> comparison.Experiment:
    """Twelve levels whose two rounds are 2 % apart."""
    cells = [
        {"users": users, "output_tok_s_min": 100.0 * factor, "output_tok_s_max": 102.0 * factor}
        for users in range(1, 13)
    ]
    return experiment(*cells, name=name, **more)


def test_two_rounds_of_one_level_separate_nothing_whatever_their_ranges() -> None:
    far = {"output_tok_s_min": 150.0, "output_tok_s_max": 156.0}
    found = comparison.compare(experiment({}), experiment(far))
    assert verdicts(found) == {"too_few_repeats"}
    assert pairs(found)[4, "output_tok_s"].ratio == pytest.approx(1.5, rel=0.01)


def test_the_repeats_of_both_together_tell_a_difference_from_chance() -> None:
    assert verdicts(comparison.compare(many(), many(1.5))) == {"higher"}
    assert verdicts(comparison.compare(many(1.5), many())) == {"lower"}
    found = comparison.compare(many(), with_column(many(), "digest", ""))
    assert verdicts(found) == {"not_beyond_noise"}
    assert comparison.counts(found, "output_tok_s") == {"judged": 12, "pairs": 12, "higher": 0, "lower": 0}
    assert {claim.verdict for claim in found.sizes} == {"not_beyond_noise"}
    faster = comparison.compare(many(), many(1.5)).sizes
    assert [(claim.figure, claim.verdict) for claim in faster][:1] == [("output_tok_s", "beyond_noise")]
    assert (faster[0].users, faster[0].values["pairs"]) == (12, 1)


def test_outputs_that_a_schedule_decides_are_not_compared() -> None:
    def scheduled(made: comparison.Experiment, **workload: Any) -> comparison.Experiment:
        settings = {
            name: msgspec.structs.replace(one, workload={**one.workload, **workload})
            for name, one in made.plan.settings.items()
        }
        return dataclasses.replace(made, plan=msgspec.structs.replace(made.plan, settings=settings))

    for workload, sizes in (({"mode": "open", "rate": 4.0}, 0), ({"mode": "open-users", "user_rate": 0.5}, 2)):
        found = comparison.compare(scheduled(many(), **workload), scheduled(many(1.5), **workload))
        assert {pair.figure for pair in found.pairs} == {"user_tok_s", "ttft_p95_s"}
        assert len(found.sizes) == sizes


def test_one_round_separates_nothing() -> None:
    found = comparison.compare(many(), many(1.5, rounds=1))
    assert verdicts(found) == {"too_few_repeats"}
    assert comparison.counts(found, "output_tok_s")["judged"] == 0


def test_nothing_is_concluded_from_measurements_that_are_not_valid() -> None:
    faster = many(1.5)
    rows = faster.tables["measurements"]
    place = rows.schema.names.index("valid")
    throttled = pa.array([False] * len(rows), pa.bool_())
    made = {**faster.tables, "measurements": rows.set_column(place, rows.schema.field("valid"), throttled)}
    for one, other in (
        (many(), dataclasses.replace(faster, tables=made)),
        (dataclasses.replace(faster, tables=made), many()),
    ):
        found = comparison.compare(one, other)
        assert verdicts(found) == {"not_valid"}
        assert comparison.counts(found, "output_tok_s")["judged"] == 0
        assert pairs(found)[4, "output_tok_s"].ratio is not None


def with_column(one: comparison.Experiment, name: str, value: Any, where: int | None = None) -> comparison.Experiment:
    """Give measurements (of `where` users, or all) a value in a column."""
    rows = one.tables["measurements"]
    place, field = rows.schema.names.index(name), rows.schema.field(name)
    content = [value if where in (None, row["users"]) else row[name] for row in rows.to_pylist()]
    made = {**one.tables, "measurements": rows.set_column(place, field, pa.array(content, field.type))}
    return dataclasses.replace(one, tables=made)


def test_a_measurement_that_is_not_valid_gives_no_size_where_others_do() -> None:
    faster = with_column(many(1.5), "valid", False, where=12)
    output = next(claim for claim in comparison.compare(many(), faster).sizes if claim.figure == "output_tok_s")
    assert (output.users, output.verdict) == (11, "beyond_noise")


def test_what_weakens_a_comparison_stands_with_its_size() -> None:
    short = with_column(many(1.5), "output_tokens_mean", 3.0)
    (size, *_) = comparison.compare(with_column(many(), "output_tokens_mean", 100.0), short).sizes
    (weak,) = size.caveats
    assert (weak.kind, weak.values["shortest"], weak.values["longest"]) == ("reply_lengths_differ", "B", "A")
    assert all(word in said(size)["en"] for word in ("A", "B", "3", "100"))


def changed(one: comparison.Experiment, **changes: Any) -> comparison.Experiment:
    """Change the only setting."""
    (setting,) = one.plan.settings.values()
    new = msgspec.structs.replace(setting, **changes)
    made = {}
    for name, content in one.tables.items():
        if "setting" in content.schema.names:
            place, names = content.schema.names.index("setting"), [new.name] * len(content)
            content = content.set_column(place, content.schema.field("setting"), pa.array(names, pa.string()))
        made[name] = content
    return dataclasses.replace(one, plan=msgspec.structs.replace(one.plan, settings={new.name: new}), tables=made)


def test_another_model_prompts_or_workload_get_no_ratio_unless_asked_for() -> None:
    one = many()
    (setting,) = one.plan.settings.values()
    other_model = msgspec.structs.replace(setting.model, name="Qwen3-0.6B")
    for part, changes in {
        "model": {"model": other_model},
        "prompts": {"workload": setting.workload | {"prompts": "en-short"}},
        "workload": {"workload": setting.workload | {"max_tokens": 3}},
    }.items():
        other = changed(many(1.5), **changes)
        found = comparison.compare(one, other)
        assert verdicts(found) == {"not_comparable"}
        assert {pair.ratio for pair in found.pairs} == {None}
        assert {tuple(pair.claim.values["parts"]) for pair in found.pairs if pair.claim} == {(part,)}
        assert verdicts(comparison.compare(one, other, [part])) == {"higher"}
        page = comparison_page.page(found)
        assert f"not comparable: other {part}" in page and "比較できない" in page
    longer = changed(many(1.5), workload=setting.workload | {"window_s": 120, "min_targets": 20})
    assert verdicts(comparison.compare(one, longer)) == {"higher"}, "a longer window is no other work"


def test_measurements_that_both_experiments_took_from_one_store_are_no_repeats_of_each_other() -> None:
    """Twelve levels are the same in both; the thirteenth was measured anew: 13 cells of two rounds, not 26."""
    cells = [{"users": users, "output_tok_s_min": 100.0, "output_tok_s_max": 102.0} for users in range(1, 14)]
    one = experiment(*cells)
    other = experiment(*cells[:-1], cells[-1] | {"output_tok_s_min": 150.0, "output_tok_s_max": 153.0})
    assert verdicts(comparison.compare(one, other)) == {"too_few_repeats"}
    assert "higher" in verdicts(comparison.compare(one, with_column(other, "digest", "")))


def test_a_size_across_models_or_prompts_names_what_differs() -> None:
    one = many()
    (setting,) = one.plan.settings.values()
    small = msgspec.structs.replace(setting.model, name="Qwen3-0.6B", quantization="Q8_0")
    (size, *_) = comparison.compare(one, changed(many(1.5), model=small), ["model"]).sizes
    assert size.values["parts"] == ["model"]
    assert size.values["models"] == [["Qwen3-14B Q4_K_M"], ["Qwen3-0.6B Q8_0"]]
    told = said(size)
    assert "A and B differ in model. A is Qwen3-14B Q4_K_M; B is Qwen3-0.6B Q8_0." in told["en"]
    assert "A は Qwen3-14B Q4_K_M、B は Qwen3-0.6B Q8_0 です。" in told["ja"]
    other = msgspec.structs.replace(setting.model, sha256="b" * 64)
    (size, *_) = comparison.compare(one, changed(many(1.5), model=other), ["model"]).sizes
    assert size.values["models"][1] == ["Qwen3-14B (bbbbbbbbbbbb)"], "the same name, another file"
    short = changed(many(1.5), workload=setting.workload | {"prompts": "en-short"})
    found = comparison.compare(one, short, ["prompts"])
    assert (found.sizes[0].values["parts"], found.sizes[0].values["models"]) == (["prompts"], [])
    assert "A and B differ in prompts." in said(found.sizes[0])["en"]
    assert "A と B では依頼文が異なります。" in said(found.sizes[0])["ja"]
    for pair in found.pairs:
        assert pair.claim and "workload.prompts" in pair.claim.values["differs"]
    (same, *_) = comparison.compare(one, many(1.5)).sizes
    assert (same.values["parts"], same.values["models"]) == ([], []) and "A and B" not in said(same)["en"]


def test_loads_of_other_prompts_are_compared_from_their_folders_only_when_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = synthetic.loaded(tmp_path / "one")
    other = synthetic.loaded(tmp_path / "other", workload={"prompts": "ja-business"}, output_tok_s=300.0)
    compare.command(str(one), str(other), None)
    refused = capsys.readouterr().out
    assert "not comparable: other prompts" in refused and "3.00" not in refused and "B gives" not in refused
    compare.command(str(one), str(other), tmp_path / "page.html", ["prompts"])
    told = " ".join(capsys.readouterr().out.split())
    assert "B gives 3.00 × the output of A, but too few valid repeats tell it from chance." in told
    assert "A and B differ in prompts." in told
    assert "A と B では依頼文が異なります。" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_settings_are_paired_by_what_they_are_too() -> None:
    one = many()
    found = comparison.compare(one, changed(many(1.5), name="renamed"))
    assert {pair.setting for pair in found.pairs} == {"llama-np4 → renamed"}
    assert verdicts(found) == {"higher"} and found.only == (0, 0) and found.differences == []
    with pytest.raises(comparison.NothingToCompare):
        comparison.compare(one, changed(many(), name="renamed", slots=8))


def test_that_evaluated_answers_are_left_out_is_said() -> None:
    first, second = experiment({}), experiment({})
    said = "Evaluated answers are not compared here"
    plain = comparison.compare(first, second)
    assert said not in comparison_page.page(plain) and not any(said in note for note in compare.notes(plain))
    config = synthetic.ROOT / "config" / "config.yaml"
    asked = configuration.load(yaml.safe_load(config.read_text(encoding="utf-8")), ["config.yaml"]).evaluations
    second = dataclasses.replace(second, plan=msgspec.structs.replace(second.plan, evaluations=asked))
    found = comparison.compare(first, second)
    assert said in comparison_page.page(found) and "回答の評価はここでは比べません" in comparison_page.page(found)
    assert sum(said in note for note in compare.notes(found)) == 1


def test_what_is_in_one_only_is_counted_and_not_compared() -> None:
    found = comparison.compare(experiment({}, {"users": 8}), experiment({}, {"setting": "llama-np16"}))
    assert {(pair.setting, pair.users) for pair in found.pairs} == {("llama-np4", 4)}
    assert found.only == (1, 1)
    with pytest.raises(comparison.NothingToCompare, match="no setting of the same name"):
        comparison.compare(experiment({}), experiment({"users": 8}))


def test_mixed_conditions_are_called_out() -> None:
    one = experiment({}, {"setting": "llama-np16"})
    assert comparison.compare(one, one).differences == []
    other = experiment({}, {"setting": "llama-np16"}, fingerprint="b-gpu")
    setting = other.plan.settings["llama-np16"]
    changed = msgspec.structs.replace(setting, workload=setting.workload | {"max_tokens": 64})
    plan = msgspec.structs.replace(other.plan, settings=other.plan.settings | {"llama-np16": changed})
    found = comparison.compare(one, dataclasses.replace(other, plan=plan))
    assert [(d.what, d.first, d.second, d.settings) for d in found.differences] == [
        ("fingerprint", "a-gpu", "b-gpu", ("llama-np4", "llama-np16")),
        ("workload.max_tokens", "256", "64", ("llama-np16",)),
    ]
    (noted,) = (note for note in compare.notes(found) if "fingerprint" in note)
    assert re.findall(r"[ab]-gpu|llama-np\d+", noted) == ["a-gpu", "b-gpu", "llama-np4", "llama-np16"]


@pytest.mark.parametrize(
    ("changes", "what", "second"),
    [
        ({"env": {"OLLAMA_FLASH_ATTENTION": "1"}}, "env.OLLAMA_FLASH_ATTENTION", "1"),
        ({"request": {"thinking": {"enabled": False}}}, "request.thinking.enabled", "false"),
        ({"request": {"top_p": None}}, "request.top_p", "null"),
        ({"cpus": {"server": 8, "load": 4}}, "cpus.load", "4"),
        ({"processes": 4}, "processes", "4"),
        ({"args": ("--chat-template", "a b")}, "args", "--chat-template 'a b'"),
        ({"slots": 8}, "slots", "8"),
        ({"context": 8192}, "context", "8192"),
        ({"prompts_sha256": "1" * 64}, "prompts_sha256", "1" * 64),
        ({"trace_sha256": "1" * 64}, "trace_sha256", "1" * 64),
        ({"engine": {"runtime": "container"}}, "engine.runtime", "container"),
        ({"engine": {"options": {"thinking": True}}}, "engine.options.thinking", "true"),
        ({"engine": {"url": "http://far.invalid"}}, "engine.url", "http://far.invalid"),
        ({"model": {"quantization": "Q8_0"}}, "model.quantization", "Q8_0"),
    ],
)
def test_whatever_determines_a_measurement_is_a_condition(changes: dict[str, Any], what: str, second: str) -> None:
    one = experiment({})
    setting = one.plan.settings["llama-np4"]
    for part in ("engine", "model"):
        if part in changes:
            changes = {part: msgspec.structs.replace(getattr(setting, part), **changes[part])}
    changed = msgspec.structs.replace(setting, **changes)
    plan = msgspec.structs.replace(one.plan, settings={"llama-np4": changed})
    found = comparison.compare(one, dataclasses.replace(one, plan=plan)).differences
    assert (what, second) in [(difference.what, difference.second) for difference in found]


def test_names_and_other_numbers_of_users_are_no_conditions() -> None:
    one = experiment({})
    setting = one.plan.settings["llama-np4"]
    engine = msgspec.structs.replace(setting.engine, key="mine", environment="other", image="other")
    model = msgspec.structs.replace(setting.model, key="mine", source="hf://elsewhere")
    renamed = msgspec.structs.replace(setting, engine=engine, model=model, users=(4, 8), note="ours")
    plan = msgspec.structs.replace(one.plan, settings={"llama-np4": renamed})
    assert comparison.compare(one, dataclasses.replace(one, plan=plan)).differences == []


def test_the_page_says_it_in_both_languages_and_fetches_nothing() -> None:
    far = {"output_tok_s_min": 150.0, "output_tok_s_max": 156.0}
    found = comparison.compare(experiment({}), experiment(far, name="another", fingerprint="<b>"))
    page = comparison_page.page(found)
    assert spoken("page.compare.none_judged", pairs=1)["en"] in page
    assert "too few repeats to tell" in page and "測定回数が足りず判定できない" in page
    assert "&lt;b&gt;" in page and "<code><b></code>" not in page
    assert (
        not {"http:", "https:"} & set(re.findall(r"https?:", page.partition("<script")[0]))
        and "default-src 'none'" in page
    )


def test_by_name_or_folder_and_a_clear_fault_otherwise(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    made = experiment({})
    folder = tmp_path / "results" / "mine"
    tables.write(folder / "tables", {name: made.tables[name] for name in ("settings", "measurements")})

    (folder / "plan.json").write_text(planning.canonical(planning.reported(made.plan)))
    monkeypatch.chdir(tmp_path)
    compare.command("mine", str(folder), tmp_path / "out" / "page.html")
    said = capsys.readouterr().out
    assert "too few repeats to tell" in said
    assert "differs: " not in said
    assert (tmp_path / "out" / "page.html").read_text().startswith("<!doctype html>")
    with pytest.raises(comparison.NothingToCompare, match="nowhere: is neither"):
        comparison.read("nowhere")
    (folder / "tables" / "settings.parquet").unlink()
    with pytest.raises(comparison.NothingToCompare, match="mine/tables: "):
        comparison.read("mine")


def test_sizes_come_first_at_the_number_of_users_where_most_settings_compete() -> None:
    found = comparison.compare(experiment({}), experiment({"output_tok_s_min": 200.0, "output_tok_s_max": 208.0}))
    assert [(c.figure, c.users, round(c.values["low"], 2)) for c in found.sizes] == [
        *(("output_tok_s", 4, 2.0), ("user_tok_s", 4, 1.0), ("ttft_p95_s", 4, 1.0)),
    ]
    assert {claim.verdict for claim in found.sizes} == {"not_judged"}, "two rounds of one level"
    page, told = comparison_page.page(found), said(found.sizes[0])
    assert "B gives 2.00 × the output of A, but too few valid repeats" in told["en"] and "区別できません" in told["ja"]
    assert (
        page.index(told["en"])
        < page.index("can be judged")
        < page.index("dumbbell-output_tok_s")
        < page.index("h-mixed")
    )


def test_folders_of_load_are_compared_and_one_round_each_tells_nothing(tmp_path: Path, capsys: Any) -> None:
    first, second = synthetic.loaded(tmp_path / "a"), synthetic.loaded(tmp_path / "b", output_tok_s=150.0)
    found = comparison.compare(comparison.read(str(first)), comparison.read(str(second)))
    assert verdicts(found) == {"too_few_repeats"}
    assert pairs(found)[4, "output_tok_s"].ratio == pytest.approx(1.5)
    other = comparison.read(str(synthetic.loaded(tmp_path / "c", model="another")))
    assert verdicts(comparison.compare(comparison.read(str(first)), other)) == {"not_comparable"}
    compare.command(str(first), str(second), None)
    assert "too few repeats to tell" in capsys.readouterr().out
    with pytest.raises(Fault, match=r"^--across: 'engine' is not one of model"):
        compare.command(str(first), str(second), None, ["engine"])


def test_a_sweep_of_load_is_compared_at_each_number_of_users(tmp_path: Path) -> None:
    for side in "ab":
        for users in (1, 8):
            synthetic.loaded(tmp_path / side / f"users-{users:03d}", users=users)
    found = comparison.compare(*(comparison.read(str(tmp_path / side)) for side in "ab"))
    assert sorted({pair.users for pair in found.pairs}) == [1, 8]


def test_a_summary_of_another_shape_is_named(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text("{}")
    with pytest.raises(Fault, match=f"^{tmp_path}/summary.json: is no summary of a load"):
        comparison.read(str(tmp_path))


def test_a_folder_whose_name_is_markup_is_compared_and_no_measurement_is_written_over(
    tmp_path: Path, capsys: Any
) -> None:
    made = experiment({})
    folder = tmp_path / "[" / "bold]"
    tables.write(folder / "tables", {name: made.tables[name] for name in ("settings", "measurements")})
    (folder / "plan.json").write_text(planning.canonical(planning.reported(made.plan)))
    compare.command(str(folder), str(folder), None)
    assert "bold]" in "".join(capsys.readouterr().out.split())
    measurement = tmp_path / "m.parquet"
    measurement.write_bytes(b"measured")
    with pytest.raises(Fault, match=r"--html: .*m\.parquet is a page, in HTML"):
        compare.command(str(folder), str(folder), measurement)
    page, other = tmp_path / "page.html", tmp_path / "other name"
    page.write_bytes(b"measured")
    other.hardlink_to(page)
    compare.command(str(folder), str(folder), page)
    assert (measurement.read_bytes(), other.read_bytes()) == (b"measured", b"measured")
