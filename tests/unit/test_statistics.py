"""Statistics of paired answers against published figures, textbook values and independent computations."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.stats import norm, permutation_test
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.weightstats import ttost_paired

from servebench.tables.evaluated import statistics
from servebench.tables.files import read_reference

REFERENCES = Path(__file__).parents[2] / "config" / "references"
SIGN_TESTS = read_reference(REFERENCES / "h200-sign-tests.csv")


def rounded(value, digits):
    """Round as the published tables were rounded: first to one digit more (3.947, 3.95, 4.0)."""
    return round(round(value, digits + 1) + np.copysign(1e-9, value), digits)


@pytest.mark.parametrize(
    ("more", "less", "p", "mid_p"),
    [
        (13, 4, 0.0490, 0.0309),
        (15, 5, 0.0414, 0.0266),
        (7, 5, 0.7744, 0.5811),
        (3, 6, 0.5078, 0.3438),
        (4, 6, 0.7539, 0.5488),
        (6, 3, 0.5078, 0.3438),
        (2, 5, 0.4531, 0.2891),
        (0, 0, 1, 1),
        (5, 5, 1, 1),
    ],
)
def test_sign_test(more, less, p, mid_p):
    for pair in ((more, less), (less, more)):
        assert rounded(statistics.sign_test(*pair), 4) == p
        assert rounded(statistics.sign_test_mid_p(*pair), 4) == mid_p
    if more + less:
        table = [[100, more], [less, 100]]
        assert statistics.sign_test(more, less) == pytest.approx(mcnemar(table, exact=True).pvalue)


@pytest.mark.parametrize("task", sorted({row["task"] for row in SIGN_TESTS}))
def test_every_published_comparison(task):
    rows = [row for row in SIGN_TESTS if row["task"] == task]
    assert len(rows) == 4
    by_run = [
        statistics.holm([statistics.sign_test(r[f"run{run}_base_only"], r[f"run{run}_other_only"]) for r in rows])
        for run in (1, 2)
    ]
    for row, *adjusted in zip(rows, *by_run, strict=True):
        assert round(min(adjusted), 2) == row["p_holm_min"]
        assert round(max(adjusted), 2) == row["p_holm_max"]


def test_holm():
    assert statistics.holm([]) == []
    first = [statistics.sign_test(*pair) for pair in ((13, 4), (7, 5), (3, 6), (4, 6))]
    assert [round(p, 3) for p in statistics.holm(first)] == [0.196, 1, 1, 1]
    assert round(statistics.holm([statistics.sign_test(15, 5), 0.5, 0.6, 0.7])[0], 3) == 0.166
    middle = statistics.holm([statistics.sign_test_mid_p(*pair) for pair in ((13, 4), (7, 5), (3, 6), (4, 6))])
    assert round(middle[0], 3) == 0.124
    assert statistics.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])


@pytest.mark.parametrize(("pairs", "larger"), [(8, 8), (11, 10), (15, 13), (18, 15), (20, 16), (25, 20)])
def test_which_splits_pass_the_first_step_of_holm_over_four(pairs, larger):
    assert statistics.sign_test(larger, pairs - larger) <= 0.05 / 4
    assert statistics.sign_test(larger - 1, pairs - larger + 1) > 0.05 / 4


def test_fewer_than_eight_discordant_pairs_cannot_be_significant_among_four():
    can = statistics.can_be_significant([0, 5, 7, 8], [1.0, 0.5, 0.5, 0.5])
    assert can == [False, False, False, True]
    # Alone six suffice, and beside others that are significant already Holm asks less.
    assert statistics.can_be_significant(
        [
            5,
        ],
        [1.0],
    ) == [False]
    assert statistics.can_be_significant(
        [
            6,
        ],
        [1.0],
    ) == [True]
    assert statistics.can_be_significant([7, 20, 20, 20], [1.0, 1e-4, 1e-4, 1e-4])[0]


@pytest.mark.parametrize(
    ("more", "less", "n", "low", "high"),
    [
        (13, 4, 250, 0.4, 7.3),
        (13, 4, 200, 0.5, 9.1),
        (13, 4, 1119, 0.1, 1.7),
        (7, 5, 250, -2.2, 4.0),
        (7, 5, 1119, -0.5, 0.9),
    ],
)
def test_tango_interval(more, less, n, low, high):
    found = [rounded(100 * bound, 1) for bound in statistics.tango_interval(more, less, n)]
    assert found == [low, high]
    mirrored = statistics.tango_interval(less, more, n)
    assert mirrored == pytest.approx([-bound for bound in reversed(statistics.tango_interval(more, less, n))])


def constrained_score(more, less, n, difference):
    """Tango's statistic with its nuisance share from a numeric search for the greatest likelihood."""

    def minus_log_likelihood(share):
        cells = [(more, share + difference), (less, share), (n - more - less, 1 - 2 * share - difference)]
        return -sum(count * np.log(max(p, 1e-300)) for count, p in cells if count)

    bounds = (max(0.0, -difference), (1 - difference) / 2)
    best = minimize_scalar(minus_log_likelihood, bounds=bounds, method="bounded", options={"xatol": 1e-14}).x
    return (more - less - n * difference) / np.sqrt(n * (2 * best + difference * (1 - difference)))


@pytest.mark.parametrize(("more", "less", "n"), [(13, 4, 250), (7, 5, 250), (4, 13, 200), (3, 0, 10), (15, 5, 1119)])
@pytest.mark.parametrize("difference", [-0.3, -0.05, 0.0, 0.01, 0.08, 0.4])
def test_tango_score_is_that_of_the_numeric_optimum(more, less, n, difference):
    numeric = constrained_score(more, less, n, difference)
    assert statistics.tango_score(more, less, n, difference) == pytest.approx(numeric, rel=1e-5, abs=1e-6)


def test_tango_interval_ends_where_the_score_is_just_not_rejected():
    z = norm.isf(0.025)
    low, high = statistics.tango_interval(13, 4, 250)
    assert constrained_score(13, 4, 250, low) == pytest.approx(z, rel=1e-5)
    assert constrained_score(13, 4, 250, high) == pytest.approx(-z, rel=1e-5)


def test_tango_at_no_difference_is_mcnemar():
    assert statistics.tango_score(13, 4, 250, 0.0) == pytest.approx((13 - 4) / np.sqrt(13 + 4))


def test_tango_with_nothing_or_everything_discordant():
    low, high = statistics.tango_interval(0, 0, 250)
    assert -0.02 < low < 0 < high < 0.02
    assert statistics.tango_interval(10, 0, 10)[1] == 1
    with pytest.raises(ValueError, match="discordant of 3"):
        statistics.tango_interval(2, 2, 3)


@pytest.mark.parametrize(("more", "less", "p"), [(7, 5, 0.0014), (13, 4, 0.197)])
def test_equivalence_within_five_points_agrees_with_the_t_version(more, less, p):
    n = 250
    one = np.repeat([1, 0, 1], [more, less, n - more - less])
    other = np.repeat([0, 1, 1], [more, less, n - more - less])
    assert ttost_paired(one, other, -0.05, 0.05)[0] == pytest.approx(p, rel=0.05)
    assert statistics.is_equivalent(more, less, n, 0.05) is (p < 0.05)


# n, discordant share, then points: exact, exact after Holm over four, mid-p, provable margin.
DETECTABLE = [
    (100, 0.08, 7.9, None, 7.3, None),
    (100, 0.12, 9.8, 11.0, 9.1, None),
    (200, 0.08, 5.7, 6.6, 5.4, 5.9),
    (200, 0.12, 7.1, 8.2, 6.7, 7.2),
    (250, 0.04, 3.6, None, 3.3, 3.7),
    (250, 0.08, 5.1, 6.0, 4.8, 5.2),
    (1119, 0.02, 1.2, 1.4, 1.2, 1.2),
    (1119, 0.04, 1.7, 2.0, 1.7, 1.8),
    (1119, 0.08, 2.4, 2.9, 2.4, 2.5),
]


@pytest.mark.parametrize(("n", "share", "exact", "after_holm", "mid_p", "margin"), DETECTABLE)
def test_the_table_of_what_can_be_detected(n, share, exact, after_holm, mid_p, margin):
    points = {
        "exact": (exact, statistics.minimum_detectable(n, lambda _: share, share)),
        "after Holm": (after_holm, statistics.minimum_detectable(n, lambda _: share, share, 0.05 / 4)),
        "mid-p": (mid_p, statistics.minimum_detectable(n, lambda _: share, share, mid_p=True)),
    }
    if margin is not None:
        points["margin"] = (margin, statistics.provable_margin(n, share))
    for name, (wanted, found) in points.items():
        if wanted is None:
            assert found is None, name
        else:
            assert rounded(100 * found, 1) == wanted, name


def test_power_is_what_a_simulation_finds():
    rng, n, share, difference = np.random.default_rng(1), 200, 0.12, 0.07
    cells = [(share + difference) / 2, (share - difference) / 2, 1 - share]
    draws = rng.multinomial(n, cells, size=20_000)
    pairs = {tuple(draw[:2]) for draw in draws.tolist()}
    p_values = {pair: statistics.sign_test(*pair) for pair in pairs}
    found = np.mean([p_values[tuple(draw[:2])] <= 0.05 for draw in draws.tolist()])
    assert statistics.power(n, share, difference) == pytest.approx(found, abs=0.012)


def test_the_true_size_of_both_tests():
    assert round(statistics.power(250, 0.05, 0.0), 3) == 0.025
    assert round(statistics.power(250, 0.05, 0.0, mid_p=True), 3) == 0.044
    assert round(statistics.power(1119, 0.05, 0.0), 3) == 0.037
    assert round(statistics.power(1119, 0.05, 0.0, mid_p=True), 3) == 0.049


def test_the_smallest_detectable_difference_has_the_power_asked_for():
    """With half of 250 right and unrelated mistakes, half of the answers differ in being right."""
    for n, right in ((250, 0.5), (250, 0.76), (1119, 0.9), (100, 0.05)):
        found = statistics.detectable(n, right)
        other = right - found if right >= 0.5 else right + found
        discordant = right * (1 - other) + other * (1 - right)
        assert statistics.power(n, discordant, found) == pytest.approx(0.8, abs=0.01)
    assert statistics.detectable(4, 0.5) is None
    assert statistics.detectable(200, 1.0) < 0.06, "of a perfect baseline every discordant pair is against the other"


def test_more_questions_detect_less_and_a_larger_family_needs_more():
    assert statistics.detectable(1119, 0.76) < statistics.detectable(250, 0.76)
    assert statistics.detectable(250, 0.76) < statistics.detectable(250, 0.76, 0.05 / 16)


@pytest.mark.parametrize(("more", "less"), [(13, 4), (15, 5), (7, 5), (0, 0), (1, 0), (3, 3)])
def test_with_one_repeat_the_sign_flip_test_is_the_sign_test(more, less):
    differences = np.array([1] * more + [-1] * less + [0] * 100)
    assert statistics.sign_flip_test(differences) == pytest.approx(statistics.sign_test(more, less), abs=1e-12)


def test_the_sign_flip_test_of_two_repeats_by_hand():
    # Sizes 2, 1, 1: sums 4 2 2 0 0 -2 -2 -4; as far from 0 as 4 are two of eight.
    assert statistics.sign_flip_test(np.array([2, 1, 1, 0])) == pytest.approx(2 / 8)
    assert statistics.sign_flip_test(np.array([2, -1, 1, 0])) == pytest.approx(6 / 8)


def test_the_sign_flip_test_is_scipys_permutation_test():
    differences = np.array([2] * 7 + [1] * 5 + [-1] * 4 + [-2] * 2 + [0] * 60)
    sampled = permutation_test(
        (differences / 2, np.zeros(differences.size)),
        lambda x, y, axis: np.mean(x - y, axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=20_000,
        rng=np.random.default_rng(3),
    )
    assert statistics.sign_flip_test(differences) == pytest.approx(sampled.pvalue, abs=0.01)


def test_intervals_of_agreement():
    assert [round(100 * bound, 1) for bound in statistics.share_interval(250, 250)] == [98.5, 100]
    assert [round(100 * bound, 1) for bound in statistics.share_interval(1119, 1119)] == [99.7, 100]


def test_cochrans_q_of_two_targets_is_mcnemar_without_correction():
    correct = np.array([[1, 0]] * 13 + [[0, 1]] * 4 + [[1, 1]] * 50, dtype=bool)
    found = statistics.cochrans_q(correct)
    assert found.statistic == pytest.approx((13 - 4) ** 2 / 17)
    assert found.df == 1
    assert statistics.cochrans_q(np.ones((5, 3), dtype=bool)) is None
    assert statistics.cochrans_q(correct[:, :1]) is None


def test_the_position_test_by_hand():
    gold = [216, 237, 240, 228, 198]
    assert statistics.position_test(gold, gold).statistic == 0
    leaning = statistics.position_test([226, 237, 240, 228, 188], gold)
    assert leaning.statistic == pytest.approx(100 / 216 + 100 / 198)
    assert leaning.df == 4
    assert statistics.position_test([0] * 5, gold) is None
    # Only the shares of gold matter when not every reply could be read.
    assert statistics.position_test([20] * 5, [10] * 5).statistic == 0


def test_where_texts_part():
    assert statistics.first_difference("同じ", "同じ") is None
    assert statistics.first_difference("答え: 18", "答え: 19") == 5
    assert statistics.first_difference("答え", "答え: 18") == 2
    assert statistics.first_difference("", "a") == 0


def test_smaller_differences_take_more_discordant_questions_to_see():
    found = [statistics.minimum_detectable(n, lambda _: 0.08, 0.08) for n in (100, 200, 400, 800)]
    assert all(more > less for more, less in pairwise(found))
