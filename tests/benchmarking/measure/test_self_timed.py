"""Self-timed calls: samples are the reported times, and the wall clock limits the effort."""

from __future__ import annotations

import pytest

from benchmarking.core.records import Point
from benchmarking.measure.point import measure_point
from benchmarking.measure.timing import Stopwatch

MS = 1_000_000


@pytest.fixture
def make(fake):
    """A handle and an operation whose calls last 100 ms by the clock and report 2, 3 or 4 ms."""

    class SelfTimed(fake.operation):
        times_itself = True

        def own_times_ns(self):
            said_ns = (2 + self.calls % 3) * MS
            return {"latency_wall": said_ns, "time_to_first_token": said_ns // 2}

    def make_both(**fields):
        handle = fake.handle(**fields)
        return handle, SelfTimed(handle, [100], prompt_tokens=8)

    return make_both


def test_samples_are_self_measured_and_time_spent_is_wall_time(make):
    handle, operation = make()
    watch = Stopwatch(operation, handle)
    watch.run(3)
    assert watch.calls_ms == [3, 4, 2]
    assert watch.own_ns == {"time_to_first_token": [1.5 * MS, 2 * MS, 1 * MS]}
    assert watch.spent_ns == 300 * MS


def test_self_timed_calls_have_no_device_events(make):
    handle, operation = make(has_events=True)
    watch = Stopwatch(operation, handle)
    watch.run(1)
    assert watch.device_ms == []


def test_self_timed_points_have_series_reasons_and_a_doubt(fake, make):
    handle, operation = make(has_events=True)
    settings = fake.context([1], fixed_iterations=3, fixed_warmup_iterations=1, energy_windows=0).settings
    measured = measure_point(operation, handle, Point(batch_size=1), 0, settings)
    series = {one.metric: one.values for one in measured.samples if one.phase == "measure"}
    assert series == {"latency_wall": (2, 3, 4), "time_to_first_token": (1, 1.5, 2)}
    assert measured.first_call_ms == 3
    assert "time_to_first_token" not in measured.missing
    for name in ("latency_device", "time_per_output_token", "inter_token_latency"):
        assert measured.missing[name] == "not_applicable: the call times itself and does not report it"
    assert [doubt.severity for doubt in measured.doubts if doubt.kind == "timed_by_itself"] == ["info"]


def test_short_self_timed_calls_are_not_timed_in_blocks(fake):
    class Short(fake.operation):
        times_itself = True

        def own_times_ns(self):
            return {"latency_wall": 1000 + self.calls}

    handle = fake.handle()
    settings = fake.context([1], min_samples=10, max_samples=10, warmup_max_calls=20, energy_windows=0).settings
    measured = measure_point(Short(handle, [0.001]), handle, Point(batch_size=1), 0, settings)
    assert {samples.inner_loops for samples in measured.samples} == {1}


def test_marks_of_self_timed_calls_are_used(fake):
    class MarksItself(fake.operation):
        times_itself = marks_itself = True

        def own_times_ns(self):
            return {"latency_wall": (10 + self.calls) * MS}

        def own_marks_ns(self):
            return [("encode", 1 * MS), ("token", 4 * MS), ("token", 7 * MS), ("token", 10 * MS)]

        def run(self, mark):
            return super().run(lambda name: None)

    handle = fake.handle()
    operation = MarksItself(handle, [100])
    operation.new_tokens = 3
    settings = fake.context([1], fixed_iterations=2, fixed_warmup_iterations=1, energy_windows=0).settings
    measured = measure_point(operation, handle, Point(batch_size=1, new_tokens=3), 0, settings)
    series = {one.metric: one.values for one in measured.samples if one.phase == "measure"}
    assert series["time_to_first_token"] == (4, 4)
    assert series["inter_token_latency"] == (3, 3, 3, 3)
    assert series["time_per_output_token"] == ((13 - 4) / 2, (14 - 4) / 2)
    assert (series["phase_encode"], series["phase_prefill"], series["phase_decode"]) == ((1, 1), (3, 3), (6, 6))
    assert "inter_token_latency" not in measured.missing
    assert measured.missing["latency_device"] == "not_supported: the device has no events"
