"""Without Snakemake's records, no file in a folder of results is mistaken for another configuration's."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

import servebench
import synthetic
from servebench import configuration, engines, plan
from servebench.engines import environment
from servebench.outlook import inventory
from servebench.plan.layout import Layout
from servebench.sessions import job
from servebench.store import replies
from servebench.tables import make

LOCK = "a" * 64


def context(results: Path, loaded: plan.Plan) -> job.Context:
    setting = next(iter(loaded.settings.values()))
    return job.Context(
        spec=plan.session_spec(loaded, setting),
        models=loaded.models,
        engines=loaded.engines,
        results=results,
        runtime=loaded.runtime,
        engine_log=results / "engine.log",
        retry_failed=False,
    )


def write(path: Path, content: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")


def test_a_manifest_of_another_model_is_refused_with_its_file_and_the_remedy(tmp_path: Path) -> None:
    loaded = configuration.read([servebench.ROOT / "config" / "config.yaml"])
    setting = next(iter(loaded.settings.values()))
    file = tmp_path / "models" / f"{setting.model.key}.json"
    write(file, {"key": setting.model.key, "sha256": "0" * 64, "size_bytes": 1, "path": "models/x"})
    said = f"^{file}: .*models.{setting.model.key}; remove it"
    with pytest.raises(engines.InfrastructureError, match=said):
        context(tmp_path, loaded).weights(setting)


def test_a_manifest_of_what_was_made_otherwise_is_none_of_the_model(tmp_path: Path) -> None:
    model = plan.Model(key="q", name="Q", requantize={"from": "m", "to": "Q4_0"})
    assert inventory.manifest_of(model, tmp_path) is None
    for to, known in (("Q4_0", True), ("Q8_0", False)):
        write(tmp_path / "models" / "q.json", {"requantize": {"from": "m", "to": to}, "sha256": "0" * 64})
        assert (inventory.manifest_of(model, tmp_path) is not None) is known


@pytest.mark.parametrize(
    ("lock", "python", "again"),
    [(LOCK, sys.executable, False), ("b" * 64, sys.executable, True), (LOCK, "/elsewhere/bin/python", True)],
    ids=["as made", "of another lock", "on another machine"],
)
def test_an_environment_of_another_lock_or_machine_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lock: str, python: str, again: bool
) -> None:
    found = {"name": "llama-cpp", "lock_sha256": lock, "python": python, "python_version": "3", "packages": {}}
    write(tmp_path / "engines" / "llama-cpp.json", found)
    monkeypatch.setattr(environment, "make", lambda name, *_, **__: {"made again": name})
    monkeypatch.setattr(engines, "launched", lambda session, **given: given["environment"])
    loaded = configuration.read([servebench.ROOT / "config" / "config.yaml"])
    session = next(loaded.sessions())
    engine = plan.Engine(key="llama", kind="llama-server", environment="llama-cpp", pin=LOCK)
    setting = msgspec.structs.replace(session.setting, engine=engine)
    given = context(tmp_path, loaded).launched(msgspec.structs.replace(session, setting=setting), None)
    assert given == ({"made again": "llama-cpp"} if again else found)


def test_what_was_answered_as_configured_otherwise_is_not_tabulated(tmp_path: Path) -> None:
    loaded = configuration.read([servebench.ROOT / "config" / "config.yaml"])
    assert loaded.evaluations
    target = loaded.evaluations.baseline
    setting = loaded.evaluations.targets[target]
    asked = msgspec.structs.replace(loaded.evaluations, targets={target: setting}, tasks={})
    loaded = msgspec.structs.replace(loaded, settings={}, evaluations=asked)
    digest = plan.digest(inventory.identified(plan.target_spec(loaded, target), setting, tmp_path))
    file = Layout(tmp_path).evaluation(target)
    replies.write(synthetic.evaluated(target, digest), file)
    Layout(tmp_path).plan.write_text(plan.canonical(plan.reported(loaded)))
    make.run(tmp_path)
    assert pq.read_table(Layout(tmp_path).table("targets"))["target"].to_pylist() == [target]
    replies.write(synthetic.evaluated(target, "of another"), file)
    with pytest.raises(make.Outdated, match=f"^{file}: .*remove it"):
        make.run(tmp_path)
