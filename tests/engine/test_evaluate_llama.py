"""A real model on llama.cpp is asked a few questions, several at a time, twice."""

import json
from collections import Counter
from pathlib import Path

import httpx
import pytest
import yaml

import servebench
import synthetic
from servebench import configuration, models, plan, schema
from servebench.engines import ADAPTERS
from servebench.machine import cache
from servebench.marks import mark
from servebench.outlook import questions as data
from servebench.plan.layout import Layout
from servebench.sessions import asking, job
from servebench.store import replies
from servebench.tasks import TASKS
from servebench.tasks.answers import FAILED

TARGETS = ("Q4_1", "Q8_0")


@pytest.fixture
def quick(tmp_path: Path) -> plan.Plan:
    """The quick start with two questions of each set, two files, and a few questions under load."""
    config = yaml.safe_load((servebench.ROOT / "config" / "config.yaml").read_text(encoding="utf-8"))
    asked = config["evaluations"]
    for task in asked["tasks"].values():
        task["limit"] = 2
    asked["targets"] = {name: asked["targets"][name] for name in TARGETS}
    asked["under_load"] = {"users": 2, "task": "jcommonsenseqa", "questions": 2}
    return configuration.load(config, ["config.yaml"])


def run(quick: plan.Plan, target: str, results: Path, environment: dict) -> replies.Evaluated:
    model = quick.evaluations.targets[target].model
    manifest = models.fetch(model, quick.models, cache_root=cache.root())
    for kind, key, content in (("models", model.key, manifest), ("engines", "llama-cpp", environment)):
        path = results / kind / f"{key}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))
    for name, task in quick.evaluations.tasks.items():
        path = Layout(results).questions(name)
        data.copy(TASKS[name], task.set, task.sha256, path, cache_root=cache.root())
    asking.run(
        job.Context(
            spec=plan.target_spec(quick, target),
            models=quick.models,
            engines=quick.engines,
            results=results,
            runtime=quick.runtime,
            engine_log=results / "engine.log",
            retry_failed=False,
        )
    )
    return replies.read(Layout(results).evaluation(target))


def test_two_files_of_a_real_model(quick, llama_environment, tmp_path):
    found = [run(quick, target, tmp_path, llama_environment) for target in TARGETS]
    for target, one in zip(TARGETS, found, strict=True):
        assert (one.facts.status, one.facts.reason) == ("ok", [])
        assert (one.facts.asked, one.facts.answered) == (12, 12)
        rows = one.answers.to_pylist()
        assert len(rows) == 12 + (2 * 2 if target == "Q8_0" else 0)
        assert FAILED not in {row["outcome"] for row in rows}
        limits = {name: task.max_tokens for name, task in quick.evaluations.tasks.items()}
        assert all(row["text"] and 1 <= row["tokens"] <= limits[row["task"]] for row in rows)
        (session,) = one.facts.sessions
        assert set(session.prompt_tokens) == set(TASKS)
        assert all(len(ids) > 20 for ids in session.prompt_tokens.values())
        assert session.differences == []
        assert (session.load.replies >= 2) if target == "Q8_0" else (session.load is None)
    questions = {name: data.asked_questions(tmp_path, name, task) for name, task in quick.evaluations.tasks.items()}
    made = synthetic.from_answers(quick, found, questions)
    targets = schema.rows(made["targets"])
    # So small a model writes on to the token limit.
    cut = Counter(row["target"] for row in made["answers"].to_pylist() if row["outcome"] == "truncated")
    said = {
        target: mark("without_answer", task="proofreading", without=n, replies=4, outcomes={"truncated": n})
        for target, n in cut.items()
    }
    assert [(row["target"], row["same_prompts"]) for row in targets] == [(target, True) for target in TARGETS]
    assert [row["marks"] for row in targets] == [[said[target]] if target in said else [] for target in TARGETS]
    assert targets[0]["prompt_tokens_sha256"] == targets[1]["prompt_tokens_sha256"] is not None
    assert {row["target"] for row in made["comparisons"].to_pylist()} == {"Q4_1"}
    assert made["under_load"].num_rows == 1


def test_the_ids_of_a_prompt_are_those_the_server_counts(llama):
    """As many as the server says it was sent, so that the template and its special tokens are the real ones."""
    messages = [{"role": "user", "content": "次の質問に答えてください。1足す1は？"}]
    with llama(slots=1) as server, httpx.Client(base_url=server.url, timeout=60) as client:
        ids = ADAPTERS["llama-server"].prompt_tokens(client, server.model, messages, {})
        body = {"model": server.model, "messages": messages, "max_tokens": 1}
        usage = client.post("/v1/chat/completions", json=body).json()["usage"]
        assert ids is not None
        assert len(ids) == usage["prompt_tokens"]
        assert ADAPTERS["ollama"].prompt_tokens(client, server.model, messages, {}) is None
    with httpx.Client(base_url=server.url, timeout=5) as client:
        assert ADAPTERS["llama-server"].prompt_tokens(client, server.model, messages, {}) is None, "gone"
