"""The gate: its cases by hand, and its error rates over noise that it knows nothing of."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import numpy as np
import pytest

from benchmarking.core.metrics import JUDGED
from db.analysis.gate.gate import PARAMETERS, Case, Judgement, judge_all, without_open_alarms
from db.analysis.gate.nights import Night, Series, outlooks
from tests.helpers.gate_replay import MONDAY, PROMISED, found, leak, normal, replay, several_a_night

LATENCY = JUDGED["latency_median_ms"]
THROUGHPUT = JUDGED["throughput_tokens_per_sec"]
TWO_LEVELS = [10.0 * math.exp(0.01 * sign) for sign in (-1, 1)] * 10
"""Twenty runs whose logarithms are ln 10 -+ 0.01."""


def case(before, value, metric=LATENCY):
    """Runs of sessions 0, 1, ..., which all cases share."""
    past = tuple(Night(session=str(place), value=one) for place, one in enumerate(before) if one is not None)
    return Case(segments=(past,), newest=Night(session="newest", value=value), metric=metric)


def judge(before, value, metric, earlier=()) -> Judgement:
    """The judgement of a value by the runs before it and the `earlier` segments, as the only series of a check."""
    segments = tuple(
        tuple(Night(session=f"{number} {place}", value=one) for place, one in enumerate(segment))
        for number, segment in enumerate((*earlier, before))
    )
    (judged,) = judge_all([Case(segments=segments, newest=Night(session="newest", value=value), metric=metric)])
    return judged


def test_a_value_is_worse_beyond_the_interval_and_not_inside():
    judged = judge(TWO_LEVELS, 10.0, LATENCY)
    assert (judged.outcome, judged.n) == ("fine", 20)
    assert judged.centre == pytest.approx(10.0, rel=1e-3)
    assert 9.5 < judged.low < 9.9 < 10.1 < judged.high < 10.5
    inside, outside = judged.high * 0.99, judged.high * 1.03
    assert judge(TWO_LEVELS, inside, LATENCY).outcome == "fine"
    worse = judge(TWO_LEVELS, outside, LATENCY)
    assert (worse.outcome, worse.relative_change) == ("worse", pytest.approx(outside / worse.centre - 1))
    assert judge(TWO_LEVELS, 9.0, LATENCY).outcome == "better"


def test_higher_is_better_for_a_throughput():
    assert judge(TWO_LEVELS, 11.0, THROUGHPUT).outcome == "better"
    assert judge(TWO_LEVELS, 9.0, THROUGHPUT).outcome == "worse"


def test_runs_without_a_value_above_0_do_not_count_and_are_told_of():
    judged = judge([0.0, -1.0, *TWO_LEVELS[:6]], 10.0, LATENCY)
    assert judged.why == "6 earlier runs (2 without a value above 0 left out), at least 10 required"


@pytest.mark.parametrize(("value", "outcome"), [(10.19, "fine"), (10.21, "worse"), (10.0, "fine"), (9.79, "better")])
def test_without_variation_only_the_two_percent_limit_applies(value, outcome):
    assert judge([10.0] * 10, value, LATENCY).outcome == outcome


@pytest.mark.parametrize(("is_simulated", "low", "high"), [(True, 0.98, 1.02), (False, 0.69, 1.45)])
def test_whole_milliseconds_are_as_uncertain_as_their_clock_unless_they_are_simulated(is_simulated, low, high):
    (judged,) = judge_all([replace(case([1.0] * 10, 1.0), is_simulated=is_simulated)])
    assert (judged.outcome, judged.low, judged.high) == ("fine", *(pytest.approx(end, abs=0.01) for end in (low, high)))


def test_a_few_runs_on_two_levels_do_not_make_a_change_of_a_factor_fine():
    before = [5.05 * factor for factor in (1.0, 1.001, 0.999)] * 4
    judged = judge([6.05, 0.505, 0.504, 0.506], 6.05, LATENCY, earlier=[before])
    assert judged.outcome == "not_enough_data"
    assert judged.why == (
        "4 runs since the last change of level that differ by up to a factor of 12 do not tell 12 times the predicted "
        "value from their variation"
    )
    assert judge([0.505, 0.504, 0.506, 0.505], 6.05, LATENCY, earlier=[before]).outcome == "worse"
    near = judge([6.05, 0.505, 0.504, 0.506], 0.6, LATENCY, earlier=[before])
    assert near.outcome == "too_noisy"
    assert near.why is not None
    assert near.why.startswith(
        "4 runs since the last change of level that differ by up to a factor of 12 are too noisy: "
    )


@pytest.mark.parametrize(("metric", "values"), [(LATENCY, [2, 3, 60, 70, 180]), (THROUGHPUT, [0.3, 1, 1.3, 40, 60])])
@pytest.mark.parametrize("now", [0.5, 1.0, 2.4])
def test_a_gate_that_nothing_could_fail_calls_nothing_fine(metric, values, now):
    """Each value is within the interval of runs on a machine with other work, and so would be one 30 times worse."""
    judged = judge([each * factor for factor in (1, 1.1, 0.9) for each in values], now * values[2], metric)
    assert judged.outcome == "too_noisy"
    assert judged.why is not None
    assert re.fullmatch(
        r"15 runs that differ by up to a factor of \d+ are too noisy: only a change by a factor of more than [\d.]+ "
        "would be found: measure on a quieter machine, or with more launches",
        judged.why,
    )


def test_a_confirmation_of_noisy_runs_has_a_verdict():
    case = Case(
        segments=(tuple(Night(session=str(place), value=each) for place, each in enumerate([1.0, 2.0, 3.0] * 5)),),
        newest=Night(session="newest", value=2.0),
        metric=LATENCY,
    )
    assert [one.outcome for one in judge_all([case], is_confirmation=True) if one] == ["fine"]


def test_nine_runs_are_not_enough():
    judgement = judge(TWO_LEVELS[:9], 20.0, LATENCY)
    assert judgement.outcome == "not_enough_data"
    assert judgement.why == "9 earlier runs, at least 10 required"
    assert judgement.relative_change is None
    assert judge([], 20.0, LATENCY).why == "0 earlier runs, at least 10 required"
    assert judge([1.0], 20.0, LATENCY).why == "1 earlier run, at least 10 required"


def test_a_mode_that_recurs_is_part_of_the_history():
    often = [value * (1.1 if place % 5 == 0 else 1) for place, value in enumerate(TWO_LEVELS)]
    assert judge(often, 11.1, LATENCY).outcome == "fine"
    assert judge(TWO_LEVELS, 11.1, LATENCY).outcome == "worse"


def test_many_series_of_a_night_need_a_larger_deviation():
    noisy = [10.0 * math.exp(0.01 * math.sin(place**2)) for place in range(20)]
    others = [
        case([one * math.exp(0.01 * math.cos(shift * place)) for place, one in enumerate(noisy)], 10.0)
        for shift in range(1, 40)
    ]
    alone = judge(noisy, 10.0, LATENCY)
    among, *_ = judge_all([case(noisy, 10.0), *others])
    assert among.high > alone.high


def test_several_runs_together_show_what_none_shows_alone():
    before = [10.0 * math.exp(0.03 * math.sin(37 * place**2)) for place in range(40)]
    little = 10.0 * math.exp(0.029)
    assert judge(before, little, LATENCY).outcome == "fine"
    judged = judge([*before, little, little], little, LATENCY)
    assert little < judged.high
    assert (judged.outcome, judged.together) == ("worse", 3)


def test_a_series_that_was_not_measured_has_no_judgement_and_the_others_have():
    missing = Case(segments=case(TWO_LEVELS, 1.0).segments, newest=None, metric=LATENCY)
    assert [one and one.outcome for one in judge_all([missing, case(TWO_LEVELS, 12.0)])] == [None, "worse"]
    assert judge_all([]) == []


def test_after_a_change_the_runs_before_it_give_the_variation():
    new = [20.0, 20.2]
    judgement = judge(new, 22.0, LATENCY, earlier=[TWO_LEVELS])
    assert (judgement.outcome, judgement.n, judgement.borrowed) == ("worse", 2, 20)
    assert judgement.centre == pytest.approx(20.1, rel=0.01)
    assert judge(new, 20.3, LATENCY, earlier=[TWO_LEVELS]).outcome == "fine"
    assert judge([20.0], 25.0, LATENCY, earlier=[TWO_LEVELS]).why == (
        "too few since the last change of level: 1 run, at least 2 required beside the 20 before it"
    )
    assert judge(new, 25.0, LATENCY, earlier=[[10.0, 10.1, 10.2]]).why == (
        "too few since the last change of level: 2 runs and 3 before it, at least 10 required together"
    )
    singles = [[10.0 + place] for place in range(9)]  # no run of these shows how much runs at a level vary
    assert judge(new, 25.0, LATENCY, earlier=singles).why == "2 earlier runs, at least 10 required"
    assert judge(new, 25.0, LATENCY, earlier=[*singles, [10.0, 10.1]]).why == (
        "too few since the last change of level: 2 runs and 2 before it, at least 10 required together"
    )


def test_a_time_of_zero_has_no_verdict_and_one_in_the_history_takes_no_other_with_it():
    judgement = judge([1.0] * 10, 0.0, LATENCY)
    assert (judgement.outcome, judgement.why) == (
        "not_enough_data",
        "the value is not positive, so it has no logarithm",
    )
    assert judge([0.0] + [1.0] * 10, 1.5, LATENCY).outcome == "worse"


def test_a_rate_of_zero_is_worse_than_any_other():
    judgement = judge(TWO_LEVELS, 0.0, JUDGED["throughput_samples_per_sec"])
    assert (judgement.outcome, judgement.value, judgement.relative_change) == ("worse", 0.0, -1.0)
    assert judge([0.0] * 12, 0.0, JUDGED["throughput_samples_per_sec"]).outcome == "not_enough_data"


def test_only_the_newest_runs_count():
    long_ago = [20.0] * 30
    used = TWO_LEVELS * 3
    assert len(used) == PARAMETERS.max_points
    assert judge([*long_ago, *used], 10.5, LATENCY) == judge(used, 10.5, LATENCY)


def test_untriaged_alarms_count_once_a_later_run_was_fine():
    assert without_open_alarms(["a", "b", "c"], {"b", "c"}) == 1
    assert without_open_alarms(["a", "b", "c"], {"b"}) == 3
    assert without_open_alarms([], {"b"}) == 0
    assert without_open_alarms(["a"], {"a"}) == 0


def test_a_session_that_is_stored_twice_is_no_second_witness():
    nights = [
        Night(session=str(place), value=value, time=MONDAY + timedelta(days=place))
        for place, value in enumerate(TWO_LEVELS)
    ]
    copies = [replace(night, session=f"copy of {night.session}") for night in nights]
    newest = Night(session="newest", value=max(TWO_LEVELS) * 1.05, time=MONDAY + timedelta(days=99))
    once, twice = (
        judge_all([Case(segments=(tuple(past),), newest=newest, metric=LATENCY)])
        for past in (nights, [one for pair in zip(nights, copies, strict=True) for one in pair])
    )
    assert once == twice
    again = judge_all([Case(segments=((*nights, newest),), newest=replace(newest, session="copy"), metric=LATENCY)])
    assert again == once
    (few,) = judge_all([Case(segments=((*nights[:6], *copies[:6]),), newest=newest, metric=LATENCY)])
    assert few is not None
    assert few.why == "6 earlier runs, at least 10 required"


def test_a_step_after_a_long_gap_is_found_if_it_is_large():
    noise = PROMISED["AR(.9), two weeks missing in every 20 nights"]
    assert found(noise, change=0.25, nights=1, histories=10, seed=15, series=10) >= 0.8


def test_the_longer_a_gap_the_further_a_series_may_have_wandered_also_beyond_what_the_history_shows():
    rng, widths = np.random.default_rng(3), []
    walks = np.exp(np.cumsum(rng.normal(0.0, 0.01, (20, 21)), axis=1))
    for days in (1, 7, 29):
        times = [MONDAY + timedelta(days=night + (days - 1) * (night == 20)) for night in range(21)]
        nights = [
            [Night(session=str(place), value=float(one), time=times[place]) for place, one in enumerate(row)]
            for row in walks
        ]
        cases = [Case(segments=(tuple(past),), newest=newest, metric=LATENCY) for *past, newest in nights]
        widths.append(float(np.median([one.high / one.low - 1 for one in judge_all(cases)])))
    assert widths[2] > 1.8 * widths[1] > 1.8 * widths[0]


def test_a_series_that_wanders_may_be_further_off_the_longer_its_nights_do_not_count():
    """The nights of an alarm do not count, so the nights after it are predicted from before it. A step that the series
    cannot have wandered is an alarm all the same."""
    history = PROMISED["AR(.9), 2 %"](np.random.default_rng(3), 20, 40)

    def judged(left_out, change=0.0):
        cases = []
        for row in np.exp(history.sessions).tolist():
            nights = [Night(session=str(place), value=value) for place, value in enumerate(row)]
            cases.append(Case(segments=(tuple(nights[:-1]),), newest=nights[-1], metric=LATENCY))
        (segment,) = cases[0].segments
        newest = replace(cases[0].newest, value=cases[0].newest.value * (1 + change))
        cases[0] = replace(cases[0], segments=(segment[: len(segment) - left_out],), newest=newest)
        return judge_all(cases)[0]

    widths = [math.log(found.high / found.centre) for found in map(judged, (0, 1, 3, 6))]
    assert all(later > 1.1 * earlier for earlier, later in pairwise(widths))
    assert widths[-1] < 4 * widths[0]
    assert judged(6, change=0.2).outcome == "worse"


def test_a_large_step_a_day_after_a_history_of_minutes_is_found():
    rng = np.random.default_rng(4)
    walks = np.exp(np.cumsum(rng.normal(0.0, 0.01, (20, 21)), axis=1))
    times = [MONDAY + timedelta(seconds=20 * night) for night in range(20)] + [MONDAY + timedelta(days=1)]
    cases = []
    for row in walks:
        nights = [Night(session=str(place), value=float(one), time=times[place]) for place, one in enumerate(row)]
        newest = replace(nights[-1], value=2 * nights[-1].value)
        cases.append(Case(segments=(tuple(nights[:-1]),), newest=newest, metric=LATENCY))
    assert [one.outcome for one in judge_all(cases)] == ["worse"] * 20


def test_runs_of_one_night_count_as_one_if_they_are_alike():
    """Twenty runs of ten nights, of which the second of each night repeats the first, show ten nights, fewer than a
    limit for 5 % of the nights needs: it is then beyond the largest one."""

    def highest(values, hours_apart):
        times = [MONDAY + timedelta(days=place // 2, hours=hours_apart * (place % 2)) for place in range(21)]
        series = []
        for row in values:
            nights = [Night(session=str(place), value=float(one), time=times[place]) for place, one in enumerate(row)]
            series.append(Series(past=tuple(nights[:-1]), newest=nights[-1]))
        return [math.log(one.high / one.centre) for one in outlooks(series, 0.05)]

    drawn = np.random.default_rng(5).normal(0.0, 0.02, (20, 21))
    alike = np.exp(drawn[:, [place // 2 for place in range(21)]])
    assert min(a / b for a, b in zip(highest(alike, 1), highest(alike, 12), strict=True)) > 1.05
    assert highest(np.exp(drawn), 1) == pytest.approx(highest(np.exp(drawn), 12))


@pytest.mark.parametrize("own", [0.003, 0.01])
def test_the_first_of_several_runs_of_a_night_is_no_alarm_since_nights_vary(own):
    """A fifth of the nights was one, and half of those were confirmed: the runs of a night looked like a pattern of its
    weekday, and runs that vary themselves did not count as one night."""
    rates = replay(several_a_night(3, own), histories=15, seed=9, series=8, first=10, nights=20)
    assert rates.alarms <= 0.12
    assert rates.confirmed <= 0.01


def test_runs_of_only_two_nights_count_one_by_one():
    """The one night before the newest says nothing of how much nights vary."""
    walk, values = 0.0, []
    for place, step in enumerate(np.random.default_rng(137).normal(0.0, 0.01, 40).tolist()):
        walk = step + (0.9 * walk if place % 20 else 0.0)
        values.append(math.exp(walk))
    times = [MONDAY + timedelta(days=place // 20, minutes=2 * (place % 20)) for place in range(40)]
    *past, newest = (Night(session=str(at), value=values[at], time=times[at]) for at in range(40))
    (found,) = outlooks([Series(past=tuple(past), newest=newest)], 0.05)
    assert found.low > 0.8 * found.centre
    assert found.high < 1.2 * found.centre


@pytest.mark.parametrize(("pause_s", "outcome"), [(10, "fine"), (133, "too_noisy"), (86_400, "too_noisy")])
def test_a_run_that_is_as_the_last_ones_is_not_worse_where_the_machine_has_become_quiet(pause_s, outcome):
    values = [112, 132, 88.5, 118, 85.6, 80.8, 84.3, 81.1, 80.4, 84.3, 76.9, 78.1]
    past = [
        Night(session=str(place), value=value, time=MONDAY + timedelta(seconds=11 * place))
        for place, value in enumerate(values)
    ]
    newest = Night(session="newest", value=80.2, time=MONDAY + timedelta(seconds=11 * 11 + pause_s))
    (judged,) = judge_all([Case(segments=(tuple(past),), newest=newest, metric=LATENCY)])
    assert judged.outcome == outcome
    slow = replace(newest, value=5000.0)
    (judged,) = judge_all([Case(segments=(tuple(past),), newest=slow, metric=LATENCY)])
    assert judged.outcome == "worse"


def test_one_odd_night_does_not_hide_a_change_of_its_series():
    """The first night of one series was eight times faster, and the T of the nights come from the other series, too."""
    rng = np.random.default_rng(21)
    rows = 5.0 * np.exp(0.01 * rng.standard_normal((2, 21)))
    rows[0, 0] /= 8
    rows[0, -1], rows[1, -1] = 5.6, 5.0
    cases = []
    for row in rows:
        nights = [Night(session=str(place), value=float(value)) for place, value in enumerate(row)]
        cases.append(Case(segments=(tuple(nights[:-1]),), newest=nights[-1], metric=LATENCY))
    assert [judged.outcome for judged in judge_all(cases)] == ["worse", "fine"]


def test_nights_that_measure_changing_parts_of_many_series_judge_each_of_them():
    rng = np.random.default_rng(22)
    outcomes = []
    for _ in range(20):
        values = 10 * np.exp(rng.normal(0, 0.02, (60, 101)))
        is_measured = rng.random(values.shape) < 0.3
        is_measured[0, -1], values[0, -1] = True, 30.0
        measured = zip(values[is_measured[:, -1]], is_measured[is_measured[:, -1]], strict=True)
        cases = [
            case([value if one else None for value, one in zip(row[:-1].tolist(), known, strict=False)], row[-1])
            for row, known in measured
        ]
        outcomes.append([judged.outcome for judged in judge_all(cases) if judged])
    assert [first for first, *_ in outcomes] == ["worse"] * 20, "three times as slow"
    assert sum("worse" in others for _, *others in outcomes) <= 5


# At most 5 % of the nights may have an alarm, and 1 % a confirmed one: 80 nights of a history, which depend on each
# other, exceed 15 % or 4 % by chance with a probability below 1 %.
@pytest.mark.parametrize("name", PROMISED)
def test_nights_without_a_change_hardly_ever_raise_an_alarm(name):
    rates = replay(PROMISED[name], histories=2, seed=11, series=20)
    assert rates.alarms <= 0.15
    assert rates.confirmed <= 0.04


def test_true_steps_are_found():
    assert found(normal(0.02), change=0.10, nights=1, histories=40, seed=12, series=5) >= 0.85
    assert found(normal(0.02), change=0.05, nights=3, histories=40, seed=13, series=5) >= 0.7


@pytest.mark.parametrize("of_newest", [(1, 30), (1, 3), (8, 3)])
def test_a_short_session_after_long_ones_is_allowed_to_vary_as_much_more_as_it_does(of_newest):
    rng = np.random.default_rng(31)

    def measured(session, launches, calls, slowdown=1.0):
        of_launches = rng.normal(0, 0.02, launches) + np.median(rng.normal(0, 0.05, (launches, calls)), axis=1)
        value = 10 * slowdown * math.exp(np.median(of_launches))
        return Night(session=session, value=value, launches=launches, calls=launches * calls)

    outcomes = {1.0: [], 2.0: []}
    for _ in range(25):
        pasts = [tuple(measured(str(night), 8, 30) for night in range(30)) for _ in range(8)]
        for slowdown, of_nights in outcomes.items():
            cases = [
                Case(segments=(past,), newest=measured("newest", *of_newest, slowdown), metric=LATENCY)
                for past in pasts
            ]
            of_nights.append([judged.outcome for judged in judge_all(cases)])
    assert sum("worse" in night for night in outcomes[1.0]) <= 4
    assert all(set(night) == {"worse"} for night in outcomes[2.0])


def at_hours(hours, newest):
    """The judgement of a run that is 6 % slower, at an hour of the day, by the runs of a night each."""
    rng = np.random.default_rng(3)
    past = [
        Night(
            session=str(night), value=math.exp(rng.normal(0, 0.01)), time=MONDAY + timedelta(days=night, hours=hour - 2)
        )
        for night, hour in enumerate(hours)
    ]
    value = Night(session="newest", value=1.06, time=MONDAY + timedelta(days=len(hours), hours=newest - 2))
    return judge_all([Case(segments=(tuple(past),), newest=value, metric=LATENCY)])[0]


def test_a_run_at_an_hour_that_the_history_lacks_is_not_judged():
    assert at_hours([2] * 30, 2).outcome == "worse"
    unknown = at_hours([2] * 30, 14)
    assert (unknown.outcome, unknown.why) == (
        "not_enough_data",
        "measured at 14:00 UTC, 0 of 30 earlier runs about that time of day (the last one: 02:00), at least 2 "
        "required, since the hour may matter",
    )
    assert at_hours([2] * 15 + [14] + [2] * 14, 14).outcome == "not_enough_data"
    assert at_hours([2, 14] * 15, 14).outcome == "worse"
    assert at_hours([2 - 23 * night for night in range(20)], 24.5).outcome != "not_enough_data", "hourly, on one day"
    assert at_hours([7 * night % 24 for night in range(12)], 2.5).outcome != "not_enough_data", "of any hour"


def test_a_step_far_beyond_a_slow_movement_is_no_trend():
    crept = [0.0] * 30 + [0.005 * night for night in range(1, 11)]
    for seed in (23, 51, 57):
        logs = crept + np.random.default_rng(seed).normal(0, 0.02, 40)
        assert judge(np.exp(logs).tolist(), math.exp(crept[-1] + 0.3), LATENCY).outcome == "worse"


def test_a_slow_leak_is_a_trend_and_no_regression():
    seen = leak(sd=0.005, per_night=0.002, flat=0, nights=30, histories=5, seed=14, series=5)
    assert (seen.trend, seen.confirmed) == (1.0, 0.0)
