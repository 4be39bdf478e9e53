"""Student's t distribution, against scipy's and values in closed form."""

import math

import pytest
from scipy.special import stdtr, stdtrit

from benchmarking.core.student_t import cumulative, quantile

DEGREES = (1, 1.5, 2, 2.7, 3, 5, 7.3, 10, 30, 99, 100, 101, 1000, 12345.6)


@pytest.mark.parametrize("degrees", DEGREES)
@pytest.mark.parametrize("t", [0, 0.001, 0.5, 1.2, 1.73, 2, 5, 30])
def test_tail_probabilities_match_scipy(degrees, t):
    assert cumulative(-t, degrees) == pytest.approx(stdtr(degrees, -t), rel=1e-10)
    assert cumulative(t, degrees) == pytest.approx(stdtr(degrees, t), rel=1e-12)


@pytest.mark.parametrize("degrees", DEGREES)
@pytest.mark.parametrize("p", [1e-9, 0.002, 0.025, 0.2, 0.5, 0.51, 0.8, 0.975, 0.998, 1 - 1e-9])
def test_quantiles_match_scipy(degrees, p):
    assert quantile(p, degrees) == pytest.approx(stdtrit(degrees, p), rel=1e-9, abs=1e-12)


def test_one_and_two_degrees_of_freedom_in_closed_form():
    assert quantile(0.975, 1) == pytest.approx(math.tan(0.475 * math.pi), rel=1e-12)
    assert cumulative(-2.0, 1) == pytest.approx(0.5 - math.atan(2) / math.pi, rel=1e-12)
    assert cumulative(-2.0, 2) == pytest.approx(0.5 - 1 / math.sqrt(6), rel=1e-12)


def test_many_degrees_of_freedom_approach_the_normal_distribution():
    assert quantile(0.975, 1e9) == pytest.approx(1.959963984540054, rel=1e-8)


@pytest.mark.parametrize("p", [0.0, 1.0, -0.1, math.nan])
def test_probabilities_zero_and_one_have_no_quantile(p):
    with pytest.raises(ValueError, match="between 0 and 1"):
        quantile(p, 3)


def test_infinity_has_cumulative_probability_one():
    assert (cumulative(math.inf, 3), cumulative(-math.inf, 3)) == (1.0, 0.0)
