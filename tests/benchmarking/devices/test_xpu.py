"""Intel GPUs through torch's XPU backend: the reasons without one, and the interface of the installed torch."""

from __future__ import annotations

import inspect
from types import SimpleNamespace

import torch

from benchmarking.devices import xpu


def test_a_torch_without_the_backend_is_the_reason_with_the_command_that_installs_it(plant):
    address = "sys/bus/pci/devices/0000:03:00.0"
    root = plant({f"{address}/vendor": "0x8086", f"{address}/class": "0x030000"})
    (device,) = xpu.XpuDevice(root / "sys").probe()
    assert not device.found
    assert device.why_not.startswith("an Intel GPU was found, but torch is built without XPU: pip install")
    (device,) = xpu.XpuDevice(root / "elsewhere").probe()
    assert device.why_not.startswith("no Intel GPU was found, and torch is built without XPU")


def test_devices_are_described_by_torchs_properties():
    properties = SimpleNamespace(
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
    first, second = xpu.described([properties, properties])
    assert (first.selector, second.selector, first.count) == ("xpu:0", "xpu:1", 2)
    assert (first.name, first.memory_bytes, first.vendor) == (properties.name, 12_168_933_376, "Intel")
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
