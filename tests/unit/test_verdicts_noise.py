"""Leaders and differences: false ones among equal settings are rare, true ones are detected (a short form of `make
validate`, whose tables are in docs/figures.md)."""

import choices
import pytest
from error_rates import NOISES, Exam, Page, across_rate, exam_rate, rates

from servebench.verdicts.noise import Noise, gap, noise, ratio, rejected

MANY = [(100.0, 102.0), (50.0, 49.0), (10.0, 10.1), (7.0, 7.2), (80.0, 78.0)] * 5


@pytest.mark.parametrize("kind", NOISES)
@pytest.mark.parametrize(
    ("cells", "settings", "rounds", "most"),
    [(24, 4, 2, None), (27, 9, 3, None), (8, 2, 4, None), (8, 2, 2, 4), (24, 2, 2, 8)],
    ids=["two rounds", "three of nine settings", "four of few cells", "two or four of few cells", "two or eight"],
)
def test_false_claims_are_at_most_five_in_a_hundred_pages(
    kind: str, cells: int, settings: int, rounds: int, most: int | None
) -> None:
    """Two figures by which leaders are named are one family, three by which pairs are compared another."""
    leader, difference = rates(Page(cells, settings, rounds, kind, most=most), pages=60)
    assert max(leader, difference) <= 0.05 + 0.034  # 60 pages: at most five


@pytest.mark.parametrize("kind", NOISES)
def test_two_equal_experiments_differ_in_at_most_five_of_a_hundred_comparisons(kind: str) -> None:
    assert across_rate(Page(cells=12, settings=1, rounds=2, noise=kind), pages=60) <= 0.05 + 0.034


@pytest.mark.parametrize("exam", [Exam(2, 1, 40), Exam(5, 4, 250)], ids=["few", "many"])
def test_equal_answers_differ_in_at_most_five_of_a_hundred_experiments(exam: Exam) -> None:
    assert exam_rate(exam, pages=100) <= 0.05 + 0.03


@pytest.mark.parametrize("kind", NOISES)
def test_of_equal_settings_hardly_any_page_recommends_one_or_calls_one_outdone(kind: str) -> None:
    found = choices.rates(choices.Page(settings=2, levels=6, rounds=4, noise=kind), pages=40)
    assert max(vars(found).values()) <= 0.05 + 0.025  # 40 pages: at most three


def test_a_true_lead_is_recommended_and_a_setting_that_serves_a_third_is_outdone_unless_it_is_faster_somewhere() -> (
    None
):
    assert choices.rates(choices.Page(4, 7, 2, "equal", lead=0.2), pages=15).recommended > 0.5
    assert choices.rates(choices.Page(2, 6, 2, "equal", serves=3), pages=30).fewer_users > 0.5
    assert choices.rates(choices.Page(2, 6, 2, "equal", serves=3, trade=0.2), pages=30).fewer_users == 0


def test_a_true_lead_of_a_tenth_is_found_mostly_with_two_rounds_and_nearly_always_with_three() -> None:
    assert rates(Page(24, 4, 2, "equal", lead=0.1), pages=30)[0] > 0.5
    assert rates(Page(24, 4, 3, "equal", lead=0.1), pages=30)[0] > 0.9


def test_a_true_difference_is_found_in_a_family_of_any_size() -> None:
    """Two experiments of 100 levels are compared in 300 ratios; twice the output at noise of 2 % is no chance."""
    known = noise(MANY)
    large, none = (ratio(one, (100.0, 101.0), known).p for one in ((200.0, 201.0), (100.5, 100.5)))
    assert rejected([large, *[none] * 299]) == [True, *[False] * 299]


def test_fewer_than_24_cells_of_two_rounds_cannot_rank_whatever_their_gap() -> None:
    known = noise(MANY[:23])
    assert not known.known
    found = gap({"a": (200.0, 201.0), "b": (100.0, 101.0)}, known)
    assert (found.first, found.every_round, found.p) == ("a", True, None)
    assert ratio((200.0, 201.0), (100.0, 101.0), known).low is None


def test_four_rounds_make_up_for_few_cells() -> None:
    known = noise([(100.0, 101.0, 99.0, 100.5), (50.0, 50.5, 49.8, 50.1), (10.0, 10.1, 9.9, 10.0)])
    found = gap({"a": (200.0, 201.0, 199.0, 200.0), "b": (100.0, 101.0, 99.0, 100.0)}, known)
    assert known.known and found.p is not None and found.p < 0.01


def test_cells_that_repeat_alike_share_a_variance_and_cells_that_do_not_keep_their_own() -> None:
    alike = noise([(100.0, 102.0)] * 40)
    unlike = noise([(100.0, 100.0 + 0.001 * 4**n) for n in range(9)] * 5)
    assert alike.weight == 20 > 2 > unlike.weight
    calm, wild = (100.0, 100.1), (100.0, 150.0)
    assert alike.variance(wild) / alike.variance(calm) < unlike.variance(wild) / unlike.variance(calm)


def test_the_typical_variance_of_few_cells_is_known_no_better_than_their_rounds_allow() -> None:
    """Three cells of four rounds have three degrees of freedom each; a cell's own add to those of the two others."""
    assert noise([(100.0, 101.0, 99.0, 100.5), (50.0, 50.5, 49.5, 50.2), (10.0, 10.1, 9.9, 10.05)]).weight <= 6


def test_equal_tables_give_equal_claims() -> None:
    known = noise(MANY)
    rows = {"a": (103.0, 104.0), "b": (100.0, 101.0), "c": (99.0, 102.0)}
    assert gap(rows, known) == gap(dict(reversed(rows.items())), known)


def test_a_ratio_is_that_of_geometric_means_with_an_interval_around_it() -> None:
    found = ratio((200.0, 200.0), (100.0, 100.0), noise(MANY))
    assert found.ratio == pytest.approx(2)
    assert found.low is not None and found.high is not None
    assert found.low < 2 < found.high and found.low * found.high == pytest.approx(4)


def test_one_round_cannot_be_compared() -> None:
    known = noise(MANY)
    assert gap({"a": (200.0,), "b": (100.0, 101.0)}, known).p is None
    assert ratio((200.0,), (100.0, 101.0), known).p is None


def test_no_repeats_are_no_noise() -> None:
    assert noise([]) == noise([(1.0,)] * 30) or not noise([(1.0,)] * 30).known
    assert not noise([]).known


def test_rounds_that_are_equal_to_the_digit_are_no_certainty() -> None:
    known = noise([(100.0, 100.0)] * 30)
    assert isinstance(known, Noise) and known.prior > 0


def test_holm_by_hand() -> None:
    assert rejected([0.01, 0.02, 0.04, None]) == [True, True, True, False]
    assert rejected([0.01, 0.03, 0.04]) == [True, False, False]
    assert rejected([]) == []


def test_a_gap_needs_two_settings() -> None:
    with pytest.raises(ValueError, match="needs two"):
        gap({"a": (1.0, 2.0)}, noise(MANY))
