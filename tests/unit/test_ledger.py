"""Check what `servebench status` reports of each setting, and what `servebench discard` refuses."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest
import yaml
from msgspec.structs import replace

import servebench
import synthetic
from servebench import claims, configuration, tables
from servebench import plan as planning
from servebench.claims import Claim
from servebench.cli import retry, status, watch
from servebench.faults import Fault
from servebench.marks import mark
from servebench.outlook import duration, inventory, questions
from servebench.plan.layout import Layout, session_job
from servebench.sessions import progress
from servebench.store import measurements, replies
from servebench.tasks import TASKS
from servebench.versions import PROTOCOL

QUICKSTART = servebench.ROOT / "config" / "config.yaml"


def told(line: str) -> tuple[str, str, list[int]]:
    """Take a line apart: its kind, what it is about, and the numbers it tells."""
    kind, about, rest = [*line.split(": ", 2), ""][:3]
    return kind, about, [int(number) for number in re.findall(r"(?<![\w.-])\d+", rest)]


def test_what_is_left_stands_by_setting(tmp_path: Path) -> None:
    places = [("llama-np4", 1), ("llama-np4", 2), ("llama-np16", 1)]
    cells = [{"run": "main", "setting": setting, "users": users} for setting, users in places]
    plan = synthetic.plan_of(cells)
    one, other = plan.settings["llama-np4"], plan.settings["llama-np16"]
    there = [(one, 1, 1), (one, 1, 2), (one, 2, 1), (other, 1, 1), (other, 2, 1)]
    for setting, round_, users in there:
        session = next(s for s in plan.sessions() if (s.setting, s.round) == (setting, round_))
        path = inventory.stored_path(plan, tmp_path / "h200", session, users)
        measurements.write(synthetic.record(setting, 0, users, round_, FIGURES), path)
        measurements.Store(tmp_path / "h200").link(
            path.stem, Layout(tmp_path / "h200").measurement(setting, round_, users)
        )
    lines, failed = status.report(plan, tmp_path)
    assert [told(line) for line in lines[1:]] == [
        ("left", "main llama-np4", [1, 2, 3, 4]),
        ("complete", "main llama-np16", []),
    ]
    assert failed == 0
    reason = [mark("failed", reason="out of memory")]
    broken = replace(synthetic.record(other, 0, 1, 1, FIGURES), status="failed", reason=reason)
    path = Layout(tmp_path / "h200").measurement(other, 1, 1)
    path.unlink()
    measurements.write(broken, path)
    lines, failed = status.report(plan, tmp_path)
    assert failed == 1
    assert not any(line.startswith("complete:") for line in lines)
    changed = msgspec.structs.replace(one, context=8192)
    plan = msgspec.structs.replace(plan, settings=plan.settings | {one.name: changed})
    lines, _ = status.report(plan, tmp_path)
    assert ("left", "main llama-np4", [0, 2, 0, 4]) in map(told, lines)


def test_a_failed_measurement_stands_with_the_command_that_tries_it_again(tmp_path: Path) -> None:
    plan = synthetic.plan_of([{"run": "main", "setting": "llama-np4", "users": 1}])
    setting = plan.settings["llama-np4"]
    path = Layout(tmp_path / "h200").measurement(setting, 1, 1)
    path.parent.mkdir(parents=True)
    failed = replace(
        synthetic.record(setting, 0, 1, 1, FIGURES), status="failed", reason=[mark("failed", reason="out of memory")]
    )
    measurements.write(failed, path)
    lines, count = status.report(plan, tmp_path, [Path("config/h200.yaml"), Path("site.yaml")])
    assert count == 1
    assert (told(lines[0])[1], told(lines[0])[2][:4]) == ("experiment h200", [1, 2, 2, 2])
    assert told(lines[-2])[:2] == ("failed", "main llama-np4 round 1, 1 user")
    assert lines[-2].endswith(": out of memory")
    assert lines[-1] == "  again: servebench retry main llama-np4 --configfile config/h200.yaml site.yaml"
    assert status.report(plan, tmp_path)[0][-1] == "  again: servebench retry main llama-np4"
    again = status.report(plan, tmp_path, [Path("my site's 設定.yaml")])[0][-1]
    assert shlex.split(again)[-2:] == ["--configfile", "my site's 設定.yaml"]
    changed = msgspec.structs.replace(plan, overrides=("title=a b",))
    again = status.report(changed, tmp_path, [Path("site.yaml")])[0][-1]
    assert shlex.split(again)[-4:] == ["--configfile", "site.yaml", "--config", "title=a b"]
    log = Layout(tmp_path / "h200").engine_log(session_job("main", "llama-np4", 1))
    log.parent.mkdir(parents=True)
    log.touch()
    assert status.report(plan, tmp_path)[0][-2] == f"  the engine's log: {log}"


def test_a_damaged_measurement_is_named_and_its_remedy_works(tmp_path: Path) -> None:
    plan = synthetic.plan_of([{"run": "main", "setting": "llama-np4", "users": users} for users in (1, 2)])
    setting = plan.settings["llama-np4"]
    folder = tmp_path / "h200"
    kept = measurements.Store(folder)
    spec = planning.session_spec(plan, setting)
    names = {1: "as-configured-before", 2: planning.measurement_id(spec, 2, 1)}
    for users, digest in names.items():
        measurements.write(synthetic.record(setting, 0, users, 1, FIGURES), kept.path(digest))
        kept.path(digest).write_bytes(b"cut")
    path = Layout(folder).measurement(setting, 1, 1)
    kept.link(names[1], path)  # of the other the session failed, and Snakemake has removed what stood for it
    lines, failed = status.report(plan, tmp_path, [Path("site.yaml")])
    assert failed == 2
    for named, file in (("1 user", path), ("2 users", kept.path(names[2]))):
        said = f"damaged: main llama-np4 round 1, {named}: {file}: "
        (place,) = (n for n, line in enumerate(lines) if line.startswith(said))
        assert lines[place + 1] == "  again: servebench retry main llama-np4 --configfile site.yaml"
    assert status.failures(plan, tmp_path) == {("main", "llama-np4"): ["session_main_llama-np4"]}
    assert len(list(status.discard(plan, tmp_path, "main", "llama-np4", 1, None, "damaged"))) == 3
    assert not path.exists()
    assert [kept.status(digest) for digest in names.values()] == [None, None]
    lines, failed = status.report(plan, tmp_path)
    assert failed == 0
    ends = sorted(line.partition(": ")[2] for line in lines[-2:])
    assert ends == [f"main llama-np4 round 1, {users}: damaged" for users in ("1 user", "2 users")]
    assert sorted(tables.discarded(kept.discarded())["users"].to_pylist()) == [1, 2]


def test_a_damaged_evaluation_does_not_hide_the_others(tmp_path: Path) -> None:
    plan = configuration.read([servebench.ROOT / "config" / "config.yaml"])
    first, second, *_ = plan.evaluations.targets
    path = Layout(tmp_path / "quickstart").evaluation(first)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"cut")
    lines, failed = status.report(plan, tmp_path)
    assert failed == 1
    assert any(line.startswith(f"damaged: evaluation of {first}: {path}: is damaged") for line in lines)
    assert any(line.startswith(f"left: evaluation of {second}: ") for line in lines)


FIGURES = {
    "output_tok_s": 100.0,
    "user_tok_s": 30.0,
    "ttft_p50_s": 0.1,
    "ttft_p95_s": 0.2,
    "target_requests": 60,
}


class Asked:
    """The quick start's first target, with its questions in place."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "quickstart"
        self.config = yaml.safe_load(QUICKSTART.read_text(encoding="utf-8"))
        self.load()
        for name, task in self.asked.tasks.items():
            questions.copy(
                TASKS[name], task.set, task.sha256, questions.Layout(self.folder).questions(name), cache_root=folder
            )

    def load(self) -> None:
        """The plan, after a change."""
        self.plan = configuration.load(self.config, [QUICKSTART])
        self.asked = self.plan.evaluations
        self.target = next(iter(self.asked.targets.values()))
        self.path = Layout(self.folder).evaluation(self.target.name)

    def file(self, task: str, condition: str | None = None) -> Path:
        """Where its replies are kept."""
        spec = planning.target_spec(self.plan, self.target.name)
        return Layout(self.folder).replies(planning.answers_digest(spec, task, condition))

    def reply(self, *tasks: str, **said: str) -> None:
        """Answer the questions left of these tasks."""
        for part in inventory.parts(self.asked, self.target):
            if part.task not in tasks:
                continue
            file = replies.AnswerFile(self.file(part.task, part.condition))
            asked = questions.asked_questions(self.folder, part.task, self.asked.tasks[part.task])
            for repeat in range(1, 2 if part.condition else self.asked.repeats + 1):
                for question in asked[: part.questions if part.condition else None]:
                    if file.missing(repeat, question.question_id, retry_failed=False):
                        place = {"repeat": repeat, "question_id": question.question_id, "session_id": "s"}
                        file.append(replies.Reply(**place, latency_s=0.1, **said))
            file.close()

    def write(self, reason: str | None = None) -> None:
        """Its file, as an evaluation writes it."""
        digest = inventory.target_digest(self.plan, self.folder, self.target)
        replies.write(synthetic.evaluated(self.target.name, digest, reason), self.path)

    def status(self) -> tuple[list[str], int]:
        """Return status's lines about the target, and the number of failures."""
        lines, failed = status.report(self.plan, self.folder.parent)
        (place,) = (n for n, line in enumerate(lines) if f": evaluation of {self.target.name}" in line)
        return [
            line for line in lines[place : place + 2] if "evaluation of" not in line or line is lines[place]
        ], failed

    def left(self) -> tuple[int, float]:
        """Return how many evaluations watch counts as done, and the estimated seconds left of this target."""
        done = watch.snapshot(self.plan, self.folder).evaluations_done
        return done, duration.to_ask_s(self.plan, self.folder, self.target)


@pytest.fixture
def asked(tmp_path: Path) -> Asked:
    return Asked(tmp_path)


def test_an_evaluation_is_left_until_all_is_asked(asked: Asked) -> None:
    name, whole_s = asked.target.name, duration.evaluation_s(asked.asked, asked.target)
    ((line,), failed) = asked.status()
    assert (told(line)[:2], told(line)[2][:2], failed) == (("left", f"evaluation of {name}"), [0, 56], 0)
    assert line.endswith(duration.minutes(whole_s))
    assert asked.left() == (0, whole_s)
    asked.reply("mgsm", text="答え: 1")
    ((line,), _) = asked.status()
    assert told(line)[2][:4] == [16, 56, 0, 24]
    assert "; mgsm 16 of 16; " in line
    assert 0 < asked.left()[1] < whole_s
    asked.reply(*TASKS, text="答え: 1")
    ((line,), _) = asked.status()
    assert (told(line)[0], told(line)[2][:2]) == ("left", [56, 56])  # its file is not written
    assert asked.left() == (1, 0)
    asked.write()
    assert asked.status() == ([f"complete: evaluation of {name}, 56 questions"], 0)


def test_a_higher_limit_leaves_the_new_questions(asked: Asked) -> None:
    asked.reply(*TASKS, text="答え: 1")
    asked.write()
    more = asked.config["evaluations"]["tasks"]["mgsm"]
    more["limit"] += 1
    asked.load()
    lines, failed = asked.status()
    assert (told(lines[0])[0], told(lines[0])[2][:2]) == ("left", [56, 58])
    assert (len(lines), failed) == (1, 0)  # what the plan asks, any run asks
    length = min(asked.asked.tasks["mgsm"].max_tokens, TASKS["mgsm"].reply_tokens)
    tokens = 2 * length / min(asked.asked.concurrency, asked.target.slots)
    expected = duration.start_s(asked.target) + tokens / duration.USER_TOK_S
    assert asked.left() == (0, pytest.approx(expected))
    assert duration.remaining_s(asked.plan, asked.folder) > expected
    more["limit"] -= 2
    asked.load()
    assert (asked.status(), asked.left()) == (
        ([f"complete: evaluation of {asked.target.name}, 54 questions"], 0),
        (1, 0),
    )


def test_replies_to_questions_that_are_asked_no_more_count_for_no_others(asked: Asked) -> None:
    asked.reply("mgsm", text="答え: 1")
    path = asked.file("mgsm")
    path.write_text("".join(path.read_text(encoding="utf-8").splitlines(keepends=True)[2:]), encoding="utf-8")
    asked.config["evaluations"]["tasks"]["mgsm"]["limit"] -= 2
    asked.load()
    assert "; mgsm 10 of 12; " in asked.status()[0][0]


def test_a_damaged_line_of_replies_is_no_complete_evaluation_and_its_remedy_is_told(asked: Asked) -> None:
    asked.reply(*TASKS, text="答え: 1")
    asked.write()
    path = asked.file("mgsm")
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join([lines[0], "cut\n", *lines[2:]]), encoding="utf-8")
    again = f"  again: servebench retry evaluations {asked.target.name}"
    said, failed = asked.status()
    assert said[0].startswith(f"damaged: evaluation of {asked.target.name}: {path}:2: ")
    assert (said[1], failed, asked.left()[0]) == (again, 1, 0)
    path.write_text("".join([lines[0], *lines[2:]]), encoding="utf-8")
    said, failed = asked.status()
    assert (told(said[0])[0], told(said[0])[2][:2]) == ("left", [55, 56])
    assert (said[1], failed, asked.left()[0]) == (again, 0, 0)


def test_a_failed_evaluation_stands_with_the_command_that_asks_again(asked: Asked) -> None:
    again = f"  again: servebench retry evaluations {asked.target.name}"
    asked.write("would not start")
    assert asked.status() == ([f"failed: evaluation of {asked.target.name}: would not start", again], 1)
    assert asked.left() == (1, 0)  # what has failed is not waited for
    asked.config["evaluations"]["targets"][asked.target.name]["slots"] = 3
    asked.load()
    assert (told(asked.status()[0][0])[0], told(asked.status()[0][0])[2][:2]) == ("left", [0, 56])
    asked.reply("mgsm", failed="truncated")
    asked.reply("jcommonsenseqa", "proofreading", text="1")
    asked.write()
    ((line, remedy), failed) = asked.status()
    assert (told(line), remedy, failed) == (("failed", f"evaluation of {asked.target.name}", [16, 56]), again, 1)
    assert asked.left() == (1, 0)


class Searched:
    """An experiment of two rounds, for which a search has measured a third that failed."""

    def __init__(self, results: Path) -> None:
        self.plan = synthetic.plan_of([{"run": "main", "setting": "llama-np4", "users": 1}])
        setting, folder = self.plan.settings["llama-np4"], results / "h200"
        spec = planning.search_spec(self.plan, setting)
        search = Layout(folder).search(setting, 3)
        search.parent.mkdir(parents=True)
        search.write_text(json.dumps({"spec": planning.digest(spec), "users": [1]}))
        record = synthetic.record(setting, 0, 1, 3, FIGURES)
        digest = planning.measurement_id(planning.session_spec(self.plan, setting), 1, 3)
        failed = replace(record, status="failed", reason=[mark("failed", reason="out of memory")])
        self.store, self.link = measurements.Store(folder), Layout(folder).measurement(setting, 3, 1)
        measurements.write(synthetic.changed(failed, identity={"digest": digest}), self.store.path(digest))
        self.store.link(digest, self.link)


def test_a_failure_in_a_further_round_of_a_search_is_told_tried_again_and_discarded(tmp_path: Path) -> None:
    searched = Searched(tmp_path)
    lines, count = status.report(searched.plan, tmp_path)
    assert count == 1
    assert lines[-2] == "failed: main llama-np4 round 3, 1 user: out of memory"
    assert lines[-1] == "  again: servebench retry main llama-np4"
    assert status.failures(searched.plan, tmp_path) == {("main", "llama-np4"): ["search_main_llama-np4"]}
    said, now = status.discard(searched.plan, tmp_path, "main", "llama-np4", 3, None, "a backup ran")
    assert said.startswith("discarded main llama-np4 round 3, 1 user; ")
    assert now == "now: snakemake --cores 1 capacity"
    assert status.failures(searched.plan, tmp_path) == {}


def test_retry_forces_each_rule_under_its_target_and_takes_a_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched = Searched(tmp_path)
    setting = searched.plan.settings["llama-np4"]
    planned = replace(synthetic.record(setting, 0, 1, 1, FIGURES), status="failed", reason=[])
    measurements.write(planned, Layout(tmp_path / "h200").measurement(setting, 1, 1))
    asked, codes = [], iter([3, 0, 0, 0])

    def snakemake(argv: list[str], check: bool) -> subprocess.CompletedProcess[str]:
        asked.append(shlex.join(argv))
        return subprocess.CompletedProcess(argv, next(codes))

    monkeypatch.setattr(subprocess, "run", snakemake)
    assert retry.command(searched.plan, tmp_path, "main", "llama-np4", [], None) == 3
    assert retry.command(searched.plan, tmp_path, None, None, [Path("/site.yaml")], "profiles/slurm") == 0
    forced = [("capacity", "search_main_llama-np4"), ("all", "session_main_llama-np4")]
    for command, (target, rule) in zip(asked, [*forced, *forced], strict=True):
        assert f" {target} --forcerun {rule}" in command
    assert ["--cores 1" in one for one in asked] == [True, True, False, False]
    assert ["--workflow-profile profiles/slurm" in one for one in asked] == [False, False, True, True]
    assert ["--configfile /site.yaml" in one for one in asked] == [False, False, True, True]


def test_what_runs_is_told_with_what_is_left(tmp_path: Path) -> None:
    plan = configuration.read([servebench.ROOT / "config" / "config.yaml"])
    setting = next(iter(plan.evaluations.targets.values()))
    job = planning.Session(experiment="quickstart", round=1, rank=0, setting=setting)
    with progress.Publisher(tmp_path / "quickstart", job, "evaluation") as published:
        published.tell(phase="asking", task="mgsm", asked=12, questions=56, failures=0, left_s=100.0)
        lines, _ = status.report(plan, tmp_path)
        (running,) = progress.running(tmp_path / "quickstart")
    assert f"running: {watch.line(running)}" in lines
    assert not any(line.startswith("running") for line in status.report(plan, tmp_path)[0])


@pytest.mark.parametrize("why", ["", " \n", "a\udc80"])
def test_nothing_is_discarded_without_a_reason(tmp_path: Path, why: str) -> None:
    plan = synthetic.plan_of([{"run": "main", "setting": "llama-np4", "users": 1}])
    setting = plan.settings["llama-np4"]
    record = synthetic.record(setting, 0, 1, 1, FIGURES)
    kept = measurements.Store(tmp_path / "h200")
    measurements.write(record, kept.path(record.identity.digest))
    place = Layout(tmp_path / "h200").measurement(setting, 1, 1)
    kept.link(record.identity.digest, place)
    with pytest.raises(Fault, match=r"^--why: "):
        list(status.discard(plan, tmp_path, "main", "llama-np4", None, None, why))
    assert place.exists()
    file = Path("config/h200.yaml")
    said, now = status.discard(plan, tmp_path, "main", "llama-np4", None, None, "a backup ran", [file])
    assert said.startswith("discarded main llama-np4 round 1, 1 user; ")
    assert now == "now: snakemake --cores 1 all --configfile config/h200.yaml"
    assert [one.why for one in kept.discarded()] == ["a backup ran"]


def test_above_failures_it_never_says_nothing_left(tmp_path: Path) -> None:
    plan = synthetic.plan_of([{"run": "main", "setting": "llama-np4", "users": 1}])
    folder = tmp_path / plan.experiment
    for session, (state, reason) in zip(
        plan.sessions(), (("ok", []), ("failed", [mark("failed", reason="out of memory")])), strict=True
    ):
        record = replace(synthetic.record(session.setting, 0, 1, session.round, FIGURES), status=state, reason=reason)
        measurements.write(record, inventory.stored_path(plan, folder, session, 1))
    assert inventory.failed(plan, folder) == 1
    said = duration.announcement(plan, folder)
    assert "1 failed (servebench status says why, and how to try again), nothing else is left to measure" in said
    (head,) = watch.plain(watch.snapshot(plan, folder))
    assert "complete, 1 FAILED" in head


def test_status_opens_with_the_claims_of_the_run_unless_something_was_measured_since(tmp_path: Path) -> None:
    plan = synthetic.plan_of([{"run": "main", "setting": "llama-np4", "users": 1}])
    layout = Layout(tmp_path / plan.experiment)
    values = {"planned": 2, "measured": 1, "failed": 1, "missing": 0, "discarded": [], "settings": ["llama-np4"]}
    layout.tables.mkdir(parents=True)
    pq.write_table(claims.table([Claim(kind="coverage", verdict="failures", values=values)]), layout.table("verdicts"))
    assert status.report(plan, tmp_path)[0][0].startswith("1 of 2 planned measurements failed (llama-np4)")
    stored = layout.stored("newer")
    stored.parent.mkdir(parents=True)
    stored.touch()
    os.utime(layout.table("verdicts"), (1, 1))
    assert "is older than the latest measurement" in status.report(plan, tmp_path)[0][0]


def test_what_an_earlier_protocol_measured_is_measured_again_and_said(tmp_path: Path) -> None:
    """The old records stay where they are."""
    plan = synthetic.plan_of([{"run": "main", "setting": "llama-np4", "users": 1}])
    folder = tmp_path / plan.experiment
    assert "protocol" not in duration.announcement(plan, folder)
    for session in plan.sessions():
        old = inventory.stored_path(plan, folder, session, 1, protocol=PROTOCOL - 1)
        old.parent.mkdir(parents=True, exist_ok=True)
        old.touch()
    said = duration.announcement(plan, folder)
    assert "2 to measure" in said
    assert f"2 of these were measured under protocol {PROTOCOL - 1} and are measured again under {PROTOCOL}" in said
    assert said.endswith(f"the old ones stay in {folder / 'store'}")


@pytest.mark.parametrize(
    ("there", "seconds", "said"),
    [
        (1, 120.0, "1 to measure: about 2 min, beside downloads (once) and charts"),
        (2, 120.0, "questions to ask: about 2 min, beside downloads (once) and charts"),
        (2, 0.0, "nothing left to measure"),
    ],
)
def test_what_is_about_to_be_done_is_named(
    there: int, seconds: float, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = synthetic.plan_of([{"run": "main", "setting": "llama-np4", "users": 1}])
    monkeypatch.setattr(duration, "done", lambda *_: there)
    monkeypatch.setattr(duration, "remaining_s", lambda *_: seconds)
    assert duration.announcement(plan, "results").endswith(f"2 measurements in 2 rounds, {said}")
