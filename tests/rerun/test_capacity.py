"""`snakemake capacity` on a simulator: each probe is an ordinary measurement, and none is made twice."""

import json

import pytest

from servebench.load.objective import LIMITED
from servebench.plan import read
from servebench.store import measurements
from workspace import Workspace

# What no server keeps, by limit; a p99 would keep each window open until it holds 100 requests.
BEYOND = {
    name: 1e-9 if most else 1e9 for name, most in LIMITED.items() if "p99" not in name and name != "goodput_share"
}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """A finished search of a setting with up to four users, and of one with a rate: 20 ms for each token."""
    made = Workspace(tmp_path_factory.mktemp("capacity"))
    made.config["settings"]["two"] |= {"run": "open", "slots": 64, "users": [4]}
    made.config["runs"] = {"main": {}, "open": {"workload": {"mode": "open", "rate": 40, "arrivals": "constant"}}}
    made.config["line"] = {"ttft_p95_s": 30, "user_tok_s": 0.1, "min_targets": 5}
    made.config["objectives"] = {name: {name: limit, "min_targets": 5} for name, limit in BEYOND.items()}
    made.config["capacity"] = {"most_users": 4}
    made.snakemake("capacity")
    return made


def test_each_setting_and_objective_has_an_answer(found):
    said = json.loads((found.results / "capacity/answers.json").read_text())
    one, two = ([claim for claim in said if claim["subjects"] == [name]] for name in ("one", "two-rates"))
    assert [(claim["values"]["objective"], claim["verdict"]) for claim in one] == [
        ("line", "at_least"),
        *((name, "none") for name in BEYOND),
    ]
    assert one[0]["users"] == 4 and {claim["values"]["misses"] for claim in one[1:]} == {1}
    # Whether a busy machine keeps up with 40 requests a second is left open here.
    assert [claim["values"]["objective"] for claim in two] == ["line", *BEYOND]
    assert {(claim["verdict"], claim["values"]["misses"]) for claim in two[1:]} == {("none", 1)}


def test_a_rate_is_measured_in_sixteenths(found):
    sent = {
        (record.loaded.users, record.loaded.workload["mode"], record.loaded.workload["user_rate"])
        for path in (found.results / "measurements/open").rglob("*.parquet")
        for record in [measurements.read(path)]
    }
    assert {(users, "open-users", 2.5) for users in (1, 2, 4, 8, 16)} <= sent
    assert {rate for _, _, rate in sent} == {2.5}


def test_a_finished_search_measures_nothing_again_and_is_part_of_the_experiment(found):
    assert found.planned("capacity") == {}
    before = found.measured()
    found.snakemake("results/reruns/tables/measurements.parquet")
    assert before.items() <= found.measured().items()
    assert len(found.measured()) == len(before) + 2, (
        "the rate itself, with four connections, is a measurement of its own"
    )
    settings = read(found.results / "plan.json").settings
    assert settings["one"].users == (1, 2, 4) and {1, 2, 4, 8, 16} <= {*settings["two-rates"].users}
    assert len(before) == 2 * (3 + len(settings["two-rates"].users))


def test_a_discarded_measurement_is_searched_for_again(found):
    before = found.measured()
    found.servebench("discard", "main", "one", "--why", "a test", "--round", "2", "--users", "2")
    assert found.planned("capacity") == {"search_main_one": 1}
    assert "capacity/answers.json" in found.snakemake("capacity")
    after = found.measured()
    assert after.keys() == before.keys()
    assert sum(before[name] != after[name] for name in before) == 1
