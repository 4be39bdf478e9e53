"""Judging two sides of a point: each formula by hand, with its degenerate case, and error rates over noise."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np
import pytest
import scipy

from benchmarking.core.metrics import JUDGED
from benchmarking.core.verdicts.judging import Pair, false_discovery_rates, judge
from benchmarking.core.verdicts.sessions import Session, SessionScatter
from benchmarking.core.verdicts.words import change_word
from tests.helpers.verdict_replay import HISTORY_CASES, TURN_CASES, replay_history, replay_turns

LATENCY = JUDGED["latency_median_ms"]
SCATTER = SessionScatter(variance=0.02**2, walk=0.01**2, degrees=10.0, sessions=20)


def values(*logs, centre=10.0):
    """Values whose logarithms lie these distances from that of the centre."""
    return tuple(centre * math.exp(log) for log in logs)


STEADY = values(0.0, 0.01, -0.01)
SLOWER = values(0.70, 0.712, 0.688)


def alone(metric=LATENCY, **fields):
    (judgement,) = judge([Pair(**fields)], metric)
    return judgement


def in_turns(before, after, metric=LATENCY, **fields):
    return alone(metric, rounds=tuple(zip(before, after, strict=True)), **fields)


def session(value, position, launches=None):
    return Session(value=value, launches=launches or (value,) * 3, position=position)


def between(before, after, scatter=SCATTER, other=None):
    """Sessions of both sides, in neighbouring places."""
    each = [session(value, position) for position, value in enumerate((*before, *after))]
    return alone(
        before=tuple(each[: len(before)]), after=tuple(each[len(before) :]), scatter=(scatter, other or scatter)
    )


def test_rounds_are_judged_by_the_paired_t_test():
    # differences .70, .702, .698: mean .7, sd .002, SE .0011547, t(.975, 2) = 4.302653, half .0049683
    judged = in_turns(STEADY, SLOWER)
    assert judged.change == pytest.approx(math.expm1(0.7))
    assert (judged.low, judged.high) == pytest.approx(
        (math.expm1(0.7 - 0.0049683), math.expm1(0.7 + 0.0049683)), abs=1e-6
    )
    assert judged.p_value == pytest.approx(scipy.stats.ttest_rel(np.log(SLOWER), np.log(STEADY)).pvalue)
    assert (judged.verdict, judged.is_worse, judged.scope) == ("slower", True, "in turns")
    assert (judged.before, judged.after) == pytest.approx((10.0, 10.0 * math.exp(0.7)))


def test_rounds_without_an_interval_are_named_as_such():
    sides = {"before": (session(1.0, 0),), "after": (session(1.2, 1),)}
    judged = alone(rounds=((1.0, 1.2), (1.0, 1.2)), **sides)
    assert judged.verdict == "not judged"
    assert judged.reason.startswith("2 rounds gave no interval: 8 rounds may decide")
    assert "did not run in turns" in alone(**sides).reason


def test_a_drift_that_both_sides_share_does_not_widen_the_interval():
    drift = values(0.0, 0.02, 0.04, 0.06, 0.08)
    later = values(0.05, 0.071, 0.09, 0.11, 0.129)
    assert in_turns(drift, later).high - in_turns(drift, later).low < 0.003
    assert scipy.stats.ttest_ind(np.log(later), np.log(drift), equal_var=False).pvalue > 0.01  # unpaired sees nothing


def test_each_look_doubles_p_and_the_error_of_the_interval():
    once, thrice = in_turns(STEADY, SLOWER), in_turns(STEADY, SLOWER, looks=3)
    assert thrice.p_value == pytest.approx(4 * once.p_value)
    half = scipy.stats.t.ppf(1 - 0.025 / 4, 2) * 0.0011547
    assert thrice.high == pytest.approx(math.expm1(0.7 + half), abs=1e-5)


@pytest.mark.parametrize(
    ("rounds", "looks", "points", "spread"),
    [
        *((3, 1, 1, 0.005), (5, 1, 1, 0.02), (8, 1, 1, 0.005), (8, 1, 1, 0.03), (8, 1, 40, 0.02), (20, 1, 1, 0.01)),
        *((13, 3, 1, 0.02), (20, 4, 40, 0.03)),
    ],
)
def test_a_detectable_change_is_found_four_times_in_five(rounds, looks, points, spread):
    """Each condition of a verdict counts: 2 %, what few rounds cannot prove, the order, the other points, the looks."""
    random = np.random.default_rng(rounds * points)

    def judged(change):
        logs = random.normal(0, spread, (points, rounds))
        logs[0] += math.log1p(change)
        pairs = [Pair(rounds=tuple((1.0, math.exp(log)) for log in point), looks=looks) for point in logs]
        return judge(pairs, LATENCY)[0]

    tries = 400 if points == 1 else 100
    found = sum(judged(judged(0.0).detectable).verdict == "slower" for _ in range(tries))
    assert 0.72 <= found / tries <= 0.88


def test_a_rate_that_falls_to_0_in_all_rounds_is_slower_and_one_zero_is_no_ratio():
    rate = JUDGED["throughput_samples_per_sec"]
    fallen = alone(rate, rounds=tuple((50.0 + place / 10, 0.0) for place in range(8)))
    assert (fallen.verdict, fallen.is_worse, fallen.after, fallen.change) == ("slower", True, 0.0, -1.0)
    assert (fallen.low, fallen.high) == (-1.0, -1.0)
    few = alone(rate, rounds=((50.0, 0.0), (70.0, 0.0), (20.0, 0.0)))
    assert (few.verdict, few.change) == ("not judged", -1.0)
    for rounds in (((50.0, 0.0), *((50.0, 49.0),) * 7), ((0.0, 50.0),) * 8):
        assert "a value is not positive" in alone(rate, rounds=rounds).reason
    assert "a value is not positive" in alone(LATENCY, rounds=((50.0, 0.0),) * 8).reason


def test_without_variation_the_least_change_that_is_judged_is_detectable():
    assert in_turns(STEADY, STEADY).detectable == pytest.approx(0.5), "three rounds"
    assert in_turns(STEADY * 3, STEADY * 3).detectable == pytest.approx(0.02)
    few = in_turns(values(*[0.0] * 11), values(*[0.01, -0.01] * 5, 0.01), looks=3)
    assert few.detectable is None, "no order of 11 rounds proves anything at the third look"


def test_of_a_rate_the_detectable_change_is_a_fall():
    rate, spread = JUDGED["throughput_samples_per_sec"], values(*[0.0, 0.5] * 4)
    assert in_turns(values(*[0.0] * 8), spread, rate).detectable == pytest.approx(
        1 - 1 / (1 + in_turns(values(*[0.0] * 8), spread).detectable)
    )
    assert in_turns(STEADY * 3, STEADY * 3, rate).detectable == 0.02


def test_sessions_are_judged_by_the_scatter_and_the_walk_between_them():
    # SE^2 = 2 * .02^2 + .01^2 = 9e-4 of one estimate with 10 degrees of freedom
    judged = between([10.0], [10.0 * math.exp(0.15)])
    assert judged.p_value == pytest.approx(2 * scipy.stats.t.sf(0.15 / 0.03, 10))
    assert judged.high == pytest.approx(math.expm1(0.15 + scipy.stats.t.ppf(0.975, 10) * 0.03))
    assert (judged.verdict, judged.scope) == ("slower", "between sessions")


def test_several_sessions_of_a_side_share_the_scatter():
    # SE^2 = .02^2 / 2 + .02^2 / 2, and a walk of .01 over the places 0 1 | 2 3: (1/4 + 1 + 1/4) * .01^2
    judged = between(values(0.0, 0.01), values(0.15, 0.16))
    error = math.sqrt(0.02**2 + 1.5 * 0.01**2)
    assert judged.p_value == pytest.approx(2 * scipy.stats.t.sf(0.15 / error, 10))


def test_two_series_have_two_estimates():
    # Satterthwaite: (a + b)^2 / (a^2 / 10 + b^2 / 4), the larger walk with its own side
    other = SessionScatter(variance=0.03**2, walk=0.0, degrees=4.0, sessions=9)
    judged = between([10.0012345], [12.0014814], other=other)
    a, b = 0.02**2 + 0.01**2, 0.03**2
    degrees = (a + b) ** 2 / (a**2 / 10 + b**2 / 4)
    assert judged.p_value == pytest.approx(2 * scipy.stats.t.sf(math.log(1.2) / math.sqrt(a + b), degrees))


def test_a_session_whose_launches_disagree_counts_for_less():
    spread = session(10.0, 0, values(0.0, 0.2, 0.0))
    judged = alone(before=(spread,), after=(session(11.5, 1),), scatter=(SCATTER, SCATTER))
    assert judged.verdict == "not judged"
    assert between([10.0], [11.5]).verdict == "slower"


def test_sides_neither_interleaved_nor_with_a_history_are_described():
    judged = alone(before=(session(10.0, 0),), after=(session(11.0, 1),))
    assert (judged.verdict, judged.change, judged.low, judged.q_value) == ("not judged", pytest.approx(0.1), None, None)
    assert judged.reason.endswith("fewer than 5 other sessions; benchhouse ab decides")


@pytest.mark.parametrize("launches", [1, 2])
def test_a_session_of_fewer_than_three_launches_gets_no_verdict(launches):
    few = session(11.0, 1, (11.0,) * launches)
    judged = alone(before=(session(10.0, 0),), after=(few,), scatter=(SCATTER, SCATTER))
    assert judged.verdict == "not judged"
    words = "1 launch" if launches == 1 else "2 launches"
    assert f"a session has only {words}: 3 required in each" in judged.reason


def test_two_rounds_are_too_few():
    sides = {"before": (session(10.0, 0),), "after": (session(11.0, 1),)}
    assert alone(rounds=((10.0, 11.0),) * 2, **sides).verdict == "not judged"
    assert alone(rounds=tuple(zip(STEADY, SLOWER, strict=True)), **sides).verdict == "slower"


def test_an_interval_within_two_percent_is_equivalent():
    assert in_turns(STEADY, values(0.001, 0.01, -0.011)).verdict == "equivalent"
    assert in_turns(STEADY, values(0.01, -0.01, 0.0)).verdict == "not judged"


def test_a_significant_change_below_two_percent_is_not_reported():
    judged = in_turns(STEADY, values(0.0195, 0.0295, 0.0095 + 1e-6))
    assert judged.q_value < 1e-4
    assert judged.verdict == "equivalent"
    wider = in_turns((10.0,) * 5, values(0.018, 0.022, 0.0185, 0.0195, 0.019))
    assert (wider.q_value < 0.004, wider.verdict) == (True, "not judged")
    assert wider.reason == "the change is significant, but may be smaller than 2%"


def test_identical_values_of_a_clock_have_an_interval_of_its_resolution():
    judged = in_turns((10.0,) * 8, (11.0,) * 8)
    assert (judged.verdict, judged.low < 0.1 < judged.high) == ("not judged", True)
    verdicts = {10.0: "not judged", 10.1: "equivalent", 100.0: "equivalent", 31.25: "not judged", 62.51: "equivalent"}
    for before, verdict in verdicts.items():
        same = in_turns((before,) * 8, (before,) * 8)
        assert (same.verdict, same.change, same.low < 0 < same.high) == (verdict, 0.0, True)
    exact = in_turns((10.0,) * 8, (10.0,) * 8, is_simulated=True)
    assert (exact.verdict, exact.low, exact.high) == ("equivalent", 0.0, 0.0)
    first_token = in_turns((10.0,) * 8, (10.0,) * 8, JUDGED["time_to_first_token_ms"])
    assert first_token.verdict == "not judged"
    rate = in_turns((1000 / 10,) * 8, (1000 / 11,) * 8, JUDGED["throughput_samples_per_sec"])
    assert (rate.verdict, rate.low < 1 / 1.1 - 1 < rate.high) == ("not judged", True)
    memory = in_turns((10.0,) * 8, (11.0,) * 8, JUDGED["memory_peak_rss_infer_mb"])
    assert (memory.verdict, memory.low, memory.high) == ("more", pytest.approx(0.1), pytest.approx(0.1))


def test_few_rounds_judge_only_what_no_disturbance_explains():
    little = values(0.100, 0.112, 0.088, 0.1003, 0.0997)
    judged = in_turns(values(0.0, 0.01, -0.01, 0.0004, 0.0), little)
    assert (judged.verdict, judged.q_value < 0.004) == ("not judged", True)
    assert "8 rounds may decide" in judged.reason
    again = in_turns(values(0.0, 0.01, -0.01, 0.0004, 0.0) * 2, little * 2)
    assert again.verdict == "slower"


def test_rounds_of_a_fixed_order_prove_nothing():
    pairs = tuple(
        zip(values(*(0.001 * n for n in range(8))), values(*(0.1 + 0.001 * n for n in range(8))), strict=True)
    )
    assert alone(rounds=pairs).verdict == "slower"
    assert alone(rounds=pairs, is_first=(True, False, False, True, True, True, False, True)).verdict == "slower"
    for fixed in ((True,) * 8, (True, False) * 4):
        judged = alone(rounds=pairs, is_first=fixed)
        assert (judged.verdict, "fixed order" in judged.reason) == ("not judged", True)


def test_differences_that_the_history_has_are_no_change():
    levels = tuple(0.0004 * place + 0.1 * (place % 4 == 0) for place in range(20))
    scatter = replace(SCATTER, variance=0.01**2, walk=0.0, stretches=(levels,))
    assert "by the sessions of the history" in between([10.01], [11.013], scatter=scatter).reason
    assert between([10.01], [13.013], scatter=scatter).verdict == "slower"


def test_a_session_on_a_busy_day_is_expected_to_be_off_by_more():
    scatter = replace(SCATTER, variance=0.01**2, walk=0.0, launch_variance=0.01**2)
    quiet, busy = values(0.15, 0.16, 0.14), values(0.15, 0.25, 0.05)
    sides = {"before": (session(10.0012345, 0),), "scatter": (scatter, scatter)}
    assert alone(after=(session(quiet[0], 1, quiet),), **sides).verdict == "slower"
    assert alone(after=(session(busy[0], 1, busy),), **sides).verdict == "not judged"


@pytest.mark.parametrize(
    ("hour", "day", "reason"),
    [(14, 4, "measured at other hours"), (2, 4, None), (3, 4, None), (2, 5, "measured on other weekdays")],
)
def test_other_hours_and_weekdays_that_the_history_does_not_have_are_not_judged(hour, day, reason):
    nights = [
        datetime(2026, 1, 5, 2) + timedelta(weeks=week, days=weekday) for week in range(4) for weekday in range(5)
    ]
    scatter = replace(SCATTER, times=tuple((night, 0.0) for night in nights))
    last = datetime(2026, 2, 2, 2)
    before = replace(session(10.0012345, 0), time=last + timedelta(days=3))
    after = replace(session(12.5, 1), time=last.replace(hour=hour) + timedelta(days=day))
    judged = alone(before=(before,), after=(after,), scatter=(scatter, scatter))
    assert judged.verdict == ("slower" if reason is None else "not judged")
    assert reason is None or reason in judged.reason


@pytest.mark.parametrize(
    ("hours", "of_history", "is_judged"),
    [
        ((2, 14, 14), (2,), False),
        ((4, 14, 14, 14, 14), (2,), False),
        ((2, 2, 2, 3, 4), (2,), True),
        ((2, 14, 14), (2, 14), True),
    ],
)
def test_a_session_at_a_common_hour_does_not_make_the_others_comparable(hours, of_history, is_judged):
    nights = [datetime(2026, 1, 5, of_history[n % len(of_history)]) + timedelta(days=n) for n in range(20)]
    scatter = replace(SCATTER, times=tuple((night, 0.0) for night in nights))
    before = tuple(replace(session(10.0012345 + n, n), time=datetime(2026, 2, 2 + n, 2)) for n, _ in enumerate(hours))
    after = tuple(
        replace(session(17.5 + n, len(hours) + n), time=datetime(2026, 2, 9 + n, hour)) for n, hour in enumerate(hours)
    )
    judged = alone(before=before, after=after, scatter=(scatter, scatter))
    assert ("measured at other hours" not in str(judged.reason)) is is_judged


def test_incomparable_results_have_a_reason_and_no_numbers():
    judged = alone(why_not_comparable="A: invalid (wrong_output)")
    assert (judged.verdict, judged.change) == ("not judged", None)
    assert judged.reason == "not comparable: A: invalid (wrong_output)"
    assert in_turns((0.0, 1.0, 1.0), SLOWER).reason.startswith("not comparable")
    assert alone().reason.startswith("not comparable")


def test_q_is_benjamini_and_hochbergs():
    # ranks: .005 -> .02, .01 -> .02, .03 -> .04, .04 -> .04
    assert false_discovery_rates([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.02, 0.04, 0.04, 0.02])
    assert false_discovery_rates([]) == []
    many = np.random.default_rng(3).uniform(size=50) ** 3
    assert false_discovery_rates(list(many)) == pytest.approx(list(scipy.stats.false_discovery_control(many)))


def test_among_many_comparisons_a_change_needs_a_smaller_p():
    wide = values(0.70, 0.76, 0.64)
    one = Pair(rounds=tuple(zip(STEADY[:1] * 3, wide, strict=True)))
    equal = Pair(rounds=tuple(zip(STEADY, values(0.01, -0.01, 0.0), strict=True)))
    assert judge([one], LATENCY)[0].verdict == "slower"
    among = judge([one] + [equal] * 99, LATENCY)[0]
    assert among.q_value == pytest.approx(100 * judge([one], LATENCY)[0].p_value)
    assert among.verdict == "not judged"


def test_only_findings_with_a_p_count_for_q():
    rounds = tuple(zip(STEADY, SLOWER, strict=True))
    pairs = [
        Pair(before=(session(1.0, 0),), after=(session(2.0, 1),)),
        Pair(rounds=rounds),
        Pair(why_not_comparable="x"),
    ]
    judged = judge(pairs, LATENCY)
    assert [one.q_value for one in judged] == [None, judged[1].p_value, None]


def test_verdict_words_depend_on_the_metric():
    assert change_word(0.1, JUDGED["latency_median_ms"]) == "slower"
    assert change_word(0.1, JUDGED["throughput_samples_per_sec"]) == "faster"
    assert change_word(-0.1, JUDGED["throughput_samples_per_sec"]) == "slower"
    assert change_word(0.1, JUDGED["memory_peak_rss_infer_mb"]) == "more"
    assert change_word(-0.1, JUDGED["memory_peak_rss_infer_mb"]) == "less"


def test_more_throughput_is_better_and_more_memory_is_worse():
    assert in_turns(STEADY, SLOWER, JUDGED["throughput_samples_per_sec"]).is_worse is False
    assert in_turns(STEADY, SLOWER, JUDGED["memory_peak_rss_infer_mb"]).is_worse is True


# At most 0.6 % of equal pairs may be called changed. With that share, more than 9 of 600 have a probability of 0.4 %.
PAIRS, MAX_CALLED = 600, 9


@pytest.mark.parametrize("name", TURN_CASES)
def test_equal_sides_in_turns_are_hardly_ever_called_changed(name):
    rates = replay_turns(TURN_CASES[name], pairs=PAIRS, seed=7)
    assert rates.changed * PAIRS <= MAX_CALLED


@pytest.mark.parametrize("name", HISTORY_CASES)
def test_equal_sessions_with_a_history_are_hardly_ever_called_changed(name):
    rates = replay_history(HISTORY_CASES[name], pairs=PAIRS, seed=8)
    assert rates.changed * PAIRS <= MAX_CALLED


def test_sessions_25_apart_in_a_walk_are_not_called_changed():
    rates = replay_history(HISTORY_CASES["walk of 0.5 % a session"], pairs=400, seed=9, history=30, apart=25)
    assert rates.changed * 400 <= 8


def test_five_percent_is_found_in_a_drift_of_ten_percent():
    rates = replay_turns(TURN_CASES["drift of 10 %"], pairs=200, seed=10, change=0.05)
    assert rates.changed >= 0.98


def test_further_looks_find_what_five_rounds_do_not():
    five = replay_turns(TURN_CASES["launch sd 2 %"], pairs=300, seed=11, change=0.05, looks=(5,))
    more = replay_turns(TURN_CASES["launch sd 2 %"], pairs=300, seed=11, change=0.05)
    assert five.changed < 0.4
    assert more.changed > 0.97


def test_a_quiet_history_finds_five_percent_and_can_say_equivalent():
    assert replay_history(HISTORY_CASES["sessions 0.5 %"], pairs=300, seed=12, change=0.05).changed > 0.7
    assert replay_history(HISTORY_CASES["sessions equal"], pairs=300, seed=13, launch_sd=0.005).equivalent > 0.9


def test_a_difference_that_few_rounds_cannot_prove_names_the_rounds_not_the_interval():
    """+23.6 to +48.8 % is no wide interval around no change: three rounds are too few for a verdict."""
    (few,) = judge([Pair(rounds=((10.0, 13.1), (10.1, 13.6), (9.9, 14.0)))], LATENCY)
    assert few.verdict == "not judged"
    assert few.low > 0.1
    assert few.reason.startswith("3 rounds are too few to be sure of the difference: ")
    assert few.reason.endswith("about 8 rounds may decide (in benchhouse ab --max-rounds 8, elsewhere --launches 8)")
    (wide,) = judge([Pair(rounds=((10.0, 13.1), (10.1, 9.0), (9.9, 13.9)))], LATENCY)
    assert wide.reason.endswith("tell a change of 2% from none")


def test_a_wide_interval_names_rounds_that_mostly_decide():
    random, decided = np.random.default_rng(1), []
    for _ in range(300):
        logs = random.normal(0, 0.02, 100)
        one, more = (
            [Pair(rounds=tuple((1.0, math.exp(log)) for log in logs[:count]), looks=looks)]
            for count, looks in ((8, 1), (100, 2))
        )
        named = re.search(r"from none: about (\d+) rounds may decide", judge(one, LATENCY)[0].reason or "")
        if named:
            later = replace(more[0], rounds=more[0].rounds[: int(named[1])])
            decided.append(judge([later], LATENCY)[0].verdict != "not judged")
    assert len(decided) > 50
    assert sum(decided) / len(decided) > 0.75
    (hopeless,) = judge([Pair(rounds=tuple((10.003, 10 + step) for step in (2.0, -2.0) * 4))], LATENCY)
    assert hopeless.reason.endswith("tell a change of 2% from none")
