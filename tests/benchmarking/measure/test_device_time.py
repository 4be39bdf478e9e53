"""Host gap and queued throughput on a device with a real queue, in a thread."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable

import pytest

from benchmarking.core.contracts import Operation
from benchmarking.core.device_contracts import DeviceHandle, KernelTracer
from benchmarking.devices.cpu import CpuHandle
from benchmarking.measure.context import MeasureContext, Settings
from benchmarking.measure.point import covered_ns, host_gap_pass, pipelined_pass

WORK_S, HOST_S = 0.008, 0.06
MS = 1e6


class QueueDevice(DeviceHandle):
    """A device that takes its work from a queue, and a tracer that notes when it worked."""

    has_queue = True

    def __init__(self) -> None:
        self.worked: list[tuple[float, float]] = []
        self._queue: queue.Queue[float | None] = queue.Queue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def launch(self, duration_s: float) -> None:
        self._queue.put(duration_s)

    def synchronize(self) -> None:
        self._queue.join()

    def tracer(self) -> KernelTracer | None:
        return WorkTracer(self)

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (duration_s := self._queue.get()) is not None:
            begin = time.perf_counter_ns()
            time.sleep(duration_s)
            self.worked.append((begin, time.perf_counter_ns()))
            self._queue.task_done()


class WorkTracer(KernelTracer):
    def __init__(self, device: QueueDevice) -> None:
        self.device = device

    def spans(self, work: Callable[[], None]) -> list[tuple[float, float]]:
        before = len(self.device.worked)
        work()
        return self.device.worked[before:]


class Call(Operation):
    """Half of the device's work is launched, the host takes its time, and the other half follows."""

    items_per_call = 2

    def __init__(self, device: QueueDevice, host_s: float = 0.0) -> None:
        self.device = device
        self.host_s = host_s
        self.begun: list[int] = []

    @property
    def calls(self) -> int:
        return len(self.begun)

    def run(self, mark):
        self.begun.append(time.perf_counter_ns())
        self.device.launch(WORK_S / 2)
        time.sleep(self.host_s)
        self.device.launch(WORK_S / 2)

    def problem(self, output):
        return None

    def count(self):
        raise NotImplementedError


@pytest.fixture
def device():
    device = QueueDevice()
    yield device
    device.close()


def context(operation: Operation, handle: DeviceHandle, **settings) -> MeasureContext:
    return MeasureContext(operation=operation, handle=handle, settings=Settings(**settings))


def wall_ns(operation: Call) -> float:
    """The wall time of a call that is waited for."""
    began = time.perf_counter_ns()
    operation.run(None)
    operation.device.synchronize()
    return time.perf_counter_ns() - began


def test_the_host_gap_is_wall_time_minus_device_time(device):
    operation = Call(device, HOST_S)
    call_ns = wall_ns(operation)
    found = host_gap_pass(context(operation, device), 0, call_ns)
    # Half of the work is done while the host is busy, and the device waits for the rest of that time.
    assert found.metrics["host_gap_ms"] > 0.3 * (HOST_S - WORK_S / 2) * 1e3
    assert found.metrics["host_gap_ms"] == pytest.approx(call_ns / MS - found.extra["kernel_ms_per_call"])
    assert found.extra["kernel_ms_per_call"] >= WORK_S * 1e3
    assert (found.extra["traced_calls"], found.extra["kernels_per_call"]) == (3, 2.0)


def test_a_busy_device_has_no_host_gap(device):
    operation = Call(device)
    assert host_gap_pass(context(operation, device), 0, 1.0).metrics["host_gap_ms"] == 0.0


def test_a_long_call_is_traced_once(device):
    operation = Call(device)
    assert host_gap_pass(context(operation, device), 0, 200 * MS).extra["traced_calls"] == 1
    assert operation.calls == 1


def test_only_the_first_launch_is_traced(device):
    operation = Call(device)
    found = host_gap_pass(context(operation, device), 1, 10 * MS)
    assert (operation.calls, found.metrics, found.missing) == (0, {}, {})


def test_a_failed_tracer_loses_only_the_host_gap(device, monkeypatch):
    monkeypatch.setattr(WorkTracer, "spans", lambda self, work: [][0])
    found = host_gap_pass(context(Call(device), device), 0, 10 * MS)
    assert found.missing == {"host_gap_ms": "failed: list index out of range"}


def test_overlapping_spans_count_once():
    assert covered_ns([(0, 10), (5, 12), (6, 7), (20, 25), (12, 13)]) == 18
    assert covered_ns([]) == 0


def test_queued_calls_overlap_host_and_device_time(device):
    operation = Call(device, WORK_S)  # the device waits for the second half of each call
    call_ns = wall_ns(operation)
    found = pipelined_pass(context(operation, device, fixed_iterations=20), call_ns)
    rounds_s = found.extra["pipelined_rounds_s"]
    assert found.metrics["throughput_pipelined"] == pytest.approx(2 * 20 / sorted(rounds_s)[1])
    assert min(rounds_s) >= 20 * WORK_S, "the device cannot work faster than it does"
    # A call begins before the device has ended the one before, unless the host was interrupted just then.
    ends = [end for _, end in device.worked[1::2]]
    assert sum(begin < end for begin, end in zip(operation.begun[1:], ends, strict=False)) > 20
    assert found.extra["pipelined_calls"] == 20
    assert operation.calls == 1 + 3 * 20
    assert len(found.extra["pipelined_rounds_s"]) == 3


class Streaming(Call):
    new_tokens = 3


class AtOnce(Call):
    requests_in_flight = 4


class OwnClock(Call):
    times_itself = True


class Restored(Call):
    keeps_state = True


@pytest.mark.parametrize(
    ("kind", "settings", "why"),
    [
        (Restored, {}, "the arguments are restored before each call"),
        (Streaming, {}, "each generated token waits for the device"),
        (AtOnce, {}, "4 requests are already in flight"),
        (OwnClock, {}, "the call times itself"),
        (Call, {"cold_cache": True}, "with a cold cache the device also works on the flush between calls"),
    ],
)
def test_calls_that_cannot_be_queued_have_a_reason(device, kind, settings, why):
    operation = kind(device)
    found = pipelined_pass(context(operation, device, **settings), 10 * MS)
    assert found.missing == {"throughput_pipelined": f"not_applicable: {why}"}
    assert operation.calls == 0


def test_cpus_have_neither_queue_nor_host_gap(device):
    processor = context(Call(device), CpuHandle())
    assert (
        pipelined_pass(processor, MS)
        .missing["throughput_pipelined"]
        .startswith("not_applicable: calls are synchronous")
    )
    assert host_gap_pass(processor, 0, MS).missing == {"host_gap_ms": "not_applicable: the host is the device"}


def test_accelerators_without_a_tracer_have_a_reason(device):
    watched = context(Call(device), DeviceHandle())
    assert host_gap_pass(watched, 0, MS).missing["host_gap_ms"].startswith("not_supported: no kernel tracer")
