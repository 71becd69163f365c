"""What Snakemake plans after a complete run, for each kind of change: nothing is measured twice without need."""

import json
import os
import re
import shlex
import shutil
import subprocess
import zipfile
from pathlib import Path

import pyarrow.compute as pc
import pytest

from servebench import charts, tables
from servebench.store import measurements
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
    before = after.measured()
    said = after.snakemake("all")
    assert "nothing left to measure" in said
    assert "servebench: one serves" in said or "servebench: How many users one serves" in said, (
        "it ends with the claims"
    )
    assert after.measured() == before


def test_a_run_in_which_settings_fail_makes_the_page_ends_with_the_claims_and_an_exit_status(tmp_path):
    run = Workspace(tmp_path)
    run.config["rounds"] = 1
    run.config["settings"]["two"]["env"] = {"PYTHONHOME": "/nowhere"}  # the interpreter of this server cannot start
    for again in (False, True):
        before = run.measured()
        lines = [line for line in run.snakemake("all", code=1).splitlines() if line.startswith("servebench: ")]
        assert (run.results / "report" / "index.html").is_file()
        paths = [number for number, line in enumerate(lines) if line.startswith("servebench: the page is ")]
        claimed = lines[paths[-1] + 1 :]
        assert re.findall(r"\d+", claimed[0]) == ["2", "4", "2", "0"] and "failed (two)" in claimed[0]
        assert "not evaluated" in claimed[-1]
        assert len(claimed) >= 3
        if again:
            assert run.measured() == before, "what failed is not tried again by itself"
    told = run.servebench("status", code=1).splitlines()
    assert told[0] == claimed[0].removeprefix("servebench: ")
    assert "nothing left to measure" not in "\n".join(told)
    assert any(", 2 failed (servebench status" in line and "says why, and how to try again)" in line for line in told)
    again = {line.removeprefix("  again: ") for line in told if line.startswith("  again: ")}
    (command,) = again
    kept = run.measured()
    out = run.servebench(*shlex.split(command)[1:4], code=1)  # the remedy is one line that can be pasted
    assert out.startswith("again: main two")
    assert len(run.measured().items() - kept.items()) == 2, "only what failed is tried again, and fails again"
    assert "nothing that failed; what failed: main two" in run.servebench("retry", "main", "one", code=1)
    del run.config["settings"]["two"]["env"]
    run.snakemake("only_main_two")
    assert run.servebench("retry").startswith("nothing failed")


def records(folder):
    files = (folder / "results/reruns/measurements").rglob("*.parquet")
    return sorted((measurements.read(file) for file in files), key=lambda record: record.meta.load_start_ns)


def test_all_of_a_round_is_measured_before_the_next_begins_which_runs_backwards(complete):
    order = [(record.identity.round, record.identity.setting, record.identity.users) for record in records(complete)]
    sessions = [(1, "one"), (1, "two"), (2, "two"), (2, "one")]
    assert order == [(round_, setting, users) for round_, setting in sessions for users in (1, 2)]


def test_in_a_round_every_setting_gets_the_same_documents_in_the_same_order(complete):
    asked = {}
    for record in records(complete):
        for user in range(record.identity.users):
            rows = record.requests.filter(pc.field("user") == user).sort_by("sent_ns")
            key = (record.identity.round, record.identity.users, user)
            asked.setdefault(key, []).append(rows["prompt_id"].to_pylist())
    assert len(asked) == 6
    for one, two in asked.values():
        common = min(len(one), len(two))
        assert common > 2
        assert one[:common] == two[:common]
    assert len({tuple(one[:3]) for one, _ in asked.values()}) == 6, "another order at another level or in another round"
    assert len({record.meta.number_seed for record in records(complete)}) == 8


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c["runtime"].update(ready_timeout_s=99, ports=[31000, 31999]),
        lambda c: c["models"]["none"].update(source="https://elsewhere.example/x.gguf"),
        lambda c: c["settings"]["one"].update(args=[]),
    ],
    ids=["runtime", "address", "default"],
)
def test_how_it_is_run_plans_nothing(after, change):
    change(after.config)
    assert after.planned() == {}


def test_another_order_of_settings_measures_nothing(after):
    after.config["settings"] = dict(reversed(after.config["settings"].items()))
    assert after.planned() == TABLES


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
    after.comment = "# a comment\n"
    assert after.planned() == {}
    assert (after.folder / "config.yaml").read_text().startswith(after.comment)


def test_results_without_snakemakes_records_plan_nothing(after):
    shutil.rmtree(after.folder / ".snakemake")
    assert after.planned() == {}


def test_a_change_is_seen_without_snakemakes_records(after):
    """As in a copy of results/ alone: what is of another configuration is measured again, as is what is missing."""
    before = after.measured()
    shutil.rmtree(after.folder / ".snakemake")
    after.config["settings"]["two"]["slots"] = 4
    after.config["settings"]["three"] = {"engine": "sim", "model": "none", "slots": 3, "context": 512, "users": [1]}
    assert after.planned() == {"session_main_two": 2, "session_main_three": 2, **TABLES}
    after.snakemake("only_main_two", "only_main_three", "tables")
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
    assert [measurements.read_metadata(file).identity.slots for file in files] == [2] * 4
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


@pytest.mark.outcome(
    "the store's file of a measurement is gone",
    at="`snakemake -F`, which removes its link first",
    into="simulator",
    kept="it: the link's copy enters the store again",
    again="nothing",
    reads="the store had lost this measurement, and has it again",
    code="0",
)
def test_force_links_and_does_not_measure_even_what_the_store_has_lost(after):
    """Snakemake removes the links, the last copies, before the session runs."""
    before = after.measured()
    for path in (after.results / "store").glob("*.parquet"):
        path.unlink()
    after.snakemake("--force", "results/reruns/measurements/main/one/round1/users001.parquet")
    assert after.measured() == before


def test_discarded_is_measured_again(after):
    before = after.measured()
    after.servebench("discard", "main", "one", "--round", "2", "--users", "2", "--why", "a test")
    assert after.planned() == {"session_main_one": 1, "charts": 1, "pictures": 1, "tables": 1, "report": 1}
    assert after.planned(TABLE) == {"session_main_one": 1, "tables": 1}, "whatever is asked for needs it"
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
    for path in [*package.glob("load/*.py"), *package.glob("engines/*.py"), *package.glob("sessions/*.py")]:
        if "PROTOCOL" not in path.read_text() or path.name != "__init__.py":
            path.write_text(path.read_text() + "\n# edited\n")
    assert not [rule for rule in edited.planned() if rule.startswith("session")]


def test_editing_what_makes_no_file_plans_nothing(edited):
    for name in ("machine/gpu.py", "cli/watch.py", "sessions/asking.py"):
        path = edited.source / "scripts/servebench" / name
        path.write_text(path.read_text() + "\n# edited\n")
    assert edited.planned() == {}


@pytest.mark.parametrize("records", [True, False], ids=["", "without-records"])
@pytest.mark.parametrize(
    ("name", "planned"),
    [("charts/style.py", {"charts", "pictures", "report"}), ("schema.py", {"tables", "charts", "pictures", "report"})],
)
def test_editing_what_makes_files_makes_them_again(edited, name, planned, records):
    if not records:
        shutil.rmtree(edited.folder / ".snakemake")
    path = edited.source / "scripts/servebench" / name
    text = path.read_text()
    path.write_text(text + "\n# edited\n")
    assert set(edited.planned()) == planned
    path.write_text(text)
    assert edited.planned() == {}


def test_another_protocol_measures_everything(edited):
    init = edited.source / "scripts/servebench/versions.py"
    text = init.read_text()
    changed = re.sub(r"^PROTOCOL: int = (\d+)$", lambda m: f"PROTOCOL: int = {int(m[1]) + 1}", text, flags=re.M)
    assert changed != text
    init.write_text(changed)
    planned = edited.planned()
    assert (planned["session_main_one"], planned["session_main_two"]) == (2, 2)


def test_snakemakes_own_report_has_every_chart_with_category_and_caption(after):
    after.snakemake("--report", str(after.folder / "report.zip"))
    with zipfile.ZipFile(after.folder / "report.zip") as packed:
        page = packed.read("report/report.html").decode()
        files = {Path(name).name for name in packed.namelist()}
        pages = [packed.read(name) for name in packed.namelist() if name.endswith("/index.html")]
    assert pages == [(after.results / "report" / "index.html").read_bytes()]
    found, categories = (
        json.JSONDecoder().raw_decode(page, page.index(start) + len(start) - 1)[0]
        for start in ("var results = {", "var categories = {")
    )
    there = {Path(name).name: (name, result) for name, result in found.items()}
    assert set(there) == {"index.html", "concurrency.json", *(f"{name}.html" for name in charts.CHARTS)} <= files
    placed = {path: category for category, parts in categories.items() for paths in parts.values() for path in paths}
    wanted = {
        "output_bars.html": ("Speed", "speed"),
        "user_by_users.html": ("Waiting", "waiting"),
        "memory.html": ("Memory and cost", "means"),
        "quality.html": ("Answers", "answers"),
        "ratios.html": ("Against the control", "changes"),
        "client_error.html": ("Trust", "trust"),
        "index.html": ("Page", "page"),
        "concurrency.json": ("Data", "data"),
    }
    assert set(placed.values()) == {category for category, _ in wanted.values()}
    for name, (category, caption) in wanted.items():
        path, result = there[name]
        assert placed[path] == category
        first = (ROOT / "rules" / "captions" / f"{caption}.rst").read_text(encoding="utf-8").split("\n")[0]
        assert result["caption"].startswith(f"<p>{first}"), name
    assert all(result["caption"] for result in found.values())
    assert f"Experiment <strong>{after.config['experiment']}</strong>" in page
