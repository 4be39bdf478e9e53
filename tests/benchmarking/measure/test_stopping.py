import math

import pytest

from benchmarking.measure.context import Settings
from benchmarking.measure.timing import StoppingRule, latency_pass

QUIET = (1.00, 1.01, 0.99, 1.005, 0.995, 1.01, 0.99, 1.0, 1.005, 0.995)


def looks(settings, until=10_000):
    rule, count, seen = StoppingRule(settings), 0, []
    while count < until and (not seen or rule.next_count(count) > count):
        count = rule.next_count(count)
        seen.append(count)
    return seen


def test_looks_are_at_geometric_counts_up_to_the_maximum_count():
    assert looks(Settings()) == [30, 60, 120, 240, 480, 960]
    assert looks(Settings(min_samples=10, max_samples=200)) == [10, 20, 40, 80, 160, 200]
    assert looks(Settings(fixed_iterations=100)) == [30, 60, 100]
    assert looks(Settings(fixed_iterations=2)) == [2]


def test_stops_on_target_at_the_first_look_that_meets_it(fake):
    result = latency_pass(fake.context([100 * factor for factor in QUIET]), 1)
    assert (result.stop_reason, len(result.watch)) == ("target", 30)
    assert result.relative_half_width < 0.02


def test_the_minimum_time_delays_the_target(fake):
    result = latency_pass(fake.context([10 * factor for factor in QUIET], min_time_s=1.0), 1)
    assert (result.stop_reason, len(result.watch)) == ("target", 120)  # 30 and 60 calls are 0.3 and 0.6 s


def test_stops_at_the_maximum_of_samples(fake):
    noisy = [10, 12, 9, 11, 200, 13, 10, 8, 12, 11, 9, 14, 10]
    result = latency_pass(fake.context(noisy, max_samples=60, target_relative_half_width=1e-9), 1)
    assert (result.stop_reason, len(result.watch)) == ("max_samples", 60)


def test_a_target_met_at_the_maximum_is_met(fake):
    context = fake.context([1 * factor for factor in QUIET], max_samples=60, min_time_s=9.0)
    assert latency_pass(context, 1).stop_reason == "target"


def test_stops_at_the_maximum_of_time_between_looks(fake):
    result = latency_pass(fake.context([900, 1500], max_time_s=20.0), 1)
    assert result.stop_reason == "max_time"
    assert len(result.watch) == 17  # 8 pairs are 19.2 s
    assert result.relative_half_width == pytest.approx(300 / 900)


def test_slow_calls_are_timed_three_times_despite_the_limit(fake):
    assert len(latency_pass(fake.context([60_000]), 1).watch) == 3


def test_stops_on_a_plateau(fake):
    rising = [100 * 1.01**i for i in range(400)]
    result = latency_pass(fake.context(rising, max_time_s=1e6, max_samples=4800), 1)
    assert (result.stop_reason, len(result.watch)) == ("plateau", 120)


def test_a_fixed_number_overrides_every_limit(fake):
    result = latency_pass(fake.context([60_000], fixed_iterations=40, max_time_s=1.0), 1)
    assert (result.stop_reason, len(result.watch)) == ("fixed", 40)
    assert latency_pass(fake.context([5], fixed_iterations=1), 1).stop_reason == "fixed"


def test_independent_noise_seldom_looks_like_a_plateau():
    import numpy as np

    rng = np.random.default_rng(3)
    plateaus = 0
    for _ in range(100):
        rule, values = StoppingRule(Settings(target_relative_half_width=1e-9, max_samples=10_000)), []
        for count in (30, 60, 120):
            values += list(100 + 10 * rng.standard_normal(count - len(values)))
            reason = rule.look(values, measured_s=5.0)
        plateaus += reason == "plateau"
    assert plateaus <= 12


def test_the_device_is_read_between_timed_regions_only(fake):
    handle = fake.handle()
    handle.state = lambda state=handle.state: (handle.events.append("state"), state())[1]
    latency_pass(fake.context([100 * factor for factor in QUIET], handle=handle), 1)
    readings_before = [
        handle.events[:index].count("now") for index, event in enumerate(handle.events) if event == "state"
    ]
    assert readings_before == [0, 60]  # each timed region has two readings of the clock: none is open
    assert handle.events.count("state") == 2  # before, and at the one look


def test_outliers_that_move_the_mean_only_do_not_delay_the_stop(fake):
    """The headline is the median: one call of 20 that is ten times as long leaves it where it is."""
    calls = [100 * factor for factor in QUIET * 2]
    calls[7] = 1000
    result = latency_pass(fake.context(calls), 1)
    assert (result.stop_reason, len(result.watch)) == ("target", 30)


def test_two_alternating_states_are_not_on_target(fake):
    alternating = [100, 120.3, 119.8, 100.5] * 3
    result = latency_pass(fake.context(alternating, max_samples=60), 1)
    assert result.stop_reason != "target"
    assert result.relative_half_width == pytest.approx(0.09, abs=0.01)


def test_accelerators_are_measured_for_a_minimum_time(fake):
    calls = [2 * factor for factor in QUIET]
    on_cpu = latency_pass(fake.context(calls, max_samples=600), 1)
    assert (on_cpu.stop_reason, len(on_cpu.watch)) == ("target", 600)
    context = fake.context(calls, handle=fake.handle(torch_name="cuda:0"), max_samples=600)
    result = latency_pass(context, 1)
    assert (result.stop_reason, len(result.watch)) == ("target", 4800)  # 600, 1200 and 2400 calls are up to 4.8 s


def test_heating_accelerators_are_measured_until_settled(fake):
    calls = [50 * QUIET[i % 10] * (1 + 0.08 * (1 - math.exp(-i * 0.05 / 5))) for i in range(2000)]
    context = fake.context(calls, handle=fake.handle(torch_name="cuda:0"), max_samples=120, max_time_s=60.0)
    assert latency_pass(context, 1).watch.spent_ns > 15e9
    steady = fake.context([50 * factor for factor in QUIET], handle=fake.handle(torch_name="cuda:0"))
    assert latency_pass(steady, 1).watch.spent_ns < 7e9


@pytest.mark.parametrize("measured_s", [0.0, 0.99])
def test_no_target_before_the_minimum_time(measured_s):
    assert StoppingRule(Settings()).look([1.0, 1.01] * 15, measured_s) is None
