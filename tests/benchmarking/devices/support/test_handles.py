"""Several devices as one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarking.core.errors import BenchhouseError, UnsupportedError, UsageError
from benchmarking.core.records import Device, Readings
from benchmarking.devices import cuda
from benchmarking.devices.support import select, torch_gpu
from benchmarking.devices.support.handles import (
    SEPARATOR,
    SeveralHandle,
    combine_devices,
    open_several,
    parts,
    selectors,
)
from benchmarking.devices.support.torch_gpu import TorchBuild


@pytest.fixture
def gpus(nvml: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> tuple[Device, ...]:
    monkeypatch.setattr(torch_gpu, "torch_build", lambda: TorchBuild(version="2.13.0+cu130", cuda="13.0"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return cuda.CudaDevice(nvml()).probe()


class Handle:
    """An open GPU with given readings that records its calls."""

    def __init__(self, name, *, state=None, gpu_j=None, host=None, peak=None, events_ns=None):
        self.torch_name = name
        self.calls = []
        self._state = state or Readings()
        self._energy = Readings(values={} if gpu_j is None else {"gpu": gpu_j}) | (host or Readings())
        self._peak = peak or Readings()
        self._events_ns = events_ns

    def __getattr__(self, name):
        return lambda: self.calls.append(name)

    def timer(self):
        if self._events_ns is None:
            return None
        return SimpleNamespace(start=self.start, stop=self.stop, elapsed_ns=lambda: self._events_ns)

    def state(self):
        return self._state

    def energy_j(self):
        return self._energy

    def peak_memory(self):
        return self._peak


def test_two_gpus_are_one_device_with_the_memory_of_both_and_each_ones_record(gpus):
    both = combine_devices(gpus)
    assert (both.selector, both.name, both.count) == ("cuda:0,cuda:1", "2 x NVIDIA H100 80GB HBM3", 2)
    assert both.memory_bytes == 2 * 85_520_809_984
    assert both.facts.values["compute_capability"] == "9.0"
    assert "uuid" not in both.facts.values  # what they do not have alike is each one's
    assert parts(both) == gpus
    assert parts(gpus[0]) == (gpus[0],)


def test_the_same_device_twice_and_unlike_models_are_refused(gpus):
    with pytest.raises(UsageError, match="cuda:0,cuda:0: the same device is named twice"):
        combine_devices([gpus[0], gpus[0]])
    other = dataclasses.replace(gpus[1], name="NVIDIA A100")
    with pytest.raises(
        UnsupportedError, match=r"must be of one model, .*: cuda:0 is NVIDIA H100 80GB HBM3, cuda:1 is NVIDIA A100"
    ):
        combine_devices([gpus[0], other])


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ("cuda:0,cpu", "of one kind, got cpu, cuda"),
        ("auto,cuda:0", "of one kind, got auto, cuda"),
        ("cpu,cpu", "must be cuda or rocm devices, got cpu"),
        ("cuda:0,", "must name each device, such as cuda:0,cuda:1"),
    ],
)
def test_invalid_lists_are_refused_before_any_probe(request_, words):
    with pytest.raises(UsageError, match=words):
        select.select(request_, lambda device: None, {"cuda": (Device(type="cuda", selector="cuda", found=False),)})
    with pytest.raises(UsageError, match=words):
        selectors(request_)


def test_device_list_is_supported_as_one(gpus):
    answers = {"cuda": gpus}
    assert select.select("cuda:1, cuda:0", lambda device: None, answers).selector == "cuda:1,cuda:0"
    with pytest.raises(UnsupportedError, match="no device 'cuda:7'"):
        select.select("cuda:0,cuda:7", lambda device: None, answers)
    with pytest.raises(UnsupportedError, match=r"device 'cuda:0,cuda:1' .* cannot run this: no"):
        select.select("cuda:0,cuda:1", lambda device: "no", answers)


def test_state_is_the_slowest_clock_the_hottest_chip_and_all_foreign_processes():
    one = Readings(
        values={"clock_hz": 5, "temperature_c": 60, "power_w": 300.0, "foreign_pids": [7], "violation_ns": 1}
    )
    other = Readings(
        values={"clock_hz": 4, "temperature_c": 70, "power_w": 200.0, "foreign_pids": [9, 7], "violation_ns": 2}
    )
    state = SeveralHandle({"cuda:0": Handle("cuda:0", state=one), "cuda:1": Handle("cuda:1", state=other)}).state()
    assert {name: value for name, value in state.values.items() if name != "by_device"} == {
        "clock_hz": 4,
        "temperature_c": 70,
        "power_w": 500.0,
        "foreign_pids": [7, 9],
        "violation_ns": 3,
    }
    assert state.values["by_device"]["cuda:1"]["clock_hz"] == 4
    assert state.missing["throttle_reasons"] == "not_supported: cuda:0"


def test_value_missing_on_one_device_is_missing_for_all_with_its_name():
    peak_reading = Readings(values={"device_allocated_peak_bytes": 5})
    why = Readings(missing={"device_allocated_peak_bytes": "no_permission: nvml"})
    peak = SeveralHandle({"a": Handle("cuda:0", peak=peak_reading), "b": Handle("cuda:1", peak=why)}).peak_memory()
    assert "device_allocated_peak_bytes" not in peak.values
    assert peak.missing["device_allocated_peak_bytes"] == "no_permission: b: nvml"


def test_peak_memory_is_summed():
    peaks = [Readings(values={"device_allocated_peak_bytes": size, "device_reserved_peak_bytes": 9}) for size in (5, 7)]
    peak = SeveralHandle({str(i): Handle(f"cuda:{i}", peak=one) for i, one in enumerate(peaks)}).peak_memory()
    assert peak.values["device_allocated_peak_bytes"] == 12
    assert peak.values["by_device"] == {"0": peaks[0].values, "1": peaks[1].values}


def test_gpu_energies_are_summed_and_the_hosts_counts_once():
    host = Readings(values={"cpu_pkg": 10.0}, missing={"dram": "not_supported: no dram counter"})
    handles = {"cuda:0": Handle("cuda:0", gpu_j=1.5, host=host), "cuda:1": Handle("cuda:1", gpu_j=2.0, host=host)}
    energy = SeveralHandle(handles).energy_j()
    assert energy.values["gpu"] == 3.5
    assert energy.values["cpu_pkg"] == 10.0
    assert energy.values["by_device"] == {"cuda:0": {"gpu": 1.5}, "cuda:1": {"gpu": 2.0}}
    assert energy.missing["dram"] == "not_supported: no dram counter"


def test_device_time_is_the_longest_of_all_devices():
    handles = {"0": Handle("cuda:0", events_ns=3_000), "1": Handle("cuda:1", events_ns=5_000)}
    timer = SeveralHandle(handles).timer()
    timer.start()
    timer.stop()
    assert timer.elapsed_ns() == 5_000
    assert [handle.calls for handle in handles.values()] == [["start", "stop"]] * 2
    assert SeveralHandle({"0": handles["0"], "1": Handle("cuda:1")}).timer() is None


def test_all_devices_are_synchronized_reset_and_closed():
    handles = {"0": Handle("cuda:0"), "1": Handle("cuda:1")}
    several = SeveralHandle(handles)
    assert several.torch_name == "cuda:0,cuda:1"
    several.synchronize()
    several.empty_cache()
    several.reset_peak_memory()
    several.close()
    expected = ["synchronize", "empty_cache", "reset_peak_memory", "close"]
    assert [handle.calls for handle in handles.values()] == [expected, expected]


def test_failed_open_closes_the_other_devices(gpus):
    opened = []

    def open_one(device):
        if device.selector == "cuda:0":
            raise BenchhouseError("cuda:0 is gone")
        opened.append(Handle(device.selector))
        return opened[-1]

    with pytest.raises(BenchhouseError, match="cuda:0 is gone"):
        open_several(gpus, open_one)
    assert [handle.calls for handle in opened] == [["close"]]
    assert SEPARATOR.join(device.selector for device in gpus) == "cuda:0,cuda:1"


def test_throttle_counters_are_summed_and_foreign_use_of_every_gpu_is_kept():
    use = {"pid": 7, "busy_percent": 50, "memory_bytes": 1}
    states = [
        Readings(values={"throttle_counters": {"power_brake": 5}, "foreign_pids": [7], "foreign_use": [use]}),
        Readings(values={"throttle_counters": {"power_brake": 2, "sync_boost": 1}, "foreign_pids": []}),
    ]
    handles = {f"cuda:{i}": Handle(f"cuda:{i}", state=state) for i, state in enumerate(states)}
    state = SeveralHandle(handles).state()
    assert state.values["throttle_counters"] == {"power_brake": 7, "sync_boost": 1}
    assert (state.values["foreign_pids"], state.values["foreign_use"]) == ([7], [use])
