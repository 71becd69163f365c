"""What Snakemake plans for the evaluations: after all sessions, once, and only what a change asks for."""

import json
import re
import shutil
import subprocess

import pytest

from workspace import Workspace

PUBLISHED = "results/reruns/tables/quantization.json"
EVALUATIONS = {
    "baseline": "B",
    "concurrency": 2,
    "tasks": {
        "mgsm": {"set": "small", "limit": 3, "max_tokens": 4, "request": {"grammar": "root ::= [0-9]{0,3} {x} '"}},
        "proofreading": {"limit": 4, "max_tokens": 4},
    },
    "under_load": {"users": 2, "task": "mgsm", "questions": 2},
    "targets": {name: {"engine": "sim", "model": "none", "slots": 2, "context": 512} for name in ("A", "B")},
}


def evaluated(folder):
    """One session of half a second, and two targets."""
    workspace = Workspace(folder)
    workspace.config["rounds"] = 1
    del workspace.config["settings"]["two"]
    workspace.config["settings"]["one"]["users"] = [1]
    workspace.config["evaluations"] = json.loads(json.dumps(EVALUATIONS))
    return workspace


@pytest.fixture(scope="module")
def complete(tmp_path_factory):
    folder = tmp_path_factory.mktemp("evaluated")
    workspace = evaluated(folder)
    said = workspace.snakemake(PUBLISHED)
    assert "14 questions to each of 2 targets" in said
    assert "evaluations A: 14 of 14 questions" in said
    return folder


@pytest.fixture
def after(complete, tmp_path):
    folder = tmp_path / "copy"
    subprocess.run(["cp", "-a", str(complete), str(folder)], check=True)
    return evaluated(folder)


def test_without_the_section_nothing_is_there(tmp_path):
    workspace = evaluated(tmp_path)
    del workspace.config["evaluations"]
    planned = workspace.snakemake("-n", "all")
    assert not re.search(r"evaluat|questions|quantization\.json|scores\.parquet", planned)


def test_targets_are_asked_after_the_last_session(tmp_path):
    planned = evaluated(tmp_path).snakemake("-n", "all")
    priority = {
        rule: int((re.search(r"priority: (-?\d+)", block) or [0, 0])[1])
        for block in re.split(r"\n(?=rule )", planned)
        if (rule := block.split(":")[0].removeprefix("rule ")).startswith(("session", "evaluate"))
    }
    assert priority.keys() == {"session_main_one", "evaluate_A", "evaluate_B"}
    assert priority["session_main_one"] > priority["evaluate_A"] > priority["evaluate_B"]


def test_nothing_changed_nothing_planned(after):
    content = json.loads((after.folder / PUBLISHED).read_text(encoding="utf-8"))
    assert [row["answered"] for row in content["targets"]] == [14, 14]
    assert {row["target"] for row in content["comparisons"]} == {"A"}
    assert content["under_load"][0]["baseline"] == "B (idle)"
    assert after.planned(PUBLISHED) == {}


@pytest.mark.parametrize(
    ("change", "planned"),
    [
        (lambda e: e.update(margins={"mgsm": 5}, baseline="A", under_load={**e["under_load"], "targets": ["B"]}), {}),
        (lambda e: e["tasks"]["mgsm"].update(limit=4), {"evaluate_A": 1, "evaluate_B": 1}),
        (lambda e: e["targets"]["A"].update(slots=3), {"evaluate_A": 1}),
        (lambda e: e["under_load"].update(users=3), {"evaluate_B": 1}),
        (lambda e: e["tasks"].update(jcommonsenseqa={"set": "small", "limit": 1, "max_tokens": 4}),
         {"task_questions": 1, "evaluate_A": 1, "evaluate_B": 1}),
    ],
    ids=["margins-and-baseline", "limit", "one-target", "load", "a-task-more"],
)  # fmt: skip
@pytest.mark.parametrize("records", [True, False], ids=["", "without-records"])
def test_only_what_a_change_asks_for(after, change, planned, records):
    """The same holds without Snakemake's records, as in a copy of results/ alone."""
    if not records:
        shutil.rmtree(after.folder / ".snakemake")
    change(after.config["evaluations"])
    assert after.planned() == {"plan": 1, "tables": 1, "charts": 1, "pictures": 1, "report": 1, **planned}
