"""`snakemake capacity` on a simulator: each probe is an ordinary measurement, and none is made twice."""

import json

import pytest

from servebench.load.objective import LIMITED
from servebench.plan import read
from workspace import Workspace

# What no server keeps, by limit; a p99 would keep each window open until it holds 100 requests.
BEYOND = {
    name: 1e-9 if most else 1e9 for name, most in LIMITED.items() if "p99" not in name and name != "goodput_share"
}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """A finished search of one setting of two, up to four users: two slots, and 20 ms for each token."""
    made = Workspace(tmp_path_factory.mktemp("capacity"))
    made.config["settings"].pop("two")
    made.config["line"] = {"ttft_p95_s": 30, "user_tok_s": 0.1, "min_targets": 5}
    made.config["objectives"] = {name: {name: limit, "min_targets": 5} for name, limit in BEYOND.items()}
    made.config["capacity"] = {"most_users": 4}
    made.snakemake("capacity")
    return made


def test_each_setting_and_objective_has_an_answer(found):
    said = json.loads((found.results / "capacity/answers.json").read_text())
    assert [(claim["values"]["objective"], claim["verdict"]) for claim in said] == [
        ("line", "at_least"),
        *((name, "none") for name in BEYOND),
    ]
    assert said[0]["users"] == 4 and {claim["values"]["misses"] for claim in said[1:]} == {1}


def test_a_finished_search_measures_nothing_again_and_is_part_of_the_experiment(found):
    assert found.planned("capacity") == {}
    before = found.measured()
    assert len(before) == 6  # 1, 2 and 4 users, twice
    found.snakemake("results/reruns/tables/measurements.parquet")
    assert found.measured() == before
    assert read(found.results / "plan.json").settings["one"].users == (1, 2, 4)


def test_a_discarded_measurement_is_searched_for_again(found):
    before = found.measured()
    found.servebench("discard", "main", "one", "--why", "a test", "--round", "2", "--users", "2")
    assert found.planned("capacity") == {"search_main_one": 1}
    assert "capacity/answers.json" in found.snakemake("capacity")
    after = found.measured()
    assert after.keys() == before.keys()
    assert sum(before[name] != after[name] for name in before) == 1
