"""A model on a node's own disk equals the original, or does not exist."""

import hashlib
import json

import pytest

from servebench import configuration, engines, plan
from servebench.machine.infrastructure import InfrastructureError
from servebench.marks import mark
from servebench.models import checking, scratch
from servebench.outlook import questions
from servebench.plan.layout import Layout
from servebench.sessions import asking, job
from servebench.store import replies
from servebench.tasks import TASKS


@pytest.fixture
def model(tmp_path):
    """Make a model in the cache; return (file, SHA-256)."""
    path = tmp_path / "cache" / "small.gguf"
    path.parent.mkdir()
    path.write_bytes(b"weights" * 1000)
    return path, hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_copy_is_made_once_and_is_the_original(model, tmp_path):
    path, sha256 = model
    said = []
    first = scratch.copied(path, sha256, tmp_path / "disk", said.append)
    assert first.read_bytes() == path.read_bytes()
    assert first.is_relative_to(tmp_path / "disk")
    assert first.name == path.name
    assert scratch.copied(path, sha256, tmp_path / "disk", said.append) == first
    assert said == [f"copying small.gguf to {first.parent}"]


@pytest.mark.parametrize("damage", [b"Weights" * 1000, b"weights"])
def test_an_altered_or_cut_copy_is_made_anew(damage, model, tmp_path):
    path, sha256 = model
    first = scratch.copied(path, sha256, tmp_path, print)
    first.write_bytes(damage)
    assert scratch.copied(path, sha256, tmp_path, print).read_bytes() == path.read_bytes()


def test_a_copy_that_is_not_the_original_is_refused(model, tmp_path, monkeypatch):
    path, sha256 = model
    monkeypatch.setattr(scratch.shutil, "copyfile", lambda source, target: (target.write_bytes(b"x" * 7000), target)[1])
    with pytest.raises(InfrastructureError, match=r"runtime.scratch: the copy of .*small.gguf is not the original"):
        scratch.copied(path, sha256, tmp_path, print)
    assert not list((tmp_path / "servebench-models").glob("**/*.gguf"))


def test_a_snapshot_is_copied_as_a_whole(tmp_path):
    snapshot = tmp_path / "model"
    (snapshot / "part").mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    (snapshot / "part" / "weights").write_text("w")
    checking.accept(snapshot, checking.Wanted())
    sha256, _ = checking.remembered(snapshot)
    copy = scratch.copied(snapshot, sha256, tmp_path / "disk", print)
    assert (copy / "part" / "weights").read_text() == "w"
    assert checking.remembered(copy)[0] == sha256


def test_what_does_not_fit_is_said(model, tmp_path):
    path, sha256 = model
    (tmp_path / "file").write_text("")
    with pytest.raises(InfrastructureError, match=r"runtime.scratch: small.gguf \(7,000 bytes\) cannot be copied to"):
        scratch.copied(path, sha256, tmp_path / "file" / "below", print)


def test_the_folder_may_hold_what_the_batch_system_sets(monkeypatch, tmp_path):
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    assert str(scratch.root("/scratch/$SLURM_JOB_ID")) == "/scratch/17"
    monkeypatch.setenv("SERVEBENCH_SCRATCH", str(tmp_path))
    assert scratch.root(None) == tmp_path
    monkeypatch.delenv("SERVEBENCH_SCRATCH")
    assert scratch.root(None) is None
    with pytest.raises(InfrastructureError, match="holds a variable that is not set"):
        scratch.root("/scratch/$NOT_SET_HERE")


def test_an_evaluation_loads_the_copy(model, tmp_path, monkeypatch):
    path, sha256 = model
    engine = {"engine": "llama", "model": "small", "slots": 1, "context": 4096}
    results = tmp_path / "results" / "copied"
    config = {
        "experiment": "copied",
        "engines": {"llama": {"kind": "llama-server", "runtime": "binary", "binary": "llama-server"}},
        "models": {"small": {"source": f"file://{path}", "sha256": sha256}},
        "workload": {"prompts": "en-short", "max_tokens": 4, "warmup_s": 1, "window_s": 1},
        "settings": {"s": {**engine, "users": [1]}},
        "evaluations": {
            "baseline": "A",
            "concurrency": 1,
            "tasks": {"mgsm": {"set": "small", "limit": 1}},
            "targets": {"A": engine, "B": {**engine, "slots": 2}},
        },
    }
    loaded = configuration.load(config, ["config.yaml"])
    (asked,) = loaded.evaluations.tasks.values()
    questions.copy(
        TASKS["mgsm"], asked.set, asked.sha256, questions.Layout(results).questions("mgsm"), cache_root=tmp_path
    )
    (results / "models").mkdir()
    (results / "models" / "small.json").write_text(json.dumps({"key": "small", "sha256": sha256, "size_bytes": 7000}))
    launched = []

    def refuse(session, *, model_path, **how):
        launched.append(model_path)
        raise engines.LaunchFailed("only its model file is looked at")

    monkeypatch.setattr(engines, "launched", refuse)
    runtime = plan.Runtime(cache=str(tmp_path / "cache"), scratch=str(tmp_path / "disk"))
    asking.run(
        job.Context(
            spec=plan.target_spec(loaded, "A"),
            models=loaded.models,
            engines=loaded.engines,
            results=results,
            runtime=runtime,
            engine_log=tmp_path / "engine.log",
            retry_failed=False,
        )
    )
    assert launched == [tmp_path / "disk" / "servebench-models" / sha256 / "small.gguf"]
    assert launched[0].read_bytes() == path.read_bytes()
    assert replies.read(Layout(results).evaluation("A")).facts.reason == [
        mark("failed", reason="only its model file is looked at")
    ]
