"""Ratios of medians and their intervals, against examples computed by hand."""

from __future__ import annotations

import pytest

from benchmarking.core.records import Point, Result, Samples
from benchmarking.measure.speedup import Speedup, geometric_mean, launch_medians_ms, speedup


def result(medians_ms, interval=None, metric="latency_wall"):
    """A result whose launches have these medians, each of three calls around it."""
    samples = tuple(
        Samples(
            launch=launch,
            phase="measure",
            metric=metric,
            unit="ms",
            started_at="2026-01-02T03:04:05Z",
            values=(value * 1.5, value, value / 2),
        )
        for launch, value in medians_ms.items()
    )
    ordered = sorted(medians_ms.values())
    metrics = {"latency_median_ms": ordered[len(ordered) // 2]} if ordered else {}
    if interval is not None:
        metrics |= {"latency_ci_low_ms": interval[0], "latency_ci_high_ms": interval[1]}
    return Result(result_id="r", point=Point(batch_size=1), status="ok", metrics=metrics, samples=samples)


def test_launches_with_the_same_number_are_paired():
    """Ratios 2, 2.5, 2.4: logs 0.693147 0.916291 0.875469, mean 0.828302, sd 0.118820; t(0.975, 2) = 4.302653, so the
    half-width is 4.302653 x 0.118820 / sqrt(3) = 0.295165."""
    found = speedup(result({0: 8.0, 1: 10.0, 2: 12.0}), result({0: 4.0, 1: 4.0, 2: 5.0}))
    assert found == Speedup(
        ratio=2.5, low=pytest.approx(1.7042, abs=1e-4), high=pytest.approx(3.0755, abs=1e-4), scope="between"
    )


def test_a_common_drift_does_not_widen_the_interval():
    found = speedup(result({0: 10.0, 1: 20.0, 2: 30.0}), result({0: 5.0, 1: 10.0, 2: 15.0}))
    assert found == Speedup(
        ratio=2.0, low=pytest.approx(2.0, abs=1e-12), high=pytest.approx(2.0, abs=1e-12), scope="between"
    )


def test_two_common_launches_use_the_medians_own_intervals():
    """10 (8 .. 12.5) over 5 (4 .. 6.25): every distance is ln 1.25 = 0.223144, together sqrt(2) times that, 0.315573;
    2 x exp(-+0.315573) = 1.4587 .. 2.7421."""
    base = result({0: 10.0, 1: 10.0, 2: 10.0}, (8.0, 12.5))
    other = result({0: 5.0, 2: 5.0}, (4.0, 6.25))
    found = speedup(base, other)
    assert found == Speedup(
        ratio=2.0, low=pytest.approx(1.4587, abs=1e-4), high=pytest.approx(2.7421, abs=1e-4), scope="within"
    )


def test_distances_in_the_same_direction_are_combined():
    """The ratio is lowest where the baseline is at its low end and the other at its high end: with no distance there
    the lower end is the ratio itself."""
    found = speedup(result({0: 10.0}, (10.0, 20.0)), result({0: 5.0}, (2.5, 5.0)))
    assert found is not None
    assert found.low == pytest.approx(2.0)
    assert found.high == pytest.approx(2.0 * 2 ** (2**0.5))


def test_without_intervals_there_is_only_a_ratio():
    assert speedup(result({0: 10.0}), result({0: 5.0}, (4.0, 6.0))) == Speedup(ratio=2.0)


@pytest.mark.parametrize(("base", "other"), [({}, {0: 1.0}), ({0: 1.0}, {}), ({0: 0.0}, {0: 1.0})])
def test_without_a_median_above_zero_there_is_no_ratio(base, other):
    assert speedup(result(base), result(other)) is None


def test_only_timed_calls_count_for_a_launch():
    assert launch_medians_ms(result({0: 4.0, 1: 6.0})) == {0: 4.0, 1: 6.0}
    assert launch_medians_ms(result({0: 4.0}, metric="time_to_first_token")) == {}


def test_the_mean_of_ratios_is_geometric():
    assert geometric_mean([0.5, 2.0]) == pytest.approx(1.0)
    assert geometric_mean([1.0, 2.0, 4.0]) == pytest.approx(2.0)
    with pytest.raises(ValueError, match="no ratios"):
        geometric_mean([])
