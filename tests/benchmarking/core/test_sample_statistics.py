import dataclasses
import math

import numpy as np
import pytest

from benchmarking.core import sample_statistics
from benchmarking.core.sample_statistics import (
    autocorrelation_time,
    between_launches_interval,
    between_repetitions_interval,
    binomial_tail,
    clock_step,
    decimals,
    describe,
    drift,
    median_error,
    median_interval,
    ordinary,
    relative_half_width,
    tail_quantile,
)


def test_describe_returns_textbook_statistics():
    each = describe([4.0, 1.0, 3.0, 2.0, 5.0])
    assert (each.n, each.mean, each.min, each.max, each.median, each.first) == (5, 3.0, 1.0, 5.0, 3.0, 4.0)
    assert each.sd == pytest.approx(math.sqrt(2.5))
    assert (each.p25, each.p75) == (2.0, 4.0)
    assert each.mad == 1.0  # of 1, 2, 0, 1, 2
    assert (each.p90, each.p95, each.p99, each.ci_low, each.ci_high) == (None, None, None, None, None)


def test_a_single_sample_has_no_deviation_or_interval():
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


@pytest.mark.parametrize(("q", "enough"), [(0.90, 29), (0.95, 59), (0.99, 299)])
def test_tail_quantiles_need_enough_samples(q, enough):
    assert tail_quantile(range(enough - 1), q) is None
    assert tail_quantile(range(enough), q) == pytest.approx(q * (enough - 1))  # linear between the ranks


def test_tail_sample_sizes_exceed_the_quantile_with_95_percent_probability():
    assert math.ceil(math.log(0.05) / math.log(0.90)) == 29
    assert math.ceil(math.log(0.05) / math.log(0.95)) == 59
    assert math.ceil(math.log(0.05) / math.log(0.99)) == 299


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [
        ([1, 2, 3, 4, 5, 6, 7, 8, 9, 20, 30], -11.5, 23.5),  # quartiles 3.5 and 8.5, three of their distances away
        ([100.0, 100.1, 100.2, 100.3, 100.4], 95.19, 105.21),  # 5 % of the median is more
        ([5, 5, 5, 5, 5, 5, 6, 6], 3.5, 6.5),  # a step and a half of the clock is more
    ],
)
def test_ordinary_values_are_near_the_quartiles_or_not_far_from_the_median(values, low, high):
    assert ordinary(values) == pytest.approx((low, high))


def test_the_decimals_of_values_are_those_of_the_longest():
    assert [decimals(values) for values in ([5.0, 12.0], [5.1, 5.0], [1.205], [1 / 3])] == [0, 1, 3, None]
    assert decimals([100.2 - 95.1]) == 1  # 5.1000000000000085


def test_autocorrelation_time_of_four_rising_values_by_hand():
    # ranks -1.5 -0.5 0.5 1.5 about their mean: covariances 5, 1.25, -1.5, -2.25; the first pair gives 1 + 0.25
    assert autocorrelation_time([10, 20, 30, 1000]) == pytest.approx(2 * 1.25 - 1)


def test_autocorrelation_time_is_at_least_one():
    assert autocorrelation_time([1, 2] * 50) == 1.0
    assert autocorrelation_time([3, 1, 2]) == 1.0


def test_autocorrelation_time_gives_ties_the_same_rank():
    # ranks 1.5 1.5 3.5 3.5: -1 -1 1 1 about the mean, covariances 4, 1, -2, -1
    assert autocorrelation_time([5, 5, 8, 8]) == pytest.approx(2 * (1 + 0.25) - 1)


def test_autocorrelation_time_of_an_autoregressive_series_matches_theory():
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
def test_median_interval_uses_the_ranks_of_the_formula(n, tau, low, high):
    values = list(range(1, n + 1))[::-1]
    assert median_interval(values, tau) == (low, high)


@pytest.mark.parametrize("series", ["normal", "ties", "constant", "correlated", "skewed"])
@pytest.mark.parametrize("n", [1, 2, 5, 60, 301])
def test_statistics_are_bit_identical_to_numpy(series, n):
    values = of_kind(series, n)
    each = describe(values)
    assert (each.p25, each.median, each.p75) == tuple(np.quantile(values, (0.25, 0.5, 0.75)))
    assert each.mad == np.median(np.abs(values - np.median(values)))
    assert each.p99 == (np.quantile(values, 0.99) if n >= 299 else None)


@pytest.mark.parametrize("series", ["normal", "ties", "constant", "correlated", "skewed"])
@pytest.mark.parametrize("n", [2001, 2048, 5000])
def test_statistics_of_long_series_do_not_depend_on_blocks(monkeypatch, series, n):
    values = of_kind(series, n)
    expected = describe(values)
    monkeypatch.setattr(sample_statistics, "BLOCK", 1000)
    monkeypatch.setattr(sample_statistics, "MAX_LAG", 300)
    each = describe(values)
    assert each.tau == pytest.approx(expected.tau, rel=1e-9)
    assert dataclasses.replace(each, tau=expected.tau) == expected
    assert autocorrelation_time(values) == each.tau


def of_kind(series, n):
    random = np.random.default_rng(n)
    noise = random.normal(size=n)
    match series:
        case "normal":
            return 10 + noise
        case "ties":
            return random.integers(1, 5, n).astype(float)
        case "constant":
            return np.full(n, 3.3)
        case "correlated":
            return 10 + np.convolve(noise, np.ones(20), "same")
    return np.exp(2 * noise)


def test_median_interval_needs_six_samples():
    assert median_interval([1, 2, 3, 4, 5], 1.0) is None


def test_half_width_matches_the_median_interval():
    values = [100.0 + (7 * i % 31) - 15 for i in range(31)]  # 85..115, no correlation: ranks 10 and 22
    assert relative_half_width(values) == pytest.approx((106 - 94) / 2 / 100)
    slow = [*values[:-1], 1e9]  # one call does not widen it
    assert relative_half_width(slow) == pytest.approx(0.06, abs=0.011)


def test_half_width_of_few_constant_and_zero_values():
    assert relative_half_width([1.0, 2.0, 1.0, 2.0, 1.0]) is None
    assert relative_half_width([1.0, 2.0] * 3) == pytest.approx(0.5 / 1.5)
    assert relative_half_width([3.0] * 20) == 0.0
    assert relative_half_width([0.0] * 20) is None


def test_median_error_matches_a_normal_sample():
    rng = np.random.default_rng(2)
    medians = [describe(100 + 5 * rng.standard_normal(50)) for _ in range(300)]
    actual = np.std([each.median for each in medians]) / 100
    assert np.median([median_error(each) for each in medians]) == pytest.approx(actual, rel=0.25)
    assert median_error(describe([0.0, 0.0, 0.0])) == 0.0
    assert median_error(describe([5.0])) == 0.0


def test_interval_between_launches_by_hand():
    # logs 0, 1, 2: mean 1, sd 1, t with 2 degrees of freedom 4.302653
    low, high = between_launches_interval([1.0, math.e, math.e**2])
    half = 4.302653 / math.sqrt(3)
    assert (low, high) == (pytest.approx(math.exp(1 - half), rel=1e-6), pytest.approx(math.exp(1 + half), rel=1e-6))


def test_equal_launches_have_an_interval_without_width():
    assert between_launches_interval([4.0, 4.0, 4.0]) == (pytest.approx(4.0), pytest.approx(4.0))


def test_the_interval_of_a_percentile_of_equal_values_covers_that_repetitions_differ():
    alike, other = [1.0] * 50, [9.0] * 50
    assert between_repetitions_interval([alike, alike, alike], 0.9) == (1.0, 1.0)
    assert between_repetitions_interval([alike, alike, other], 0.9) is None


def test_drift_compares_the_medians_and_the_ranks_of_the_thirds():
    found = drift([10, 10, 99, 5, 5, 5, 11, 12, 11])
    assert found.relative_change == pytest.approx(0.1)
    # ranks of the last third 3.5, 5, 3.5: 12 is 1.5 above 10.5; the error is 3 sqrt(7 / 12)
    assert found.z == pytest.approx(1.5 / (3 * math.sqrt(7 / 12)))
    assert drift([1.0] * 8) is None
    assert drift([0.0] * 9) is None


def test_clock_step_is_the_smallest_step_between_repeated_values():
    assert clock_step([1.3, 1.4, 1.3, 1.5, 1.4, 1.4]) == pytest.approx(0.1)
    assert clock_step([1.31, 1.42, 1.33, 1.54, 1.45, 1.46]) is None
    assert clock_step([1.3, 1.4, 1.3, 1.4, 1.4]) is None
    assert clock_step([1.3] * 10) is None


@pytest.mark.parametrize("since_s", [0.0, 512.7, 1.7e9])
def test_a_clock_of_float_seconds_ticks_up_to_its_rounding(since_s):
    counts = np.random.default_rng(1).integers(20, 23, 100)
    begun = since_s + np.cumsum(counts) * 0.001
    assert clock_step((begun + counts * 0.001 - begun) * 1000) == pytest.approx(1.0, rel=1e-4)
    fine = np.random.default_rng(2).normal(0.05, 0.0004, 100)
    assert clock_step([*fine, 0.06]) is None


def test_the_tail_of_a_binomial_distribution_by_hand():
    assert binomial_tail(2, 3, 0.5) == pytest.approx(4 / 8)
    assert binomial_tail(3, 3, 0.1) == pytest.approx(0.001)
    assert binomial_tail(0, 3, 0.1) == 1.0


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
