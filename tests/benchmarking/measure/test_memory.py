import ctypes
import dataclasses
import math
import mmap
import os
import struct
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from benchmarking.core.records import Readings
from benchmarking.devices.support.system_values import UnreadableError
from benchmarking.measure import memory
from benchmarking.measure.memory import (
    LifetimePeak,
    LinuxPeak,
    PeakSampler,
    SampledPeak,
    memory_pass,
    phys_footprint_bytes,
)

STATUS = "Name:\tpython\nVmPeak:\t  999999 kB\nVmHWM:\t    2152 kB\nVmRSS:\t    2100 kB\n"


def test_linux_resets_the_mark_by_writing_five(tmp_path):
    (tmp_path / "clear_refs").write_text("")
    (tmp_path / "status").write_text(STATUS)
    peak = LinuxPeak(tmp_path)
    peak.reset()
    assert (tmp_path / "clear_refs").read_text() == "5"
    assert peak.read() == 2152 * 1024
    (tmp_path / "status").write_text("Name:\tpython\n")
    with pytest.raises(UnreadableError, match="not_supported: no VmHWM"):
        peak.read()


def test_a_refused_reset_is_a_reason_for_a_missing_peak(tmp_path, monkeypatch):
    (tmp_path / "status").write_text(STATUS)
    peak = LinuxPeak(tmp_path)
    with pytest.raises(UnreadableError, match="not_run"):
        peak.read()
    (tmp_path / "clear_refs").mkdir()
    peak.reset()
    with pytest.raises(UnreadableError, match=r"not_supported: .*clear_refs"):
        peak.read()
    monkeypatch.setattr(type(tmp_path), "write_text", _refuse)
    peak.reset()
    with pytest.raises(UnreadableError, match=r"no_permission: .*clear_refs"):
        peak.read()


def _refuse(path, text):
    raise PermissionError(13, "Permission denied")


@pytest.mark.skipif(sys.platform != "linux", reason="clear_refs is Linux's")
def test_the_real_peak_follows_an_allocation_and_forgets_it_on_reset():
    method = memory.reset_peak_rss()
    assert method.values == {"peak_rss_method": "high_water_mark"}
    before = memory.peak_rss_bytes()
    if before.missing:
        pytest.skip(before.missing["peak_rss_bytes"])
    with mmap.mmap(-1, 80_000_000) as block:  # not from the heap, which may keep what is freed
        block.write(b"x" * len(block))
        grown = memory.peak_rss_bytes().values["peak_rss_bytes"]
    assert grown - before.values["peak_rss_bytes"] > 70_000_000
    memory.reset_peak_rss()
    assert memory.peak_rss_bytes().values["peak_rss_bytes"] < grown - 70_000_000


def test_current_resident_memory_is_read_on_every_system():
    assert memory.rss_bytes().values["rss_bytes"] > 1_000_000


class FakeSystem:
    """proc_pid_rusage of macOS: ri_phys_footprint is the eighth 64-bit field after a 16-byte UUID."""

    def __init__(self, footprint, result=0):
        self.footprint, self.result, self.arguments = footprint, result, None

    def proc_pid_rusage(self, pid, flavor, buffer):
        self.arguments = (pid, flavor, ctypes.sizeof(buffer))
        buffer.raw = struct.pack("<16s10Q", b"u" * 16, 1, 2, 3, 4, 5, 6, 7, self.footprint, 9, 10)
        return self.result


def test_macos_footprint_is_read_from_the_documented_place():
    system = FakeSystem(123_456_789)
    assert phys_footprint_bytes(system) == 123_456_789
    assert system.arguments == (os.getpid(), 0, 96)
    with pytest.raises(UnreadableError, match="proc_pid_rusage"):
        phys_footprint_bytes(FakeSystem(0, result=-1))


def test_a_sampled_peak_is_the_largest_reading_and_its_sampler_ends_with_it():
    values = iter([10, 50, 20])
    peak = SampledPeak(lambda: next(values, 5))
    peak.reset()
    _until(lambda: next(values, None) is None)
    assert peak.read() in (10, 50)  # which readings the thread took before this one is a matter of time
    with pytest.raises(UnreadableError, match="not_run"):
        peak.read()


def test_an_unreadable_footprint_is_a_reason():
    def refuse():
        raise UnreadableError("no_permission: proc_pid_rusage")

    peak = SampledPeak(refuse)
    peak.reset()
    with pytest.raises(UnreadableError, match="no_permission"):
        peak.read()


@pytest.mark.parametrize(("platform", "kind"), [("linux", LinuxPeak), ("darwin", SampledPeak), ("win32", LifetimePeak)])
def test_each_system_has_its_own_peak(platform, kind):
    assert type(memory._peak_of(platform)) is kind


def test_windows_gives_the_peak_working_set(monkeypatch):
    import psutil

    monkeypatch.setattr(psutil.Process, "memory_info", lambda process: SimpleNamespace(rss=5, peak_wset=77))
    peak = LifetimePeak()
    peak.reset()
    assert peak.read() == 77


def test_the_sampler_keeps_the_largest_of_each_name():
    readings = [{"a": 1, "b": 9}, {"a": 5, "b": 2}, {"a": 3, "b": 4}]
    sampler = PeakSampler(lambda: readings.pop(0) if len(readings) > 1 else readings[0], 0.001)
    _until(lambda: sampler.readings >= 3)
    assert sampler.stop() == {"a": 5, "b": 9}


def test_the_sampler_has_the_mean_of_its_readings():
    readings = iter([{"a": 10, "b": 1}, {"a": 40}])
    sampler = PeakSampler(lambda: next(readings), 60.0)  # one reading at once and one at the end
    assert (sampler.stop(), sampler.means) == ({"a": 40, "b": 1}, {"a": 25.0, "b": 1.0})


@pytest.mark.skipif(sys.platform != "linux", reason="the footprint is sampled in another way")
def test_mean_resident_memory_is_over_the_calls_and_below_the_peak(fake):
    class Allocating(fake.operation):
        def run(self, mark):
            with mmap.mmap(-1, 80_000_000) as block:
                block.write(b"x" * len(block))
                time.sleep(0.2)
            return super().run(mark)

    context = fake.context([5])
    before = memory.rss_bytes().values["rss_bytes"]
    result = memory_pass(dataclasses.replace(context, operation=Allocating(context.handle, [5])))
    mean = result.metrics["rss_mean_bytes"]
    assert mean > before + 20_000_000
    assert mean < result.metrics.get("peak_rss_infer_bytes", math.inf)


def test_short_calls_are_repeated_until_there_is_a_mean(fake):
    context = fake.context([5])
    context.handle.has_scripted_clock = False
    begun = time.monotonic()
    result = memory_pass(context)
    assert time.monotonic() - begun >= memory.MEAN_TIME_S
    assert result.extra["memory_calls"] == context.operation.calls > 5


def test_the_sampler_raises_exceptions_of_readings():
    answers = iter([{"a": 1}])
    sampler = PeakSampler(lambda: next(answers), 0.001)
    sampler._thread.join(60)
    with pytest.raises(StopIteration):
        sampler.stop()


def _until(claim, limit_s=60.0):
    deadline = time.monotonic() + limit_s
    while not claim() and time.monotonic() < deadline:
        time.sleep(0.001)


def test_no_sampling_goes_on_after_a_call_that_failed(fake):
    class Failing(fake.operation):
        def resident_bytes(self):
            return 1000

        def run(self, mark):
            raise ValueError("this point fails, the next one is timed")

    in_use = Readings(values={"device_process_bytes": 1, "device_used_bytes": 1})
    for operation_type in (Failing, type("Here", (Failing,), {"resident_bytes": lambda self: None})):
        context = fake.context([5], handle=fake.handle(in_use=[in_use]))
        with pytest.raises(ValueError, match="this point fails"):
            memory_pass(dataclasses.replace(context, operation=operation_type(context.handle, [5])))
        assert [thread.name for thread in threading.enumerate() if thread.name == "peak-sampler"] == []


def test_the_memory_pass_resets_the_peaks_before_its_calls(fake):
    peaks = Readings(values={"device_allocated_peak_bytes": 700, "device_reserved_peak_bytes": 900})
    context = fake.context([5], handle=fake.handle(peaks=peaks))
    result = memory_pass(context)
    assert context.operation.calls == (5 if sys.platform == "darwin" else 1)  # a high-water mark has no gaps
    assert context.handle.events.index("reset_peak_memory") < context.handle.events.index("run")
    assert (result.metrics["device_allocated_peak_bytes"], result.metrics["device_reserved_peak_bytes"]) == (700, 900)
    assert result.missing["device_process_peak_bytes"] == "not_supported"
    assert result.extra["memory_calls"] == context.operation.calls
    assert ("peak_rss_infer_bytes" in result.metrics) != ("peak_rss_infer_bytes" in result.missing)


def test_the_allocators_peak_is_missing_where_a_replayed_graph_allocates_nothing(fake):
    peaks = Readings(values={"device_allocated_peak_bytes": 700, "device_reserved_peak_bytes": 900})
    context = fake.context([5], handle=fake.handle(peaks=peaks))
    context.operation.is_replayed = True
    result = memory_pass(context)
    assert result.metrics["device_reserved_peak_bytes"] == 900
    assert result.missing["device_allocated_peak_bytes"].startswith("not_supported: a replayed CUDA graph allocates")


def test_memory_in_use_is_sampled_and_the_delta_excludes_other_processes(fake):
    in_use = [Readings(values={"device_process_bytes": own, "device_used_bytes": used}) for own, used in _USE]
    result = memory_pass(fake.context([5], handle=fake.handle(in_use=in_use)))
    assert result.extra["memory_calls"] == 5
    assert result.metrics["device_process_peak_bytes"] == 450
    assert result.metrics["device_global_delta_bytes"] == 950 - (600 - 100)
    assert result.extra["device_memory_interval_s"] == 0.020


_USE = [(100, 600), (450, 950), (300, 800)]  # at rest, then as sampled


def test_another_process_on_the_device_leaves_no_global_delta(fake):
    in_use = [Readings(values={"device_process_bytes": 1, "device_used_bytes": 2})]
    handle = fake.handle(in_use=in_use, states=[Readings(values={"foreign_pids": [4]})])
    result = memory_pass(fake.context([5], handle=handle))
    assert result.metrics["device_process_peak_bytes"] == 1
    assert result.missing["device_global_delta_bytes"].startswith("not_applicable: another process")


def test_the_memory_of_a_model_in_other_processes_is_sampled(fake):
    class Elsewhere(fake.operation):
        def resident_bytes(self):
            return 700 if self.calls else 300

    context = fake.context([5])
    operation = Elsewhere(context.handle, [5])
    result = memory_pass(dataclasses.replace(context, operation=operation))
    assert result.metrics["peak_rss_infer_bytes"] == 700
    assert 300 < result.metrics["rss_mean_bytes"] < 700
    assert result.extra["peak_rss_method"] == "sampled_10ms"
