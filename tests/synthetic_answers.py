"""Tables of evaluations at full size: the model double's replies to all 1,669 questions, as the H200 experiment asks
them. For tests; no model was asked."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec
import pyarrow as pa
import yaml

import model_double
import synthetic
from servebench import configuration
from servebench.marks import mark
from servebench.plan import ALONE, LOADED, Evaluations, named
from servebench.store.records import ModelFile
from servebench.store.replies import AskingSession, Evaluated, EvaluationFacts, Evaluator
from servebench.tasks import proofreading
from servebench.tasks.answers import answer_row, table
from servebench.tasks.task import Question

FAILED = "BF16-GGUF"  # the target that never answered


def questions() -> dict[str, list[Question]]:
    """Return as many questions of each task as are published, with made-up texts; the sentences are our own."""
    return {
        "jcommonsenseqa": [
            Question(question_id=str(8939 + i), text=f"問{i}", choices=tuple("甲乙丙丁戊"), gold=str(i % 5))
            for i in range(1119)
        ],
        "mgsm": [Question(question_id=str(i), text=f"問{i}", gold=f"{37 * i:,}") for i in range(1, 251)],
        "proofreading": proofreading.load(synthetic.ROOT / "config" / "tasks" / "proofreading" / "sentences.jsonl"),
    }


@cache
def made() -> tuple[Evaluations, dict[str, pa.Table]]:
    """Return the H200 experiment's evaluations and all their tables."""
    path = synthetic.ROOT / "config" / "h200.yaml"
    plan = configuration.load(yaml.safe_load(path.read_text(encoding="utf-8")), [path])
    asked = plan.evaluations
    assert asked is not None
    put = questions()
    rows: dict[str, list[dict[str, Any]]] = {target: [] for target in asked.targets}
    for target, task, repeat, question, reply in model_double.replies(put, model_double.scripts()):
        tokens = len(reply.text or "")
        rows[target].append(answer_row(target, task, repeat, question, reply, tokens=tokens, latency_s=0.1))
    for target, own in rows.items():
        own += _beside_users(asked, target, own)
    given = [Evaluated(table(own), facts_of(asked, target, len(own))) for target, own in rows.items()]
    return asked, synthetic.from_answers(plan, given, put)


def _beside_users(asked: Evaluations, target: str, rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The first questions of `under_load` again: of an idle server as in repeat 1, of a busy one as in repeat 2."""
    load = asked.under_load
    assert load is not None
    for condition, repeat in ((ALONE, 1), (LOADED, 2)):
        same = [row for row in rows if (row["task"], row["repeat"]) == (load.task, repeat)]
        for row in same[: load.questions] if target in load.targets else ():
            yield row | {"target": named(target, condition, {"users": load.users}), "repeat": 1}


def facts_of(asked: Evaluations, target: str, answered: int) -> EvaluationFacts:
    """Return the origin of a target's answers."""
    setting = asked.targets[target]
    failed = target == FAILED
    session = AskingSession(
        session_id=target,
        engine_version=synthetic.VERSIONS["vllm" if setting.engine.kind == "vllm" else "llama"],
        engine_build=setting.engine.pin,
        argv=["llama-server", "-np", str(setting.slots)],
        model=ModelFile(key=setting.model.key, name=setting.model.name, sha256=f"{len(target):064x}", size_bytes=1),
        machine=synthetic.H200,
        prompt_tokens={"mgsm": [1, 2, 3 if setting.engine.kind == "vllm" else 4]},
        started_at="2026-11-16T09:00:00+00:00",
    )
    return EvaluationFacts(
        target=target,
        digest="0" * 20,
        setting=msgspec.to_builtins(setting),
        status="failed" if failed else "ok",
        reason=[mark("failed", reason="out of memory")] if failed else [],
        asked=asked.answers,
        answered=0 if failed else min(answered, asked.answers),
        failures=0,
        sessions=[] if failed else [session],
        servebench=Evaluator(version="0.1.0", prompts=1),
    )
