"""The sizes of products and copies in a calibration."""

from __future__ import annotations

import pytest
import torch

from benchmarking.calibration import calibration_plans as module
from benchmarking.calibration.calibration_plans import best_rate, search_sizes, sizes_for
from benchmarking.devices.cpu import PLUGIN as CPU
from benchmarking.devices.cpu import CpuHandle

KIB, MIB = 1 << 10, 1 << 20


def test_sizes_take_the_target_times_at_the_rate():
    # (2e12 x 0.012 / 2)^(1/3) = 2289 = 35.8 x 64; (2e12 x 0.060 / 2)^(1/3) = 3915 = 61.2 x 64
    assert sizes_for(2e12, largest=100_000) == (2304, 3904)


def test_sizes_are_bounded_by_memory_and_by_one_step():
    assert sizes_for(2e12, largest=3000) == (2304, 2944)
    assert sizes_for(2e12, largest=1000) == (960,)
    assert sizes_for(1.0, largest=1000) == (64,)


def test_the_search_stops_once_time_grows_with_work():
    tried = []

    def seconds_at(size):
        tried.append(size)
        return 2 * size**3 / 1e11

    assert best_rate(seconds_at, largest=10_000) == pytest.approx(1e11)
    assert tried == [128, 256, 512, 1024]  # 0.04, 0.3, 2.7, 21 ms


def test_a_constant_delay_does_not_stop_the_search():
    def seconds_at(size):
        return 0.004 + 2 * size**3 / 1e12

    assert best_rate(seconds_at, largest=100_000) > 5e11


def test_the_search_ends_at_the_largest_size_and_at_slow_products():
    tried = []

    def slow(size):
        tried.append(size)
        return 1.0

    best_rate(slow, largest=10_000)
    assert tried == [128]
    assert best_rate(lambda size: 1e-9, largest=300) == pytest.approx(2 * 256**3 / 1e-9)


@pytest.mark.parametrize(
    ("cache_kib", "budget_kib", "sizes_kib"),
    [
        (1, 10_000, (128, 256)),
        (200, 10_000, (800, 1600)),
        (40, 400, (200,)),
        (40, 300, ()),
    ],
)
def test_copies_are_at_least_four_times_the_cache_and_fit_the_budget(monkeypatch, cache_kib, budget_kib, sizes_kib):
    monkeypatch.setattr(module, "FIRST_COPY_BYTES", 256 * KIB)
    monkeypatch.setattr(module, "_seconds", lambda handle, call: 1.0)
    found = module._copy_sizes(CpuHandle(), cache_kib * KIB, budget_kib * KIB)
    assert found == tuple(size * KIB for size in sizes_kib)


def test_copies_grow_until_they_take_long_enough(monkeypatch):
    monkeypatch.setattr(module, "FIRST_COPY_BYTES", MIB)
    sized = []

    def seconds(handle, call):
        sized.append(call.args[0].nbytes)
        return sized[-1] / (400 * MIB)

    monkeypatch.setattr(module, "_seconds", seconds)
    assert module._copy_sizes(CpuHandle(), MIB // 8, 1000 * MIB) == (2 * MIB, 4 * MIB)
    assert sized == [MIB, 2 * MIB, 4 * MIB]


def test_the_search_on_this_cpu_finds_sizes_or_reasons(monkeypatch):
    real = module._product_seconds

    def product_seconds(handle, dtype, size):
        if dtype is torch.float16:
            raise RuntimeError("no kernel for\n'Half'")
        return real(handle, dtype, size)

    monkeypatch.setattr(module, "_product_seconds", product_seconds)
    monkeypatch.setattr(module, "free_host_bytes", lambda: 64 * MIB)
    (device,) = CPU.probe()
    found = search_sizes(device, ("float32", "float16"))
    assert list(found.matrices) == ["float32"]
    assert max(found.matrices["float32"]) ** 2 * 4 * 3 <= 16 * MIB
    assert found.missing["float16"] == "not_supported: no kernel for 'Half'"
    assert bool(found.copies_bytes) != ("copy" in found.missing)
