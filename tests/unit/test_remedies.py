"""Each fault whose message prints a command is provoked, and its command pasted: fault → remedy → what happened.

`ROWS` is that table. A command that is printed anywhere in the package and has no row fails here. What would take
long or touch more than its folder is run in its own dry form: Snakemake's and `retry`'s `-n`, pip's `--dry-run`.
"""

from __future__ import annotations

import ast
import io
import json
import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from html import unescape
from pathlib import Path
from types import SimpleNamespace

import pytest
import snakemake.cli
import typer
import yaml
from click.testing import Result
from typer.testing import CliRunner

import servebench
import synthetic
from servebench import ROOT, claims, configuration, verdicts
from servebench import plan as planning
from servebench.cli import app as cli
from servebench.cli import load, retry
from servebench.engines import runtime
from servebench.engines.base import Container
from servebench.faults import Fault
from servebench.load import calibrate, limits
from servebench.load.calibration import Calibration
from servebench.marks import mark
from servebench.outlook import inventory, questions
from servebench.plan.layout import Layout
from servebench.report import page as page_
from servebench.sessions import measuring
from servebench.store import measurements, replies
from servebench.tasks import TASKS

PACKAGE = ROOT / "scripts" / "servebench"
ROWS: dict[str, str] = {  # command → what runs it; `pasted` adds the tests of this module
    "servebench load --url http://127.0.0.1:8000 --model practice --users 4 --out first": (
        "tests/load/test_practice.py::test_what_it_proposes_can_be_typed"
    ),
    "servebench compare A B": (
        "tests/unit/test_compare.py::test_folders_of_load_are_compared_and_one_round_each_tells_nothing"
    ),
    "squeue --me --Format JobID,State,NodeList,Reason,StartTime,TimeLeft": (
        "tests/cluster/test_slurm.py::test_no_free_gpu_is_waited_for_and_the_reason_can_be_seen"
    ),
}
GIVEN = " --configfile a.yaml b.yaml"
# What stands in the braces of a command, by its source; a new remedy needs its own line here.
VALUES = {
    **dict.fromkeys(("one.setting.run", "session.setting.run", "self.setting.run", "some.run"), "main"),
    **dict.fromkeys(("one.setting.name", "session.setting.name", "self.setting.name", "some.name"), "np4"),
    **dict.fromkeys(("one.round", "session.round"), "2"),
    **dict.fromkeys(("users", "one.users", "some.users[0]"), "4"),
    **dict.fromkeys(("given", "plan.given", "plan.options(configfiles)", "targets.plan.options(files)"), GIVEN),
    "EVALUATIONS": "evaluations",
    "target.name": "Q4_0",
    "one.target": "all",
    "' '.join(targets)": "all capacity",
    "options": " --cpus 2 --processes 3",
    "divided": " --processes 3",
    "file": "config/mine.yaml",
    "port": "8000",
    "MODEL": "practice",
    "shlex.quote(sys.executable)": "python",
    "shlex.quote(str(path))": "left",
    "shlex.quote(str(found.parent if found.is_file() else found))": "model",
    "shlex.quote(str(stored.parent))": "store",
    "shlex.join([str(path), str(stored)])": "link stored",
    "files": "64",
    "name": "sb",
    "tool": "docker",
}
VALUE = r"(?:«[^»]*»|[^\s;,)`«»:”“」]|:(?=\S))+"
OPTION = rf" --[a-zA-Z-]+[ =]{VALUE}|«[^»]*»"
# Not in backticks, in which the documentation names a verb or a target.
TARGET = r" (?:all|capacity|fetch)\b| only_(?:«[^»]*»|\w)+"
COMMAND = re.compile(
    rf"(?<!`)(?:servebench [a-z-]+(?:{OPTION}| «[^»]*»| [A-Z]+\b)*|snakemake(?:{OPTION}|{TARGET}| «[^»]*»)+)"
    rf"|(?<![\w-])(?:rm (?:-r )?|mkdir -p .* && cp -n )«[^»]*»"
    rf"|squeue --me --Format [\w,]+|(?:sudo prlimit --pid \$\$|«[^»]*» rm(?= --force))(?:{OPTION})+(?: «[^»]*»)?"
    rf"|(?:«[^»]*» -m )?pip install [^\s;,)`]+"
)
VERBS = set(typer.main.get_command(cli.app).commands)  # type: ignore[attr-defined]


def texts(path: Path) -> Iterator[str]:
    """The strings of a source with their braces filled, each value in «»; of a page or labels, the lines."""
    if path.suffix != ".py":
        braces = re.compile(r"\{\{\s*(.+?)\s*\}\}|\{(\w+)\}")
        yield from (braces.sub(lambda m: filled(m[1] or m[2]), line) for line in path.read_text("utf-8").splitlines())
        return
    tree = ast.parse(path.read_text("utf-8"))
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(
                filled(ast.unparse(part.value)) if isinstance(part, ast.FormattedValue) else str(part.value)  # type: ignore[attr-defined]
                for part in node.values
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts | docs:
            yield node.value


def filled(source: str) -> str:
    return f"«{VALUES[source]}»" if source in VALUES else f"«?{source}»"


def printed() -> dict[str, str]:
    """Every command in the package's texts, by file."""
    found: dict[str, str] = {}
    for path in sorted(PACKAGE.rglob("*")):
        if path.suffix in (".py", ".html", ".yaml"):
            for text in texts(path):
                for command in COMMAND.findall(text):
                    words = re.sub("[«»]", "", command)
                    program, first, *_ = words.split()
                    if program != "servebench" or first in VERBS:
                        found.setdefault(words, str(path.relative_to(PACKAGE)))
    return found


def pasted(*commands: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Mark a test as the row of these commands, as `printed` has them."""

    def row(test: Callable[..., None]) -> Callable[..., None]:
        ROWS.update(dict.fromkeys(commands, f"tests/unit/test_remedies.py::{test.__name__}"))
        return test

    return row


class Desk:
    """A folder with `my own.yaml`: an experiment on the simulator; commands are pasted there."""

    NAMES = ("np1", "np4")

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(folder)
        monkeypatch.setenv("SERVEBENCH_CACHE", str(folder / "cache"))
        for name in (planning.GIVEN, "SERVEBENCH_SEARCHED", "SERVEBENCH_FORCED"):  # a run in this process sets them
            monkeypatch.setenv(name, "")
            monkeypatch.delenv(name)
        monkeypatch.setattr(retry, "subprocess", SimpleNamespace(run=self.in_process))
        self.folder, self.file = folder, folder / "my own.yaml"
        self.given = f" --configfile {shlex.quote(str(self.file))}"
        model = {"source": "file:///nowhere.gguf", "sha256": "0" * 64}
        self.config = {
            "experiment": "desk",
            "engines": {"llama": {"kind": "simulator"}},
            "models": {"m": model},
            "workload": {"prompts": "en-short", "max_tokens": 4, "warmup_s": 1, "window_s": 60},
            "settings": {
                name: {"engine": "llama", "model": "m", "slots": 4, "context": 512, "users": [1, 4]}
                for name in self.NAMES
            },
        }
        self.read()

    def read(self) -> None:
        self.file.write_text(yaml.safe_dump(self.config))
        self.plan = configuration.read([self.file])
        self.results = self.folder / "results" / "desk"
        self.layout, self.store = Layout(self.results), measurements.Store(self.results)

    def put(self, name: str = "np4", *, round_: int = 2, users: int = 4, failed: bool = False) -> Path:
        """Store a measurement and link it; return its file in the store."""
        setting = self.plan.settings[name]
        made = synthetic.record(setting, 1, users, round_, synthetic.UNPUBLISHED)
        digest = planning.measurement_id(planning.session_spec(self.plan, setting), users, round_)
        made = synthetic.changed(made, identity={"digest": digest})
        if failed:
            made = synthetic.changed(made, status="failed", reason=[mark("failed", reason="out of memory")])
        measurements.write(made, self.store.path(digest))
        self.store.link(digest, self.layout.measurement(setting, round_, users))
        return self.store.path(digest)

    def servebench(self, *words: str, typed: str = "") -> Result:
        return CliRunner().invoke(cli.app, cli.one_each(words), input=typed)

    def says(self, verb: str, *words: str) -> str:
        """What a verb says of this experiment."""
        done = self.servebench(verb, *words, "--configfile", str(self.file))
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done.output

    def snakemake(self, *words: str) -> str:
        """Plan a run in this process; return what it says."""
        said = io.StringIO()
        with redirect_stdout(said), redirect_stderr(said), pytest.raises(SystemExit) as ended:
            snakemake.cli.main(["--snakefile", str(ROOT / "Snakefile"), "--dry-run", *words])
        assert ended.value.code == 0, said.getvalue()[-2000:]
        return said.getvalue()

    def in_process(self, argv: list[str], check: bool) -> SimpleNamespace:
        print(self.snakemake(*argv[argv.index("snakemake") + 1 :]))
        return SimpleNamespace(returncode=0)

    def paste(self, said: str, before: str, *more: str, until: str = r"$") -> str:
        """Run the first command that `said` prints and that begins so; return what it says. `more`: its dry form."""
        found = re.search(rf"{re.escape(before)}.*?(?=\s*(?:{until}))", said, re.M)
        assert found, said
        program, *words = shlex.split(found[0])
        if program == "snakemake":
            return self.snakemake(*words, *more)
        assert program == "servebench"
        done = self.servebench(*words, *more)
        assert done.exit_code == 0, (found[0], done.output, done.exception)
        return done.output


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    return Desk(tmp_path, monkeypatch)


def jobs(said: str) -> set[str]:
    """The rules that a dry run plans."""
    return set(re.findall(r"^(\S+) +\d+$", said, re.M)) - {"total"}


@pasted("servebench plan --configfile config/mine.yaml", "snakemake --cores 1 all --configfile config/mine.yaml")
def test_what_init_proposes(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    flags = ("--engines", "llama-server", "--context", "512", "--users", "2", "--model", "smollm2")
    said = desk.servebench("init", "--out", "config/mine.yaml", *flags).output
    assert "llama-server-2" in desk.paste(said, "servebench plan")
    assert "session_main_llama-server-2" in jobs(desk.paste(said, "snakemake"))


@pasted(f"snakemake --cores 1 capacity{GIVEN}")
def test_what_plan_proposes_to_search(desk: Desk) -> None:
    assert {"search_main_np1", "search_main_np4"} <= jobs(desk.paste(desk.says("plan"), "snakemake"))


@pasted(f"servebench retry main np4{GIVEN}")
def test_a_failed_measurement_and_a_damaged_one(desk: Desk) -> None:
    desk.put(failed=True)
    said = desk.says("status")
    assert "out of memory" in said
    assert {"session_main_np4"} <= jobs(desk.paste(said, "servebench retry main np4", "-n"))
    desk.put(round_=1).write_bytes(b"cut")
    said = desk.says("status")
    assert said.index("damaged") and {"session_main_np4"} <= jobs(desk.paste(said, "servebench retry main np4", "-n"))


@pasted(f"servebench status{GIVEN}")
def test_nothing_to_try_again(desk: Desk) -> None:
    assert "2 settings" in desk.paste(desk.says("retry"), "servebench status", until=" says")


@pasted(f"servebench retry evaluations Q4_0{GIVEN}")
def test_a_failed_evaluation(desk: Desk) -> None:
    tasks = {name: task for name, task in quickstart()["evaluations"]["tasks"].items() if name == "mgsm"}
    target = {"engine": "llama", "model": "m", "slots": 1, "context": 4096}
    targets = {"Q4_0": target, "Q8_0": target}
    desk.config["evaluations"] = {"tasks": tasks, "targets": targets, "baseline": "Q8_0", "concurrency": 1}
    desk.read()
    task = desk.plan.evaluations.tasks["mgsm"]
    file = questions.Layout(desk.results).questions("mgsm")
    questions.copy(TASKS["mgsm"], task.set, task.sha256, file, cache_root=desk.folder)
    asked = desk.plan.evaluations.targets["Q4_0"]
    digest = inventory.target_digest(desk.plan, desk.results, asked)
    replies.write(synthetic.evaluated("Q4_0", digest, "would not start"), desk.layout.evaluation("Q4_0"))
    said = desk.says("status")
    assert "failed: evaluation of Q4_0: would not start" in said
    assert {"evaluate_Q4_0"} <= jobs(desk.paste(said, "servebench retry evaluations", "-n"))


def quickstart() -> dict[str, dict[str, dict[str, object]]]:
    found: dict[str, dict[str, dict[str, object]]] = yaml.safe_load(
        (ROOT / "config" / "config.yaml").read_text("utf-8")
    )
    return found


@pasted(f"snakemake --cores 1 all capacity{GIVEN}", f"snakemake --cores 1 all{GIVEN}")
def test_what_was_discarded_is_measured_again(desk: Desk) -> None:
    for users in (1, 4):
        desk.put(users=users)
    said = desk.says("discard", "main", "np4", "--users", "4", "--why", "a backup ran")
    assert not desk.layout.measurement(desk.plan.settings["np4"], 2, 4).exists()
    assert {"session_main_np4"} <= jobs(desk.paste(said, "snakemake"))
    searched = desk.layout.search(desk.plan.settings["np4"], 3)
    searched.parent.mkdir(parents=True)
    spec = planning.digest(planning.search_spec(desk.plan, desk.plan.settings["np4"]))
    searched.write_text(json.dumps({"spec": spec, "users": [4]}))
    for round_ in (2, 3):
        desk.put(round_=round_)
    said = desk.says("discard", "main", "np4", "--users", "4", "--why", "a backup ran")
    assert {"session_main_np4", "search_main_np4"} <= jobs(desk.paste(said, "snakemake --cores 1 all capacity"))


@pasted(
    f"servebench discard main np4 --round 2 --users 4 --why damaged{GIVEN}",
    f"servebench discard main np4 --round 2 --users 4 --why short{GIVEN}",
)
def test_what_verify_finds_of_the_store(desk: Desk) -> None:
    stored = desk.put()
    link = desk.layout.measurement(desk.plan.settings["np4"], 2, 4)
    link.unlink()
    link.write_bytes(b"cut")
    said = desk.says("verify")
    assert "differs: " in said
    desk.paste(said, "servebench discard", until=", and snakemake")
    assert not stored.exists()
    stored = desk.put()
    link.unlink()
    said = desk.says("verify")
    assert "no link: " in said
    assert {"session_main_np4"} <= jobs(desk.paste(said, "snakemake"))


@pasted("mkdir -p store && cp -n link stored", "rm left", "rm -r model")
def test_what_verify_proposes_to_a_shell(desk: Desk) -> None:
    stored = desk.put()
    content = stored.read_bytes()
    stored.unlink()
    subprocess.run(desk.says("verify").partition("keep it: ")[2].splitlines()[0], shell=True, check=True)
    assert stored.read_bytes() == content
    left = stored.parent / ".writing-1 2"
    left.touch()
    said = desk.says("verify")
    subprocess.run(re.search(r"when nothing runs: (.*)", said)[1], shell=True, check=True)  # type: ignore[index]
    assert not left.exists() and "wrong: 0" in desk.says("verify")
    model = desk.folder / "cache" / "models" / ("0" * 64) / "m.gguf"
    model.parent.mkdir(parents=True)
    model.write_bytes(b"altered")
    manifest = {"sha256": "0" * 64, "path": str(model.relative_to(desk.folder / "cache")), "key": "m", "name": "m"}
    desk.layout.model("m").parent.mkdir(parents=True)
    desk.layout.model("m").write_text(json.dumps({**manifest, "size_bytes": 7}))
    said = desk.says("verify")
    subprocess.run(re.search(r"(rm -r .*?),", said)[1], shell=True, check=True)  # type: ignore[index]
    assert not model.exists() and "the next run fetches it again" in desk.says("verify")


@pasted(
    f"snakemake --cores 1 only_main_np4{GIVEN}",
    f'servebench discard main np4 --round 1 --users 4 --why "…"{GIVEN}',
    f"servebench retry{GIVEN}",
)
def test_what_the_page_proposes(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_, "drawn", lambda *_: ([], {"charts": {}}))  # no chart prints a command
    setting = desk.plan.settings["np4"]
    good = [synthetic.record(setting, 1, 4, number, synthetic.UNPUBLISHED) for number in (1, 2)]
    failed = synthetic.changed(good[1], status="failed", reason=[mark("failed", reason="out of memory")])
    tables = synthetic.from_records([good[0], failed], [], desk.plan)
    tables |= {"verdicts": claims.table(verdicts.conclude(tables, desk.plan))}
    desk.put("np1", round_=1, users=1)
    desk.put(failed=True)
    # The page, which may be published, names no folder: its reader does.
    page = unescape(re.sub(r"</?code>|[“”「」]", "\n", page_.page(tables, desk.plan)))
    commands = [line.strip() for line in page.splitlines() if re.match(r" *(servebench|snakemake) ", line)]
    said = "\n".join(commands).replace("/path/to/", f"{desk.folder}/")
    assert {"session_main_np4"} <= jobs(desk.paste(said, "servebench retry", "-n"))
    assert jobs(desk.paste(said, "snakemake --cores 1 only_main_np1")) == {"session_main_np1", "only_main_np1"}
    assert "session_main_np1" in jobs(desk.paste(said, "snakemake --cores 1 all"))
    assert "discarded main np1 round 1, 1 user" in desk.paste(said, "servebench discard main np1")


@pasted(
    "servebench calibrate --users 4 --processes 3 --out calibration",
    "servebench calibrate --out out/ --users 4 --cpus 2 --processes 3",
)
def test_a_client_whose_error_is_not_known(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, object]] = []
    found = Calibration(max_users=4)

    def measured(users: list[int], **how: object) -> Calibration:
        asked.append({"users": users, "processes": how["processes"], "cpus": len(how["cpus"])})  # type: ignore[arg-type]
        return found

    monkeypatch.setattr(calibrate, "calibrate", measured)
    monkeypatch.setattr(calibrate, "keep", lambda measured, folder: measured)
    monkeypatch.setattr(calibrate, "ensure", lambda *_: synthetic.changed(found, max_users=1))
    desk.paste(str(load.calibrating(None, 4, 3)), "servebench calibrate")
    setting = synthetic.changed(desk.plan.settings["np4"], processes=3)
    with pytest.raises(Fault) as refused:
        measuring.calibrated(setting, 4, desk.plan.runtime, [0, 1][: os.cpu_count()])
    desk.paste(str(refused.value), "servebench calibrate", until=" when")
    assert [(one["users"], one["processes"]) for one in asked] == [([4], 3), ([4], 3)]
    assert (desk.folder / "calibration" / "calibration.json").exists() and (desk.folder / "out").is_dir()


@pasted("sudo prlimit --pid $$ --nofile=64:64")
def test_too_few_open_files() -> None:
    with pytest.raises(Fault) as refused:
        limits.check_open_files(10**9, 1)
    command = re.search(r"sudo (prlimit .*?),", str(refused.value))
    assert command
    # Its dry form: the limits as they are, which takes no rights.
    now = re.sub(r"--nofile=\S+", '--nofile="$(ulimit -Sn):$(ulimit -Hn)"', command[1])
    subprocess.run(["bash", "-c", now], check=True)


@pasted("docker rm --force sb")
def test_a_container_that_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docker = tmp_path / "docker"
    docker.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n[ "$1" = ps ] && echo sb\nexit 0\n')
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(runtime, "REMOVAL_TIMEOUT_S", 0)
    with pytest.raises(Fault) as stays:
        runtime.remove_container(Container("docker", "sb-1"))
    subprocess.run(re.search(r"docker rm .*(?= removes)", str(stays.value))[0], shell=True, check=True)  # type: ignore[index]
    assert (tmp_path / "asked").read_text().splitlines()[-1] == "rm --force sb-1"


@pasted("python -m pip install 'servebench[workflow]'", "python -m pip install tokenizers")
def test_packages_that_are_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "find_spec", lambda name: None)
    with pytest.raises(Fault) as lacking:
        load.check_files(tmp_path / "page.html", None)
    command = str(lacking.value).partition("not installed: ")[2]
    assert shlex.split(command)[1:] == ["-m", "pip", "install", "servebench[workflow]"]
    # Its dry form fetches nothing: servebench is installed here.
    subprocess.run(f"{command} --dry-run --no-deps --no-index --quiet", shell=True, check=True)


def test_every_command_that_is_printed_has_a_row() -> None:
    found = printed()
    assert not {command: place for command, place in found.items() if "?" in command}, "VALUES lacks what is in braces"
    assert found.keys() == ROWS.keys()
    for place in ROWS.values():
        file, name = place.split("::")
        assert f"\ndef {name}(" in (servebench.ROOT / file).read_text("utf-8"), place


def test_what_lacks_something_would_be_noticed(desk: Desk) -> None:
    with pytest.raises(AssertionError):
        desk.paste("servebench calibrate --users 4", "servebench")
    with pytest.raises(AssertionError):
        desk.paste("snakemake capacity", "snakemake")
