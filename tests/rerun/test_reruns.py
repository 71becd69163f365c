"""What Snakemake plans after a complete run, for each kind of change: nothing is measured twice without need."""

import os
import re
import shutil
import subprocess

import pytest

from servebench import store, tables
from workspace import ROOT, Workspace

TABLES = {"plan": 1, "tables": 1, "charts": 1, "pictures": 1, "report": 1}
TABLE = "results/reruns/tables/measurements.parquet"


@pytest.fixture(scope="module")
def complete(tmp_path_factory):
    """A complete run, made once."""
    folder = tmp_path_factory.mktemp("complete")
    Workspace(folder).snakemake("all")
    return folder


@pytest.fixture
def after(complete, tmp_path):
    """A copy of the complete run, with times and links kept, to change and plan again."""
    folder = tmp_path / "copy"
    subprocess.run(["cp", "-a", str(complete), str(folder)], check=True)
    return Workspace(folder)


def test_nothing_changed_nothing_planned(after):
    assert after.planned() == {}
    assert "Nothing to be done" in after.snakemake("all")


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c["runtime"].update(ready_timeout_s=99, ports=[31000, 31999]),
        lambda c: c["models"]["none"].update(source="https://elsewhere.example/x.gguf"),
        lambda c: c.update(settings=dict(reversed(c["settings"].items()))) or c["settings"]["one"].update(args=[]),
    ],
    ids=["runtime", "address", "key-order"],
)
def test_how_it_is_run_measures_nothing(after, change):
    change(after.config)
    assert not [rule for rule in after.planned() if rule.startswith("session")]


def test_ports_and_timeouts_plan_nothing_at_all(after):
    after.config["runtime"].update(ready_timeout_s=99, ports=[31000, 31999])
    assert after.planned() == {}


def test_one_setting_changed(after):
    after.config["settings"]["two"]["slots"] = 4
    assert after.planned() == {"session_main_two": 2, **TABLES}


def test_a_new_level_measures_only_that_level(after):
    before = after.measured()
    after.config["settings"]["one"]["users"] = [1, 2, 3]
    assert after.planned() == {"session_main_one": 2, **TABLES}
    after.snakemake(TABLE)
    later = after.measured()
    assert {name: later[name] for name in before} == before
    assert len(later) == len(before) + 2


def test_a_new_setting(after):
    after.config["settings"]["three"] = {"engine": "sim", "model": "none", "slots": 3, "context": 512, "users": [1]}
    assert after.planned() == {"session_main_three": 2, **TABLES}


def test_chart_style(after):
    after.config["charts"] = {"width": 900}
    assert after.planned() == {"charts": 1, "pictures": 1, "report": 1}


def test_touched_files_plan_nothing(after):
    for path in [after.folder / "config.yaml", *ROOT.glob("rules/*.smk")]:
        os.utime(path)
    assert after.planned() == {}


def test_comments_plan_nothing(after):
    done = after.planned()
    file = after.folder / "config.yaml"
    file.write_text("# a comment\n" + file.read_text())
    assert done == {}
    assert after.planned() == {}


def test_results_without_snakemakes_records_measure_nothing(after):
    shutil.rmtree(after.folder / ".snakemake")
    assert not [rule for rule in after.planned() if rule.startswith("session")]


def test_a_change_is_seen_without_snakemakes_records(after):
    """As in a copy of results/ alone: what is of another configuration is measured again, as is what is missing."""
    before = after.measured()
    shutil.rmtree(after.folder / ".snakemake")
    after.config["settings"]["two"]["slots"] = 4
    after.config["settings"]["three"] = {"engine": "sim", "model": "none", "slots": 3, "context": 512, "users": [1]}
    assert after.planned() == {"session_main_two": 2, "session_main_three": 2, **TABLES}
    after.snakemake("all")
    rows = tables.read(after.folder / TABLE).to_pylist()
    assert {(row["setting"], row["slots"]) for row in rows} == {("one", 1), ("two", 4), ("three", 3)}
    later = after.measured()
    assert {name: later[name] for name in before} == before
    assert len(later) == len(before) + 6
    shutil.rmtree(after.folder / ".snakemake")
    after.config["settings"]["two"]["slots"] = 2  # and back: linked again
    assert after.planned() == {"session_main_two": 2, **TABLES}
    after.snakemake("only_main_two")
    files = (after.results / "measurements/main/two").rglob("*.parquet")
    assert [store.read_metadata(file)["identity"]["slots"] for file in files] == [2] * 4
    assert after.measured() == later


def test_another_plan_is_seen_without_snakemakes_records(after):
    shutil.rmtree(after.folder / ".snakemake")
    after.config["line"] = {"ttft_p95_s": 1}
    assert after.planned() == TABLES


def test_one_file_target_runs_one_session(after):
    shutil.rmtree(after.results / "measurements/main/two")
    assert after.planned("results/reruns/measurements/main/two/round1/users001.parquet") == {"session_main_two": 1}
    assert after.planned("only_main_two") == {"session_main_two": 2}


def test_deleted_links_are_linked_again_not_measured(after):
    before = after.measured()
    shutil.rmtree(after.results / "measurements")
    after.snakemake("only_main_one", "only_main_two")
    assert after.measured() == before
    assert len(list((after.results / "measurements").rglob("*.parquet"))) == 8


def test_force_links_and_does_not_measure(after):
    before = after.measured()
    after.snakemake("--force", "results/reruns/measurements/main/one/round1/users001.parquet")
    assert after.measured() == before


def test_discarded_is_measured_again(after):
    before = after.measured()
    after.servebench("discard", "main", "one", "--round", "2", "--users", "2", "--why", "a test")
    assert after.planned() == {"session_main_one": 1, "charts": 1, "pictures": 1, "tables": 1, "report": 1}
    after.snakemake("only_main_one")
    later = after.measured()
    assert len(later) == 8
    assert [name for name in before if later[name] != before[name]] == [
        path.name.rsplit("-", 1)[0] + ".parquet" for path in (after.results / "store/discarded").glob("*.parquet")
    ]


@pytest.fixture
def edited(complete, tmp_path):
    """A copy of the checkout whose code may be edited, with the complete run beside it."""
    source = tmp_path / "source"
    ignore = shutil.ignore_patterns(".git", ".venv", "results", ".snakemake", "__pycache__", "tests", "docs")
    shutil.copytree(ROOT, source, ignore=ignore, symlinks=True)
    folder = tmp_path / "copy"
    subprocess.run(["cp", "-a", str(complete), str(folder)], check=True)
    return Workspace(folder, source)


def test_editing_measuring_code_measures_nothing(edited):
    package = edited.source / "scripts/servebench"
    for path in [*package.glob("load/*.py"), *package.glob("engines/*.py"), package / "session.py"]:
        if "PROTOCOL" not in path.read_text() or path.name != "__init__.py":
            path.write_text(path.read_text() + "\n# edited\n")
    assert not [rule for rule in edited.planned() if rule.startswith("session")]


def test_editing_a_chart_draws_charts(edited):
    style = edited.source / "scripts/servebench/charts/style.py"
    style.write_text(style.read_text() + "\n# edited\n")
    assert set(edited.planned()) == {"charts", "pictures", "report"}


def test_editing_what_tables_are_made_with_makes_them_again(edited):
    for name in ("schema.py", "evaluate.py"):
        path = edited.source / "scripts/servebench" / name
        text = path.read_text()
        path.write_text(text + "\n# edited\n")
        assert set(edited.planned()) == {"tables", "charts", "pictures", "report"}
        path.write_text(text)
        assert edited.planned() == {}


def test_another_protocol_measures_everything(edited):
    init = edited.source / "scripts/servebench/load/__init__.py"
    text = init.read_text()
    changed = re.sub(r"^PROTOCOL: int = (\d+)$", lambda m: f"PROTOCOL: int = {int(m[1]) + 1}", text, flags=re.M)
    assert changed != text
    init.write_text(changed)
    planned = edited.planned()
    assert (planned["session_main_one"], planned["session_main_two"]) == (2, 2)
