import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from benchmarking.core.records import Readings
from benchmarking.measure import energy
from benchmarking.measure.energy import EnergyWindow, energy_pass, summarise_windows
from tests.helpers.sweeps import wait_for

COUNTER = Readings(values={"gpu": 1.0, "method": "counter"}, missing={"dram": "not_supported"})


def window(calls, seconds, joules):
    return EnergyWindow(calls=calls, seconds=seconds, joules={"gpu": joules})


def test_joules_per_call_gross_and_net_by_hand():
    # 500 J / 10 calls and 540 J / 10 calls; idle 100 J / 5 s = 20 W over 0.5 s a call
    result = summarise_windows(window(0, 5.0, 100.0), [window(10, 5.0, 500.0), window(10, 5.0, 540.0)], COUNTER)
    assert result.metrics["energy_gpu_j_per_call"] == pytest.approx(52.0)
    assert result.metrics["energy_gpu_net_j_per_call"] == pytest.approx(52.0 - 20.0 * 0.5)
    assert result.metrics["energy_gpu_sd_j_per_call"] == pytest.approx(2.0 * 2**0.5)
    assert result.metrics["energy_idle_w"] == pytest.approx(20.0)
    assert result.extra["energy_calls_per_s"] == [2.0, 2.0]


def test_mean_power_and_energy_per_window_are_stored_with_the_energy_per_call():
    """500 J and 540 J in 5 s each are 100 W and 108 W."""
    result = summarise_windows(window(0, 5.0, 100.0), [window(10, 5.0, 500.0), window(10, 5.0, 540.0)], COUNTER)
    assert result.metrics["power_mean_w"] == pytest.approx(104.0)
    assert result.extra["power_mean_w_by_domain"] == {"gpu": pytest.approx(104.0)}
    assert result.extra["energy_j_by_window"] == {"gpu": [500.0, 540.0]}
    assert (result.extra["energy_method"], result.extra["energy_method_by_domain"]) == ("counter", {"gpu": "counter"})
    assert "power_peak_w" not in result.metrics
    assert result.missing["power_peak_w"] == "not_supported: no power sensor"


def test_power_of_gpus_without_an_energy_counter_is_integrated(fake):
    """300 W all the time, and calls of 100 ms, on the device's own clock."""
    handle = fake.handle()
    handle.momentary_power_w = lambda: 300.0
    result = energy_pass(fake.context([100], handle=handle, energy_windows=2))
    assert result.metrics["energy_gpu_j_per_call"] == pytest.approx(30.0)
    assert result.metrics["energy_gpu_net_j_per_call"] == pytest.approx(0.0)
    assert result.metrics["energy_idle_w"] == pytest.approx(300.0)
    assert (result.metrics["power_mean_w"], result.metrics["power_peak_w"]) == (pytest.approx(300.0), 300.0)
    assert result.extra["energy_method"] == "integrated_power"
    assert "energy_gpu_j_per_call" not in result.missing
    assert result.missing["energy_cpu_pkg_j_per_call"] == "not_supported"


def test_mean_power_is_weighted_by_time(monkeypatch):
    """100 W falling to 0 W within 1 s, then 3 s at 0 W: 50 J in 4 s. The thread takes no samples here."""
    monkeypatch.setattr(energy, "POWER_INTERVAL_S", 3600.0)
    watts, times = iter([100.0, 0.0, 0.0]), iter([0, 1_000_000_000, 4_000_000_000])
    power = energy.PowerSamples(lambda: next(watts), lambda: next(times))
    assert power.mean_w is None
    power._sample()
    power.stop()
    assert (power.mean_w, power.peak_w) == (12.5, 100.0)


def test_power_is_sampled_while_calls_run():
    samples = energy.PowerSamples(lambda: 5.0, time.perf_counter_ns)
    wait_for(lambda: len(samples._samples) > 3)
    samples.stop()
    assert (samples.mean_w, samples.peak_w) == (pytest.approx(5.0), 5.0)


def test_a_counter_is_preferred_to_the_integrated_power(fake):
    handle = fake.handle(power_w=10.0)
    handle.momentary_power_w = lambda: 10.5
    result = energy_pass(fake.context([100], handle=handle, energy_windows=1))
    assert result.metrics["energy_gpu_j_per_call"] == pytest.approx(1.0)
    assert (result.metrics["power_mean_w"], result.metrics["power_peak_w"]) == (pytest.approx(10.0), 10.5)
    assert result.extra["energy_method"] == "counter"
    assert "energy_counter_dropped" not in result.extra


@pytest.mark.parametrize("power_w", [99.0, 5.0])
def test_a_counter_that_contradicts_the_power_is_dropped_with_the_reason(fake, power_w):
    """It counts 10 W. Counters stall, jump and run backward; 20 % is more than sampling can be off."""
    handle = fake.handle(power_w=10.0)
    handle.momentary_power_w = lambda: power_w
    result = energy_pass(fake.context([100], handle=handle, energy_windows=2))
    assert result.metrics["energy_gpu_j_per_call"] == pytest.approx(power_w / 10)
    assert result.metrics["power_mean_w"] == pytest.approx(power_w)
    assert result.extra["energy_method"] == "integrated_power"
    assert result.extra["energy_counter_dropped"].startswith("the energy counter differs by ")


def test_the_idle_power_is_read_after_a_pause_and_before_any_call(fake):
    """The power falls for 3 s after the work before, from 300 W to 50 W."""
    handle = fake.handle(power_w=0.0)

    def seconds():
        return handle.clock_ns / 1e9

    handle.energy_j = lambda: Readings(
        values={
            "gpu": min(handle.clock_ns / 1e9, 3) * 300 + max(handle.clock_ns / 1e9 - 3, 0) * 50,
            "method": "counter",
        }
    )
    result = energy_pass(fake.context([100], handle=handle, energy_windows=1))
    assert result.metrics["energy_idle_w"] == pytest.approx(50.0)


def test_one_window_has_no_deviation():
    result = summarise_windows(window(0, 5.0, 100.0), [window(10, 5.0, 500.0)], COUNTER)
    assert "energy_gpu_sd_j_per_call" not in result.metrics


def test_a_constant_counter_is_stale():
    result = summarise_windows(window(0, 5.0, 0.0), [window(10, 5.0, 500.0), window(10, 5.0, 0.0)], COUNTER)
    assert result.metrics == {}
    assert result.missing["energy_gpu_j_per_call"].startswith("counter_stale")
    assert result.missing["energy_idle_w"].startswith("counter_stale")


def test_a_stale_idle_counter_gives_no_idle_power_or_net_energy():
    result = summarise_windows(window(0, 5.0, 0.0), [window(10, 5.0, 500.0)], COUNTER)
    assert result.metrics == {"energy_gpu_j_per_call": 50.0, "power_mean_w": 100.0}
    assert result.missing["energy_idle_w"] == "counter_stale"
    assert result.missing["power_peak_w"] == "not_supported: no power sensor"


def test_each_of_several_devices_has_its_share():
    """Two windows of 10 calls with 300 + 200 J and 340 + 200 J: 32 J and 20 J a call."""
    windows = [
        EnergyWindow(calls=10, seconds=5.0, joules={"gpu": 500.0}, gpu_joules={"cuda:0": 300.0, "cuda:1": 200.0}),
        EnergyWindow(calls=10, seconds=5.0, joules={"gpu": 540.0}, gpu_joules={"cuda:0": 340.0, "cuda:1": 200.0}),
    ]
    result = summarise_windows(window(0, 5.0, 100.0), windows, COUNTER)
    assert result.extra["energy_gpu_j_per_call_by_device"] == {"cuda:0": 32.0, "cuda:1": 20.0}
    assert result.metrics["energy_gpu_j_per_call"] == 52.0


def test_counters_of_several_devices_are_read_at_start_and_end(fake):
    handle = fake.handle(power_w=10.0)
    alone = handle.energy_j
    handle.energy_j = lambda: alone() | Readings(values={"by_device": {"a": {"gpu": alone().values["gpu"]}, "b": {}}})
    result = energy_pass(fake.context([100], handle=handle, energy_windows=1))
    assert result.extra["energy_gpu_j_per_call_by_device"] == {"a": pytest.approx(1.0)}


def test_no_power_is_sampled_after_a_call_that_failed(fake):
    class Failing(fake.operation):
        def run(self, mark):
            raise ValueError("this point fails, the next one is timed")

    context = fake.context([100], handle=fake.handle(power_w=10.0), energy_windows=1)
    with pytest.raises(ValueError, match="this point fails"):
        energy_pass(replace(context, operation=Failing(context.handle, [100])))
    assert [thread.name for thread in threading.enumerate() if thread.name == "power-sampler"] == []


def test_nothing_runs_without_a_counter(fake):
    context = fake.context([5])
    result = energy_pass(context)
    assert context.operation.calls == 0
    assert result.metrics == {}
    assert set(result.missing) == {
        *(f"energy_{domain}_j_per_call" for domain in ("gpu", "cpu_pkg", "dram", "soc")),
        "energy_idle_w",
        "power_mean_w",
        "power_peak_w",
    }


def test_peak_power_of_a_counter_is_its_steepest_rise(monkeypatch):
    """As of RAPL, which has no power: 20 J in 0.1 s, then 35 J, then 5 J; the last two are 1 ms apart."""
    starts = [0, 100_000_000, 200_000_000, 300_000_000, 301_000_000]
    times = iter([at for start in starts for at in (start, start + 20_000)])
    joules = iter([0.0, 20.0, 55.0, 60.0, 70.0])
    monkeypatch.setattr(energy.CounterSamples, "interval_s", 0.1)
    monkeypatch.setattr(energy.threading, "Thread", lambda **_: SimpleNamespace(start=list, join=list))
    power = energy.CounterSamples(lambda: next(joules), lambda: next(times))
    for _ in range(3):
        power._sample()
    power.stop()
    assert power.peak_w == pytest.approx(350.0)
    assert power.mean_w is None


def test_a_counter_that_cannot_be_read_for_a_moment_costs_a_sample(fake, monkeypatch):
    """As of Apple's IOReport. The thread takes no samples here."""
    monkeypatch.setattr(energy.threading, "Thread", lambda **_: SimpleNamespace(start=list, join=list))
    handle, readings = fake.handle(), [Readings(values={"soc": joules}) for joules in (1.0, 1.0, 8.0)]
    readings.insert(2, Readings(missing={"soc": "not_supported: IOReport"}))
    handle.energy_j = lambda: readings.pop(0)
    with energy.WindowReading(handle) as reading:
        assert reading.window(calls=1).joules == {"soc": 7.0}


def test_interrupted_readings_are_not_samples():
    times = iter([0, 10_000_000])
    power = energy.CounterSamples.__new__(energy.CounterSamples)
    power._read, power._now_ns, power._samples = (lambda: 1.0), (lambda: next(times)), []
    assert power._sample()
    assert power._samples == []


def test_cpu_power_is_package_power():
    counted = EnergyWindow(calls=10, seconds=5.0, joules={"cpu_pkg": 300.0, "dram": 50.0}, peak_w=71.0)
    idle = EnergyWindow(calls=0, seconds=5.0, joules={"cpu_pkg": 100.0, "dram": 25.0})
    result = summarise_windows(idle, [counted], Readings(values={"cpu_pkg": 1.0, "dram": 1.0, "method": "counter"}))
    assert (result.metrics["power_mean_w"], result.metrics["power_peak_w"]) == (60.0, 71.0)
    assert result.extra["power_mean_w_by_domain"] == {"cpu_pkg": 60.0, "dram": 10.0}
    assert result.extra["energy_method_by_domain"] == {"cpu_pkg": "counter", "dram": "counter"}


def test_counters_that_wrap_around_are_never_read_by_two_threads_at_once(fake):
    """RAPL's remember their last value, and would take a late one for a wrap-around."""
    handle, reading, together = fake.handle(power_w=10.0), threading.Lock(), []
    alone = handle.energy_j

    def energy_j():
        if not reading.acquire(blocking=False):
            together.append(threading.current_thread().name)
            return alone()
        try:
            time.sleep(0.002)
            return alone()
        finally:
            reading.release()

    handle.energy_j = energy_j
    energy_pass(fake.context([100], handle=handle, energy_windows=3))
    assert together == []


def test_idle_power_before_the_load_is_read_on_an_open_device_after_a_pause(fake):
    handle = fake.handle(power_w=25.0)
    context = fake.context([100], handle=handle)
    assert energy.idle_power_w(handle, context.settings) == {"gpu": pytest.approx(25.0)}
    assert handle.slept_s == [3.0, context.settings.energy_window_s]
    assert energy.idle_power_w(fake.handle(), context.settings) == {}  # no counter: no time is spent
    none = replace(context.settings, energy_windows=0)
    assert energy.idle_power_w(fake.handle(power_w=25.0), none) == {}


def test_windows_have_a_minimum_duration_and_ten_calls(fake):
    handle = fake.handle(power_w=10.0)
    fast = fake.context([100], handle=handle, energy_windows=3)
    assert energy_pass(fast).extra["energy_calls"] == [50, 50, 50]
    slow = fake.context([1000], handle=fake.handle(power_w=10.0), energy_windows=1)
    result = energy_pass(slow)
    assert result.extra["energy_calls"] == [10]
    assert result.metrics["energy_gpu_j_per_call"] == pytest.approx(10.0)


def test_slow_calls_stop_after_the_window_at_the_time_limit(fake):
    context = fake.context([3000], handle=fake.handle(power_w=10.0), energy_windows=3, max_time_s=20.0)
    assert energy_pass(context).extra["energy_calls"] == [7]  # 21 s


def test_a_call_longer_than_the_window_is_made_once(fake):
    context = fake.context([17_000], handle=fake.handle(power_w=10.0), energy_windows=2, max_time_s=10.0)
    assert energy_pass(context).extra["energy_calls"] == [1]


def test_energy_is_not_measured_with_other_processes_on_the_device(fake):
    states = [Readings(values={"foreign_pids": [77]})]
    context = fake.context([5], handle=fake.handle(power_w=10.0, states=states))
    result = energy_pass(context)
    assert context.operation.calls == 0
    assert all(why.startswith("not_applicable: other processes") for why in result.missing.values())


def test_windows_too_short_for_a_counter_are_not_run(fake):
    context = fake.context([5], handle=fake.handle(power_w=10.0), energy_window_s=4.9)
    assert energy_pass(context).missing["energy_gpu_j_per_call"] == "not_run: windows of 4.9 s, below 5 s"
    assert context.operation.calls == 0


def test_a_process_that_starts_during_the_windows_invalidates_them(fake):
    states = [Readings(), Readings(values={"foreign_pids": [77]})]
    result = energy_pass(fake.context([100], handle=fake.handle(power_w=10.0, states=states)))
    assert result.metrics == {}
    assert result.missing["energy_gpu_j_per_call"].startswith("not_applicable: other processes")


def test_energy_can_be_left_out(fake):
    result = energy_pass(fake.context([5], handle=fake.handle(power_w=10.0), energy_windows=0))
    assert result.missing["energy_gpu_j_per_call"].startswith("not_run")
