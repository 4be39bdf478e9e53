"""The CUDA device on a real GPU: run where one is found, skipped with the reason elsewhere.

What is asserted holds on every GPU from Volta on that nobody else uses; nothing is said about absolute times.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from types import ModuleType

import pytest

from benchmarking.core.device_contracts import DeviceHandle
from benchmarking.core.metrics import BYTES_PER_MIB
from benchmarking.core.records import Device
from benchmarking.devices import cuda
from benchmarking.run_hardware_benchmark import main

SIDE = 4096
HOLDER = """
import sys, torch
held = torch.ones(1024, 1024, device=sys.argv[1])
torch.cuda.synchronize()
print("held", flush=True)
sys.stdin.read()
"""
"""A process that uses the GPU until its stdin ends."""


@pytest.fixture(scope="module")
def gpus() -> tuple[Device, ...]:
    """The GPUs of this machine; without one the tests are skipped with the probe's own reason."""
    found = cuda.PLUGIN.probe()
    if not found[0].found:
        pytest.skip(f"needs an NVIDIA GPU: {found[0].why_not}")
    return found


@pytest.fixture(scope="module")
def gpu(gpus: tuple[Device, ...]) -> Device:
    return gpus[0]


@pytest.fixture
def torch(gpu: Device) -> ModuleType:
    import torch

    torch.cuda.empty_cache()
    return torch


@pytest.fixture
def handle(gpu: Device, torch: ModuleType) -> Iterator[DeviceHandle]:
    handle = cuda.PLUGIN.open(gpu)
    yield handle
    handle.close()


@pytest.fixture
def alone(handle: DeviceHandle) -> DeviceHandle:
    """The open GPU, if no other process is on it."""
    if strangers := handle.state().values.get("foreign_pids"):
        pytest.skip(f"other processes are on the GPU: {strangers}")
    return handle


def work_for(torch, handle, seconds):
    """Compute matrix products for a duration. Returns their number."""
    matrix, calls, end = torch.ones(SIDE, SIDE, device=handle.torch_name), 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        torch.mm(matrix, matrix)
        handle.synchronize()
        calls += 1
    return calls


def test_the_devices_own_time_is_within_the_wall_time_of_a_long_call(torch, alone):
    matrix = torch.ones(SIDE, SIDE, device=alone.torch_name)
    work_for(torch, alone, 0.5)
    shares = []
    for _ in range(10):
        timer = alone.timer()
        alone.synchronize()
        start_ns = time.perf_counter_ns()
        timer.start()
        for _ in range(20):
            torch.mm(matrix, matrix)
        timer.stop()
        alone.synchronize()
        shares.append(timer.elapsed_ns() / (time.perf_counter_ns() - start_ns))
    assert max(shares) <= 1.01  # events tick in half microseconds
    assert sorted(shares)[len(shares) // 2] > 0.8


def test_allocator_peak_and_driver_memory_include_the_allocation(torch, alone):
    alone.reset_peak_memory()
    held = torch.ones(64 * BYTES_PER_MIB // 4, device=alone.torch_name)
    alone.synchronize()
    peak, in_use = alone.peak_memory().values, alone.memory_in_use()
    assert 64 * BYTES_PER_MIB <= peak["device_allocated_peak_bytes"] <= peak["device_reserved_peak_bytes"]
    assert in_use.values["device_used_bytes"] >= peak["device_reserved_peak_bytes"]
    if "device_process_bytes" in in_use.values:
        assert in_use.values["device_process_bytes"] >= peak["device_reserved_peak_bytes"]
    else:
        assert in_use.missing["device_process_bytes"].startswith("not_supported")
    del held


def test_state_has_a_value_or_a_reason_for_everything(alone):
    state = alone.state()
    assert state.values["clock_hz"] > 100e6
    assert 0 < state.values["temperature_c"] < 120
    assert state.values["foreign_pids"] == []
    assert isinstance(state.values["throttle_reasons"], list)
    assert all(why.startswith(("not_supported", "no_permission")) for why in state.missing.values())


def test_energy_is_that_of_a_power_between_idle_and_the_cap(gpu, torch, alone):
    before = alone.energy_j()
    if "gpu" not in before.values:
        pytest.skip(f"no energy counter: {before.missing['gpu']}")
    start = time.perf_counter()
    work_for(torch, alone, 5.0)
    power_w = (alone.energy_j().values["gpu"] - before.values["gpu"]) / (time.perf_counter() - start)
    idle_from, start = alone.energy_j().values["gpu"], time.perf_counter()
    time.sleep(5.0)
    idle_w = (alone.energy_j().values["gpu"] - idle_from) / (time.perf_counter() - start)
    assert 0 < idle_w < power_w < 1.2 * gpu.facts.values["power_cap_w"]


def test_tf32_rounds_products_and_float32_does_not(gpu, torch):
    from benchmarking.runtimes.support.torch.torch_settings import MatmulPrecision

    if "tf32" not in gpu.precisions:
        pytest.skip(f"{gpu.name} has no tf32")
    torch.manual_seed(0)
    a, b = (torch.randn(1024, 1024, device="cuda") for _ in range(2))
    exact = a.double() @ b.double()
    errors = {}
    for precision in ("float32", "tf32"):
        flags = MatmulPrecision(precision)
        errors[precision] = float((a @ b - exact).norm() / exact.norm())
        flags.restore()
    assert errors["float32"] < 1e-5
    assert 1e-5 < errors["tf32"] < 5e-3  # 10 bits of mantissa instead of 23


def test_new_process_on_the_gpu_is_foreign(alone):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, alone.torch_name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout.readline() == "held\n"
        assert len(alone.state().values["foreign_pids"]) == 1
    finally:
        holder.stdin.close()
        holder.wait(timeout=60)
    time.sleep(1.0)  # the driver takes its time to forget a process
    assert alone.state().values["foreign_pids"] == []


def run(capsys, *arguments):
    """The one run of a command, as JSON."""
    code = main(["--profile", "quick", "--launches", "1", "--json", "--quiet", *arguments])
    out = json.loads(capsys.readouterr().out)
    runs = out["runs"] if isinstance(out, dict) and "runs" in out else out
    return code, runs[0] if isinstance(runs, list) else runs


def test_a_run_has_device_times_peaks_above_the_weights_and_energy(gpu, capsys, torch):
    code, measured = run(
        capsys, "--model-id", "tiny-bert", "--device", gpu.selector, "--batch-sizes", "8", "--sequence-lengths", "128"
    )
    (result,) = measured["results"]
    metrics = result["metrics"]
    assert (code, result["status"]) == (0, "ok")
    assert metrics["latency_device_median_ms"] <= metrics["latency_median_ms"]
    assert metrics["memory_device_allocated_peak_mb"] >= metrics["memory_weights_mb"]
    assert "energy_gpu_j_per_call" in metrics or result["missing"]["energy_gpu_j_per_call"]
    assert measured["loads"][0]["verified"]["parameter_devices"] == ["cuda:0"]


@pytest.mark.parametrize("placement", ["replicas", "sharded"])
def test_two_gpus_run_one_model_with_rows_for_each(gpus, capsys, torch, placement):
    if len(gpus) < 2:
        pytest.skip("needs two NVIDIA GPUs")
    code, measured = run(
        capsys,
        *("--model-id", "tiny-gpt2", "--device", f"{gpus[0].selector},{gpus[1].selector}", "--placement", placement),
        *("--batch-sizes", "4", "--sequence-lengths", "32", "--new-tokens", "8"),
    )
    (result,) = measured["results"]
    assert (code, result["status"]) == (0, "ok")
    peaks = result["extra"]["launches"][0]["device_memory_peaks_by_device"]
    assert sorted(peaks) == sorted(gpu.selector for gpu in gpus[:2])
    assert all(one["device_allocated_peak_bytes"] > 0 for one in peaks.values())
    assert result["metrics"]["output_equal_token_share"] == 1.0
