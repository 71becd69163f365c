"""What a search for a capacity has measured is part of the experiment, as long as it was of the same spec."""

import json

import pytest
from msgspec import structs

import servebench
from servebench import configuration, plan
from servebench.capacity.search import Search
from servebench.outlook import duration
from servebench.outlook.inventory import further_rounds, with_searched
from servebench.plan.layout import Layout
from servebench.workflow import Targets


@pytest.fixture
def quick():
    return configuration.read([servebench.ROOT / "config" / "config.yaml"])


def record(quick, results, round_, users, spec=None):
    setting = quick.settings["np4"]
    path = Layout(results).search(setting, round_)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"spec": spec or plan.digest(plan.search_spec(quick, setting)), "users": users}))


def test_searched_numbers_of_users_stand_beside_the_configured_ones(quick, tmp_path):
    record(quick, tmp_path, 1, [1, 2, 11, 16])
    record(quick, tmp_path, 3, [11])
    found = with_searched(quick, tmp_path)
    assert found.settings["np4"].users == (1, 2, 4, 8, 11, 16) and found.searched == ("np4",)
    assert found.settings["np1"].users == quick.settings["np1"].users
    assert [(session.round, users) for session, users in further_rounds(found, tmp_path)] == [(3, 11)]
    before, after = (plan.search_spec(one, one.settings["np4"]) for one in (quick, found))
    assert before == after, "a search is the same one whatever it has measured"


@pytest.mark.parametrize(
    ("workload", "start"),
    [
        ({}, 1),
        ({"mode": "open-users", "user_rate": 0.05}, 40),  # 20 requests in 10 s are 2 a second, and 40 users send them
        ({"mode": "open-users", "user_rate": 100}, 1),
        ({"mode": "open", "rate": 2}, None),  # more connections are no more load
    ],
)
def test_a_search_starts_where_a_window_has_enough_requests(quick, tmp_path, workload, start):
    own = quick.settings["np4"]
    own = structs.replace(own, workload=own.workload | workload)
    quick = structs.replace(quick, settings={"np4": own}, search=Search(most=64))
    searched = list(Targets(quick, Layout(tmp_path)).searches())
    assert len(searched) == (start is not None)
    if start is not None:
        assert quick.search_of(own).start == start
        assert duration.search_s(quick, own)[0] >= 4


@pytest.mark.parametrize("text", ["", '{"spec": "0', "[1]", '{"users": [11]}'])
def test_a_record_that_was_cut_does_not_count(quick, tmp_path, text):
    path = Layout(tmp_path).search(quick.settings["np4"], 1)
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert with_searched(quick, tmp_path) == quick


def test_the_record_of_another_spec_does_not_count(quick, tmp_path):
    record(quick, tmp_path, 1, [11], spec="0" * 20)
    assert with_searched(quick, tmp_path) == quick
