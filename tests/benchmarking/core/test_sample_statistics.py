import math

import numpy as np
import pytest

from benchmarking.core.sample_statistics import (
    autocorrelation_time,
    between_launches_interval,
    count_outliers,
    describe,
    drift,
    median_interval,
    relative_half_width,
    tail_quantile,
)


def test_describe_gives_the_textbook_statistics():
    each = describe([4.0, 1.0, 3.0, 2.0, 5.0])
    assert (each.n, each.mean, each.min, each.max, each.median, each.first) == (5, 3.0, 1.0, 5.0, 3.0, 4.0)
    assert each.sd == pytest.approx(math.sqrt(2.5))
    assert (each.p25, each.p75) == (2.0, 4.0)
    assert each.mad == 1.0  # of 1, 2, 0, 1, 2
    assert (each.p90, each.p95, each.p99, each.ci_low, each.ci_high) == (None, None, None, None, None)


def test_one_sample_has_no_deviation_and_no_interval():
    each = describe([7.0])
    assert (each.n, each.mean, each.median, each.p25, each.p75, each.mad, each.tau) == (1, 7.0, 7.0, 7.0, 7.0, 0.0, 1.0)
    assert each.sd is None
    assert each.ci_low is None


def test_no_samples_cannot_be_described():
    with pytest.raises(ValueError, match="no samples"):
        describe([])


def test_a_constant_series_has_no_spread_and_is_not_correlated():
    each = describe([2.0] * 40)
    assert (each.sd, each.mad, each.tau, each.ci_low, each.ci_high) == (0.0, 0.0, 1.0, 2.0, 2.0)
    assert each.outliers.far == 0


@pytest.mark.parametrize(("q", "enough"), [(0.90, 29), (0.95, 59), (0.99, 299)])
def test_tail_quantiles_need_enough_samples(q, enough):
    assert tail_quantile(range(enough - 1), q) is None
    assert tail_quantile(range(enough), q) == pytest.approx(q * (enough - 1))  # linear between the ranks


def test_the_smallest_n_of_a_tail_is_that_which_passes_it_with_95_percent():
    assert math.ceil(math.log(0.05) / math.log(0.90)) == 29
    assert math.ceil(math.log(0.05) / math.log(0.95)) == 59
    assert math.ceil(math.log(0.05) / math.log(0.99)) == 299


def test_outliers_are_counted_by_tukeys_fences_on_each_side():
    # quartiles 3.5 and 8.5: mild beyond -4 and 16, severe beyond -11.5 and 23.5
    found = count_outliers([1, 2, 3, 4, 5, 6, 7, 8, 9, 20, 30])
    assert (found.mild_low, found.mild_high, found.severe_low, found.severe_high) == (0, 1, 0, 1)
    mirrored = count_outliers([-1, -2, -3, -4, -5, -6, -7, -8, -9, -20, -30])
    assert (mirrored.mild_low, mirrored.mild_high, mirrored.severe_low, mirrored.severe_high) == (1, 0, 1, 0)


def test_far_values_are_counted_in_mads():
    assert count_outliers([1, 2, 3, 100]).far == 1  # median 2.5, MAD 1.0, distance 97.5
    assert count_outliers([1, 2, 3, 17.2]).far == 0  # MAD 1.0, distance 14.7
    assert count_outliers([1, 1, 1, 1, 9]).far == 0  # no MAD to count in


def test_autocorrelation_time_of_four_rising_values_by_hand():
    # ranks -1.5 -0.5 0.5 1.5 about their mean: covariances 5, 1.25, -1.5, -2.25; the first pair gives 1 + 0.25
    assert autocorrelation_time([10, 20, 30, 1000]) == pytest.approx(2 * 1.25 - 1)


def test_autocorrelation_time_is_at_least_one():
    assert autocorrelation_time([1, 2] * 50) == 1.0
    assert autocorrelation_time([3, 1, 2]) == 1.0


def test_autocorrelation_time_ties_share_their_rank():
    # ranks 1.5 1.5 3.5 3.5: -1 -1 1 1 about the mean, covariances 4, 1, -2, -1
    assert autocorrelation_time([5, 5, 8, 8]) == pytest.approx(2 * (1 + 0.25) - 1)


def test_autocorrelation_time_of_an_autoregressive_series_is_that_of_theory():
    rng = np.random.default_rng(1)
    taus = [autocorrelation_time(_autoregressive(rng, 2000, 0.5)) for _ in range(20)]
    assert np.mean(taus) == pytest.approx(3.0, rel=0.15)  # (1 + rho) / (1 - rho), slightly less for ranks


@pytest.mark.parametrize(
    ("n", "tau", "low", "high"),
    [
        (30, 1.0, 9, 22),  # d = 5.37: floor(9.63), ceil(20.37) + 1
        (30, 4.0, 4, 27),  # d = 10.74: floor(4.26), ceil(25.74) + 1
        (6, 1.0, 1, 6),  # d = 2.40: floor(0.60) and ceil(5.40) + 1 are kept within 1..6
    ],
)
def test_median_interval_takes_the_ranks_of_the_formula(n, tau, low, high):
    values = list(range(1, n + 1))[::-1]
    assert median_interval(values, tau) == (low, high)


def test_median_interval_needs_six_samples():
    assert median_interval([1, 2, 3, 4, 5], 1.0) is None


def test_half_width_by_batch_means_by_hand():
    # batches of two equal values 1..10: mean 5.5, sd 3.02765, t 2.26216: 2.26216 * 3.02765 / sqrt(10) / 5.5
    values = [float(i) for i in range(1, 11) for _ in range(2)]
    assert relative_half_width(values) == pytest.approx(0.393791, abs=1e-6)


def test_half_width_drops_the_earliest_values_that_fill_no_batch():
    values = [float(i) for i in range(1, 11) for _ in range(2)]
    assert relative_half_width([1e9, *values]) == relative_half_width(values)


def test_half_width_of_few_constant_and_zero_values():
    assert relative_half_width([1.0, 2.0] * 9 + [1.0]) is None
    assert relative_half_width([3.0] * 20) == 0.0
    assert relative_half_width([0.0] * 20) is None


def test_interval_between_launches_by_hand():
    # logs 0, 1, 2: mean 1, sd 1, t with 2 degrees of freedom 4.302653
    low, high = between_launches_interval([1.0, math.e, math.e**2])
    half = 4.302653 / math.sqrt(3)
    assert (low, high) == (pytest.approx(math.exp(1 - half), rel=1e-6), pytest.approx(math.exp(1 + half), rel=1e-6))


def test_interval_between_equal_launches_has_no_width():
    assert between_launches_interval([4.0, 4.0, 4.0]) == (pytest.approx(4.0), pytest.approx(4.0))


def test_drift_compares_the_medians_of_the_thirds():
    assert drift([10, 10, 99, 5, 5, 5, 11, 12, 11]) == pytest.approx(0.1)
    assert drift([1.0] * 8) is None
    assert drift([0.0] * 9) is None


@pytest.mark.parametrize(("rho", "least"), [(0.0, 0.93), (0.5, 0.90), (0.8, 0.80)])
def test_median_interval_covers_as_specified_on_correlated_series(rho, least):
    rng = np.random.default_rng(7)
    series = [_autoregressive(rng, 120, rho) for _ in range(300)]
    with_tau = np.mean([_covers_zero(median_interval(x, autocorrelation_time(x))) for x in series])
    without = np.mean([_covers_zero(median_interval(x, 1.0)) for x in series])
    assert least <= with_tau <= 1.0
    if rho >= 0.5:
        assert without < with_tau - 0.1  # so the correlation has to be counted


def _autoregressive(rng, n, rho):
    """A stationary AR(1) series with median 0."""
    noise = rng.standard_normal(n)
    values = [noise[0] / math.sqrt(1 - rho**2)]
    for step in noise[1:]:
        values.append(rho * values[-1] + step)
    return values


def _covers_zero(interval):
    low, high = interval
    return low <= 0 <= high
