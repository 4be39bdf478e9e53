"""The budget of a launch: limits shrink for slow points, never below the fewest calls, and what was cut is stored."""

from dataclasses import replace

import pytest

from benchmarking.core.records import Measurement, Point, Samples
from benchmarking.measure.settings import PROFILES, Settings
from benchmarking.sweep.run import budget
from benchmarking.sweep.run.budget import LEAST_CALLS, UNTIMED_CALLS, Budget

POINTS = tuple(Point(batch_size=batch, sequence_length=length) for length in (128, 512) for batch in (1, 2, 4, 8))
QUICK = PROFILES["quick"]


class Clock:
    def __init__(self, monkeypatch):
        self.now_s = 0.0
        monkeypatch.setattr(budget.time, "monotonic", lambda: self.now_s)


def measured(point, call_s):
    samples = Samples(
        launch=0, phase="measure", metric="latency_wall", unit="ms", started_at="", values=(call_s * 1e3,) * 3
    )
    return Measurement(point=point, launch=0, status="ok", started_at="", finished_at="", samples=(samples,))


def run(clock, call_s, load_s=15.0, settings=QUICK):
    """Measure all points as slowly as the settings allow; gives the settings and measurement of each."""
    clock.now_s = load_s
    kept = Budget(settings, POINTS, 0)
    out = []
    for point in POINTS:
        own_s = call_s * point.batch_size * point.sequence_length / 128
        now = kept.next_settings()
        calls_s = max(LEAST_CALLS * own_s, now.max_time_s + now.warmup_max_time_s)
        clock.now_s += calls_s + UNTIMED_CALLS * own_s
        out.append((now, kept.settle(measured(point, own_s), now)))
    return out


@pytest.mark.parametrize("call_s", [0.01, 0.1, 0.2, 0.23])
def test_a_launch_stays_within_the_budget(monkeypatch, call_s):
    clock = Clock(monkeypatch)
    run(clock, call_s)
    assert clock.now_s <= QUICK.budget_s


def test_a_shortened_point_says_so_and_others_do_not(monkeypatch):
    fast = run(Clock(monkeypatch), 0.01)
    assert all(now == QUICK and "budget" not in one.extra for now, one in fast)
    slow = run(Clock(monkeypatch), 0.22)
    shortened = [(now, one.extra["budget"]) for now, one in slow if "budget" in one.extra]
    assert len(shortened) >= 2
    for now, limits in shortened:
        assert limits["budget_s"] == 150.0
        assert limits["warmup_max_time_s"] == now.warmup_max_time_s < QUICK.warmup_max_time_s


def test_an_exhausted_budget_leaves_the_fewest_calls(monkeypatch):
    clock = Clock(monkeypatch)
    kept = Budget(QUICK, POINTS, 0)
    kept.settle(measured(POINTS[0], 0.3), QUICK)
    clock.now_s = 10_000.0
    now = kept.next_settings()
    assert (now.max_time_s, now.warmup_max_time_s) == pytest.approx((1.6, 0.8))  # together four calls of 0.6 s


@pytest.mark.parametrize("settings", [Settings(), replace(QUICK, fixed_iterations=30)])
def test_without_a_budget_or_with_a_fixed_number_of_calls_nothing_is_cut(monkeypatch, settings):
    assert {now for now, _ in run(Clock(monkeypatch), 5.0, settings=settings)} == {settings}
