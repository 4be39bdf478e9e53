import itertools

import pytest

from benchmarking.core.errors import BenchhouseError
from benchmarking.core.records import Readings
from benchmarking.measure.timing import latency_pass
from benchmarking.measure.warm_up import alike, warm_up

JITTER = (1.00, 1.01, 0.99, 1.005, 0.995, 1.01, 0.99, 1.0, 1.005, 0.995)


def warm(context, may_block=True, first_call_ns=0):
    return warm_up(context, may_block=may_block, first_call_ns=first_call_ns)


def test_decaying_calls_are_steady_after_two_similar_windows(fake):
    settled = [50 * factor for factor in JITTER]
    context = fake.context([500 - 30 * i for i in range(10)] + settled * 100)
    result = warm(context)
    assert result.steady is True
    assert result.calls == 30
    assert len(result.values_ms) == 30
    assert result.values_ms[0] == 500.0


def test_a_first_value_that_is_an_outlier_is_not_steady(fake):
    context = fake.context([90, *[50 * factor for factor in JITTER] * 100])
    assert warm(context).calls == 30  # 20 would do for the medians


def test_the_minimum_time_applies_to_similar_calls(fake):
    calls_ms = [2 * factor for factor in JITTER]
    assert warm(fake.context(calls_ms)).calls == 250  # 0.5 s on a CPU
    accelerator = fake.handle(torch_name="cuda:0")
    assert warm(fake.context(calls_ms, handle=accelerator)).calls == 500  # 1 s elsewhere


def test_a_steady_drift_ends_at_the_maximum_of_calls(fake):
    context = fake.context([10 * 1.02**i for i in range(100)], warmup_max_calls=60)
    result = warm(context)
    assert (result.steady, result.calls) == (False, 60)


def test_the_maximum_of_time_ends_the_warm_up(fake):
    context = fake.context([400 * 1.05**i for i in range(40)], warmup_max_time_s=16.0)
    result = warm(context)
    assert result.steady is False
    assert 16_000 <= sum(result.values_ms) < 16_000 + max(result.values_ms)


def test_calls_too_slow_for_two_windows_have_unknown_steadiness(fake):
    result = warm(fake.context([12_000]))
    assert (result.steady, result.calls) == (None, 3)


def test_slow_calls_have_windows_of_five(fake):
    assert warm(fake.context([600 * factor for factor in JITTER])).calls == 10


def test_compiling_is_not_steady(fake):
    compiles = itertools.chain([0, 1, 2, 3], itertools.repeat(3))
    context = fake.context([100 * factor for factor in JITTER], compile_count=lambda: next(compiles))
    assert warm(context).calls == 40  # the count stands still for the first time from window 3 to 4


def test_growing_device_memory_is_not_steady(fake):
    handle = fake.handle()
    peaks = itertools.chain([1, 2, 3, 4], itertools.repeat(4))
    handle.peak_memory = lambda: Readings(values={"device_allocated_peak_bytes": next(peaks)})
    assert warm(fake.context([100 * factor for factor in JITTER], handle=handle)).calls == 40


def test_short_calls_are_warmed_up_in_blocks(fake):
    result = warm(fake.context([0.1 * factor for factor in JITTER]))
    assert result.inner_loops == 10
    assert result.next_inner_loops == 10
    assert len(result.extra["calibration_ms"]) == 3
    assert result.calls == 3 + 10 * len(result.values_ms)
    assert result.values_ms[0] == pytest.approx(0.1, rel=0.01)


def test_calls_that_may_not_be_blocked_are_timed_alone(fake):
    result = warm(fake.context([0.5]), may_block=False)
    assert (result.inner_loops, result.next_inner_loops) == (1, 1)


def test_a_fixed_number_of_warm_up_calls_is_kept_exactly(fake):
    result = warm(fake.context([5, 6], fixed_warmup_iterations=4))
    assert (result.calls, result.values_ms, result.steady) == (4, (5.0, 6.0, 5.0, 6.0), None)


def test_without_warm_up_the_first_call_sets_the_block(fake):
    result = warm(fake.context([5], fixed_warmup_iterations=0), first_call_ns=100_000)
    assert (result.calls, result.values_ms, result.next_inner_loops) == (0, (), 10)


def test_a_stopped_clock_ends_the_warm_up_with_the_reason(fake):
    with pytest.raises(BenchhouseError, match="the clock did not advance during 3 calls"):
        warm(fake.context([0.0]), may_block=True)


@pytest.mark.parametrize(("factor", "expected"), [(1.0, True), (1.05, True), (1.06, False), (0.94, False)])
def test_windows_are_similar_up_to_five_percent(factor, expected):
    window = [100.0, 101.0, 99.0, 100.0, 100.0]
    assert alike(window + [value * factor for value in window]) is expected


def test_windows_with_different_quartiles_are_not_similar():
    assert not alike([100, 100, 100, 100, 100, 80, 80, 100, 120, 120])


def counting(fake, calls_ms, **settings):
    """A bench of the quick profile's way: short windows, which count once they are steady."""
    limits = {"min_samples": 10, "max_time_s": 5.0, "warmup_max_time_s": 3.0, "target_relative_half_width": 0.05}
    return fake.context(calls_ms, **{**limits, **settings}, counts_steady_warmup=True)


def test_steady_windows_are_the_first_timed_calls_where_they_count(fake):
    settled = [50 * factor for factor in JITTER]
    context = counting(fake, [74 - i for i in range(10)] + settled * 100)
    result = warm(context)
    assert (result.calls, result.steady, result.extra["warmup_samples_counted"]) == (10, True, 20)
    assert result.values_ms == tuple(74.0 - i for i in range(10))
    timed = latency_pass(context, result.next_inner_loops, result.pass_start)
    assert (timed.watch.calls_ms, timed.stop_reason) == ([pytest.approx(value) for value in settled * 2], "target")
    assert timed.watch.spent_ns == sum(timed.watch.block_ns)
    assert context.operation.calls == 30


def test_steady_windows_of_other_profiles_are_warm_up_only(fake):
    result = warm(fake.context([50 * factor for factor in JITTER]))
    assert (result.pass_start, result.calls) == (None, 20)


def test_counted_windows_are_shorter_for_slow_calls(fake):
    assert [warm(counting(fake, [ms])).extra["warmup_samples_counted"] for ms in (70, 140, 600)] == [20, 10, 6]


def test_calls_too_slow_for_counted_windows_are_warmed_up_once(fake):
    context = counting(fake, [2_000])
    result = warm(context)
    assert (result.calls, result.steady, result.pass_start) == (1, None, None)
    assert len(latency_pass(context, 1, result.pass_start).watch) == 3


def test_unsteady_calls_count_none_of_their_windows(fake):
    result = warm(counting(fake, [100, 200]))
    assert (result.steady, result.pass_start) == (False, None)


@pytest.mark.parametrize(("iterations", "counted"), [(30, 20), (20, 20), (15, 10), (9, None)])
def test_counted_windows_do_not_exceed_a_fixed_number_of_calls(fake, iterations, counted):
    context = counting(fake, [50], fixed_iterations=iterations)
    result = warm(context, may_block=False)
    assert result.extra.get("warmup_samples_counted") == counted
    timed = latency_pass(context, 1, result.pass_start)
    assert (len(timed.watch), timed.stop_reason) == (iterations, "fixed")


def test_short_calls_count_in_whole_blocks(fake):
    context = counting(fake, [0.1 * factor for factor in JITTER])
    result = warm(context)
    assert result.pass_start.watch.inner_loops == result.inner_loops == 10
    assert result.calls == 3 + 10 * len(result.values_ms)
    assert latency_pass(context, result.next_inner_loops, result.pass_start).watch.inner_loops == 10


@pytest.mark.parametrize("durations_ms", [[0], [0, 0, 15.6]])
def test_a_clock_too_coarse_for_the_calls_is_an_error_and_no_latency_of_zero(fake, durations_ms):
    for count in (1, 3):
        with pytest.raises(BenchhouseError, match=r"the clock is too coarse: .* took 0 ns|the clock did not advance"):
            latency_pass(fake.context(durations_ms, fixed_iterations=count), 1)
