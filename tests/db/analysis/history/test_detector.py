"""The change point detector: worked examples, degenerate histories, and the stated error rates."""

import math
from datetime import datetime, timedelta
from itertools import pairwise

import numpy as np
import pytest

from db.analysis.history.detector import Change, detect, find_trend, superiority, winsorised
from tests.helpers import noise

SEED = 20260101
MORNING = datetime(2026, 1, 5, 9)
QUIET = [10.0, 10.1, 9.9, 10.0, 10.1, 9.9, 10.05, 9.95, 10.0, 10.1, 9.9, 10.0]

FALSE_ALARMS = {"normal": 0.003, "heavy tail (t3)": 0.027, "5 % outliers": 0.017, "bimodal": 0.090, "AR(.5)": 0.19}
"""Change points that may be found in a history of 100 runs without any, on average."""
HISTORIES = 300
POWER = {(0.10, 2): 0.96, (0.05, 3): 0.50, (0.05, 5): 0.86, (0.05, 10): 0.95}
"""(step, runs after it) -> share of histories in which it is found, 60 runs before it."""
STEPPED = 150


def places(values):
    return [change.index for change in detect(values)]


def test_a_step_is_found_at_its_first_run_with_the_medians_around_it():
    (change,) = detect([*QUIET, 12.0, 12.2, 11.8])
    assert (change.index, change.value_before, change.value_after) == (12, 10.0, 12.0)
    assert change.relative_change == pytest.approx(0.2)
    assert change.state == "confirmed"


def test_the_p_value_is_students():
    # Logarithms 0 1 0 1 before and 8 9 8 9 after, which nothing clips: means 8 apart, squares 1 on each side, 6 degrees
    # of freedom, so t = 8 / sqrt(2 / 6 * (1 / 4 + 1 / 4)) = 19.6 and p = 1.14e-6 on two sides.
    (change,) = detect(np.exp([0.0, 1, 0, 1, 8, 9, 8, 9]).tolist())
    assert change.index == 4
    assert change.p_value == pytest.approx(1.1440e-6, rel=1e-3)


def test_a_step_is_suspected_until_the_next_run():
    steps = [12.0, 12.2, 11.8]
    states = [[change.state for change in detect([*QUIET, *steps[:count]])] for count in range(4)]
    assert states == [[], [], ["suspected"], ["confirmed"]]


@pytest.mark.parametrize(
    "values",
    [
        pytest.param([], id="none"),
        pytest.param([10.0], id="one"),
        pytest.param([10.0, 12.0, 14.0], id="too few for two on either side"),
        pytest.param([10.0] * 50, id="constant"),
        pytest.param([*QUIET, 20.0], id="a single run after"),
        pytest.param([20.0, *QUIET], id="a single run before"),
        pytest.param([*QUIET, 20.0, *QUIET], id="an outlier"),
        pytest.param([*QUIET, *(1.015 * value for value in QUIET)], id="less than 2 %"),
    ],
)
def test_these_histories_have_no_change(values):
    assert detect(values) == ()


def test_a_constant_history_shows_a_step_after_two_runs():
    assert detect([10.0] * 10 + [12.0, 12.0]) == (
        Change(index=10, last_before=9, value_before=10.0, value_after=12.0, p_value=0.0, state="suspected"),
    )


@pytest.mark.parametrize("cv", [0.01, 0.001, 1e-6])
def test_two_runs_are_enough_for_a_step_far_above_the_noise(cv):
    values = noise.normal(22, np.random.default_rng(1), cv)
    values[20:] *= 1.1
    assert places(values) == [20]


@pytest.mark.parametrize(("runs", "step"), [((20, 20, 20), 1.06), ((12, 12, 12), 1.2), ((30, 5, 30), 1.1)])
def test_a_regression_and_its_repair_are_two_changes(runs, step):
    before, during, after = runs
    values = noise.normal(before + during + after, np.random.default_rng(2), 0.01)
    values[before : before + during] *= step
    changes = detect(values)
    assert [change.index for change in changes] == [before, before + during]
    assert [change.relative_change for change in changes] == pytest.approx([step - 1, 1 / step - 1], abs=0.01)


def test_an_old_change_stays_in_place_as_runs_are_added():
    values = noise.normal(300, np.random.default_rng(3), 0.01)
    values[100:] *= 1.05
    assert {tuple(places(values[:count])) for count in range(110, 301, 10)} == {(100,)}


def test_changes_do_not_depend_on_the_unit():
    values = noise.normal(60, np.random.default_rng(5), 0.02)
    values[40:] *= 1.2
    assert places(values) == places(values * 1e-9) == places(values * 1e9) == [40]


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf")])
def test_a_value_without_a_logarithm_is_refused(bad):
    with pytest.raises(ValueError, match="finite and not negative"):
        detect([*QUIET, bad])


def test_a_rate_that_falls_to_nothing_and_comes_back_has_two_changes():
    fell, rose = detect([*QUIET, *[0.0] * 5, *QUIET])
    assert (fell.value_before, fell.value_after, fell.relative_change) == (pytest.approx(10.0), 0.0, -1.0)
    assert (rose.value_before, rose.relative_change) == (0.0, math.inf)
    assert detect([0.0] * 12) == detect([*QUIET, 0.0, *QUIET]) == ()
    assert find_trend([0.0] * 30) is None


def test_an_outlier_is_clipped_and_the_first_runs_of_a_step_are_not():
    rng = np.random.default_rng(6)
    logs = rng.normal(0, 0.01, 40)
    logs[20] = 0.5
    logs[38:] += 0.1
    clipped = winsorised(logs)
    assert clipped[20] < 0.06
    assert clipped[38:] == pytest.approx(logs[38:], abs=0.03)
    assert np.array_equal(winsorised(np.zeros(9)), np.zeros(9))


@pytest.mark.parametrize("spread", [0.0, 0.003, 0.01])
@pytest.mark.parametrize("odd", [[24.0], [4.0], [24.0, 4.0], [24.0, 9.6]])
def test_an_odd_run_at_the_end_does_not_hide_an_older_change(spread, odd):
    rng = np.random.default_rng(8)
    levels = np.repeat([8.0, 9.6], 10) * np.exp(rng.normal(0, spread, 20))
    (change,) = detect([*levels, *odd])
    assert (change.index, change.state) == (10, "confirmed")


def test_superiority_counts_pairs():
    # Of the 6 pairs of (1, 2, 3) and (2, 4) the second is higher in 4, lower in 1, equal in 1: |4 - 1| / 6 = 0.5.
    assert superiority(np.array([1.0, 2, 3]), np.array([2.0, 4])) == pytest.approx(0.75)
    assert superiority(np.array([5.0, 5]), np.array([5.0])) == 0.5
    assert superiority(np.array([3.0, 4]), np.array([1.0, 2])) == 1.0


@pytest.mark.parametrize("name", list(FALSE_ALARMS))
def test_histories_without_a_change_give_no_more_false_alarms_than_stated(name):
    rng = np.random.default_rng([SEED, list(FALSE_ALARMS).index(name)])
    found = sum(len(detect(noise.NOISES[name](100, rng, noise.CV))) for _ in range(HISTORIES))
    stated = FALSE_ALARMS[name] * HISTORIES
    assert found <= stated + 3 * stated**0.5


@pytest.mark.parametrize(("share", "gap"), [(0.5, 0.2), (0.25, 0.1), (0.5, 0.04)])
def test_a_level_that_comes_and_goes_by_chance_is_hardly_ever_a_change(share, gap):
    # The documentation states at most 0.01 in 80 runs; with each mode clipped to that of its neighbours it was 0.3.
    rng = np.random.default_rng([SEED, int(100 * share), int(100 * gap)])
    histories = np.exp(rng.normal(0, 0.003, (60, 80)) + np.log1p(gap) * (rng.random((60, 80)) < share))
    assert sum(bool(places(values)) for values in histories) <= 4


@pytest.mark.parametrize(("step", "after"), list(POWER))
def test_a_step_is_found_at_least_as_often_as_stated(step, after):
    rng = np.random.default_rng([SEED, int(100 * step), after])
    seen = 0
    for _ in range(STEPPED):
        values = noise.normal(60 + after, rng, noise.CV)
        values[60:] *= 1 + step
        seen += any(abs(place - 60) <= 5 for place in places(values))
    stated = POWER[(step, after)]
    assert seen >= STEPPED * stated - 3 * (STEPPED * stated * (1 - stated)) ** 0.5


def test_every_kind_of_noise_is_around_one_without_a_change():
    assert set(noise.NOISES) == set(FALSE_ALARMS)
    for name, make in noise.NOISES.items():
        values = make(20_000, np.random.default_rng(7), 0.02)
        assert np.median(values) == pytest.approx(1.0, abs=0.02), name
        assert np.median(values[:10_000]) == pytest.approx(np.median(values[10_000:]), rel=0.002), name


def test_each_noise_has_its_name_s_properties():
    def logs(make):
        return np.log(make(50_000, np.random.default_rng(8), 0.02))

    for make in (noise.normal, noise.bimodal, noise.autocorrelated):
        assert logs(make).std() == pytest.approx(0.02, rel=0.02)
    assert np.mean(logs(noise.outliers) > 0.08) == pytest.approx(0.05 * 0.88, rel=0.1)  # rises of more than about 8 %
    correlated = logs(noise.autocorrelated)
    assert np.corrcoef(correlated[:-1], correlated[1:])[0, 1] == pytest.approx(0.5, abs=0.02)
    tails = logs(noise.heavy_tail)
    assert np.mean(np.abs(tails) > 0.08) > 20 * np.mean(np.abs(logs(noise.normal)) > 0.08)


def leak(rng, sd=0.01, runs=80):
    """0.2 % more each run."""
    return 0.002 * np.arange(runs) + rng.normal(0, sd, runs)


@pytest.mark.parametrize("begins", [0, 40])
def test_a_slow_leak_is_no_change_of_any_run(begins):
    rng = np.random.default_rng(begins)
    histories = [np.maximum(0, np.arange(80) - begins) * 0.002 + rng.normal(0, 0.01, 80) for _ in range(10)]
    assert sum(len(detect(np.exp(logs).tolist())) for logs in histories) <= 1


def test_a_step_in_a_slow_leak_is_found_alone():
    rng = np.random.default_rng(3)
    found = [places(np.exp(leak(rng) + 0.2 * (np.arange(80) >= 40)).tolist()) for _ in range(10)]
    assert sum(any(abs(place - 40) <= 5 for place in each) for each in found) >= 9
    assert sum(map(len, found)) <= 11


def test_steps_of_one_direction_stay_steps():
    rng = np.random.default_rng(4)
    stairs = 0.05 * (np.arange(80) // 16)
    found = [places(np.exp(stairs + rng.normal(0, 0.01, 80)).tolist()) for _ in range(10)]
    assert all(each == [16, 32, 48, 64] or len(each) >= 3 for each in found)
    assert sum(map(len, found)) >= 36


def test_a_correlated_walk_has_hardly_any_confirmed_change():
    """AR(.9) at 2 %: at most 0.1 confirmed regressions per history of 80 runs; without its correlation 0.8."""
    rng = np.random.default_rng(5)
    confirmed = 0
    for _ in range(40):
        shocks = rng.normal(0, 0.02 * (1 - 0.81) ** 0.5, 280)
        walk = [0.0]
        for shock in shocks:
            walk.append(0.9 * walk[-1] + shock)
        found = detect(np.exp(walk[-80:]).tolist())
        confirmed += sum(one.state == "confirmed" and one.relative_change > 0 for one in found)
    assert confirmed <= 6


def test_a_steady_rise_is_a_trend_of_the_longest_window():
    found = find_trend([1.003**run for run in range(80)])
    assert found is not None
    assert (found.runs, found.p_value) == (60, 0.0)
    assert found.per_run == pytest.approx(0.003)
    assert found.change == pytest.approx(1.003**59 - 1)


def test_a_rise_in_noise_is_a_trend_and_noise_alone_or_a_step_is_none():
    noise = np.random.default_rng(7).normal(0, 0.01, 60)
    runs = np.arange(60)
    rising = find_trend(np.exp(0.003 * runs + noise).tolist())
    assert rising is not None
    assert rising.per_run == pytest.approx(0.003, abs=0.0005)
    assert find_trend(np.exp(noise).tolist()) is None
    assert find_trend(np.exp(0.1 * (runs >= 30) + noise).tolist()) is None
    assert find_trend([1.003**run for run in range(19)]) is None, "too few runs"


@pytest.mark.parametrize(("correlation", "most"), [(0.9, 5), (1.0, 14)])
def test_what_wanders_is_rarely_a_trend(correlation, most):
    """Twice as many are, if the correlation is taken as the residuals have it."""
    shocks = np.random.default_rng(8).normal(0, 0.01, (400, 140))
    walks = np.zeros_like(shocks)
    for run in range(1, 140):
        walks[:, run] = correlation * walks[:, run - 1] + shocks[:, run]
    assert sum(find_trend(np.exp(one[-80:]).tolist()) is not None for one in walks) <= most


def several_a_day(runs, days, day_sd, run_sd, histories=30):
    rng = np.random.default_rng([SEED, runs, days])
    logs = np.repeat(rng.normal(0, day_sd, (histories, days)), runs, axis=1)
    logs += rng.normal(0, run_sd, logs.shape)
    return logs, [MORNING + timedelta(days=run // runs, minutes=15 * (run % runs)) for run in range(runs * days)]


@pytest.mark.parametrize("runs", [5, 8])
def test_runs_of_a_day_are_no_independent_witnesses_of_a_level(runs):
    """By the values alone, a history of 80 runs without a change had up to three: days that differ."""
    logs, times = several_a_day(runs, 80 // runs, 0.02, 0.002)
    assert sum(len(detect(one)) for one in np.exp(logs)) >= 20
    assert sum(len(detect(one, times)) for one in np.exp(logs)) <= 1


def test_a_step_inside_a_day_is_found_from_its_second_run_though_days_vary():
    logs, times = several_a_day(8, 10, 0.02, 0.002)
    logs[:, 76:] += math.log(1.1)
    found = [detect(one[:78], times[:78]) for one in np.exp(logs)]
    assert np.mean([any(change.index == 76 for change in changes) for changes in found]) >= 0.8


def test_a_step_between_days_has_to_exceed_what_days_vary_by():
    logs, times = several_a_day(3, 27, 0.02, 0.002)
    logs[:, 39:] += math.log(1.1)
    found = [detect(one, times) for one in np.exp(logs)]
    assert np.mean([[change.index for change in changes] == [39] for changes in found]) >= 0.8


@pytest.mark.parametrize("hours", [1, 24, 72])
def test_evenly_spaced_runs_have_the_changes_of_their_values(hours):
    logs = several_a_day(8, 10, 0.02, 0.002)[0]
    times = [MORNING + timedelta(hours=hours * run) for run in range(80)]
    assert [detect(one, times) for one in np.exp(logs)] == [detect(one) for one in np.exp(logs)]


def test_days_that_do_not_vary_leave_the_changes_of_their_values():
    logs, times = several_a_day(8, 10, 0.0, 0.02)
    logs[:, 40:] += math.log(1.08)
    assert [detect(one, times) for one in np.exp(logs)] == [detect(one) for one in np.exp(logs)]


@pytest.mark.parametrize(("days", "steps"), [(30, (10, 14, 20)), (12, (4, 8))])
def test_steps_of_a_coarse_clock_hide_no_other_step(days, steps):
    """Where the values between them are all equal, nothing but steps differs: days do not vary."""
    _, times = several_a_day(8, days, 0.0, 0.0)
    values = 20.0 + sum(
        2.0 * (np.arange(8 * days) >= 8 * step) * (1, -1)[len(steps) > 2 and place == 1]
        for place, step in enumerate(steps)
    )
    found = detect(values, times)
    assert [change.index for change in found] == [8 * step for step in steps] == [each.index for each in detect(values)]


@pytest.mark.parametrize(("runs", "size", "sd"), [(4, 0.1, 0.01), (8, 0.05, 0.01), (8, 0.01, 0.005), (20, 0.02, 0.01)])
def test_a_rise_over_several_runs_that_has_ended_is_one_change_between_the_levels(runs, size, sd):
    """The larger it was, the surer it was neither a change nor a trend."""
    risen = np.log1p(size) * np.clip(np.arange(80) - 39, 0, runs)
    for seed in range(5):
        logs = risen + np.random.default_rng(seed).normal(0, sd, 80)
        found = detect(np.exp(logs).tolist())
        first, last = found[0], found[-1]
        assert first.last_before in range(35, 42)
        assert last.index in range(38 + runs, 46 + runs)
        assert last.value_after / first.value_before == pytest.approx((1 + size) ** runs, rel=0.02)
        assert all(one.state == "confirmed" for one in found)
        assert detect(np.exp(logs[: 46 + runs]).tolist())


def test_a_rise_that_goes_on_is_no_change_yet():
    logs = 0.01 * np.maximum(0, np.arange(80) - 40) + np.random.default_rng(1).normal(0, 0.005, 80)
    assert detect(np.exp(logs).tolist()) == ()
    assert find_trend(np.exp(logs).tolist()) is not None


def test_a_walk_has_each_change_once_and_none_within_another():
    rng = np.random.default_rng(16)
    logs = rng.normal(0, 0.02, 200) + np.cumsum(rng.normal(0, 0.012, 200))
    changes = detect(np.exp(logs).tolist())
    assert any(one.last_before < one.index - 1 for one in changes)
    assert all(before.index <= after.last_before + 1 for before, after in pairwise(changes))
