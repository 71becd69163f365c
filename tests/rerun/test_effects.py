"""Each key of the configuration has an effect, seen in small experiments that set many of them (docs/keys.md)."""

import itertools
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from keyed import Listening, at_a_url, on_simulators, tokens

from servebench import claims, tables
from servebench.store import measurements, replies
from servebench.tasks import TASKS
from workspace import Workspace


class Run:
    """Hold a finished experiment, and what its server was asked."""

    def __init__(self, workspace: Workspace, asked: dict[str, list[Any]] | None = None) -> None:
        self.workspace, self.results, self.asked = workspace, workspace.results, asked or {}
        self.page = (self.results / "report" / "index.html").read_text()

    def record(self, run: str, setting: str, users: int = 1) -> measurements.Record:
        return measurements.read(self.results / f"measurements/{run}/{setting}/round1/users{users:03d}.parquet")

    def rows(self, table: str, **equal: Any) -> list[dict[str, Any]]:
        found = tables.read(self.results / "tables" / f"{table}.parquet").to_pylist()
        return [row for row in found if all(row[name] == value for name, value in equal.items())]

    def claims(self, kind: str) -> list[claims.Claim]:
        return [c for c in claims.read(pq.read_table(self.results / "tables/verdicts.parquet")) if c.kind == kind]

    def sent(self, who: str, key: str) -> set[Any]:
        return {request.body.get(key) for request in self.asked[who]}

    def message(self, who: str) -> dict[str, Any]:
        return dict(self.asked[who][0].body["messages"][-1])

    def workload(self, setting: str) -> dict[str, Any]:
        return dict(self.record(setting, setting, 2).meta.workload)

    def marks(self, setting: str) -> set[str]:
        (row,) = self.rows("measurements", setting=setting)
        return {one["kind"] for one in row["invalid_reasons"]}


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """A server at a URL, loaded in every mode and evaluated."""
    with Listening() as server:
        workspace = at_a_url(tmp_path_factory.mktemp("far"), server)
        workspace.snakemake("results/reruns/report/index.html")
        yield Run(workspace, server.asked())


@pytest.fixture(scope="module")
def sim(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A matrix of simulators, with charts and page, while another process uses a CPU."""
    workspace = on_simulators(tmp_path_factory.mktemp("sim"))
    foreign = subprocess.Popen(["nice", "-n", "19", sys.executable, "-c", "while True: pass"])
    try:
        workspace.snakemake("results/reruns/report/index.html", "results/reruns/charts/output_by_users.html")
    finally:
        foreign.kill()
        foreign.wait()
    return Run(workspace)


def conversations(run: Run) -> set[int]:
    return {len(request.body["messages"]) for request in run.asked["talk"]}


def asked_of(run: Run, target: str, task: str) -> list[dict[str, Any]]:
    found = replies.read(run.results / "evaluations" / f"{target}.parquet").answers.to_pylist()
    return [row for row in found if row["task"] == task]


def order(run: Run, repeat: int) -> list[str]:
    rows = [row for row in asked_of(run, "B", "jcommonsenseqa") if row["repeat"] == repeat]
    return [row["question_id"] for row in rows]


def questions(run: Run, task: str) -> int:
    """Count the questions of a task's set."""
    return len(TASKS[task].load(run.results / "evaluations" / "questions" / task))


def under_load(run: Run) -> dict[str, Any]:
    (row,) = run.rows("under_load")
    return row


def level(run: Run, setting: str) -> claims.Claim:
    (found,) = [claim for claim in run.claims("level") if claim.subjects == [setting]]
    return found


def expected(run: Run, setting: str) -> list[tuple[Any, Any]]:
    return [(row["published"], row["met"]) for row in run.rows("expected", setting=setting)]


# What is seen of each key, and what it must be.
AT_A_URL: dict[str, Callable[[Run], tuple[Any, Any]]] = {
    "experiment": lambda run: (run.results.name, "reruns"),
    "rounds": lambda run: (len(run.rows("measurements")), 9),
    "line.ttft_p95_s": lambda run: ("ttft_p95_s" in level(run, "closed").values["limits"], True),
    "line.user_tok_s": lambda run: (level(run, "closed").values["line"]["user_tok_s"], 1234),
    "engines.<engine>.kind": lambda run: (run.record("closed", "closed", 2).session.argv, []),
    "engines.<engine>.url": lambda run: ({r.path for r in run.asked["closed"]}, {"/v1/chat/completions"}),
    "engines.<engine>.api_key_env": lambda run: (run.asked["closed"][0].headers["authorization"], "Bearer a-key"),
    "engines.<engine>.options": lambda run: (run.sent("closed", "model"), {"served"}),
    "engines.<engine>.request": lambda run: (run.sent("closed", "of_engine"), {1}),
    "engines.<engine>.expect": lambda run: (expected(run, "count"), [("double/1", True)]),
    "settings.<setting>.expect": lambda run: (expected(run, "closed"), [("other", False)]),
    "settings.<setting>.request": lambda run: (run.sent("closed", "top_p"), {0.8}),
    "settings.<setting>.run": lambda run: (run.workload("count")["mode"], "count"),
    "settings.<setting>.users": lambda run: (
        set(run.record("closed", "closed", 2).requests["user"].to_pylist()),
        {0, 1},
    ),
    "models.<model>.name": lambda run: ({row["model_name"] for row in run.rows("measurements")}, {"The model"}),
    "runs.<run>.workload": lambda run: (
        [run.workload(name)["mode"] for name in ("closed", "open")],
        ["closed", "open"],
    ),
    "workload.mode": lambda run: (
        [run.workload(name)["mode"] for name in ("talk", "trace", "prefix")],
        ["conversation", "trace", "shared-prefix"],
    ),
    "workload.prompts": lambda run: ("number number" in run.message("closed")["content"], True),
    "workload.system": lambda run: (run.asked["closed"][0].body["messages"][0]["content"], "Be brief."),
    "workload.instruction": lambda run: (run.message("closed")["content"].split("\n")[0], "Say it:"),
    "workload.max_tokens": lambda run: (run.sent("closed", "max_tokens"), {5}),
    "workload.temperature": lambda run: (run.sent("closed", "temperature"), {0.5}),
    "workload.top_p": lambda run: (run.sent("late", "top_p") | {run.workload("late")["top_p"]}, {0.8, 0.9}),
    "workload.seed": lambda run: (run.sent("closed", "seed"), {7}),
    "workload.warmup_s": lambda run: (
        (meta := run.record("closed", "closed", 2).meta).window_start_ns - meta.load_start_ns >= 0.1e9,
        True,
    ),
    "workload.window_s": lambda run: (0.4 <= run.record("talk", "talk", 2).meta.window_s < 10, True),
    "workload.timeout_s": lambda run: (run.rows("measurements", setting="late")[0]["failures_timeout"] > 0, True),
    "workload.idle_timeout_s": lambda run: (
        run.rows("measurements", setting="silent")[0]["failures_idle_timeout"] > 0,
        True,
    ),
    "workload.min_targets": lambda run: (run.rows("measurements", setting="closed")[0]["target_requests"] >= 30, True),
    "workload.requests": lambda run: (len(run.asked["count"]), 6),
    "workload.rate": lambda run: (due_every_s(run, "open")[0], 0.05),
    "workload.user_rate": lambda run: (due_every_s(run, "people")[0], 0.05),
    "workload.arrivals": lambda run: (len(set(due_every_s(run, "open"))), 1),
    "workload.think": lambda run: (min(own_gaps_s(run, "closed")) >= 0.05, True),
    "workload.turns": lambda run: (conversations(run), {2, 4}),
    "workload.trace": lambda run: ({run.message("trace")["content"][:5]}, {"Entry"}),
    "workload.trace_speed": lambda run: (spread_s(run, "trace"), 0.15),
    "workload.trace_first_s": lambda run: (len(run.asked["trace"]), 4),
    "workload.number_lines": lambda run: (len({r.body["messages"][-1]["content"] for r in run.asked["closed"]}), 3),
    "workload.shared_prefix_tokens": lambda run: (
        len({request.body["messages"][0]["content"] for request in run.asked["prefix"]}) == 1
        and tokens({"messages": run.asked["prefix"][0].body["messages"][:1]}) >= 20,
        True,
    ),
    "workload.processes": lambda run: (run.record("closed", "closed", 2).meta.processes, 2),
    "evaluations.baseline": lambda run: ({row["baseline"] for row in run.rows("comparisons")}, {"B"}),
    "evaluations.concurrency": lambda run: ({row["concurrency"] for row in run.rows("targets")}, {2}),
    "evaluations.repeats": lambda run: ({row["repeat"] for row in asked_of(run, "B", "mgsm")}, {1, 2}),
    "evaluations.seed": lambda run: (run.sent("B", "seed"), {9}),
    "evaluations.tasks": lambda run: ({row["task"] for row in run.rows("scores")}, {"jcommonsenseqa", "mgsm"}),
    "evaluations.tasks.<task>.set": lambda run: (questions(run, "jcommonsenseqa"), 40),
    "evaluations.tasks.<task>.limit": lambda run: (len(order(run, 1)), 3),
    "evaluations.tasks.<task>.max_tokens": lambda run: (7 in run.sent("B", "max_tokens"), True),
    "evaluations.tasks.<task>.request": lambda run: (run.sent("B", "of_task"), {1, None}),
    "evaluations.margins": lambda run: ([claim.values["margin"] for claim in run.claims("equivalence")], [50.0]),
    "evaluations.under_load": lambda run: (under_load(run)["baseline"], "A (idle)"),
    "evaluations.under_load.users": lambda run: (under_load(run)["target"], "A (2 users)"),
    "evaluations.under_load.task": lambda run: (under_load(run)["measure"], "jcommonsenseqa"),
    "evaluations.under_load.questions": lambda run: (under_load(run)["questions"], 2),
    "evaluations.under_load.targets": lambda run: (
        "B (2 users)" in {r["target"] for r in run.rows("under_load")},
        False,
    ),
    "evaluations.targets": lambda run: ({row["target"] for row in run.rows("targets")}, {"A", "B"}),
    "evaluations.targets.<target>.engine": lambda run: ({row["engine"] for row in run.rows("targets")}, {"far"}),
    "evaluations.targets.<target>.model": lambda run: ({row["model"] for row in run.rows("targets")}, {"m"}),
    "evaluations.targets.<target>.slots": lambda run: ({row["slots"] for row in run.rows("targets")}, {2}),
    "evaluations.targets.<target>.note": lambda run: ("On A." in run.page and "On B." in run.page, True),
    "evaluations.targets.<target>.request": lambda run: ({who for who in run.asked if who in "AB"}, {"A", "B"}),
}


def own_gaps_s(run: Run, setting: str) -> list[float]:
    """Return the seconds between the end of each reply and its user's next request."""
    rows = run.record(setting, setting, 2).requests.sort_by("sent_ns").to_pylist()
    found = []
    for user in {row["user"] for row in rows}:
        own = [row for row in rows if row["user"] == user and row["phase"] == "window"]
        found += [(b["sent_ns"] - a["end_ns"]) / 1e9 for a, b in itertools.pairwise(own)]
    return found


def due_every_s(run: Run, setting: str) -> list[float]:
    """Return the seconds between requests as they were due."""
    due = sorted(run.record(setting, setting, 2).requests["scheduled_ns"].to_pylist())
    return [round((later - sooner) / 1e9, 6) for sooner, later in itertools.pairwise(due)]


def spread_s(run: Run, setting: str) -> float:
    """Return the seconds from when the first request was due until the last was."""
    due = run.record(setting, setting, 2).requests["scheduled_ns"].to_pylist()
    return round((max(due) - min(due)) / 1e9, 3)


def simulator(run: Run, setting: str = "s-1-q4_0", of: str = "main") -> dict[str, Any]:
    """Return the options that a simulator was started with."""
    argv = run.record(of, setting).session.argv
    assert argv
    return dict(json.loads(argv[-1]))


def env(run: Run, name: str) -> Any:
    return (run.record("main", "s-1-q4_0").session.env or {}).get(name)


def settings(run: Run) -> dict[str, Any]:
    return dict(json.loads((run.results / "plan.json").read_text())["settings"])


def svg(run: Run, chart: str) -> str:
    return (run.results / "charts" / f"{chart}.svg").read_text()


ON_SIMULATORS: dict[str, Callable[[Run], tuple[Any, Any]]] = {
    "title": lambda run: ("A title" in run.page and "題名" in run.page, True),
    "license": lambda run: (published(run)["license"], "CC0-1.0"),
    "rounds.min": lambda run: (len(run.rows("measurements")), 4),
    "reference": lambda run: (
        [row["published_max"] for row in run.rows("reproduction", figure="output_tok_s", setting="ollama-p1", users=1)],
        [64.0],
    ),
    "deviations": lambda run: ("Prompts are ours." in run.page, True),
    "unverified": lambda run: ("Never run elsewhere." in run.page, True),
    "line.min_targets": lambda run: ({claim.values["wanted"] for claim in run.claims("level")}, {1000}),
    "people.pause": lambda run: (run.record("main", "s-1-q4_0").meta.workload["think"], "0.01"),
    "cost.price_per_hour": lambda run: ({row["price_per_hour"] for row in run.rows("cost")}, {2.0}),
    "cost.currency": lambda run: ("USD" in run.page, True),
    "cost.idle_after_min": lambda run: ({row["usd_idle"] for row in run.rows("paid_idle")}, {1.0}),
    "cpus.server": lambda run: ({len((r.session.facts or {})["cpus"]) for r in records(run)}, {1}),
    "cpus.load": lambda run: ({len(p.cpus) for r in records(run) for p in r.meta.client.processes}, {1}),
    "engines.<engine>.args": lambda run: (settings(run)["s-2-q4_0"]["args"], ["--of-engine", "--more"]),
    "engines.<engine>.env": lambda run: (env(run, "KEYED_A"), "engine"),
    "settings.<setting>.engine": lambda run: ({row["engine"] for row in run.rows("measurements")}, {"sim"}),
    "settings.<setting>.model": lambda run: (simulator(run, "length", "lengths")["model"], "large"),
    "settings.<setting>.slots": lambda run: (simulator(run, "s-2-q4_0")["slots"], 2),
    "settings.<setting>.context": lambda run: (simulator(run)["context"], 512),
    "settings.<setting>.args": lambda run: (settings(run)["s-1-q4_0"]["args"], ["--of-engine"]),
    "settings.<setting>.env": lambda run: (env(run, "KEYED_B"), "setting"),
    "settings.<setting>.note": lambda run: ("A note of settings." in run.page, True),
    "settings.<setting>.matrix": lambda run: (set(settings(run)) >= {"s-1-q4_0", "s-1-q8_0", "s-2-q4_0"}, True),
    "settings.<setting>.include": lambda run: ("--more" in settings(run)["s-2-q4_0"]["args"], True),
    "settings.<setting>.exclude": lambda run: ("s-2-q8_0" in settings(run), False),
    "models.<model>.sha256": lambda run: (settings(run)["s-1-q8_0"]["model"]["sha256"], "1" * 64),
    "models.<model>.quantization": lambda run: (
        {r["quantization"] for r in run.rows("measurements")},
        {"Q4_0", "Q8_0"},
    ),
    "models.<model>.note": lambda run: ("A note of a model." in run.page, True),
    "workload.prompts.tokens": lambda run: (set(prompts(run, "length", "lengths")), {96}),
    "workload.prompts.set": lambda run: (
        run.record("lengths", "length").meta.workload["prompts"][-13:],
        "prompts.jsonl",
    ),
    "workload.reply_tokens": lambda run: ({r["completion_tokens"] for r in done(run.record("main", "s-1-q4_0"))}, {3}),
    "runs.<run>.title": lambda run: ("The matrix" in run.page, True),
    "runs.<run>.control": lambda run: ({r["baseline"] for r in run.rows("ratios", kind="control")}, {"s-1-q4_0"}),
    "charts.width": lambda run: ('"width": 901' in html(run, "output_by_users"), True),
    "charts.height": lambda run: ('"height": 123' in html(run, "output_by_users"), True),
    "charts.language": lambda run: ("人" in svg(run, "output_by_users"), True),
    "runtime.ports": lambda run: (31000 <= simulator(run)["port"] <= 31500, True),
    "runtime.cache": lambda run: ((run.workspace.folder / "cache" / "calibration").is_dir(), True),
    "runtime.device": lambda run: ({tuple(record.session.devices) for record in records(run)}, {("cpu",)}),
    "runtime.beyond_calibration": lambda run: ("beyond_calibration" in run.marks("s-1-q4_0"), True),
    "runtime.foreign_use": lambda run: ("foreign_use" in run.marks("s-1-q4_0"), True),
    "runtime.foreign_use.share": lambda run: (run.record("main", "s-1-q4_0").foreign_use.share, 1e-9),
    "runtime.foreign_use.samples": lambda run: ({row["foreign_limit"] for row in run.rows("measurements")}, {1}),
    "runtime.foreign_use.action": lambda run: ({row["status"] for row in run.rows("measurements")}, {"ok"}),
}


def records(run: Run) -> list[measurements.Record]:
    return [measurements.read(path) for path in (run.results / "measurements").rglob("*.parquet")]


def done(record: measurements.Record) -> list[dict[str, Any]]:
    return [row for row in record.requests.to_pylist() if row["status"] == "ok"]


def prompts(run: Run, setting: str, of: str) -> list[int]:
    return [row["prompt_tokens"] for row in done(run.record(of, setting))]


def published(run: Run) -> dict[str, Any]:
    return dict(json.loads((run.results / "tables" / "concurrency.json").read_text()))


def html(run: Run, chart: str) -> str:
    return (run.results / "charts" / f"{chart}.html").read_text()


@pytest.mark.parametrize("key", AT_A_URL)
def test_a_key_of_a_server_at_a_url_its_load_or_its_evaluation(far: Run, key: str) -> None:
    seen, wanted = AT_A_URL[key](far)
    assert seen == wanted


@pytest.mark.parametrize("key", ON_SIMULATORS)
def test_a_key_of_settings_machine_or_page(sim: Run, key: str) -> None:
    seen, wanted = ON_SIMULATORS[key](sim)
    assert seen == wanted


def test_the_longest_job_of_a_batch_system_bounds_the_time_that_is_asked_for(sim: Run) -> None:
    """`runtime.job_minutes`."""
    sim.workspace.config["runtime"]["job_minutes"] = 1
    assert "runtime=1\n" in sim.workspace.snakemake("-n", "--forcerun", "session_main_s-1-q4_0")


def test_a_file_of_another_size_is_refused_and_how_large_it_is_about_bounds_a_job(tmp_path: Path) -> None:
    """`models.<model>.size_bytes`, `about.gib`: minutes of a batch system to load 2 and 4,000 GiB."""
    workspace = Workspace(tmp_path)
    (tmp_path / "m.gguf").write_bytes(b"GGUF" * 25)
    (tmp_path / "llama-server").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "llama-server").chmod(0o755)
    workspace.config["engines"] = {
        "llama": {"kind": "llama-server", "runtime": "binary", "binary": str(tmp_path / "llama-server")}
    }
    model = {"source": (tmp_path / "m.gguf").as_uri(), "sha256": "0" * 64}
    workspace.config["models"] = {"m": {**model, "size_bytes": 99}}
    workspace.config["settings"] = {"a": {"engine": "llama", "model": "m", "slots": 1, "context": 256, "users": [1]}}
    workspace.config["rounds"] = 1
    assert "m.gguf has 100 bytes, expected 99" in workspace.snakemake("results/reruns/models/m.json", code=1)
    asked = []
    for gib in (2, 4000):
        workspace.config["models"] = {"m": {**model, "about": {"gib": gib}}}
        told = workspace.snakemake("-n", "only_main_a")
        asked += re.findall(r"^rule session_main_a:(?:\n    .*)*?runtime=(\d+)", told, re.M)
    small, large = map(int, asked)
    assert large > 4 * small


def test_what_the_plan_says_of_memory_and_speed_follows_from_what_models_are_about(tmp_path: Path) -> None:
    """`models.<model>.about.kv_kib_per_token`, which only plans, beside `about.gib` and `size_bytes`."""
    workspace = Workspace(tmp_path)
    workspace.config["engines"] = {"llama": {"kind": "llama-server", "runtime": "binary", "binary": "/bin/true"}}
    model = {"source": "https://example.org/m.gguf", "sha256": "0" * 64}
    about = {"gib": 2, "kv_kib_per_token": 512}
    workspace.config["models"] = {"m": {**model, "about": about}, "sized": {**model, "size_bytes": 98_000_000}}
    setting = {"engine": "llama", "slots": 2, "context": 1024, "users": [1]}
    workspace.config["settings"] = {"a": {**setting, "model": "m"}, "b": {**setting, "model": "sized"}}
    workspace.config["runtime"] |= {"bandwidth_gb_s": 43, "cache": str(tmp_path / "cache"), "device": "cpu"}
    workspace.command("all")  # writes the configuration
    said = workspace.servebench("plan")
    assert "at least 3.0 GiB for a (weights 2.0, KV cache 1.0)" in said
    assert "sized: https://example.org/m.gguf, 98 MB" in said
    assert "a: at most " in said and " tokens/s for one stream" in said
