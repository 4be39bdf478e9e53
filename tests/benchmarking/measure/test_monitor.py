"""Monitors of real processes: the machine's processors, by a process that samples them."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from itertools import pairwise

import psutil
import pytest

from benchmarking import CPUMonitor, GPUMonitor
from benchmarking.core.contracts import Operation
from benchmarking.core.errors import UsageError
from benchmarking.core.plugins import processor
from benchmarking.core.records import Device
from benchmarking.devices.cpu import CpuHandle
from benchmarking.measure.context import MeasureContext, Settings
from benchmarking.measure.monitor import (
    MODULE,
    DeviceMonitor,
    MonitorError,
    Sample,
    Usage,
    memory_and_usage,
    usage_pass,
)
from tests.helpers.sweeps import wait_for

TIMED_NS = 10e9
GPU_FILES = ("/dev/nvidia0", "/dev/kfd")


@pytest.fixture(scope="module")
def cpu() -> Device:
    (device,) = processor().probe()
    return device


class Spin(Operation):
    """A call that computes for some milliseconds on one thread, or sleeps as long."""

    items_per_call = 1

    def __init__(self, *, busy: bool, duration_s: float = 0.01) -> None:
        self.busy = busy
        self.duration_s = duration_s
        self.calls = 0

    def run(self, mark):
        self.calls += 1
        end = time.perf_counter() + self.duration_s
        if not self.busy:
            time.sleep(self.duration_s)
        while time.perf_counter() < end:
            pass

    def problem(self, output):
        return None

    def count(self):
        raise NotImplementedError


def context(operation: Operation, **settings) -> MeasureContext:
    return MeasureContext(operation=operation, handle=CpuHandle(), settings=Settings(monitor_s=0.6, **settings))


def test_a_device_found_by_another_thread_is_used(cpu):
    answers = iter([cpu.selector, cpu])

    class Raced(DeviceMonitor):
        _requested = property(lambda self: next(answers), lambda self, value: None)

    assert Raced(cpu.selector).device().selector == cpu.selector


def monitors() -> list[psutil.Process]:
    """The sampling processes that this process has started."""
    return [child for child in psutil.Process().children() if MODULE in child.cmdline()]


def test_busy_calls_use_a_processor_and_idle_ones_do_not(cpu):
    busy = usage_pass(context(Spin(busy=True)), cpu, 0, TIMED_NS)
    idle = usage_pass(context(Spin(busy=False)), cpu, 0, TIMED_NS)
    processors = len(os.sched_getaffinity(0))
    assert idle.metrics["utilization_mean_percent"] < 10 / processors
    # Beside other programs it gets less than a whole one.
    assert idle.metrics["utilization_mean_percent"] < busy.metrics["utilization_mean_percent"] <= 101 / processors
    assert busy.metrics["utilization_max_percent"] >= busy.metrics["utilization_mean_percent"]
    assert busy.missing == {"device_used_mean_bytes": "not_applicable: a CPU has no memory of its own"}


def test_the_series_has_a_time_and_a_value_for_every_sample(cpu):
    found = usage_pass(context(Spin(busy=True)), cpu, 2, TIMED_NS)
    series = {one.metric: one for one in found.samples}
    assert {name: one.unit for name, one in series.items()} == {
        "monitor_time": "ms",
        "utilization": "percent",
        "memory_resident": "MB",
    }
    times = series["monitor_time"].values
    assert times[0] == 0
    assert all(later > earlier for earlier, later in pairwise(times))
    assert {len(one.values) for one in found.samples} == {len(times)}
    assert {one.launch for one in found.samples} == {2}
    mean = sum(series["utilization"].values) / len(times)
    assert found.metrics["utilization_mean_percent"] == pytest.approx(mean)
    resident_mb = psutil.Process().memory_info().rss / 1e6
    assert series["memory_resident"].values[-1] == pytest.approx(resident_mb, rel=0.2)


def test_sampling_runs_in_a_separate_process_that_ends_with_the_pass(cpu):
    seen = []

    class Watching(Spin):
        def run(self, mark):
            seen.append(len(monitors()))
            super().run(mark)

    usage_pass(context(Watching(busy=False)), cpu, 0, TIMED_NS)
    assert set(seen) == {1}
    assert monitors() == []


def test_a_pass_whose_calls_fail_leaves_no_process_behind(cpu):
    class Failing(Spin):
        def run(self, mark):
            raise RuntimeError("CUDA error")

    with pytest.raises(RuntimeError, match="CUDA error"):
        usage_pass(context(Failing(busy=False)), cpu, 0, TIMED_NS)
    assert monitors() == []


def test_a_slow_call_is_called_once_and_still_sampled(cpu):
    operation = Spin(busy=False, duration_s=1.0)
    found = usage_pass(context(operation), cpu, 0, TIMED_NS)
    assert operation.calls == 1
    assert found.extra["monitored_calls"] == 1
    assert found.extra["monitored_s"] >= 1.0
    assert "utilization_mean_percent" in found.metrics


def test_cpu_memory_and_use_are_measured_on_the_same_calls(cpu):
    operation = Spin(busy=True, duration_s=0.7)
    memory, usage = memory_and_usage(context(operation), cpu, 0, TIMED_NS)
    assert memory.extra["memory_calls"] == usage.extra["monitored_calls"] == operation.calls
    assert operation.calls == 1 or sys.platform == "darwin"
    assert memory.metrics["rss_mean_bytes"] > 1e6
    assert "utilization_mean_percent" in usage.metrics


def test_memory_is_measured_without_a_usage_pass(cpu):
    operation = Spin(busy=True)
    memory, usage = memory_and_usage(context(operation, fixed_iterations=3), cpu, 0, 30e6)
    assert memory.extra["memory_calls"] == operation.calls > 0
    assert usage.missing["utilization_mean_percent"].startswith("not_run")


@pytest.mark.parametrize(
    ("settings", "timed_ns", "why"),
    [
        ({"monitor_s": 0.0}, TIMED_NS, "not_run: no monitored calls were requested"),
        ({"fixed_iterations": 3}, 30e6, "not_run: the 3 requested calls take less than the 0.6 s"),
    ],
)
def test_a_disabled_usage_pass_starts_no_process_and_has_a_reason(cpu, settings, timed_ns, why):
    operation = Spin(busy=True)
    wanted = context(operation)
    found = usage_pass(
        dataclasses.replace(wanted, settings=dataclasses.replace(wanted.settings, **settings)), cpu, 0, timed_ns
    )
    assert operation.calls == 0
    assert found.missing["utilization_mean_percent"].startswith(why)
    assert found.samples == ()


def test_devices_without_readings_have_a_reason(cpu):
    silent = dataclasses.replace(cpu, type="null", selector="null")
    found = usage_pass(context(Spin(busy=True)), silent, 0, TIMED_NS)
    assert found.missing["utilization_mean_percent"] == "not_supported: the use of null cannot be read"


def test_a_lost_device_is_the_reason_for_a_missing_number(cpu):
    gone = dataclasses.replace(cpu, type="cuda", selector="cuda:3", facts=cpu.facts)
    found = usage_pass(context(Spin(busy=True)), gone, 0, TIMED_NS)
    why = found.missing["utilization_max_percent"]
    assert why.startswith("failed: cannot monitor cuda:3: cannot monitor device 'cuda:3': ")
    assert monitors() == []


def test_arbitrary_code_is_monitored_inside_a_with_block(cpu):
    begin = time.monotonic()
    with DeviceMonitor(cpu, sample_interval=0.02) as monitor:
        wait_for(lambda: len(monitor.usage.samples) > 5, poll_s=0)
        usage = monitor.stop()
    end = time.monotonic()
    summary = usage.summary()
    assert summary["utilization_max_percent"] >= summary["utilization_mean_percent"] > 0
    assert 0 < usage.times_s[-1] <= end - begin
    assert monitor.usage == usage


def test_a_monitor_reports_the_loss_of_its_process(cpu):
    monitor = DeviceMonitor(cpu, sample_interval=0.02).start()
    (child,) = monitors()
    child.send_signal(signal.SIGKILL)
    while child.status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    time.sleep(0.2)  # its other threads end a little later, and only then has it ended
    with pytest.raises(MonitorError, match="ended early: the sampling process ended with exit code -9"):
        monitor.stop()


def test_samples_of_a_period_exclude_those_that_began_before_it():
    monitor = DeviceMonitor(Device(type="cpu", selector="cpu", found=True))
    monitor._samples = [Sample(at_ns=at, values={"utilization_percent": at}) for at in (1, 2, 3, 4, 5)]
    assert monitor.between(2, 4).series("utilization_percent") == (3, 4)


def test_readings_missing_in_all_samples_keep_their_reason():
    sample = Sample(at_ns=1, values={}, missing={"power_w": "not_supported: x"})
    usage = Usage(samples=(sample,))
    assert usage.why_missing("power_w") == "not_supported: x"
    assert usage.summary() == {}


def test_the_cpu_monitor_reads_machine_conditions_and_child_processes(tmp_path):
    code = "import time\nend = time.monotonic() + 120\nwhile time.monotonic() < end: pass"
    one_processor = 100 / len(os.sched_getaffinity(0))

    def is_busy():
        read = monitor.usage.series("utilization_percent")
        return len(read) == 5 and max(read) > 0.3 * one_processor

    with CPUMonitor(sample_interval=0.05, with_children=True, keep=5) as monitor:
        with subprocess.Popen([sys.executable, "-c", code]) as busy:
            try:
                wait_for(is_busy)
                usage = monitor.usage
            finally:
                busy.kill()
        whole = monitor.stop()
    assert len(usage.samples) == len(whole.samples) == 5
    assert usage.series("machine_used_bytes")[0] > 1e6
    assert 0 <= usage.summary()["machine_mean_percent"] <= 100
    for name in ("temperature_c", "clock_hz", "memory_clock_hz", "power_w"):
        assert usage.series(name) or usage.why_missing(name).startswith(("not_", "no_permission", "failed"))


@pytest.mark.skipif(any(map(os.path.exists, GPU_FILES)) or sys.platform != "linux", reason="there may be a GPU")
def test_a_machine_without_a_gpu_is_reported_when_the_monitor_starts():
    monitor = GPUMonitor(sample_interval=0.2)
    with pytest.raises(MonitorError, match=r"^no GPU to monitor: .*cuda: .*; .*rocm: "):
        monitor.start()


def test_the_sample_interval_must_be_positive():
    with pytest.raises(UsageError, match="sample_interval takes seconds above 0"):
        GPUMonitor(sample_interval=0)
