"""Intel GPUs through torch's XPU backend: the reasons without one, and the interface of the installed torch."""

from __future__ import annotations

import inspect
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from benchmarking.core.device_contracts import STATE_NAMES
from benchmarking.core.errors import UnsupportedError
from benchmarking.devices import xpu
from benchmarking.devices.support.system_values import UnreadableError
from benchmarking.runtimes.support.torch.torch_settings import check


def test_a_torch_without_the_backend_is_the_reason_with_the_command_that_installs_it(plant):
    address = "sys/bus/pci/devices/0000:03:00.0"
    root = plant({f"{address}/vendor": "0x8086", f"{address}/class": "0x030000"})
    (device,) = xpu.XpuDevice(root / "sys").probe()
    assert not device.found
    assert device.why_not.startswith("an Intel GPU was found, but torch is built without XPU: pip install")
    (device,) = xpu.XpuDevice(root / "elsewhere").probe()
    assert device.why_not.startswith("no Intel GPU was found, and torch is built without XPU")


PROPERTIES = SimpleNamespace(
    name="Intel(R) Arc(TM) B580 Graphics",
    platform_name="Intel(R) oneAPI Unified Runtime over Level-Zero V2",
    driver_version="1.6.32567",
    total_memory=12_168_933_376,
    max_compute_units=160,
    gpu_eu_count=160,
    sub_group_sizes=[16, 32],
    last_level_cache_size=18_874_368,
    has_fp16=True,
    has_fp64=True,
)
"""An Arc B580, as torch.xpu.get_device_properties describes it."""


def test_devices_are_described_by_torchs_properties():
    first, second = xpu.described([PROPERTIES, PROPERTIES])
    assert (first.selector, second.selector, first.count) == ("xpu:0", "xpu:1", 2)
    assert (first.name, first.memory_bytes, first.vendor) == (PROPERTIES.name, 12_168_933_376, "Intel")
    assert first.precisions == ("float32", "bfloat16", "float16")
    assert first.facts.values["compute_units"] == 160


def test_the_handle_calls_what_the_installed_torch_has():
    """Names and parameters of torch.xpu, which imports without a GPU."""
    assert "enable_timing" in inspect.signature(torch.xpu.Event.__new__).parameters
    assert list(inspect.signature(torch.xpu.Event.record).parameters) == ["self", "stream"]
    for name in ("synchronize", "current_stream", "max_memory_allocated", "max_memory_reserved", "mem_get_info"):
        assert "device" in inspect.signature(getattr(torch.xpu, name)).parameters, name
    for name in ("reset_peak_memory_stats", "memory_reserved", "get_device_properties"):
        assert "device" in inspect.signature(getattr(torch.xpu, name)).parameters, name
    documented = inspect.getdoc(torch.xpu.get_device_properties) or ""
    for name in ("max_compute_units", "gpu_eu_count", "sub_group_sizes", "has_fp64", "platform_name", "driver_version"):
        assert f"``{name}``" in documented, name


def test_torch_has_flash_attention_for_intel_gpus():
    """Named in the headers of the installed torch. Other kernels fall back to the math kernel, or are oneDNN's."""
    header = Path(torch.__file__).parent / "include/ATen/native/transformers/xpu/sdp_utils.h"
    assert "can_use_flash_attention" in header.read_text()
    (device,) = xpu.described([PROPERTIES])
    for kernel in ("flash", "math"):
        check(f"sdpa:{kernel}", device)
    with pytest.raises(UnsupportedError, match=r"available: sdpa:math, sdpa:flash"):
        check("sdpa:efficient", device)


class Sensors(SimpleNamespace):
    """torch.xpu with the answers of a GPU; what is not given is the installed torch's."""

    def __getattr__(self, name):
        return getattr(torch.xpu, name)


def handle_of(**answers):
    named = {name: (lambda device, answer=answer: answer) for name, answer in answers.items()}
    return xpu.XpuHandle(SimpleNamespace(xpu=Sensors(**named)), 0)


def test_sensors_are_torchs_in_the_units_of_every_device():
    handle = handle_of(temperature=51.0, clock_rate=2400.0, power_draw=118.5, mem_get_info=(9 << 30, 12 << 30))
    state = handle.state()
    assert state.values == {"temperature_c": 51.0, "clock_hz": 2.4e9}
    assert state.missing["power_w"].endswith("read in energy windows only")
    assert set(state.values) | set(state.missing) >= set(STATE_NAMES)
    assert handle.momentary_power_w() == 118.5
    assert handle._used_bytes() == 3 << 30


def test_a_negative_reading_is_an_unknown_one():
    """zes_freq_state_t.actual: "A negative value indicates that this frequency is unknown"."""
    handle = handle_of(temperature=51.0, clock_rate=-1.0, power_draw=-3.0)
    state = handle.state()
    assert state.values == {"temperature_c": 51.0}
    assert state.missing["clock_hz"] == "not_supported: torch.xpu.clock_rate: it is not known (-1)"
    assert handle.momentary_power_w() is None


def test_a_sensor_that_torch_cannot_read_is_missing_with_torchs_reason(monkeypatch):
    """The installed torch's own refusals: without the package of the sensors' library, and before torch had sensors."""
    monkeypatch.setitem(sys.modules, "pyzes", None)
    handle = handle_of()
    state = handle.state()
    assert "pyzes is required; install it with" in state.missing["temperature_c"]
    assert state.missing["clock_hz"].startswith("not_supported: torch.xpu.clock_rate: ")
    assert handle.momentary_power_w() is None
    older = xpu.XpuHandle(SimpleNamespace(xpu=SimpleNamespace()), 0)
    assert "has no attribute 'temperature'" in older.state().missing["temperature_c"]
    with pytest.raises(UnreadableError, match=r"torch\.xpu\.mem_get_info"):
        older._used_bytes()


def test_a_mask_of_tiles_leaves_the_sensors_missing_with_torchs_reason(monkeypatch):
    monkeypatch.setenv("ZE_AFFINITY_MASK", "0.0")
    monkeypatch.setitem(sys.modules, "pyzes", SimpleNamespace())
    handle = handle_of()
    assert "Unsupported ZE_AFFINITY_MASK format: '0.0'" in handle.state().missing["temperature_c"]
    assert handle.momentary_power_w() is None


@pytest.mark.parametrize(("before", "after"), [(None, "1"), ("", "1"), ("2,3", "3"), ("3", "3")])
def test_a_gpu_without_torch_is_the_one_that_torch_numbers_so(monkeypatch, before, after):
    monkeypatch.setenv("ZE_AFFINITY_MASK", before or "")
    if before is None:
        monkeypatch.delenv("ZE_AFFINITY_MASK")
    _, second = xpu.described([PROPERTIES, PROPERTIES])
    xpu.PLUGIN.watch(second)
    assert os.environ["ZE_AFFINITY_MASK"] == after
    xpu.PLUGIN.watch(second)
    assert os.environ["ZE_AFFINITY_MASK"] == after


def test_utilization_is_that_of_the_kernels_driver():
    (device,) = xpu.described([PROPERTIES])
    assert xpu.PLUGIN.has_gauge
    assert (
        "no open file of the drivers i915, xe"
        in xpu.PLUGIN.gauge(device, [1 << 22]).read().missing["utilization_percent"]
    )
