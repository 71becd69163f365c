"""What `servebench status` says of each setting, and what `servebench discard` will not do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

import synthetic
from servebench import configuration, estimate, ledger, progress, store, tables
from servebench import plan as planning
from servebench.faults import Fault
from servebench.tasks import answers
from servebench.tasks.schemas import table


def test_what_is_left_stands_by_setting(tmp_path: Path) -> None:
    places = [("llama-np4", 1), ("llama-np4", 2), ("llama-np16", 1)]
    cells = [{"run": "main", "setting": setting, "users": users} for setting, users in places]
    plan = synthetic.plan_of(cells)
    one, other = plan.settings["llama-np4"], plan.settings["llama-np16"]
    there = [(one, 1, 1), (one, 1, 2), (one, 2, 1), (other, 1, 1), (other, 2, 1)]
    for setting, round_, users in there:
        session = next(s for s in plan.sessions() if (s.setting, s.round) == (setting, round_))
        path = estimate.stored_path(plan, tmp_path / "h200", session, users)
        store.write(synthetic.record(setting, 0, users, round_, FIGURES), path)
        store.Store(tmp_path / "h200").link(path.stem, estimate.users_path(tmp_path / "h200", setting, round_, users))
    lines, failed = ledger.report(plan, tmp_path)
    assert lines[1:] == [
        "left: main llama-np4: 1 of 2 sessions, 3 of 4 measurements are there",
        "complete: main llama-np16",
    ]
    assert failed == 0
    changed = msgspec.structs.replace(one, context=8192)
    plan = msgspec.structs.replace(plan, settings=plan.settings | {one.name: changed})
    lines, _ = ledger.report(plan, tmp_path)
    assert "left: main llama-np4: 0 of 2 sessions, 0 of 4 measurements are there" in lines


def test_a_failed_measurement_stands_with_the_command_that_tries_it_again(tmp_path: Path) -> None:
    plan = synthetic.plan_of([{"run": "main", "setting": "llama-np4", "users": 1}])
    setting = plan.settings["llama-np4"]
    path = estimate.users_path(tmp_path / "h200", setting, 1, 1)
    path.parent.mkdir(parents=True)
    failed = replace(synthetic.record(setting, 0, 1, 1, FIGURES), status="failed", reason="out of memory")
    store.write(failed, path)
    lines, count = ledger.report(plan, tmp_path, [Path("config/h200.yaml"), Path("site.yaml")])
    assert count == 1
    assert lines[-2:] == [
        "failed: main llama-np4 round 1, 1 user: out of memory",
        f"  again: snakemake --cores 1 --force {path} --configfile config/h200.yaml site.yaml",
    ]
    assert ledger.report(plan, tmp_path)[0][-1] == f"  again: snakemake --cores 1 --force {path}"


def test_a_damaged_measurement_is_named_and_its_remedy_works(tmp_path: Path) -> None:
    plan = synthetic.plan_of([{"run": "main", "setting": "llama-np4", "users": users} for users in (1, 2)])
    setting = plan.settings["llama-np4"]
    folder = tmp_path / "h200"
    kept = store.Store(folder)
    slice_ = planning.session_slice(plan, setting)
    names = {1: "as-configured-before", 2: planning.measurement_digest(slice_, 2, 1)}
    for users, digest in names.items():
        store.write(synthetic.record(setting, 0, users, 1, FIGURES), kept.path(digest))
        kept.path(digest).write_bytes(b"cut")
    path = estimate.users_path(folder, setting, 1, 1)
    kept.link(names[1], path)  # of the other the session failed, and Snakemake has removed what stood for it
    lines, failed = ledger.report(plan, tmp_path, [Path("site.yaml")])
    assert failed == 2
    for users, named, file in ((1, "1 user", path), (2, "2 users", kept.path(names[2]))):
        said = f"damaged: main llama-np4 round 1, {named}: {file}: is not a readable measurement"
        (place,) = (n for n, line in enumerate(lines) if line.startswith(said))
        assert lines[place + 1] == (
            f"  again: servebench discard main llama-np4 --round 1 --users {users} --why damaged"
            " --configfile site.yaml && snakemake --cores 1 all --configfile site.yaml"
        )
    assert len(list(ledger.discard(plan, tmp_path, "main", "llama-np4", 1, None, "damaged"))) == 3
    assert not path.exists()
    assert [kept.status(digest) for digest in names.values()] == [None, None]
    lines, failed = ledger.report(plan, tmp_path)
    assert failed == 0
    ends = sorted(line.partition(": ")[2] for line in lines[-2:])
    assert ends == [f"main llama-np4 round 1, {users}: damaged" for users in ("1 user", "2 users")]
    assert sorted(tables.discarded(kept.discarded())["users"].to_pylist()) == [1, 2]


def test_a_damaged_evaluation_does_not_hide_the_others(tmp_path: Path) -> None:
    plan = configuration.read([configuration.ROOT / "config" / "config.yaml"])
    first, second, *_ = plan.evaluations.targets
    path = estimate.target_path(tmp_path / "quickstart", first)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"cut")
    lines, failed = ledger.report(plan, tmp_path)
    assert failed == 1
    assert any(line.startswith(f"damaged: evaluation of {first}: {path}: is no readable evaluation") for line in lines)
    assert any(line.startswith(f"left: evaluation of {second}: ") for line in lines)


FIGURES = {
    "output_tok_s": 100.0,
    "user_tok_s": 30.0,
    "ttft_p50_s": 0.1,
    "ttft_p95_s": 0.2,
    "target_requests": 60,
}


def test_an_evaluation_is_left_then_failed_with_the_command_that_asks_again(tmp_path: Path) -> None:
    plan = configuration.read([configuration.ROOT / "config" / "config.yaml"])
    target = next(iter(plan.evaluations.targets))
    path = estimate.target_path(tmp_path / "quickstart", target)
    lines, failed = ledger.report(plan, tmp_path)
    expected = estimate.minutes(estimate.evaluation_s(plan.evaluations, plan.evaluations.targets[target]))
    assert f"left: evaluation of {target}: 0 of 56 questions are asked, {expected}" in lines
    assert failed == 0
    digest = planning.answers_digest(planning.target_slice(plan, target), "mgsm")
    file = answers.AnswerFile(answers.answers_path(tmp_path / "quickstart", digest))
    for repeat, question_id in ((1, "1"), (1, "2"), (1, "2"), (2, "1")):
        file.append({"repeat": repeat, "question_id": question_id, "session_id": "s", "text": "答え: 1"})
    file.append({"session": {"session_id": "s"}})
    lines, _ = ledger.report(plan, tmp_path)
    (line,) = (line for line in lines if line.startswith(f"left: evaluation of {target}:"))
    assert "3 of 56 questions are asked (jcommonsenseqa 0 of 24; mgsm 3 of 16; proofreading 0 of 16), " in line
    file.close()
    facts = {"reason": None, "failures": 3, "asked": 48}
    path.parent.mkdir(parents=True)
    answers.write(answers.Evaluated(table("answers", []), facts), path)
    lines, failed = ledger.report(plan, tmp_path)
    place = lines.index(f"failed: evaluation of {target}: 3 of 48 questions")
    assert (lines[place + 1], failed) == (f"  again: snakemake --cores 1 --force {path}", 1)
    answers.write(answers.Evaluated(table("answers", []), facts | {"failures": 0, "answered": 56}), path)
    lines, failed = ledger.report(plan, tmp_path)
    assert (f"complete: evaluation of {target}, 56 questions" in lines, failed) == (True, 0)


def test_what_runs_is_told_with_what_is_left(tmp_path: Path) -> None:
    plan = configuration.read([configuration.ROOT / "config" / "config.yaml"])
    setting = next(iter(plan.evaluations.targets.values()))
    job = planning.Session(experiment="quickstart", round=1, rank=0, setting=setting)
    with progress.Publisher(tmp_path / "quickstart", job, "evaluation") as published:
        published.tell(phase="asking", task="mgsm", asked=12, questions=56, failures=0, left_s=100.0)
        lines, _ = ledger.report(plan, tmp_path)
    wanted = f"running: evaluation {setting.name}, phase asking, task mgsm, asked 12 of 56, failed 0, left about 2 min"
    assert wanted in lines
    assert not any(line.startswith("running") for line in ledger.report(plan, tmp_path)[0])


@pytest.mark.parametrize("why", ["", " \n", "a\udc80"])
def test_nothing_is_discarded_without_a_reason(tmp_path: Path, why: str) -> None:
    plan = synthetic.plan_of([{"run": "main", "setting": "llama-np4", "users": 1}])
    setting = plan.settings["llama-np4"]
    record = synthetic.record(setting, 0, 1, 1, FIGURES)
    kept = store.Store(tmp_path / "h200")
    store.write(record, kept.path(record.identity["digest"]))
    place = estimate.users_path(tmp_path / "h200", setting, 1, 1)
    kept.link(record.identity["digest"], place)
    with pytest.raises(Fault, match=r"^--why: "):
        list(ledger.discard(plan, tmp_path, "main", "llama-np4", None, None, why))
    assert place.exists()
    file = Path("config/h200.yaml")
    said, now = ledger.discard(plan, tmp_path, "main", "llama-np4", None, None, "a backup ran", [file])
    assert said.startswith("discarded main llama-np4 round 1, 1 user; kept as ")
    assert now == "now: snakemake --cores 1 all --configfile config/h200.yaml"
    assert [one.why for one in kept.discarded()] == ["a backup ran"]
