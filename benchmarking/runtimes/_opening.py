"""Opening a device for a runtime: through torch, or without it."""

from __future__ import annotations

from benchmarking.devices import DeviceHandle, DevicePlugin
from benchmarking.devices._ort import Watched
from benchmarking.devices._several import open_several, parts
from benchmarking.records import Device
from benchmarking.runtimes import RuntimePlugin, WithoutTorch


def open_device(runtime: RuntimePlugin, plugin: DevicePlugin, device: Device) -> DeviceHandle:
    """The device, open. torch comes with it only where the runtime is one on torch, or the device has no other way."""
    if len(devices := parts(device)) > 1:
        return open_several(devices, lambda one: open_device(runtime, plugin, one))
    if isinstance(runtime, WithoutTorch) and runtime.needs_no_torch and isinstance(plugin, Watched):
        return plugin.watch(device)
    return plugin.open(device)
