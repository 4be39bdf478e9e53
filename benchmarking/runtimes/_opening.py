"""Opening a device for a runtime: through torch, or without it."""

from __future__ import annotations

from benchmarking.devices import DeviceHandle, DeviceKind
from benchmarking.devices._several import open_several, parts
from benchmarking.records import Device
from benchmarking.runtimes import Runtime


def open_device(runtime: Runtime, plugin: DeviceKind, device: Device) -> DeviceHandle:
    """The device, open. torch comes with it only where the runtime is one on torch, or the device has no other way."""
    if len(devices := parts(device)) > 1:
        return open_several(devices, lambda one: open_device(runtime, plugin, one))
    return plugin.watch(device) if runtime.needs_no_torch else plugin.open(device)
