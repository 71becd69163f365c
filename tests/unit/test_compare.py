"""Two experiments side by side: what is called separated, and what differs beside the figures."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

import synthetic
from servebench import configuration, tables
from servebench import plan as planning
from servebench.cli import compare
from servebench.report import comparison, comparison_page
from servebench.words import spoken

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


def test_separated_only_where_ranges_have_nothing_in_common() -> None:
    far = {"output_tok_s_min": 150.0, "output_tok_s_max": 156.0}
    found = pairs(comparison.compare(experiment({}), experiment(far)))
    assert found[4, "output_tok_s"].verdict == "separated"
    assert found[4, "output_tok_s"].ratio == pytest.approx(306 / 204, rel=0.01)
    assert found[4, "user_tok_s"].verdict == "not_separated"
    near = {"output_tok_s_min": 103.0, "output_tok_s_max": 156.0}
    assert pairs(comparison.compare(experiment({}), experiment(near)))[4, "output_tok_s"].verdict == "not_separated"


def test_one_round_separates_nothing() -> None:
    far = {"output_tok_s_min": 150.0, "output_tok_s_max": 156.0}
    found = comparison.compare(experiment({}), experiment(far, rounds=1))
    assert {pair.verdict for pair in found.pairs} == {"one_round"}
    assert comparison.counts(found, "output_tok_s")["separated"] == 0


def test_more_than_nothing_is_higher_though_it_has_no_ratio() -> None:
    some = experiment({})
    (row,) = some.tables["settings"].to_pylist()
    rows = [row | {"output_tok_s_min": 0.0, "output_tok_s_max": 0.0}]
    nothing = dataclasses.replace(some, tables={**some.tables, "settings": tables.table("settings", rows)})
    for pair, higher, lower in ((nothing, some), 1, 0), ((some, nothing), 0, 1):
        found = comparison.compare(*pair)
        assert pairs(found)[4, "output_tok_s"].ratio == (None if higher else 0)
        counts = {"pairs": 1, "separated": 1, "higher": higher, "lower": lower}
        assert comparison.counts(found, "output_tok_s") == counts


def test_that_evaluated_answers_are_left_out_is_said() -> None:
    first, second = experiment({}), experiment({})
    said = "Evaluated answers are not compared here"
    plain = comparison.compare(first, second)
    assert said not in comparison_page.page(plain) and not any(said in note for note in compare.notes(plain))
    config = synthetic.ROOT / "config" / "config.yaml"
    asked = configuration.load(yaml.safe_load(config.read_text(encoding="utf-8")), ["config.yaml"]).evaluations
    second = dataclasses.replace(second, plan=msgspec.structs.replace(second.plan, evaluations=asked))
    found = comparison.compare(first, second)
    assert said in comparison_page.page(found) and "答えの評価はここでは比べません" in comparison_page.page(found)
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
    assert spoken("page.compare.counts", separated=1, pairs=1, higher=1, lower=0)["en"] in page
    assert "1 組のうち 1 組で差があり" in page
    assert "not separated by these rounds" in page
    assert "&lt;b&gt;" in page and "<code><b></code>" not in page
    assert "http:" not in page and "https:" not in page


def test_by_name_or_folder_and_a_clear_fault_otherwise(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    made = experiment({})
    folder = tmp_path / "results" / "mine"
    tables.write(folder / "tables", {name: made.tables[name] for name in ("settings", "measurements")})

    (folder / "plan.json").write_text(planning.canonical(planning.reported(made.plan)))
    monkeypatch.chdir(tmp_path)
    compare.command("mine", str(folder), tmp_path / "out" / "page.html")
    said = capsys.readouterr().out
    assert "not separated by these rounds" in said
    assert "differs: " not in said
    assert (tmp_path / "out" / "page.html").read_text().startswith("<!doctype html>")
    with pytest.raises(comparison.NothingToCompare, match="nowhere: is neither"):
        comparison.read("nowhere")
    (folder / "tables" / "settings.parquet").unlink()
    with pytest.raises(comparison.NothingToCompare, match="mine/tables: "):
        comparison.read("mine")
