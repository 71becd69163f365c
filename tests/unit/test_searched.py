"""What a search for a capacity has measured is part of the experiment, as long as it was of the same spec."""

import json
from types import SimpleNamespace

import pytest
from msgspec import structs

import servebench
import synthetic
from servebench import configuration, plan
from servebench.capacity.search import Search
from servebench.cli import capacities
from servebench.outlook import duration
from servebench.outlook.inventory import further_rounds, with_searched
from servebench.plan.layout import Layout
from servebench.store import measurements
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
        ({"mode": "open", "rate": 2}, 16),  # sixteenths of the rate
        ({"mode": "trace", "trace": "traces/example.jsonl"}, None),  # more connections are no more load
    ],
)
def test_a_search_starts_where_a_window_has_enough_requests(quick, tmp_path, workload, start):
    own = quick.settings["np4"]
    own = structs.replace(own, workload=own.workload | workload)
    quick = structs.replace(quick, settings={"np4": own}, search=Search(most=64))
    searched = list(Targets(quick, Layout(tmp_path)).searches())
    assert len(searched) == (start is not None)
    if start is not None:
        own = searched[0].setting
        assert quick.search_of(own).start == start
        assert duration.search_s(quick, own)[0] >= 4


def test_a_rate_is_searched_as_that_of_users_who_send_a_sixteenth_of_it(quick, tmp_path):
    own = quick.settings["np4"]
    own = structs.replace(own, workload=own.workload | {"mode": "open", "rate": 2})
    quick = structs.replace(quick, settings={"np4": own})
    (stands,) = quick.searchable.values()
    assert (stands.name, stands.workload["mode"], stands.workload["user_rate"]) == ("np4-rates", "open-users", 0.125)
    assert "rate" not in stands.workload and stands.users == ()
    assert quick.by_rate(stands) and not quick.by_rate(own)
    assert quick.search_of(stands).most == 16, "with most_users: 8, the rate itself is tried all the same"
    path = Layout(tmp_path).search(stands, 1)
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"spec": plan.digest(plan.search_spec(quick, stands)), "users": [8, 16]}))
    found = with_searched(quick, tmp_path)
    assert found.settings["np4"] == own and found.settings["np4-rates"].users == (8, 16)
    assert found.searched == ("np4-rates",) and list(found.searchable) == ["np4-rates"]
    assert plan.search_spec(found, found.settings["np4-rates"]) == plan.search_spec(quick, stands)


@pytest.mark.parametrize("text", ["", '{"spec": "0', "[1]", '{"users": [11]}'])
def test_a_record_that_was_cut_does_not_count(quick, tmp_path, text):
    path = Layout(tmp_path).search(quick.settings["np4"], 1)
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert with_searched(quick, tmp_path) == quick


def test_the_record_of_another_spec_does_not_count(quick, tmp_path):
    record(quick, tmp_path, 1, [11], spec="0" * 20)
    assert with_searched(quick, tmp_path) == quick


@pytest.mark.parametrize(("round_", "needs"), [(1, []), (2, ["np1"]), (3, ["np1", "np4"])])
def test_a_further_round_waits_for_what_the_others_found(quick, tmp_path, round_, needs):
    quick = structs.replace(
        quick, settings={name: quick.settings[name] for name in ("np1", "np4")}, search=Search(rounds=2, most_rounds=4)
    )
    layout = Layout(tmp_path)
    first = next(iter(Targets(quick, layout).searches()))
    found = {path for path in first.needs(SimpleNamespace(round=str(round_))) if "capacity" in path.parts}
    assert found == {layout.search(quick.settings[name], round_ - 1) for name in needs}
    given = first.options(SimpleNamespace(round=str(round_)), None)
    assert ("--plan" in given) == (round_ > 2)


def test_a_tie_is_found_in_the_store(tmp_path):
    """Two settings with four users, one of which put out more in both rounds: a third may tell that it is ahead."""
    cells = [
        {"run": "main", "setting": name, "users": 4}
        | {f"{figure}_{end}": value for figure, value in figures.items() for end in synthetic.ENDS}
        for name, output in (("llama-np4", 100.0), ("llama-np16", 200.0))
        for figures in [synthetic.UNPUBLISHED | {"output_tok_s": output}]
    ]
    own = structs.replace(synthetic.plan_of(cells), search=Search(most=4, rounds=2, most_rounds=4))
    for found in synthetic.records_of(cells, own):
        spec = plan.search_spec(own, own.settings[found.identity.setting])
        digest = plan.measurement_id(spec, 4, found.identity.round)
        kept = structs.replace(found, identity=structs.replace(found.identity, digest=digest))
        measurements.write(kept, Layout(tmp_path).stored(digest))
    text = plan.canonical(plan.reported(own))
    assert [capacities.tied(text, tmp_path, name) for name in own.settings] == [[4], [4]]
    assert {claim["verdict"] for claim in capacities.found(text, tmp_path)} <= {"at_least", "unsure", "none"}
    measurements.Store(tmp_path).discard(digest, "a backup ran")
    discarded = {claim["subjects"][0]: claim["values"]["discarded"] for claim in capacities.found(text, tmp_path)}
    assert discarded == {"llama-np4": [], "llama-np16": [["llama-np16", 4, 1]]}
