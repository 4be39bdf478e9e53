"""Calls with cold caches: on this machine's CPU, and through GPU interfaces."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from benchmarking.core.contracts import Operation
from benchmarking.core.device_contracts import DeviceHandle
from benchmarking.core.errors import BenchhouseError, UnsupportedError
from benchmarking.core.records import Device, Point
from benchmarking.devices import cpu, mps, openvino
from benchmarking.devices.cpu import PLUGIN, CpuHandle
from benchmarking.devices.support.handles import SeveralHandle
from benchmarking.measure.context import Settings
from benchmarking.measure.point import measure_point
from benchmarking.measure.timing import Stopwatch

KIB = 1024
POINT = Point(batch_size=1)


class Sum(Operation):
    """Reads its memory once: bound by the bandwidth of where that lies."""

    items_per_call = 1

    def __init__(self, size_bytes: int) -> None:
        self.memory = np.ones(size_bytes // 8)

    def run(self, mark):
        return float(self.memory.sum())

    def problem(self, output):
        return None

    def count(self):
        from benchmarking.core.records import Readings

        return Readings()


def fastest_ms(operation, flush=None):
    watch = Stopwatch(operation, CpuHandle(), flush=flush)
    watch.run(60)
    return min(watch.calls_ms)


def test_cache_sized_calls_are_slower_with_a_cold_cache():
    operation = Sum(256 * KIB)
    with CpuHandle().cold_cache() as cold:
        cold_ms = fastest_ms(operation, cold.flush)
    assert cold_ms > 1.5 * fastest_ms(operation)


def test_the_flush_exceeds_the_cache_and_releases_its_memory():
    handle = CpuHandle()
    before = threading.active_count()
    with handle.cold_cache() as cold:
        assert cold.size_bytes >= 2 * (handle.last_level_cache_bytes() or 0)
        assert threading.active_count() > before
    assert threading.active_count() == before


def test_caches_of_unknown_size_are_assumed_large(monkeypatch):
    monkeypatch.setattr(CpuHandle, "last_level_cache_bytes", lambda handle: None)
    with CpuHandle().cold_cache() as cold:
        assert cold.size_bytes >= cpu.UNKNOWN_CACHE_BYTES
        cold.flush()


def test_every_flush_covers_all_memory(monkeypatch):
    seen = []
    real = np.add
    monkeypatch.setattr(np, "add", lambda memory, one, out: seen.append(real(memory, one, out=out)))
    flushers = cpu.FlushThreads([(4096, None), (8192, None)])
    flushers.flush()
    flushers.flush()
    flushers.end()
    assert sorted(memory.nbytes for memory in seen) == [4096, 4096, 8192, 8192]
    assert all((memory == 2).all() for memory in seen)


def test_the_flush_is_not_timed_but_counts_as_time_spent(fake):
    handle = fake.handle()

    def flush():
        handle.events.append("flush")
        handle.clock_ns += 30_000_000

    watch = Stopwatch(fake.operation(handle, [2]), handle, flush=flush)
    watch.run(2)
    assert handle.events == ["reset", "now", "flush", "sync", "now", "sync", "now", "run", "sync", "now"] * 2
    assert watch.calls_ms == [2.0, 2.0]
    assert watch.spent_ns == 2 * 32_000_000


class ColdHandle(CpuHandle):
    """Counts the flushes of the real one."""

    flushes = 0

    def cold_cache(self):
        from contextlib import contextmanager
        from dataclasses import replace

        @contextmanager
        def counted():
            with super(ColdHandle, self).cold_cache() as cold:

                def flush():
                    self.flushes += 1
                    cold.flush()

                yield replace(cold, flush=flush)

        return counted()


def test_only_timed_calls_are_flushed():
    handle = ColdHandle()
    settings = Settings(fixed_iterations=7, fixed_warmup_iterations=2, cold_cache=True)
    (cpu,) = PLUGIN.probe()
    found = measure_point(Sum(64 * KIB), handle, POINT, 0, settings, device=cpu)
    assert handle.flushes == 7 + 2
    assert found.extra["cold_cache_bytes"] >= 2 * (handle.last_level_cache_bytes() or 0)
    assert {one.inner_loops for one in found.samples} == {1}
    for name in ("energy_gpu_j_per_call", "utilization_mean_percent", "host_gap_ms", "throughput_pipelined"):
        assert found.missing[name].startswith("not_applicable"), name


def test_short_calls_are_not_timed_in_blocks_which_would_warm_the_cache():
    settings = Settings(min_samples=10, max_samples=10, min_time_s=0, warmup_max_time_s=0.2, cold_cache=True)
    found = measure_point(Sum(4 * KIB), CpuHandle(), POINT, 0, settings)
    assert {one.inner_loops for one in found.samples} == {1}
    warm = measure_point(
        Sum(4 * KIB), CpuHandle(), POINT, 0, Settings(min_samples=10, max_samples=10, min_time_s=0, monitor_s=0)
    )
    assert "cold_cache_bytes" not in warm.extra
    assert max(one.inner_loops for one in warm.samples) > 1


def test_a_flush_is_impossible_with_requests_in_flight():
    class AtOnce(Sum):
        requests_in_flight = 4

    point = Point(batch_size=1, concurrency=4)
    with pytest.raises(BenchhouseError, match="--cold-cache needs one request at a time"):
        measure_point(AtOnce(KIB), CpuHandle(), point, 0, Settings(cold_cache=True))


def test_devices_without_a_flush_are_refused():
    with pytest.raises(UnsupportedError, match="the cache of this device cannot be flushed"):
        DeviceHandle().cold_cache()


@pytest.mark.parametrize(("name", "flushed"), [("CPU", True), ("GPU.0", False), ("NPU", False), ("AUTO", False)])
def test_openvino_flushes_the_cpu_cache_only(name, flushed):
    device = Device(type="openvino", selector=f"openvino:{name}", found=True)
    assert openvino.PLUGIN.flushes_cache(device, with_torch=True) == flushed
    handle = openvino.OpenVinoHandle(name, core=None)
    if not flushed:
        with pytest.raises(UnsupportedError):
            handle.cold_cache()
        return
    with handle.cold_cache() as cold:
        cold.flush()


def test_several_devices_are_flushed_together():
    first, second = ColdHandle(), ColdHandle()
    with SeveralHandle({"a": first, "b": second}).cold_cache() as cold:
        cold.flush()
    assert (first.flushes, second.flushes) == (1, 1)


class Memory:
    """The part of torch that holds a GPU's memory."""

    uint8 = "uint8"

    def __init__(self):
        self.made, self.filled, self.emptied = [], 0, 0
        self.mps = self

    def empty(self, size, *, dtype, device):
        self.made.append((size, dtype, device))
        return self

    def zero_(self):
        self.filled += 1

    def empty_cache(self):
        self.emptied += 1


def test_apple_gpus_are_flushed_by_filling_memory_that_is_released():
    torch = Memory()
    with mps.MpsHandle(torch).cold_cache() as cold:
        cold.flush()
        cold.flush()
        assert torch.emptied == 0
    assert (torch.made, torch.filled, torch.emptied) == ([(512 * KIB**2, "uint8", "mps")], 2, 1)
