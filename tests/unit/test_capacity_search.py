"""The search for a capacity: which number of users is measured next, and what is said in the end."""

import itertools

import numpy as np
import pytest
from open_servers import WAYS, Queue
from random_servers import NOISES, Search, by_search, grid, tallies

from servebench.capacity.judging import levels
from servebench.capacity.search import answer, searched, wanted
from servebench.faults import Fault
from servebench.load.line import Line
from servebench.load.objective import LIMITED, MOST, Objective, Outcome
from servebench.marks import mark

GOOD, BAD = Outcome(0.7), Outcome(-0.7)


def found(keeps, search=None, names=("line",)):
    """Search a server without noise: (its measurements in order, the evidence)."""
    evidence = {}

    def measure(users, round_):
        outcome = GOOD if keeps(users) else BAD
        evidence.setdefault(users, {})[round_] = outcome
        return dict.fromkeys(names, outcome)

    return list(searched(search or Search(), measure, names)), evidence


@pytest.mark.parametrize("capacity", [0, 1, 2, 3, 5, 16, 18, 40, 100, 200])
def test_without_noise_the_answer_is_exact_to_the_resolution(capacity):
    made, evidence = found(lambda users: users <= capacity)
    said = answer(evidence)
    assert said.contains(capacity) and said.gaps == () and said.open == ()
    assert said.upper <= max((said.lower or 0) + 1, (said.lower or 0) * 1.12)
    assert len(set(made)) == len(made) <= len(grid()) * 2 / 2


def test_where_even_the_most_users_are_served_the_answer_has_no_upper_end():
    made, evidence = found(lambda users: True, Search(most=100))
    assert [users for users, round_ in made if round_ == 1] == [1, 2, 4, 8, 16, 32, 64, 100]
    assert (answer(evidence).lower, answer(evidence).upper) == (100, None)


def test_a_server_that_fails_at_4_and_passes_at_8_and_16_is_described_so():
    _, evidence = found(lambda users: users in (1, 2) or 6 <= users <= 16)
    said = answer(evidence)
    assert said.spans() == [(1, 2), (6, 16)]
    assert 4 in said.gaps and said.unbroken == 2
    assert (said.lower, said.upper) == (16, 17)


def test_even_rounds_go_downwards_through_the_numbers_of_the_first():
    made, _ = found(lambda users: users <= 16)
    first, second = ([users for users, round_ in made if round_ == number] for number in (1, 2))
    assert sorted(first, reverse=True) == second


def test_only_what_is_open_gets_more_rounds_than_asked():
    search = Search(rounds=2, most_rounds=4)
    near = itertools.cycle([Outcome(0.1), Outcome(-0.1)])
    evidence = {users: {1: BAD, 2: BAD} for users in (3, 4, 6)}
    evidence |= {1: {1: GOOD, 2: GOOD}, 2: {1: next(near), 2: next(near)}}
    assert wanted({"line": evidence}, search, 3) == 2
    evidence[2][3] = next(near)
    assert wanted({"line": evidence}, search, 3) is None
    assert wanted({"line": evidence}, search, 4) == 2
    evidence[2][4] = next(near)
    assert [wanted({"line": evidence}, search, number) for number in (1, 2, 3, 4, 5)] == [None] * 5
    said = answer(evidence)
    assert (said.kept, said.open, said.missed) == ((1,), (2,), (3, 4, 6))
    assert said.contains(1) and said.contains(2) and not said.contains(3)


def test_where_settings_are_tied_a_sure_number_gets_more_rounds_too():
    evidence = {"line": {users: {1: GOOD, 2: GOOD} for users in (1, 2, 4)}}
    search = Search(most=4, most_rounds=3)
    assert [wanted(evidence, search, round_, tied) for round_, tied in ((3, ()), (3, [2]), (4, [2]))] == [None, 2, None]
    evidence["line"][2][3] = GOOD
    assert wanted(evidence, search, 3, [2]) is None


def test_what_is_in_the_store_is_not_measured_again():
    _, evidence = found(lambda users: users <= 16)
    assert wanted({"line": evidence}, Search(), 1) is None and wanted({"line": evidence}, Search(), 2) is None
    del evidence[19][2]
    assert wanted({"line": evidence}, Search(), 2) == 19
    assert wanted({"line": {users: evidence[users] for users in (1, 2, 4, 8)}}, Search(), 1) == 16


def test_one_round_is_never_sure():
    assert [level.kept for level in levels({1: {1: GOOD}, 2: {1: BAD}})] == [None, None]


def test_a_search_for_several_objectives_measures_each_number_once():
    evidence = {"tight": {}, "loose": {}}

    def measure(users, round_):
        outcomes = {"tight": GOOD if users <= 5 else BAD, "loose": GOOD if users <= 20 else BAD}
        for name, outcome in outcomes.items():
            evidence[name].setdefault(users, {})[round_] = outcome
        return outcomes

    made = list(searched(Search(), measure, ["tight", "loose"]))
    assert len(made) == len(set(made))
    for name, capacity in (("tight", 5), ("loose", 20)):
        said = answer(evidence[name])
        assert said.contains(capacity) and said.upper <= max(said.lower + 1, said.lower * 1.12)


def test_a_search_may_start_elsewhere_and_go_down():
    _, evidence = found(lambda users: users <= 3, Search(start=16))
    assert answer(evidence).contains(3) and answer(evidence).lower == 3


@pytest.mark.parametrize("noise", NOISES)
def test_the_answers_hold_on_random_servers_at_less_than_half_of_a_sweep(noise):
    """A short form of benchmarks/capacity/random_servers.py, whose results are in docs/benchmarks.md."""
    tried = list(tallies(by_search(Search()), noise, 40))
    assert np.mean([one.holds for one in tried]) >= 0.9
    assert np.median([one.cost for one in tried]) <= len(grid()) * 2 / 2


@pytest.mark.parametrize("noise", NOISES)
def test_the_answers_hold_on_random_queues_of_an_open_loop(noise):
    """A short form of benchmarks/capacity/open_servers.py, whose results are in docs/benchmarks.md."""
    tried = list(tallies(WAYS["search, 2 rounds"], noise, 20, Queue))
    assert np.mean([one.holds for one in tried]) >= 0.85


def test_a_queue_is_stable_below_what_its_slots_work_off():
    """One slot, replies of 1 s: P(wait) is the load ρ, and waits are exponential with rate 1 − ρ (Erlang, one server).

    A p95 within 2 s needs ρ · exp(−2 (1 − ρ)) ≤ 0.05, so ρ up to 0.23 or so: 0.228 · exp(−1.544) = 0.0487.
    """
    queue = Queue(np.random.default_rng(1), "little")
    queue.line, queue.slots, queue.prefill = Line(ttft_p95_s=2, user_tok_s=1), 1, np.zeros(1)
    queue.reply_tokens = queue.speed = 10.0
    queue.half, queue.step_s = 1e9, 0.01
    assert queue.capacity in range(20, 26)
    assert queue.keeps(22) and not queue.keeps(26)


def test_a_rate_that_is_kept_just_below_one_that_misses_is_not_sure():
    evidence = {level: {1: GOOD, 2: GOOD} for level in (8, 16, 17)} | {18: {1: BAD, 2: BAD}}
    assert answer(evidence).kept == (8, 16, 17)
    said = answer(evidence, paced=True)
    assert (said.kept, said.open, said.missed, said.lower, said.upper) == ((8, 16), (17,), (18,), 16, 18)
    del evidence[18]
    assert answer(evidence, paced=True).lower == 17, "nothing says that more is too much"


def figures(**changed):
    """The figures of a window that keeps the default line."""
    return {
        "target_requests": 40,
        "failures": 0,
        "ttft_p50_s": 0.5,
        "ttft_p95_s": 1.0,
        "ttft_p95_all_s": 1.0,
        "user_tok_s": 20.0,
        "invalid_reasons": [],
    } | changed


LINE = Objective.of(Line())


@pytest.mark.parametrize(
    ("changed", "margin", "missed"),
    [
        ({}, np.log(2), ()),
        ({"ttft_p95_all_s": 4.0}, -np.log(2), ("ttft_p95_s",)),
        ({"user_tok_s": 5.0}, -np.log(2), ("user_tok_s",)),
        ({"user_tok_s": 5.0, "ttft_p95_all_s": 8.0}, -np.log(4), ("ttft_p95_s", "user_tok_s")),
        ({"failures": 1}, -MOST, ("failures",)),
        ({"status": "failed"}, -MOST, ("failed",)),
        ({"status": "failed", "reason": [mark("failed", reason="out of memory")]}, -MOST, ("failed",)),
        ({"status": "failed", "reason": [mark("not_tried", died_at=8)]}, None, ()),
        ({"status": "failed", "reason": [mark("foreign_use_every_time", attempts=3)]}, None, ()),
        ({"status": "failed", "reason": [mark("not_as_asked", what="slots", asked=4, got=1)]}, None, ()),
        ({"status": "failed", "reason": [mark("no_longer_as_asked", what="slots", asked=4, got=1)]}, None, ()),
        ({"user_tok_s": None}, -MOST, ("user_tok_s",)),
        ({"target_requests": 19}, None, ()),
        ({"target_requests": 19, "ttft_p50_s": 4.0}, -np.log(2), ("ttft_p95_s",)),
        ({"target_requests": 4, "ttft_p50_s": 4.0}, None, ()),
        ({"invalid_reasons": [mark("backlog_grows", start=1, end=9, due=40)]}, -MOST, ("backlog_grows",)),
    ],
)
def test_a_window_is_judged_by_its_tightest_limit(changed, margin, missed):
    outcome = LINE.outcome(figures(**changed))
    assert outcome.margin == (None if margin is None else pytest.approx(margin))
    assert outcome.missed == missed


def test_the_p95_of_few_requests_is_doubted_more_than_that_of_many():
    few, many = (LINE.outcome(figures(target_requests=requests)).doubt for requests in (20, 2000))
    assert 0 < many < 0.05 < few < np.log(2)


@pytest.mark.parametrize("requests", [1, 4, 5])
def test_a_limit_on_a_figure_without_a_value_is_never_kept(requests):
    outcome = Objective(limits={"user_tok_s": 10.0}, min_targets=1).outcome(
        figures(target_requests=requests, user_tok_s=None)
    )
    assert outcome.margin == (-MOST if requests >= 5 else None)


def test_a_value_within_one_limit_does_not_keep_another_that_has_none():
    both = Objective(limits={"user_tok_s": 10.0, "e2e_p50_s": 9.0}, min_targets=1)
    assert both.outcome(figures(target_requests=2, user_tok_s=None, e2e_p50_s=1.0)).margin is None


def test_an_objective_allows_the_share_of_failures_it_names():
    batch = Objective(limits={"e2e_p99_s": 60.0}, failures_share=0.05)
    assert batch.requests == 100
    assert batch.outcome(figures(target_requests=100, failures=5, e2e_p99_s=30.0, e2e_p50_s=9.0)).margin > 0
    assert batch.outcome(figures(target_requests=100, failures=6, e2e_p99_s=30.0)).missed == ("failures",)


@pytest.mark.parametrize("name", LIMITED)
def test_each_limit_is_kept_on_one_side_of_its_figure_and_missed_on_the_other(name):
    limit = 0.5
    counted = name.replace("ttft_p95_s", "ttft_p95_all_s")  # a failure is an endless wait
    sides = [figures(target_requests=100, **{name: value, counted: value}) for value in (0.4, 0.6)]
    kept, missed = sides if LIMITED[name] else reversed(sides)
    alone = Objective(limits={name: limit}, min_targets=5)
    assert alone.outcome(kept).margin > 0 and not alone.outcome(kept).missed
    assert alone.outcome(missed).margin < 0 and alone.outcome(missed).missed == (name,)


def test_a_p95_that_failures_make_endless_is_never_kept():
    lenient = Objective(limits={"ttft_p95_s": 2.0}, failures_share=0.1)
    endless = figures(target_requests=100, failures=6, ttft_p95_all_s=None, ttft_p95_all_infinite=True)
    assert lenient.outcome(endless).missed == ("ttft_p95_s",)


@pytest.mark.parametrize(("limits", "name"), [({"speed": 1.0}, "speed"), ({"tpot_p99_s": 0.0}, "tpot_p99_s")])
def test_an_objective_on_an_unknown_figure_or_without_a_limit_is_refused(limits, name):
    with pytest.raises(Fault, match=name):
        Objective(limits=limits)
