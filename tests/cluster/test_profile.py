"""Check the resources requested from a cluster, by a dry run; no SLURM is needed."""

import re

import pytest
import yaml

from workspace import ROOT, Workspace

DEFAULT, SLURM = (
    yaml.safe_load((ROOT / "profiles" / name / "config.yaml").read_text()) for name in ("default", "slurm")
)


def test_the_profile_repeats_the_default_one_which_does_not_apply_beside_it():
    counted_by_slurm = {"gpu"}
    assert SLURM["resources"] == {k: v for k, v in DEFAULT["resources"].items() if k not in counted_by_slurm}
    assert {name: SLURM[name] for name in DEFAULT if name != "resources"} == {
        name: value for name, value in DEFAULT.items() if name != "resources"
    }


def test_every_line_of_the_profile_is_explained():
    lines = (ROOT / "profiles" / "slurm" / "config.yaml").read_text().splitlines()
    keys = [n for n, line in enumerate(lines) if re.match(r" *[a-z]", line)]
    unexplained = [lines[n] for n in keys if not any("#" in above for above in lines[max(0, n - 4) : n])]
    assert not unexplained


def asked(workspace, *arguments, rule="session_"):
    """Return the resources, in a dry run, of jobs whose rule's name has this prefix; local rules do not count."""
    lines = re.findall(
        rf"^rule {rule}.*?^ +resources: (.*?)$", workspace.snakemake("-n", "all", *arguments), re.M | re.S
    )
    return [dict(entry.split("=", 1) for entry in line.split(", ")) for line in lines]


@pytest.fixture
def workspace(tmp_path):
    made = Workspace(tmp_path)
    made.config["rounds"] = 1
    del made.config["settings"]["two"]
    return made


def test_a_session_asks_for_its_gpus_on_one_node_and_its_time(workspace):
    workspace.config["settings"]["one"] |= {"args": ["--tensor-parallel-size", "2"], "users": [1, 2, 4, 8]}
    workspace.config["workload"]["window_s"] = 600
    workspace.config["cpus"] = {"server": 6, "load": 2}
    (resources,) = asked(workspace, "--resources", "gpu=4")
    assert (resources["gpu"], resources["nodes"], resources["cpus_per_task"]) == ("2", "1", "8")
    assert 2 * 4 * 10 + 15 < int(resources["runtime"]) < 2 * 4 * 10 + 20


def test_an_evaluation_is_a_job_as_a_session_is(workspace):
    target = {"engine": "sim", "model": "none", "slots": 2, "context": 512, "args": ["--tensor-parallel-size", "2"]}
    tasks = {"mgsm": {"set": "small", "limit": 3, "max_tokens": 4}}
    evaluations = {"baseline": "A", "concurrency": 2, "tasks": tasks, "targets": {"A": target, "B": target}}
    workspace.config["evaluations"] = evaluations
    workspace.config["cpus"] = {"server": 6, "load": 2}
    jobs = asked(workspace, "--resources", "gpu=4", rule="evaluate_")
    assert [(job["gpu"], job["nodes"], job["cpus_per_task"]) for job in jobs] == [("2", "1", "8")] * 2
    assert all(15 < int(job["runtime"]) < 20 for job in jobs)


def test_no_job_asks_for_more_time_than_the_partition_gives(workspace):
    workspace.config["runtime"]["job_minutes"] = 5
    (resources,) = asked(workspace)
    assert resources["runtime"] == "5"
    assert "cpus_per_task" not in resources, "where the experiment says nothing, the profile does"
