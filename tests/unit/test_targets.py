"""Whether a target was asked the same prompts as the baseline: by token ids, else by the numbers of prompt tokens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

import synthetic
import synthetic_answers
from servebench import configuration
from servebench.marks import mark
from servebench.store.replies import Evaluated
from servebench.tables.evaluated.targets import targets
from servebench.tasks.answers import table

PATH = Path(synthetic.ROOT / "config" / "h200.yaml")


def compared(mine: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
    """The row of a target beside its baseline, each with these facts."""
    asked = configuration.load(yaml.safe_load(PATH.read_text(encoding="utf-8")), [PATH]).evaluations
    assert asked
    baseline = asked.baseline
    other = next(name for name in asked.targets if name not in (baseline, synthetic_answers.FAILED))
    given = []
    for name, facts in ((baseline, theirs), (other, mine)):
        known = synthetic_answers.facts_of(asked, name, 0)
        session = replace(known.sessions[0], prompt_tokens=facts.get("ids"), facts=facts.get("facts"))
        given.append(Evaluated(table([]), replace(known, sessions=[session], prompt_lengths=facts.get("lengths", {}))))
    only = replace(asked, targets={name: asked.targets[name] for name in (baseline, other)}, under_load=None)
    return dict(targets(only, given, table([])).to_pylist()[1])


@pytest.mark.parametrize(
    ("mine", "theirs", "same"),
    [
        ({"ids": {"mgsm": [1, 2]}}, {"ids": {"mgsm": [1, 2]}}, True),
        ({"ids": {"mgsm": [1, 3]}}, {"ids": {"mgsm": [1, 2]}}, False),
        ({"lengths": {"mgsm": {"1": 12}}}, {"lengths": {"mgsm": {"1": 33}}}, False),
        ({"lengths": {"mgsm": {"1": 33}}}, {"ids": {"mgsm": [1, 2]}, "lengths": {"mgsm": {"1": 33}}}, None),
        ({"lengths": {"mgsm": {"1": 12}}}, {"lengths": {"mgsm": {"2": 33}}}, None),  # not the same question
        ({}, {"lengths": {"mgsm": {"1": 33}}}, None),
    ],
)
def test_the_same_prompts(mine: dict[str, Any], theirs: dict[str, Any], same: bool | None) -> None:
    row = compared(mine, theirs)
    assert row["same_prompts"] is same
    assert ({"kind": "other_prompts", "values": mark("other_prompts").text} in row["marks"]) is (same is False)


@pytest.mark.parametrize(
    ("facts", "marks"),
    [
        (
            {"truncated_prompts": 3, "shifted_replies": 1},
            {"prompts_cut": {"prompts": 3}, "context_shifted": {"replies": 1}},
        ),
        ({"truncated_prompts": 0, "shifted_replies": 0}, {}),
        ({}, {}),
    ],
)
def test_what_the_log_tells_of_the_questions_is_a_mark(facts: dict[str, int], marks: dict[str, Any]) -> None:
    found = {one["kind"]: json.loads(one["values"]) for one in compared({"facts": facts}, {})["marks"]}
    assert {kind: found[kind] for kind in ("prompts_cut", "context_shifted") if kind in found} == marks
