"""Check names, files, order and resources of an experiment's jobs."""

import dataclasses
import shlex
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from test_rooms import table

import servebench
from servebench import configuration, plan
from servebench.charts import CHARTS
from servebench.cli import jobs
from servebench.engines import ADAPTERS
from servebench.faults import Fault
from servebench.machine.infrastructure import InfrastructureError
from servebench.plan.layout import Layout
from servebench.workflow import ROOMS, Targets, source_digest, untracked

CONFIG = servebench.ROOT / "config"
PACKAGE = servebench.ROOT / "scripts" / "servebench"


def targets(*files, **overrides):
    """The targets of an experiment under config/, in results/x."""
    return Targets(configuration.read([CONFIG / file for file in files], overrides), Layout(Path("results/x")))


@pytest.fixture(scope="module")
def quick():
    return targets("config.yaml")


@pytest.fixture(scope="module")
def h200():
    return targets("h200.yaml")


def test_a_session_makes_a_file_for_each_number_of_users_in_each_round(quick):
    job = next(job for job in quick.jobs() if job.rule == "session_main_np1")
    digest = plan.digest(plan.session_spec(quick.plan, quick.plan.settings["np1"]))
    assert [str(file) for file in quick.made_by(job)] == [
        file.format(round=number)
        for number in (1, 2)
        for file in (
            "results/x/measurements/main/np1/round{round}/users001.parquet",
            "results/x/measurements/main/np1/round{round}/users004.parquet",
            f"results/x/slices/sessions/main/np1/round{{round}}/{digest}",
        )
    ]
    assert [str(file) for file in job.needs] == [
        "results/x/models/smollm2-q4_1.json",
        "results/x/engines/llama-cpp.json",
    ]


def test_an_evaluation_makes_one_file_and_needs_the_questions(quick):
    job = next(job for job in quick.jobs() if job.rule == "evaluate_Q8_0")
    answers, _ = quick.made_by(job)
    assert str(answers) == "results/x/evaluations/Q8_0.parquet"
    assert set(quick.questions()) < set(job.needs)
    assert "{round}" not in job.name


def test_only_sessions_have_a_target_of_their_own(quick):
    assert list(quick.only()) == ["only_main_np1", "only_main_np4", "only_main_np4-kv-unified", "only_main_np4-q8_0"]


def test_first_all_of_round_1_in_order_then_round_2_backwards_then_the_evaluations(h200):
    jobs = list(h200.jobs())
    sessions = [job for job in jobs if job.of_rounds]
    order = [job.priority(SimpleNamespace(round="1")) for job in sessions]
    order += [job.priority(SimpleNamespace(round="2")) for job in reversed(sessions)]
    order += [job.priority(SimpleNamespace()) for job in jobs if not job.of_rounds]
    assert order == sorted(order, reverse=True)
    assert len(set(order)) == len(order)


def test_a_job_asks_for_gpus_and_cpus_and_no_more_time_than_the_longest_job_has(h200):
    by_rule = {job.rule: job.resources for job in h200.jobs()}
    asked = by_rule["session_main_llama-np16"]
    assert (asked["gpu"], asked["url"], asked["nodes"], asked["cpus_per_task"]) == (1, 0, 1, 16)
    assert asked["runtime"] > 5
    short = targets("h200.yaml", runtime={"job_minutes": 5})
    assert {job.resources["runtime"] for job in short.jobs()} == {5}


@pytest.mark.parametrize(
    ("profile", "asked"),
    [
        ({}, {"gpu": 1}),
        ({"gpu_model": "h100"}, {"gpu": 1}),
        ({"gres": "gpu:4"}, {"gpu": 0, "gres": "gpu:1"}),
        ({"gres": "gpu:h100:1"}, {"gpu": 0, "gres": "gpu:h100:1"}),
        ({"gres": "gpu:h100"}, {"gpu": 0, "gres": "gpu:h100:1"}),
        ({"gres": "shard:2"}, {"gpu": 1}),
        (
            {"gpu_model": "a100-sxm4-80gb"},
            {"gpu": "a100-sxm4-80gb:1", "gpu_model": "", "gres": ""},
        ),
        (
            {"gres": "gpu:a100-sxm4-80gb:1"},
            {"gpu": "a100-sxm4-80gb:1", "gpu_model": "", "gres": ""},
        ),
    ],
)
def test_gpus_are_asked_for_as_the_profile_does(quick, profile, asked):
    job = next(iter(dataclasses.replace(quick, asked=profile).jobs()))
    kinds = ("gpu", "gpu_model", "gres", "slurm_extra")
    assert {name: value for name, value in job.resources.items() if name in kinds} == asked


def test_the_step_inside_a_job_asks_for_a_number_of_gpus(quick):
    inside = dataclasses.replace(quick, asked={"gpu_model": "a100-sxm4-80gb"}, in_job=True)
    assert {(job.resources["gpu"], job.resources["gpu_model"]) for job in inside.jobs()} == {(1, "")}


def test_a_server_elsewhere_takes_the_turn_of_urls_and_no_gpu_and_no_file():
    jobs = [job for job in targets("l4-cloud.yaml", "l4-cloud-url.yaml").jobs() if job.setting.engine.kind == "url"]
    assert jobs
    assert {(job.resources["gpu"], job.resources["url"], *job.needs) for job in jobs} == {(0, 1)}
    of_gpus = dataclasses.replace(targets("l4-cloud.yaml", "l4-cloud-url.yaml"), asked={"gres": "gpu:1"})
    assert {job.resources["gres"] for job in of_gpus.jobs() if job.setting.engine.kind == "url"} == {""}


def test_a_job_is_given_its_spec_and_where_everything_is(quick):
    job = next(job for job in quick.jobs() if job.rule == "session_main_np4")
    verb, *given = shlex.split(job.options(SimpleNamespace(round="2"), None))
    options = dict(zip(given[::2], given[1::2], strict=True))
    assert verb == "session"
    assert (options["--round"], options["--rank"], options["--results"]) == ("2", "1", "results/x")
    spec = plan.session_spec(quick.plan, quick.plan.settings["np4"])
    assert options["--spec"] == f"@{quick.layout.given(spec)}"
    assert set(options) == {"--spec", "--round", "--rank", "--models", "--engines", "--runtime", "--results"}


def test_a_tracked_parameter_of_a_fetch_holds_what_is_fetched_and_not_from_where(quick):
    model = SimpleNamespace(model="smollm2-q4_1")
    elsewhere = targets("config.yaml", models={"smollm2-q4_1": {"source": "https://example.org/m.gguf"}})
    assert elsewhere.model_identity(model) == quick.model_identity(model)
    other = targets("config.yaml", models={"smollm2-q4_1": {"sha256": "0" * 64}})
    assert other.model_identity(model) != quick.model_identity(model)
    assert [str(file) for file in quick.requantized_from(SimpleNamespace(model="smollm2-q8_0"))] == [
        "results/x/models/smollm2-q4_1.json"
    ]
    assert quick.requantized_from(model) == []


def test_every_fetched_file_is_fetched_once(h200):
    files = h200.fetched()
    assert len(files) == len(set(files))
    assert {file for job in h200.jobs() for file in job.needs} == set(files)


def test_what_a_plan_lacks_has_no_file(quick):
    names = {file.name for file in quick.tables()}
    assert "scores.parquet" in names
    assert "reproduction.parquet" not in names
    plain = targets("l4-cloud.yaml")
    names = {file.name for file in plain.tables()}
    assert {"cost.parquet", "reproduction.parquet"} < names
    assert "scores.parquet" not in names
    assert plain.questions() == []


def test_every_chart_and_published_file_has_its_place_in_the_report(quick):
    def report(file, **place):
        return file, place

    drawn = dict(quick.drawn(report))
    assert [Path(file).stem for file in drawn] == list(CHARTS)
    for _, place in (*drawn.items(), *quick.published(report), quick.page(report)):
        assert (servebench.ROOT / "rules" / place["caption"]).is_file()
        assert place["category"]


def test_a_parameter_that_is_not_tracked_is_a_function_of_resources():
    assert untracked("{a}")(wildcards=None, resources=None) == "{a}"


def test_the_keys_of_servers_that_are_asked_must_be_set(monkeypatch):
    found = targets("l4-cloud.yaml", "l4-cloud-url.yaml", engines={"ollama": {"api_key_env": "FAR_KEY"}})
    rules = [job.rule for job in found.jobs() if job.setting.engine.kind == "url"]
    monkeypatch.delenv("FAR_KEY", raising=False)
    found.check(["plan", "tables"], here=True)
    with pytest.raises(InfrastructureError, match="FAR_KEY"):
        found.check(rules, here=True)
    monkeypatch.setenv("FAR_KEY", "key")
    found.check(rules, here=True)


def test_the_cpus_that_are_asked_for_must_be_there_where_the_jobs_run_here():
    found = targets("config.yaml", cpus={"server": 4096, "load": 1})
    rules = [job.rule for job in found.jobs()]
    found.check(["plan", "tables"], here=True)
    found.check(rules, here=False)
    with pytest.raises(InfrastructureError, match=r"^cpus: 4096 for the server"):
        found.check(rules, here=True)


def test_a_model_that_is_not_where_its_source_says_is_named_before_anything_starts(tmp_path):
    there, gone = tmp_path / "there.gguf", tmp_path / "gone.gguf"
    there.touch()
    models = {name: {"source": f"file://{path}", "sha256": "0" * 64} for name, path in (("a", there), ("b", gone))}
    settings = {name: {"engine": "llama-cpp", "model": name, "slots": 1, "users": [1]} for name in models}
    found = Targets(
        configuration.load(
            {
                "experiment": "x",
                "engines": {"llama-cpp": {"kind": "llama-server", "runtime": "binary", "binary": "llama-server"}},
                "models": models,
                "workload": {"prompts": "en-short", "max_tokens": 8, "warmup_s": 1, "window_s": 1},
                "settings": {name: {**setting, "context": 512} for name, setting in settings.items()},
            },
            ["x.yaml"],
        ),
        Layout(tmp_path / "results"),
    )
    found.check_models({"a"})
    with pytest.raises(Fault, match=rf"^models\.b\.source: {gone}: no such file; put it there"):
        found.check_models({"a", "b"})


def test_the_plan_of_a_target_of_settings_is_of_these_alone(quick):
    part = quick.part({"only_main_np4"})
    assert ([*part.settings], part.evaluations) == (["np4"], None)
    assert quick.part({"all"}) is quick.plan and quick.part({"all", "only_main_np4"}) is quick.plan
    assert quick.part(set()) is quick.plan


def test_a_search_in_one_round_is_refused():
    one, two = targets("config.yaml", rounds=1), targets("config.yaml", rounds={"min": 1, "max": 2})
    rules = [job.rule for job in one.searches()]
    one.check_rounds(["plan", "tables", *(job.rule for job in one.jobs())])
    with pytest.raises(Fault, match="rounds: one round"):
        one.check_rounds(rules)
    two.check_rounds(rules)


def test_the_tables_are_made_again_when_a_search_has_measured_in_further_rounds(quick):
    found = dataclasses.replace(quick, further=[["np4", 3, 11, 1]])
    assert dataclasses.replace(quick, further=[]).tables_spec() == quick.tables_spec() != found.tables_spec()


@pytest.fixture
def package(tmp_path):
    """A copy of the package whose code may be edited."""
    ignore = shutil.ignore_patterns("__pycache__")
    return shutil.copytree(PACKAGE, tmp_path / "servebench", symlinks=True, ignore=ignore)


@pytest.mark.parametrize(
    ("file", "again"),
    [
        ("machine/gpu.py", set()),
        ("cli/watch.py", set()),
        ("sessions/measuring.py", set()),
        ("workflow.py", set()),
        ("report/page.css", {"report"}),
        ("charts/style.py", {"charts", "report"}),
        ("words/labels.yaml", {"tables"}),
        ("tables/derived.py", {"tables"}),
        ("load/figures.py", {"tables"}),
        ("schema.py", {"tables"}),
        ("versions.py", {"tables"}),
    ],
)
def test_only_the_code_that_a_job_runs_makes_its_files_again(package, file, again):
    """What a job's input files are made by counts for those already."""
    path = package / file
    path.write_text(path.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    assert {job for job in ROOMS if source_digest(job, package) != source_digest(job)} == again


def test_the_time_of_a_file_and_what_python_compiles_of_it_do_not_count(package):
    (package / "tables" / "make.py").touch()
    (package / "tables" / "__pycache__").mkdir(exist_ok=True)
    (package / "tables" / "__pycache__" / "make.pyc").write_bytes(b"0")
    assert source_digest("tables", package) == source_digest("tables")


def test_the_rooms_of_a_job_are_all_that_it_imports():
    """Except `machine`, whose code makes no table."""
    rows = table()

    def reached(*rooms):
        return {*rooms, *(other for room in rooms for other in reached(*rows[room]))}

    assert reached("verdicts") - {"machine"} == set(ROOMS["tables"])
    for job in ("charts", "report"):
        assert set(ROOMS[job]) <= reached(job) <= {*ROOMS[job], *ROOMS["tables"], "machine"}


def test_every_adapter_says_whether_it_loads_a_model():
    assert {kind for kind, adapter in ADAPTERS.items() if not adapter.loads_model} == {"url", "simulator"}


def test_texts_longer_than_an_argument_are_given_by_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    long = targets("config.yaml", workload={"system": "あ" * 200_000})
    long.hand_over()
    commands = [job.options(SimpleNamespace(round="1"), None) for job in long.jobs()]
    commands += [long.fetching("fetch", models=long.plan.models)(["a-model"], None), long.reported(None, None)]
    assert max(map(len, commands)) < 2000
    job = next(long.jobs())
    given = dict(zip(shlex.split(commands[0])[1::2], shlex.split(commands[0])[2::2], strict=True))
    assert jobs._given(given["--spec"]) == job.spec
    assert plan.read(Path(long.reported(None, None))) == plan.from_json(plan.canonical(plan.reported(long.plan)))


@pytest.mark.outcome(
    "the saved plan: damaged",
    at="the next run",
    into="files",
    kept="all",
    again="nothing; the plan is saved again",
    reads="is damaged, and is made again",
    code="0",
)
@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"{", b"\xff"])
def test_a_damaged_plan_is_removed_so_that_it_is_made_again(tmp_path, monkeypatch, content):
    monkeypatch.chdir(tmp_path)
    made = targets("config.yaml")
    made.hand_over()
    made.plan_spec().parent.mkdir(parents=True)
    made.plan_spec().touch()
    shutil.copy(made.reported(None, None), made.layout.plan)
    made.drop_damaged_plan()
    assert made.layout.plan.exists(), "it is whole"
    made.layout.plan.write_bytes(content)
    made.drop_damaged_plan()
    assert not made.layout.plan.exists()
