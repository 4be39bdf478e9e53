"""The prediction interval: worked by hand, its degenerate cases, and the error rates it is chosen for."""

from __future__ import annotations

import math

import pytest

from benchmarking.core.metrics import JUDGED
from db.analysis.gate.gate import Parameters, judge, prediction_interval
from tests.helpers import noise
from tests.helpers.gate_replay import POWER, STATED, UNSTATED, contaminated, replay

LATENCY = JUDGED["latency_median_ms"]
THROUGHPUT = JUDGED["throughput_tokens_per_sec"]
TWO_LEVELS = [10.0 * math.exp(0.01 * sign) for sign in (-1, 1)] * 5
"""Ten runs whose logarithms are ln 10 -+ 0.01: the mean is ln 10, the standard deviation 0.01 * sqrt(10 / 9)."""
T_99_DF9 = 2.8214379
REACH = T_99_DF9 * 1.06 * 0.01 * math.sqrt(10 / 9) * math.sqrt(1.1)
"""0.033064: t(0.99, 9) * sd * sqrt(1 + 1/10), and 6 % for what winsorising takes."""


def test_the_interval_equals_a_hand_calculation():
    centre, low, high = prediction_interval([TWO_LEVELS])

    assert centre == pytest.approx(10.0)
    assert low == pytest.approx(10.0 * math.exp(-REACH), rel=1e-6)
    assert high == pytest.approx(10.0 * math.exp(REACH), rel=1e-6)
    assert high == pytest.approx(10.3362, abs=1e-4)


@pytest.mark.parametrize(("value", "outcome"), [(10.33, "fine"), (10.34, "worse"), (9.68, "fine"), (9.66, "better")])
def test_a_value_is_worse_just_beyond_the_interval_and_not_inside(value, outcome):
    judgement = judge(TWO_LEVELS, value, LATENCY)

    assert judgement.outcome == outcome
    assert judgement.relative_change == pytest.approx(value / 10 - 1)
    assert judgement.n == 10


def test_higher_is_better_for_a_throughput():
    assert judge(TWO_LEVELS, 10.5, THROUGHPUT).outcome == "better"
    assert judge(TWO_LEVELS, 9.5, THROUGHPUT).outcome == "worse"


@pytest.mark.parametrize(("value", "outcome"), [(10.19, "fine"), (10.21, "worse"), (10.0, "fine"), (9.79, "better")])
def test_without_variation_only_the_two_percent_limit_applies(value, outcome):
    assert judge([10.0] * 10, value, LATENCY).outcome == outcome


def test_nine_runs_are_not_enough():
    judgement = judge(TWO_LEVELS[:9], 20.0, LATENCY)

    assert judgement.outcome == "not_enough_data"
    assert judgement.why == "9 earlier runs, at least 10 required"
    assert judgement.relative_change is None
    assert judge([], 20.0, LATENCY).why == "0 earlier runs, at least 10 required"
    assert judge([1.0], 20.0, LATENCY).why == "1 earlier run, at least 10 required"


def test_one_disturbed_run_of_ten_does_not_hide_a_regression():
    disturbed = [*TWO_LEVELS[:9], 13.0]

    judgement = judge(disturbed, 10.6, LATENCY)

    assert (judgement.outcome, judgement.high < 10.6) == ("worse", True)


def test_frequent_outliers_count_as_variation():
    often = [value * (1.3 if place % 3 == 0 else 1) for place, value in enumerate(TWO_LEVELS * 2)]

    assert judge(often, 12.0, LATENCY).outcome == "fine"


def test_after_a_change_the_runs_before_it_give_the_variation():
    new = [20.0, 20.2]

    judgement = judge(new, 21.5, LATENCY, earlier=[TWO_LEVELS])
    assert (judgement.outcome, judgement.n, judgement.borrowed) == ("worse", 2, 10)
    assert judgement.centre == pytest.approx(math.sqrt(20.0 * 20.2))
    # the sums of squares of both segments, each about its own mean, over 9 + 1 degrees of freedom; t(.99, 10) = 2.7638
    squares = 10 * (1.06 * 0.01) ** 2 + math.log(20.2 / 20.0) ** 2 / 2
    assert judgement.high == pytest.approx(judgement.centre * math.exp(2.763769 * math.sqrt(squares / 10 * 1.5)))
    assert judge(new, 20.3, LATENCY, earlier=[TWO_LEVELS]).outcome == "fine"


def test_one_run_after_a_change_is_not_enough():
    assert judge([20.0], 25.0, LATENCY, earlier=[TWO_LEVELS]).why == "1 earlier run, at least 10 required"
    assert judge([20.0, 20.0], 25.0, LATENCY, earlier=[TWO_LEVELS[:7]]).outcome == "not_enough_data"


def test_a_segment_of_ten_runs_does_not_borrow():
    assert judge(TWO_LEVELS, 10.2, LATENCY, earlier=[[1.0, 30.0] * 10]) == judge(TWO_LEVELS, 10.2, LATENCY)


@pytest.mark.parametrize(("before", "value"), [([0.0] + [1.0] * 9, 1.0), ([1.0] * 10, 0.0)])
def test_a_value_of_zero_has_no_verdict(before, value):
    judgement = judge(before, value, LATENCY)

    assert judgement.outcome == "not_enough_data"
    assert "logarithm" in judgement.why


def test_only_the_last_forty_runs_count():
    long_ago = [20.0] * 30

    assert judge([*long_ago, *TWO_LEVELS * 4], 10.5, LATENCY) == judge(TWO_LEVELS * 4, 10.5, LATENCY)
    assert judge([*long_ago, *TWO_LEVELS * 3], 10.5, LATENCY).outcome == "fine"


def test_the_parameters_apply():
    wide = Parameters(confidence=0.999, min_points=2, max_points=4, min_change=0.5)

    assert judge(TWO_LEVELS, 14.9, LATENCY, wide).outcome == "fine"
    assert judge(TWO_LEVELS, 15.1, LATENCY, wide).outcome == "worse"
    assert judge(TWO_LEVELS, 15.1, LATENCY, wide).n == 4


REPLAYS = 1000


def errors(share: float) -> float:
    """Three standard errors of a share seen in so many replays."""
    return 3 * math.sqrt(share * (1 - share) / REPLAYS)


@pytest.mark.parametrize("name", STATED)
def test_false_alarms_stay_within_the_stated_share(name):
    kind, stated = STATED[name]

    seen = replay(kind, replays=REPLAYS, seed=1)

    assert 0 < seen.flagged <= stated.flagged + errors(stated.flagged)
    assert seen.confirmed <= stated.confirmed + errors(stated.confirmed)


@pytest.mark.parametrize(("name", "most"), [("heavy tail (t3)", 0.026), ("5 % outliers, all slower", 0.055)])
def test_false_alarms_of_one_sided_outliers_are_known_and_confirming_removes_most(name, most):
    seen = replay(UNSTATED[name], replays=REPLAYS, seed=1)

    assert seen.flagged <= most + errors(most)
    assert seen.confirmed <= 0.003 + errors(0.003)


@pytest.mark.parametrize("step", POWER)
def test_true_steps_are_found_as_often_as_stated(step):
    seen = replay(noise.normal, replays=REPLAYS, seed=1, step=step)

    assert seen.flagged == pytest.approx(POWER[step].flagged, abs=errors(POWER[step].flagged) + 0.005)
    assert seen.confirmed == pytest.approx(POWER[step].confirmed, abs=errors(POWER[step].confirmed) + 0.005)


def test_a_regression_is_found_among_disturbed_runs():
    seen = replay(contaminated, replays=REPLAYS, seed=1, step=0.10)

    assert seen.confirmed > 0.9
    assert replay(contaminated, replays=REPLAYS, seed=1).confirmed <= 0.01 + errors(0.01)
