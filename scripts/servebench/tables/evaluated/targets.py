"""Describe each target of the evaluations, and compare the targets. Pure."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from msgspec.structs import asdict

from servebench.marks import Mark, mark
from servebench.plan import ALONE, LOADED, Evaluations, named
from servebench.store.replies import AskingSession, Evaluated, EvaluationFacts
from servebench.tables.derived import MIXED
from servebench.tables.evaluated.comparisons import comparisons
from servebench.tables.files import table
from servebench.tasks.answers import FAILED, Questions

# Outcomes of replies that hold no answer to judge, and the largest unremarkable share of such replies in a task.
NO_ANSWER = ("reasoning_leaked", "empty", "truncated", "unparsable")
MOST_WITHOUT_ANSWER = 0.01
_SERVER = ("engine_version", "engine_build", "engine_pin", "argv")


def targets(asked: Evaluations, evaluated: Sequence[Evaluated], answers: pa.Table) -> pa.Table:
    """Make one row per target, in the plan's order: its server, how much it was asked, and the marks of its answers."""
    return table("targets", _targets(asked, evaluated, answers))


def compared(answers: pa.Table, questions: Questions, asked: Evaluations) -> pa.Table:
    """Compare each target with the baseline; no rows when the baseline answered nothing."""
    return _compared(answers, questions, asked.baseline, asked.margins)


def under_load(asked: Evaluations, answers: pa.Table, questions: Questions) -> pa.Table:
    """Compare each target of `under_load` with itself on an idle server, as a family of its own."""
    load, rows = asked.under_load, []
    for target in load.targets if load else ():
        assert load
        idle, loaded = (named(target, condition, {"users": load.users}) for condition in (ALONE, LOADED))
        pair = answers.filter(pa.array([name in (idle, loaded) for name in answers["target"].to_pylist()], pa.bool_()))
        sample = {load.task: questions[load.task][: load.questions]}
        rows += _compared(pair, sample, idle, asked.margins).to_pylist()
    return table("under_load", rows)


def _compared(answers: pa.Table, questions: Questions, baseline: str, margins: Mapping[str, float]) -> pa.Table:
    pairs = zip(answers["target"].to_pylist(), answers["outcome"].to_pylist(), strict=True)
    if (baseline, True) not in {(target, outcome != FAILED) for target, outcome in pairs}:
        return table("comparisons", [])
    return comparisons(answers, questions, baseline, margins)


def _targets(asked: Evaluations, evaluated: Sequence[Evaluated], answers: pa.Table) -> Iterator[dict[str, Any]]:
    outcomes = _outcomes(answers)
    prompts = {one.facts.target: _prompt_tokens(one) for one in evaluated}
    lengths = {one.facts.target: one.facts.prompt_lengths for one in evaluated}
    machines = {one.facts.target: _machine(one) for one in evaluated}
    for rank, one in enumerate(evaluated):
        facts, name = one.facts, one.facts.target
        setting, last = asked.targets[name], facts.sessions[-1] if facts.sessions else None
        machine, template = last and last.machine, ((last and last.facts) or {}).get("chat_template_sha256")
        common = _common(prompts[name], prompts[asked.baseline])
        same = None if not common else all(mine == theirs for mine, theirs in common)
        if same is None and _lengths_differ(lengths[name], lengths[asked.baseline]):
            same = False
        yield {
            "target": name,
            "rank": rank,
            "baseline": name == asked.baseline,
            "engine": setting.engine.key,
            "engine_kind": setting.engine.kind,
            "model": setting.model.key,
            "model_name": setting.model.name,
            "quantization": setting.model.quantization,
            "slots": setting.slots,
            "context": setting.context,
            "concurrency": asked.concurrency,
            **{key: getattr(facts, key) for key in ("status", "asked", "answered", "failures")},
            "reason": facts.reason,
            "same_prompts": same,
            "prompt_tokens_sha256": _digest(prompts[name]),
            "chat_template_sha256": template,
            "marks": [
                *_marks(facts, same, machines[name], machines[asked.baseline]),
                *without_answer(outcomes.get(name, {})),
                *load_marks(facts.sessions if asked.under_load else ()),
            ],
            "sessions": len(facts.sessions),
            **{key: last and getattr(last, key) for key in _SERVER},
            "model_sha256": last and last.model and last.model.sha256,
            "machine": machine and machine.name,
            "fingerprint": machine and machine.fingerprint,
            "started_at": last and last.started_at,
        }


def _marks(facts: EvaluationFacts, same: bool | None, machine: str | None, base: str | None) -> Iterator[Mark]:
    if facts.answered < facts.asked:
        yield mark("unanswered", unanswered=facts.asked - facts.answered, asked=facts.asked)
    if same is False:
        yield mark("other_prompts")
    if None not in (machine, base) and machine != base:
        yield mark("other_machine")
    for column in ("engine_version", "engine_build"):
        served = list(dict.fromkeys(getattr(session, column) for session in facts.sessions))
        if len(served) > 1:
            yield mark(MIXED[column], found=served)
    for kind, fact, unit in (
        ("prompts_cut", "truncated_prompts", "prompts"),
        ("context_shifted", "shifted_replies", "replies"),
    ):
        if count := sum((session.facts or {}).get(fact) or 0 for session in facts.sessions):
            yield mark(kind, **{unit: count})
    for session in facts.sessions:
        for difference in session.differences or ():
            yield mark("not_as_asked", **asdict(difference))


def _outcomes(answers: pa.Table) -> dict[str, dict[str, Counter[str]]]:
    """Count each outcome, by target and task."""
    found: dict[str, dict[str, Counter[str]]] = {}
    columns = (answers[name].to_pylist() for name in ("target", "task", "outcome"))
    for target, task, outcome in zip(*columns, strict=True):
        found.setdefault(target, {}).setdefault(task, Counter())[outcome] += 1
    return found


def without_answer(outcomes: Mapping[str, Counter[str]]) -> Iterator[Mark]:
    """Yield a mark for each task in which more than 1 % of the replies hold no answer (docs/evaluations.md).

    `outcomes` counts each outcome, by task.
    """
    for task, counts in outcomes.items():
        bad = {outcome: counts[outcome] for outcome in NO_ANSWER if counts[outcome]}
        replies = counts.total() - counts[FAILED]
        if sum(bad.values()) > MOST_WITHOUT_ANSWER * replies:
            yield mark("without_answer", task=task, without=sum(bad.values()), replies=replies, outcomes=bad)


def load_marks(sessions: Sequence[AskingSession]) -> Iterator[Mark]:
    """Yield a mark when requests of the load of `under_load` failed, all or some."""
    loads = [session.load for session in sessions if session.load]
    failures, replies = sum(load.failures for load in loads), sum(load.replies for load in loads)
    why = next((load.failed for load in reversed(loads) if load.failed), None)
    if failures and not replies:
        yield mark("no_load", requests=failures, reason=why)
    elif failures:
        yield mark("load_failed", failures=failures, requests=failures + replies, reason=why)


def _prompt_tokens(one: Evaluated) -> dict[str, list[int]]:
    """Return the token ids by task from the last session that has them."""
    known: dict[str, list[int]] = {}
    for session in one.facts.sessions:
        known |= {task: ids for task, ids in (session.prompt_tokens or {}).items() if ids}
    return known


def _common(mine: Mapping[str, list[int]], theirs: Mapping[str, list[int]]) -> list[tuple[list[int], list[int]]]:
    return [(mine[task], theirs[task]) for task in mine if task in theirs]


def _lengths_differ(mine: Mapping[str, Mapping[str, int]], theirs: Mapping[str, Mapping[str, int]]) -> bool:
    """Return whether a question's prompt has another number of tokens; equal numbers do not show equal prompts."""
    return any(
        tokens != theirs.get(task, {}).get(question, tokens)
        for task, counts in mine.items()
        for question, tokens in counts.items()
    )


def _digest(prompts: Mapping[str, list[int]]) -> str | None:
    return hashlib.sha256(json.dumps(prompts, sort_keys=True).encode()).hexdigest() if prompts else None


def _machine(one: Evaluated) -> str | None:
    """Name the machine the target was asked on; "several" when there was more than one."""
    found = {session.machine.fingerprint for session in one.facts.sessions if session.machine}
    return next(iter(found), None) if len(found) < 2 else "several"
