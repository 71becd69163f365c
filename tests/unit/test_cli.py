"""The verbs on terminals and clocks of all kinds."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from servebench import ROOT
from servebench.cli import app as cli
from servebench.cli import calibrate, jobs, load
from servebench.faults import Fault
from servebench.load.workload import Workload
from servebench.machine import lifeline
from servebench.machine.infrastructure import ROOM

SERVEBENCH = (sys.executable, "-m", "servebench")


@pytest.mark.parametrize(("zone", "offset"), [("JST-9", r"\+0900"), ("NST3:30", "-0330")])
def test_a_time_in_a_log_file_has_its_date_and_its_zone(tmp_path: Path, zone: str, offset: str) -> None:
    log = tmp_path / "tables.log"
    command = [*SERVEBENCH, "tables", "--results", str(tmp_path / "none"), "--log", str(log)]
    assert subprocess.run(command, env={**os.environ, "TZ": zone}, capture_output=True).returncode == 1
    said = log.read_text(encoding="utf-8")
    at = re.match(rf"\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d{offset} ", said)
    assert at, said
    assert abs(datetime.strptime(at[0].strip(), "%Y-%m-%d %H:%M:%S%z") - datetime.now(UTC)) < timedelta(hours=1)


@pytest.mark.parametrize(("given", "read"), [(None, None), ("128", 128), ("uniform:100,2000", "uniform:100,2000")])
def test_a_length_is_a_number_or_a_distribution(given: str | None, read: int | str | None) -> None:
    assert load.tokens("--output-tokens", given) == read


@pytest.mark.parametrize(
    ("given", "remedy"), [("16,64", "config/lengths.yaml"), ("many", "write an integer"), ("0", "1")]
)
def test_a_length_that_is_none_is_refused_by_the_options_name(given: str, remedy: str) -> None:
    with pytest.raises(Fault, match=rf"--output-tokens: '{given}' .*{remedy}"):
        load.tokens("--output-tokens", given)


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
def test_a_terminal_that_cannot_show_japanese_ends_nothing(errors: str) -> None:
    command = [*SERVEBENCH, "plan", "--language", "ja", "--configfile", str(ROOT / "config" / "h200.yaml")]
    env = {**os.environ, "PYTHONIOENCODING": f"ascii:{errors}"}
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True)
    assert done.stderr == ""
    assert "\\u" in done.stdout


@pytest.mark.parametrize("verb", ["load --url http://127.0.0.1:9 --model m", "calibrate"])
def test_a_load_that_cannot_be_written_is_said_as_by_every_verb(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*arguments: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    for module in (load, calibrate):
        monkeypatch.setattr(module, "command", fails)
    with pytest.raises(SystemExit) as end:
        cli.main([*verb.split(), "--out", str(tmp_path)])
    assert end.value.code == 1
    assert capsys.readouterr().err == f"servebench: No space left on device; {ROOM}\n"


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.ENOTDIR])
def test_an_error_of_the_system_is_one_line_with_its_file(
    number: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*arguments: object, **options: object) -> None:
        raise OSError(number, os.strerror(number), "results/quick/store")

    monkeypatch.setattr(calibrate, "command", fails)
    with pytest.raises(SystemExit) as end:
        cli.main(["calibrate", "--out", "unused"])
    assert end.value.code == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"servebench: results/quick/store: {os.strerror(number)}")


@pytest.mark.parametrize(
    ("options", "mode"),
    [
        ("", "closed"),
        ("--think exp:5", "closed"),
        ("--requests 9", "count"),
        ("--rate 2 --shared-prefix 100", "open"),
        ("--user-rate 0.05 --arrivals constant", "open-users"),
        ("--shared-prefix 100", "shared-prefix"),
        ("--turns 3", "conversation"),
        ("--trace t.jsonl", "trace"),
    ],
)
def test_the_options_of_load_say_the_mode(options: str, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Workload] = []
    monkeypatch.setattr(load, "command", lambda _, workload, *more, **options: asked.append(workload) or 0)
    with pytest.raises(SystemExit) as end:
        cli.main(["load", "--url", "http://127.0.0.1:9", "--model", "m", "--out", "unused", *options.split()])
    assert (end.value.code, [workload.mode for workload in asked]) == (0, [mode])


@pytest.mark.parametrize("code", [None, 2, "it cannot go on"])
def test_a_session_that_ends_by_itself_is_not_said_to_be_ended_by_a_signal(
    code: object, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(jobs.signal, "signal", lambda number, handler: None)
    monkeypatch.setattr(lifeline, "follow_parent", lambda pid: None)
    with pytest.raises(SystemExit) as end, jobs.ending_with_parent():
        raise SystemExit(code)
    assert end.value.code == code
    assert caplog.messages == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_session_that_a_signal_ends_says_which(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    handlers: dict[int, Any] = {}
    monkeypatch.setattr(jobs.signal, "signal", handlers.__setitem__)
    monkeypatch.setattr(lifeline, "follow_parent", lambda pid: None)
    with pytest.raises(SystemExit) as end, jobs.ending_with_parent():
        handlers[number](number, None)
    assert end.value.code == 128 + number
    assert caplog.messages == [f"ended by {number.name}; the engine is stopped, what was measured is kept"]


def test_files_and_changes_are_given_as_to_snakemake() -> None:
    def plan(*given: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*SERVEBENCH, "plan", *given], cwd=ROOT, capture_output=True, text=True)

    files = ("--configfile", "config/h200.yaml", "config/rehearsal.yaml")
    one = plan(*files, "--config", "rounds=1", "title=a b")
    assert one.stderr == "" and one.stdout.startswith("a b\n")
    assert "even rounds" in plan(*files).stdout and "even rounds" not in one.stdout
    alone = plan("--config", "rounds=1")
    assert alone.returncode == 1
    assert re.fullmatch(r"servebench: --config: .* --configfile FILE\n", alone.stderr)


@pytest.mark.parametrize("verb", ["plan", "status", "verify", "watch", "retry"])
def test_a_verb_that_needs_the_configuration_says_so_to_those_who_name_the_results(verb: str) -> None:
    done = CliRunner().invoke(cli.app, [verb, "--results", "results/quickstart"])
    assert done.exit_code == 2 and "--configfile" in done.output
