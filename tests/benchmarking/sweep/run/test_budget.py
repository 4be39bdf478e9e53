"""The budget of a launch: limits shrink for slow points down to a minimum of calls, and cuts are stored."""

import math
from dataclasses import replace

import pytest

from benchmarking.core.records import Measurement, Point, Samples
from benchmarking.devices.null import NullHandle, Script
from benchmarking.measure import context as settings_module
from benchmarking.measure.context import PROFILES, Settings
from benchmarking.measure.timing import StoppingRule, Stopwatch
from benchmarking.runtimes.null import NullOperation
from benchmarking.sweep.run import budget
from benchmarking.sweep.run.budget import UNTIMED_CALLS, Budget, Overhead, fewest_calls
from benchmarking.sweep.run.process import Job
from benchmarking.sweep.run.worker import skipped
from tests.helpers.records import make_run

POINTS = tuple(Point(batch_size=batch, sequence_length=length) for length in (128, 512) for batch in (1, 2, 4, 8))
QUICK = PROFILES["quick"]


class Clock:
    def __init__(self, monkeypatch):
        self.now_s = 0.0
        monkeypatch.setattr(budget.time, "monotonic", lambda: self.now_s)


def measured(point, call_s, calls=3):
    samples = Samples(
        launch=0, phase="measure", metric="latency_wall", unit="ms", started_at="", values=(call_s * 1e3,) * calls
    )
    return Measurement(point=point, launch=0, status="ok", started_at="", finished_at="", samples=(samples,))


def run(clock, call_s, load_s=15.0, settings=QUICK, constant_s=0.0):
    """Measure all points as slowly as the settings allow; returns the settings and measurement of each."""
    clock.now_s = load_s
    kept = Budget(settings, POINTS, 0)
    out = []
    for point in POINTS:
        own_s = call_s * point.batch_size * point.sequence_length / 128
        now = kept.next_settings()
        warm_up = 1 if now.fixed_warmup_iterations is None else 0
        calls = max(warm_up + now.min_calls, math.ceil((now.max_time_s + warm_up * now.warmup_max_time_s) / own_s))
        clock.now_s += (calls + UNTIMED_CALLS) * own_s + constant_s
        out.append((now, kept.record(measured(point, own_s, calls), now)))
    return out


@pytest.mark.parametrize("call_s", [0.01, 0.1, 0.15, 0.2, 0.22])
def test_a_launch_stays_within_the_budget(monkeypatch, call_s):
    clock = Clock(monkeypatch)
    run(clock, call_s)
    assert clock.now_s <= QUICK.budget_s


def test_only_shortened_points_record_the_cut(monkeypatch):
    fast = run(Clock(monkeypatch), 0.01)
    assert all(replace(now, deadline_s=None) == QUICK and "budget" not in one.extra for now, one in fast)
    assert {now.deadline_s for now, _ in fast} == {QUICK.budget_s}
    slow = run(Clock(monkeypatch), 0.2)
    shortened = [(now, one.extra["budget"]) for now, one in slow if "budget" in one.extra]
    assert len(shortened) >= 2
    for now, limits in shortened:
        assert limits["budget_s"] == 150.0
        cut = {name: getattr(now, name) for name in limits if name != "budget_s"}
        assert cut == {name: limit for name, limit in limits.items() if name != "budget_s"}
        assert all(limit < getattr(QUICK, name) for name, limit in cut.items())


def test_a_slow_point_with_spare_time_gets_more_calls(monkeypatch):
    """75 units of work: at 0.15 s nine calls of each fit into 150 s, at 0.18 s eight of the largest, at 0.22 s 7."""
    for call_s, of_the_largest in ((0.15, 5), (0.18, 4), (0.22, 3)):
        clock = Clock(monkeypatch)
        calls = [now.min_calls for now, _ in run(clock, call_s, load_s=9.0, constant_s=0.5)]
        assert set(calls) <= {3, 4, 5}
        assert calls[-1] == of_the_largest
        assert clock.now_s <= QUICK.budget_s


def test_without_room_for_four_calls_the_warm_up_is_dropped(monkeypatch):
    """75 units of work, seven calls of each, of which three are timed: 0.22 s a call fit into 150 s, 0.4 s do not."""
    for call_s, least in ((0.22, 3), (0.4, 1)):
        clock = Clock(monkeypatch)
        found = run(clock, call_s)
        assert min(now.min_calls for now, _ in found) == least
        for now, one in found[1:]:
            if now.fixed_warmup_iterations is not None:
                limits = {"budget_s": 150.0, "max_time_s": 0.0, "fixed_warmup_iterations": 0}
                assert one.extra["budget"].items() >= limits.items()
                assert one.extra["budget"].get("min_calls", 3) == now.min_calls


def test_an_exhausted_budget_leaves_one_call_of_each_point(monkeypatch):
    clock = Clock(monkeypatch)
    kept = Budget(QUICK, POINTS, 0)
    kept.next_settings()
    kept.record(measured(POINTS[0], 0.3), QUICK)
    clock.now_s = 10_000.0
    now = kept.next_settings()
    assert (now.max_time_s, now.fixed_warmup_iterations, now.min_calls) == (0.0, 0, 1)


def test_a_spent_budget_ends_the_calls_of_a_point_with_what_it_has(monkeypatch):
    """The first calls took 40 s, as nothing had promised."""
    times = iter([100.0, 140.0, 180.0, 220.0])
    monkeypatch.setattr(settings_module.time, "monotonic", lambda: next(times))
    of_point = replace(QUICK, deadline_s=150.0)
    handle = NullHandle(Script())
    watch = Stopwatch(NullOperation(handle, POINTS[0], None, "float32"), handle)
    watch.left_s = lambda: of_point.left_s
    watch.run(100)
    assert len(watch.block_ns) == 3
    monkeypatch.setattr(settings_module.time, "monotonic", lambda: 220.0)
    assert StoppingRule(of_point).look(watch.calls_ms, 0.1) == "budget"
    assert StoppingRule(replace(of_point, fixed_iterations=5)).look(watch.calls_ms, 0.1) is None


def test_points_beyond_the_budget_get_one_call_while_that_fits_twice_the_budget(monkeypatch):
    clock = Clock(monkeypatch)
    kept = Budget(QUICK, POINTS, 0)
    assert kept.why_skipped() is None, "the first point is always measured"
    clock.now_s = 160.0
    kept.next_settings()
    cut = kept.record(replace(measured(POINTS[0], 20.0, 1), stop_reason="budget"), QUICK)
    assert cut.extra["budget"] == {"budget_s": 150.0}
    assert kept.why_skipped() is None  # 2 x 40 s, to 240 s
    clock.now_s = 250.0
    assert "the time budget of 150 s is spent" in kept.why_skipped()
    assert "about 80 s in all, would exceed 2 times the budget" in kept.why_skipped()
    clock.now_s = 140.0
    assert kept.why_skipped() is None
    clock.now_s = 149.0
    kept.record(measured(POINTS[1], 90.0, 1), QUICK)
    assert "149 s of the time budget of 150 s are spent, and a warm-up and a timed call" in (kept.why_skipped() or "")
    assert kept.skip() == POINTS[2]


def test_a_skipped_point_is_stored_with_the_command_that_measures_it():
    job = Job(cell=make_run().cell, launch=0, points=POINTS, settings=QUICK, spawned_at_ns=0)
    measurement = skipped(job, POINTS[1], "the budget is spent")
    assert (measurement.status, measurement.missing) == (
        "skipped",
        {"latency_median_ms": "not_run: the budget is spent"},
    )
    assert "benchhouse run --model-id bert-base-uncased --device cpu --runtime eager" in measurement.error
    assert measurement.error.endswith("--batch-sizes 2 --sequence-lengths 128 --iterations 1 --save")


def test_the_command_of_a_skipped_point_has_all_that_tells_its_series_apart():
    cell, cold = make_run(family="vision").cell, replace(QUICK, cold_cache=True)
    cell = replace(cell, num_threads=2, runtime_mode={"attention": "eager", "cold_cache": True, "chosen": "by itself"})
    point = Point(batch_size=1, axes={"image_size": 384})
    error = skipped(Job(cell=cell, launch=0, points=(point,), settings=cold), point, "the budget is spent").error
    for words in ("--num-threads 2 --attention eager ", "--batch-sizes 1 --image-sizes 384 ", "--cold-cache"):
        assert words in error
    assert "chosen" not in error
    assert "--inputs" not in error


def test_the_command_of_a_skipped_point_of_a_graph_file_has_its_inputs():
    cell = make_run().cell
    config = {"dims": {"n": 3}, "input_values": {"rate": 2}, "inputs_file": {"sha256": "0"}}
    cell = replace(cell, workload=replace(cell.workload, source="file", family=None, config=config))
    job = Job(cell=cell, launch=0, points=POINTS[:1], settings=QUICK)
    error = skipped(job, POINTS[0], "the budget is spent").error
    assert " --dim n=3 --input rate=2 " in error
    assert error.endswith(" --save, with the same --inputs")


def test_constant_overhead_is_not_attributed_to_calls(monkeypatch):
    """Five seconds of energy windows at the first point are five at the others, not 75 times as many."""
    assert Overhead.of(5.0, 0.01) == Overhead(UNTIMED_CALLS, 5.0 - UNTIMED_CALLS * 0.01)
    assert Overhead.of(0.02, 0.01) == Overhead(2.0, 0.0)
    assert Overhead.of(0.02, 0.0) == Overhead(0.0, 0.02)
    found = run(Clock(monkeypatch), 0.01, constant_s=5.0)
    assert all(now.min_calls == 5 and now.max_time_s > 1.0 for now, _ in found)


@pytest.mark.parametrize(("room_s", "calls"), [(100.0, 3), (30.0, 3), (29.0, 2), (10.0, 1), (0.0, 1), (-50.0, 1)])
def test_between_one_and_three_timed_calls_fit(room_s, calls):
    assert fewest_calls(room_s, 10.0) == calls
    assert fewest_calls(room_s, 0.0) == 3


@pytest.mark.parametrize("settings", [Settings(), replace(QUICK, fixed_iterations=30)])
def test_without_a_budget_or_with_a_fixed_number_of_calls_nothing_is_cut(monkeypatch, settings):
    assert {now for now, _ in run(Clock(monkeypatch), 5.0, settings=settings)} == {settings}
