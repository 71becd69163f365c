"""What `servebench watch` shows, from the files that sessions publish."""

from __future__ import annotations

import json
import os
import pty
import re
import sys
import termios
from pathlib import Path
from typing import Any

import psutil
import pytest
from rich.console import Console

import servebench
import synthetic
from servebench import configuration
from servebench.cli import watch
from servebench.outlook import duration, inventory
from servebench.plan import Plan, Session
from servebench.plan.layout import Layout
from servebench.sessions import progress
from servebench.store import replies

LOADED = {
    "phase": "window",
    "users": 2,
    "elapsed_s": 30.0,
    "total_s": 75.0,
    "running": 2,
    "finished": 11,
    "failures": 1,
    "pieces_s": 58.04,
    "first_piece_s": None,
    "memory_kind": "nvml",
    "memory_bytes": 3 * 2**30,
    "foreign_utilisation": 0.25,
}


@pytest.fixture
def plan() -> Plan:
    return synthetic.plan_of([{"run": "main", "setting": "llama-np4", "users": users} for users in (1, 2)])


def first(plan: Plan) -> Session:
    return next(plan.sessions())


def measured(plan: Plan, results: Path, round_: int, users: int) -> None:
    (session,) = (s for s in plan.sessions() if (s.setting.name, s.round) == ("llama-np4", round_))
    path = inventory.stored_path(plan, results, session, users)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


def test_a_session_is_shown_while_it_runs_and_no_longer(plan: Plan, tmp_path: Path) -> None:
    measured(plan, tmp_path, 1, 1)
    with progress.Publisher(tmp_path, first(plan)) as published:
        head, line = watch.plain(watch.snapshot(plan, tmp_path))
        assert "1 of 4 measurements, 0 of 2 sessions" in head
        assert line.startswith("session main llama-np4 round 1, phase starting, ")
        published.tell(last={"users": 1, "output_tok_s": 61.25, "ttft_p95_s": None}, **LOADED)
        now = watch.snapshot(plan, tmp_path)
        assert dict(watch.cells(now.running[0])) == {
            "session": "main llama-np4 round 1",
            "phase": "window 30/75 s",
            "users": "2",
            "running": "2",
            "finished": "11",
            "failures": "1",
            "pieces/s": "58.0",
            "first piece": "–",
            "last tok/s": "61.2 at 1",
            "last TTFT p95": "–",
            "GPU memory": "3.00 GiB",
            "foreign use": "25 %",
        }
        assert now.left_s == pytest.approx(duration.remaining_s(plan, tmp_path) - 30)
        console = Console(width=200, record=True, file=open(os.devnull, "w"))  # noqa: SIM115, PTH123
        console.print(watch.drawn(now))
        head, bar, names, values, hint = console.export_text().splitlines()
        assert hint.startswith("q ends")
        assert "1 of 4 measurements" in head
        assert set(bar.strip()) <= set("━╸╺ ")
        assert names.split()[:3] == ["session", "phase", "users"]
        assert "window 30/75 s" in values
    assert watch.snapshot(plan, tmp_path).running == []
    assert list((tmp_path / "progress").iterdir()) == []


def evaluating(results: Path, target: str) -> tuple[Plan, progress.Publisher]:
    plan = configuration.read([servebench.ROOT / "config" / "config.yaml"])
    setting = plan.evaluations.targets[target]
    job = Session(experiment=plan.experiment, round=1, rank=0, setting=setting)
    return plan, progress.Publisher(results, job, "evaluation")


def test_an_evaluation_is_shown_with_its_task_its_questions_and_the_time_left(tmp_path: Path) -> None:
    plan, publisher = evaluating(tmp_path, "Q4_1")
    failed = plan.evaluations.targets["Q4_0"]
    path, digest = Layout(tmp_path).evaluation("Q4_0"), inventory.target_digest(plan, tmp_path, failed)
    path.parent.mkdir(parents=True)
    replies.write(synthetic.evaluated("Q4_0", digest, "would not start"), path)
    with publisher as published:
        head, line = watch.plain(watch.snapshot(plan, tmp_path))
        assert "0 of 8 sessions, 1 of 3 evaluations, about" in head
        assert line.startswith("evaluation Q4_1, phase starting, ")
        published.tell(phase="asking", task="mgsm, loaded", asked=12, questions=56, failures=1, left_s=100.0)
        now = watch.snapshot(plan, tmp_path)
        assert dict(watch.cells(now.running[0])) == {
            "evaluation": "Q4_1",
            "phase": "asking",
            "task": "mgsm, loaded",
            "asked": "12 of 56",
            "failed": "1",
            "left": "about 2 min",
        }
        expected = duration.evaluation_s(plan.evaluations, plan.evaluations.targets["Q4_1"])
        assert now.left_s == pytest.approx(duration.remaining_s(plan, tmp_path) - expected + 100)
        with progress.Publisher(tmp_path, next(plan.sessions())):
            console = Console(width=200, record=True, file=open(os.devnull, "w"))  # noqa: SIM115, PTH123
            console.print(watch.drawn(watch.snapshot(plan, tmp_path)))
            _, _, names, values, session_names, _, _ = console.export_text().splitlines()
            assert names.split() == ["evaluation", "phase", "task", "asked", "failed", "left"]
            assert values.split("  ")[0] == "Q4_1" and "12 of 56" in values
            assert session_names.split()[0] == "session"
    assert watch.snapshot(plan, tmp_path).running == []


@pytest.mark.parametrize("content", [b"", b'{"kind": "sess', b"{}", b"[]", b"null", b'{"node": "elsewhere"}', b"\xff"])
def test_what_a_crash_left_of_a_file_hides_nothing(plan: Plan, tmp_path: Path, content: bytes) -> None:
    with progress.Publisher(tmp_path, first(plan)):
        (tmp_path / "progress" / "session-main-x-round1.json").write_bytes(content)
        assert len(watch.snapshot(plan, tmp_path).running) == 1


@pytest.mark.parametrize("asking", [False, True])
def test_a_file_that_lacks_a_key_is_damaged(plan: Plan, tmp_path: Path, asking: bool) -> None:
    told = {"phase": "asking", "task": "mgsm", "asked": 1, "questions": 2, "failures": 0, "left_s": 9.0}
    with progress.Publisher(tmp_path, first(plan)) as published:
        published.tell(**(told if asking else LOADED))
        whole = json.loads(published.path.read_text())
        assert list(progress.running(tmp_path)) == [whole]
        unneeded = {"engine_kind", "slots", "memory_kind", "memory_bytes", "foreign_utilisation"}
        for key in whole:
            published.path.write_text(json.dumps({name: whole[name] for name in whole if name != key}))
            watch.plain(watch.snapshot(plan, tmp_path))
            assert len(list(progress.running(tmp_path))) == (key in unneeded), key
        _changed(published.path, **(whole | {"phase": ["window"]}))
        assert list(progress.running(tmp_path)) == []


def test_what_is_not_known_is_not_zero(plan: Plan, tmp_path: Path) -> None:
    with progress.Publisher(tmp_path, first(plan)) as published:
        published.tell(**(LOADED | {"total_s": None, "memory_bytes": None, "foreign_utilisation": None}))
        (running,) = watch.snapshot(plan, tmp_path).running
    cells = dict(watch.cells(running))
    assert cells["phase"] == "window 30/– s"
    assert {cells[name] for name in ("last tok/s", "last TTFT p95", "GPU memory", "foreign use")} == {"–"}


def _changed(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_what_a_dead_session_left_behind_is_ignored(plan: Plan, tmp_path: Path) -> None:
    with progress.Publisher(tmp_path, first(plan)) as published:
        _changed(published.path, process_started_s=psutil.Process().create_time() - 100)  # its pid is another's now
        assert list(progress.running(tmp_path)) == []
        _changed(published.path, node="elsewhere")
        assert len(list(progress.running(tmp_path))) == 1
        _changed(published.path, told_at_s=json.loads(published.path.read_text())["told_at_s"] - 2 * progress.SILENT_S)
        assert list(progress.running(tmp_path)) == []


def test_a_folder_that_cannot_be_written_ends_no_session(plan: Plan, tmp_path: Path, caplog: Any) -> None:
    (tmp_path / "progress").write_text("in the way")
    with progress.Publisher(tmp_path, first(plan)) as published:
        published.tell(**LOADED)
    assert [r.message for r in caplog.records if "cannot be written" in r.message] != []
    assert len(caplog.records) == 1


def test_it_ends_when_everything_is_measured(plan: Plan, tmp_path: Path, capsys: Any) -> None:
    for round_ in (1, 2):
        for users in (1, 2):
            measured(plan, tmp_path, round_, users)
    watch.command(plan, tmp_path, once=False)
    assert re.findall(r"\d+ of \d+|complete", capsys.readouterr().out) == ["4 of 4", "2 of 2", "complete"]


def test_a_key_ends_the_view_and_the_terminal_is_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(theirs) as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        before = termios.tcgetattr(theirs)
        with watch.keys() as pressed:
            assert pressed(0) == ""
            os.write(ours, b"q")
            assert pressed(10) == "q", "without Enter"
        assert termios.tcgetattr(theirs) == before
    os.close(ours)
