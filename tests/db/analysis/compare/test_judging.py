"""Judging two results by their launches: each formula by hand, with its degenerate case."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarking.core.metrics import JUDGED
from db.analysis.compare.judging import Pair, RunScatter, false_discovery_rates, judge, run_scatter, word

LATENCY = JUDGED["latency_median_ms"]


def values(*logs, centre=10.0):
    """Launch values whose logarithms lie these distances from that of the centre."""
    return tuple(centre * math.exp(log) for log in logs)


STEADY = values(0.0, 0.01, -0.01)
SLOWER = values(0.10, 0.11, 0.09)


def alone(before, after, metric=LATENCY, **fields):
    (judgement,) = judge([Pair(before=before, after=after, **fields)], metric)
    return judgement


def test_a_change_is_the_ratio_of_geometric_means_with_welchs_interval():
    # variances 1e-4 each, SE^2 = 2e-4 / 3, SE = 0.0081650, df = 4, t(0.975, 4) = 2.776445, half = 0.0226695
    judged = alone(STEADY, SLOWER)
    assert judged.before == pytest.approx(10.0)
    assert judged.after == pytest.approx(10.0 * math.exp(0.1))
    assert judged.change == pytest.approx(math.expm1(0.1))
    assert judged.low == pytest.approx(math.expm1(0.1 - 0.0226695), abs=1e-6)
    assert judged.high == pytest.approx(math.expm1(0.1 + 0.0226695), abs=1e-6)
    assert (judged.verdict, judged.is_worse, judged.reason) == ("slower", True, None)


def test_interval_and_p_are_those_of_scipys_welch_test():
    from scipy import stats

    before, after = (1.00, 1.03, 0.99, 1.04), (1.10, 1.11, 1.08, 1.21, 1.02, 1.09)
    judged = alone(before, after)
    theirs = stats.ttest_ind(np.log(after), np.log(before), equal_var=False)
    interval = theirs.confidence_interval(0.95)
    assert judged.p_value == pytest.approx(theirs.pvalue)
    assert (judged.low, judged.high) == pytest.approx((math.expm1(interval.low), math.expm1(interval.high)))


def test_the_variation_between_runs_widens_the_interval_of_sides_not_interleaved():
    # SE^2 = 2e-4 / 3 + 2 * 0.02^2 = 8.6667e-4, df = SE^4 / (2 * (1e-4 / 3)^2 / 2 + 2 * (4e-4)^2 / 3) = 6.9690
    from scipy import stats

    scatter = RunScatter(sd=0.02, runs=10)
    judged = alone(STEADY, SLOWER, run_scatter=(scatter, scatter))
    se, degrees = math.sqrt(8.6666667e-4), 6.9690
    assert judged.p_value == pytest.approx(2 * stats.t.sf(0.1 / se, degrees), rel=1e-4)
    assert judged.high == pytest.approx(math.expm1(0.1 + stats.t.ppf(0.975, degrees) * se), rel=1e-4)
    assert (judged.verdict, judged.scope) == ("inconclusive", "between sessions")


def test_the_variation_between_runs_is_ignored_for_interleaved_sides():
    scatter = RunScatter(sd=0.02, runs=10)
    judged = alone(STEADY, SLOWER, run_scatter=(scatter, scatter), is_interleaved=True)
    assert (judged.scope, judged.p_value) == ("interleaved", alone(STEADY, SLOWER).p_value)


def test_without_history_a_verdict_is_within_session():
    assert alone(STEADY, SLOWER).scope == "within session"


def test_equal_sides_are_equivalent_when_the_interval_is_within_two_percent():
    close = values(0.0, 0.001, -0.001)
    assert alone(close, close).verdict == "equivalent"
    assert alone(STEADY, STEADY).verdict == "inconclusive"  # half = 0.0227, as above


def test_a_significant_change_below_two_percent_is_not_reported():
    close, little = values(0.0, 0.0001, -0.0001), values(0.0195, 0.0196, 0.0194)
    judged = alone(close, little)
    assert judged.q_value < 1e-4
    assert judged.verdict == "equivalent"
    wider = alone(values(0.0, 0.0005, -0.0005), values(0.0195, 0.02, 0.019))
    assert wider.q_value < 0.01
    assert (wider.verdict, wider.is_worse) == ("inconclusive", None)
    assert wider.reason == "the change is significant, but may be smaller than 2%"


def test_without_variation_the_change_is_exact():
    judged = alone((10.0, 10.0, 10.0), (11.0, 11.0, 11.0))
    assert (judged.verdict, judged.p_value, judged.q_value) == ("slower", 0.0, 0.0)
    assert (judged.low, judged.high) == pytest.approx((0.1, 0.1))
    same = alone((10.0, 10.0, 10.0), (10.0, 10.0, 10.0))
    assert (same.verdict, same.change, same.p_value, same.low, same.high) == ("equivalent", 0.0, 1.0, 0.0, 0.0)


def test_one_side_without_variation_leaves_that_of_the_other():
    from scipy import stats

    judged = alone((10.0, 10.0, 10.0), SLOWER)
    theirs = stats.ttest_1samp(np.log(SLOWER), math.log(10.0))  # df = 2, the other side is exact
    assert judged.p_value == pytest.approx(theirs.pvalue)


@pytest.mark.parametrize(("before", "after"), [((10.0,), (20.0,)), ((10.0, 10.1), (20.0, 20.1, 20.2))])
def test_with_two_launches_there_is_a_change_but_no_verdict(before, after):
    judged = alone(before, after)
    assert judged.change == pytest.approx(1.0, abs=0.02)
    assert (judged.verdict, judged.low, judged.p_value, judged.q_value) == ("inconclusive", None, None, None)
    assert judged.reason == f"{len(before)} and {len(after)} launches: a verdict requires 3 on each side"


def test_results_that_are_not_comparable_have_a_reason_and_no_numbers():
    judged = alone(STEADY, SLOWER, why_not="A: invalid (wrong_output)")
    assert (judged.verdict, judged.reason, judged.change) == ("not comparable", "A: invalid (wrong_output)", None)
    assert alone((0.0, 1.0, 1.0), SLOWER).verdict == "not comparable"
    assert alone((), SLOWER).verdict == "not comparable"


def test_q_is_benjamini_and_hochbergs():
    # ranks: .005 -> .02, .01 -> .02, .03 -> .04, .04 -> .04
    from scipy import stats

    assert false_discovery_rates([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.02, 0.04, 0.04, 0.02])
    assert false_discovery_rates([]) == []
    many = np.random.default_rng(3).uniform(size=50) ** 3
    assert false_discovery_rates(list(many)) == pytest.approx(list(stats.false_discovery_control(many)))


def test_among_many_comparisons_a_change_needs_a_smaller_p():
    # p = 0.00026 by itself; among 100 that are equal, its q is 0.026.
    one, equal = Pair(before=STEADY, after=SLOWER), Pair(before=STEADY, after=STEADY)
    assert judge([one], LATENCY)[0].verdict == "slower"
    among = judge([one] + [equal] * 99, LATENCY)[0]
    assert among.q_value == pytest.approx(100 * judge([one], LATENCY)[0].p_value)
    assert among.verdict == "inconclusive"


def test_only_findings_with_a_p_count_for_q():
    pairs = [
        Pair(before=(1.0,), after=(2.0,)),
        Pair(before=STEADY, after=SLOWER),
        Pair(before=(), after=(), why_not="x"),
    ]
    judged = judge(pairs, LATENCY)
    assert [one.q_value for one in judged] == [None, judged[1].p_value, None]


def test_verdict_words_depend_on_the_metric():
    assert word(0.1, JUDGED["latency_median_ms"]) == "slower"
    assert word(0.1, JUDGED["throughput_samples_per_sec"]) == "faster"
    assert word(-0.1, JUDGED["throughput_samples_per_sec"]) == "slower"
    assert word(0.1, JUDGED["memory_peak_rss_infer_mb"]) == "more"
    assert word(-0.1, JUDGED["memory_peak_rss_infer_mb"]) == "less"


def test_more_throughput_is_better_and_more_memory_is_worse():
    assert alone(STEADY, SLOWER, JUDGED["throughput_samples_per_sec"]).is_worse is False
    assert alone(STEADY, SLOWER, JUDGED["memory_peak_rss_infer_mb"]).is_worse is True


def test_scatter_of_runs_is_the_median_step_between_neighbours():
    # steps 0.01, 0.01, 0.02, 0.02: median 0.015, over 0.67449 and 1.41421
    assert run_scatter(values(0.0, 0.01, 0.0, 0.02, 0.0)) == RunScatter(sd=pytest.approx(0.0157254, rel=1e-5), runs=5)
    assert run_scatter(values(0.0, 0.01, 0.0, 0.02)) is None


def test_a_level_that_changed_once_does_not_hide_the_next_change():
    steady = [10.0, 10.1, 10.0, 9.9, 10.0, 10.1, 10.0]
    shifted = [10.0, 10.1, 10.0, 9.9, 20.0, 20.2, 20.0]
    assert run_scatter(shifted).sd == pytest.approx(run_scatter(steady).sd, rel=0.02)


def test_scatter_of_many_runs_is_their_standard_deviation():
    runs = np.exp(np.random.default_rng(5).normal(0, 0.03, 4000))
    assert run_scatter(list(runs)).sd == pytest.approx(0.03, rel=0.05)


def replay(shift, launches, between_runs=0.0, history=0, count=1500):
    """Share of changes found among pairs with a launch-to-launch sd of 1 %."""
    rng = np.random.default_rng(11)
    found = 0
    for _ in range(count):
        levels = rng.normal(0, between_runs, 2 + history) if between_runs else np.zeros(2 + history)
        before = np.exp(levels[0] + rng.normal(0, 0.01, launches))
        after = np.exp(levels[1] + math.log1p(shift) + rng.normal(0, 0.01, launches))
        runs = [math.exp(level + rng.normal(0, 0.01, launches).mean()) for level in levels[2:]]
        scatter = run_scatter(runs)
        known = None if scatter is None else (scatter, scatter)
        found += alone(tuple(before), tuple(after), run_scatter=known).is_worse is not None
    return found / count


def test_without_a_true_change_almost_none_is_found():
    assert replay(0.0, 5) <= 0.005


def test_a_change_of_five_percent_is_found_with_five_launches():
    assert replay(0.05, 5, count=500) >= 0.97


def test_levels_that_vary_between_runs_are_no_changes_once_there_is_a_history():
    assert replay(0.0, 5, between_runs=0.02, count=800) >= 0.15  # nobody knows of them
    assert replay(0.0, 5, between_runs=0.02, history=20, count=800) <= 0.012
