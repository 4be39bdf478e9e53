"""Ratios of medians and their intervals, against examples computed by hand, and what the sessions of a history say
about the differences that need no change."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import datetime
from itertools import cycle, islice
from statistics import median

import pytest

from benchmarking.core.metrics import METRICS
from benchmarking.core.records import Doubt, Point, Result, Samples
from benchmarking.core.verdicts.judging import Pair, judge, launch_medians_ms, resolution, speedups
from benchmarking.core.verdicts.launches import next_launch
from benchmarking.core.verdicts.sessions import FAR_OFF_TIMES, Session, SessionScatter, why_other_times
from db.analysis.compare.comparison import pair_of_sessions


def result(medians_ms, interval=None, metric="latency_wall", hour=3):
    """A result whose launches have these medians, each of three calls around it, a minute apart from this hour on."""
    samples = tuple(
        Samples(
            launch=launch,
            phase="measure",
            metric=metric,
            unit="ms",
            started_at=f"2026-01-02T{hour:02}:{launch:02}:05Z",
            values=(value * 1.5, value, value / 2),
        )
        for launch, value in medians_ms.items()
    )
    ordered = sorted(medians_ms.values())
    metrics = {"latency_median_ms": ordered[len(ordered) // 2]} if ordered else {}
    if interval is not None:
        metrics |= {"latency_ci_low_ms": interval[0], "latency_ci_high_ms": interval[1]}
    return Result(result_id="r", point=Point(batch_size=1), status="ok", metrics=metrics, samples=samples)


def speedup(baseline, other):
    (found,) = speedups([(baseline, other)])
    return found


def ends(found):
    return found.ratio, found.low, found.high, found.scope


def test_launches_with_the_same_number_are_paired():
    """Ratios 2, 2.5, 2.4: logs 0.693147 0.916291 0.875469, mean 0.828302, sd 0.118820; t(0.975, 2) = 4.302653, so the
    half-width is 4.302653 x 0.118820 / sqrt(3) = 0.295165."""
    found = speedup(result({0: 8.0001, 1: 10.0002, 2: 12.0001}), result({0: 4.0001, 1: 4.0, 2: 5.0003}))
    assert ends(found) == (
        pytest.approx(math.exp(0.828302), rel=1e-3),
        pytest.approx(1.7042, rel=1e-3),
        pytest.approx(3.0755, rel=1e-3),
        "between",
    )
    assert found.judgement.verdict == "not judged"


def test_a_common_drift_does_not_widen_the_interval():
    base = {0: 10.123457, 1: 20.234563, 2: 30.345679}
    found = speedup(result(base), result({number: value / 2 for number, value in base.items()}))
    assert ends(found) == (2.0, pytest.approx(2.0, abs=1e-5), pytest.approx(2.0, abs=1e-5), "between")
    assert found.judgement.verdict == "faster"


def test_launches_that_did_not_alternate_are_no_rounds():
    base = {0: 10.1, 1: 20.2, 2: 30.3}
    found = speedup(result(base), result({number: value / 2 for number, value in base.items()}, hour=4))
    assert ends(found) == (2.0, None, None, None)
    assert found.judgement.verdict == "not judged"


@pytest.mark.parametrize(
    ("start", "verdict"),
    [
        ("2026-01-02T03:04:05Z", "faster"),
        ("2026-01-02T03:04:05", "faster"),
        ("yesterday", "not judged"),
        ("", "not judged"),
    ],
)
def test_starts_of_a_file_that_another_program_wrote_end_no_comparison(start, verdict):
    base = {4: 10.123457, 5: 20.234563, 6: 30.345679}
    other = result({number: value / 2 for number, value in base.items()})
    first = replace(other.samples[0], started_at=start)
    found = speedup(result(base), replace(other, samples=(first, *other.samples[1:])))
    assert (found.ratio, found.judgement.verdict) == (2.0, verdict)


@pytest.mark.parametrize(
    ("order", "clock_step", "verdict", "reason"),
    [
        ("abbabaab", None, "faster", None),
        *(
            (order, None, "not judged", "the sides ran in a fixed order, which a recurring disturbance can follow")
            for order in ("aaaaaaaa", "abababab")
        ),
        ("abbabaab", 1.5, "not judged", "the interval is too wide to tell a change of 2% from none"),
    ],
)
def test_a_speedup_is_judged_by_the_order_of_its_launches_and_by_its_clock(order, clock_step, verdict, reason):
    """As every comparison: the rounds of earlier versions ran in a fixed order, and a browser's clock has steps."""
    values = {number: 10.123457 + number / 7919 for number in range(8)}
    sides = [result(values), result({number: value / 1.2 for number, value in values.items()})]
    for side, letter in enumerate("ab"):
        samples = tuple(
            replace(one, started_at=f"2026-01-02T03:{one.launch:02}:{10 + 10 * (first != letter)}Z")
            for one, first in zip(sides[side].samples, order, strict=True)
        )
        doubts = (Doubt(kind="coarse_clock", severity="noisy", evidence={"clock_step_over_median": clock_step}),)
        sides[side] = replace(sides[side], samples=samples, doubts=doubts if clock_step else ())
    judgement = speedup(*sides).judgement
    assert (judgement.verdict, judgement.reason and judgement.reason.partition(":")[0]) == (verdict, reason)


def test_two_common_launches_use_the_medians_own_intervals():
    """10 (8 .. 12.5) over 5 (4 .. 6.25): every distance is ln 1.25 = 0.223144, together sqrt(2) times that, 0.315573;
    2 x exp(-+0.315573) = 1.4587 .. 2.7421."""
    base = result({0: 10.0, 1: 10.0, 2: 10.0}, (8.0, 12.5))
    other = result({0: 5.0, 2: 5.0}, (4.0, 6.25))
    found = speedup(base, other)
    assert ends(found) == (2.0, pytest.approx(1.4587, abs=1e-4), pytest.approx(2.7421, abs=1e-4), "within")
    assert found.judgement.reason == "fewer than 3 launches in common: 8 may decide (--launches 8)"


def test_distances_in_the_same_direction_are_combined():
    """The ratio is lowest where the baseline is at its low end and the other at its high end: with no distance there
    the lower end is the ratio itself."""
    found = speedup(result({0: 10.0}, (10.0, 20.0)), result({0: 5.0}, (2.5, 5.0)))
    assert found is not None
    assert found.low == pytest.approx(2.0)
    assert found.high == pytest.approx(2.0 * 2 ** (2**0.5))


def test_without_intervals_there_is_only_a_ratio():
    assert ends(speedup(result({0: 10.0}), result({0: 5.0}, (4.0, 6.0)))) == (2.0, None, None, None)


@pytest.mark.parametrize(("base", "other"), [({}, {0: 1.0}), ({0: 1.0}, {}), ({0: 0.0}, {0: 1.0})])
def test_without_a_median_above_zero_there_is_no_ratio(base, other):
    assert speedup(result(base), result(other)) is None


def test_only_timed_calls_count_for_a_launch():
    assert launch_medians_ms(result({0: 4.0, 1: 6.0})) == {0: 4.0, 1: 6.0}
    assert launch_medians_ms(result({0: 4.0}, metric="time_to_first_token")) == {}


def scatter(*stretches):
    return SessionScatter(variance=1e-4, walk=0.0, degrees=20.0, sessions=20, stretches=stretches)


def test_sessions_of_one_level_are_compared_however_far_apart_they_are():
    slow_wave = tuple(0.005 * min(place, 20 - place) for place in range(20))
    assert scatter(slow_wave).usual_difference == pytest.approx(0.05)
    assert scatter(slow_wave, (0.3, 0.31)).usual_difference == pytest.approx(0.05)  # another level is another level


def test_where_single_sessions_are_far_off_the_next_one_may_be_further_off():
    quiet = tuple(islice(cycle((0.0, 0.004, -0.004)), 19))
    assert scatter(quiet).usual_difference == pytest.approx(0.008)
    assert scatter((*quiet, 0.15)).usual_difference == pytest.approx(FAR_OFF_TIMES * 0.154)


@pytest.mark.parametrize("before", [0.32, 0.64, 8.0])
@pytest.mark.parametrize("launch_noise", [0.0, 1e-16])
def test_sessions_that_do_not_vary_are_known_to_the_step_of_their_clock(before, launch_noise):
    """Whatever their level, and where an equal launch is off by the rounding of a float."""
    scatter = SessionScatter(variance=0.0, walk=0.0, degrees=4.0, sessions=9, launch_variance=0.0)
    sides = [
        [
            Session(value=level, launches=(level, level, level * (1 + launch_noise)), position=number + place)
            for place in range(9)
        ]
        for number, level in ((0, before), (9, 2 * before))
    ]
    pair = Pair(before=tuple(sides[0]), after=tuple(sides[1]), scatter=(scatter, scatter))
    (judgement,) = judge([pair], METRICS["latency_median_ms"])
    steps = [resolution([level], [before, 2 * before]) for level in (before, 2 * before)]
    half = 1.959964 * math.sqrt((steps[0] ** 2 + steps[1] ** 2) / 12)
    assert (judgement.verdict, judgement.is_decided) == ("slower", True)
    assert math.log1p(judgement.low) == pytest.approx(math.log(2) - half, abs=1e-4)


def of_launches(history, before, after, metric="latency_median_ms"):
    """The judgement of a session after another one, with a history of sessions of these launches."""
    sessions = [
        Session(value=median(launches), launches=tuple(launches), position=place, time=datetime(2026, 1, 1 + place))
        for place, launches in enumerate([*history, before, after])
    ]
    pair = pair_of_sessions(((sessions[-2],), (sessions[-1],)), ("s", "s"), {"s": sessions[:-2]})
    return judge([pair], METRICS[metric])[0]


@pytest.mark.parametrize(("factor", "verdict"), [(1, "not judged"), (2, "slower")])
def test_an_odd_launch_beside_equal_ones_is_no_busy_session(factor, verdict):
    """The launches of a clock of whole milliseconds are equal, or a step apart: 5 equal ones have the variance 0."""
    history = [[33.0 + place % 2] * 5 for place in range(20)]
    found = of_launches(history, [34.0] * 5, [factor * 33.0] * 4 + [factor * 33.0 + 1])
    assert found.verdict == verdict
    assert found.high - found.low < 0.25 * factor


def test_an_exact_size_with_one_odd_launch_is_judged():
    for size_mb in range(500, 540):  # of some, the mean logarithm of three is off by rounding
        more = [1.1 * size_mb] * 2 + [1.1 * size_mb + 0.25]
        found = of_launches([[size_mb] * 3] * 20, [size_mb] * 3, more, "memory_peak_rss_infer_mb")
        assert found.verdict == "more"


@pytest.mark.parametrize("launches", [[1e-200] * 3, [1e-200, 10.0, 1e200], [1e300, 1e299, 1e-300]])
def test_values_that_no_machine_has_take_no_other_comparison_with_them(launches):
    history = [[10.0 + place / 100, 10.1, 10.2] for place in range(20)]
    found = of_launches(history, [10.0, 10.1, 10.2], launches)
    assert found.verdict == "not judged"
    assert next_launch([*launches, 10.0, 10.0])[1] > 1


def test_a_session_at_another_time_of_the_day_is_named():
    """Not the last one of its side, which is at the hour of the other."""
    scatter = SessionScatter(variance=1e-4, walk=0.0, degrees=9.0, sessions=9, times=((datetime(2026, 1, 1, 9), 0.0),))
    before = [datetime(2026, 1, day, 14) for day in range(1, 6)] + [datetime(2026, 1, 6, 3)]
    after = [datetime(2026, 1, day, 3) for day in range(7, 13)]
    assert "other hours (14:00 and 03:00 UTC)" in why_other_times(before, after, (scatter, scatter))
