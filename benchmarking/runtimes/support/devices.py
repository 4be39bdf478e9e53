"""Opening a device for a runtime: through torch, or without it.

Letting go of what a point held, however its measuring ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from benchmarking.core.contracts import Runtime
from benchmarking.core.device_contracts import DeviceHandle, DeviceKind
from benchmarking.core.records import Device
from benchmarking.devices.support.handles import open_several, parts


def open_device(runtime: Runtime, plugin: DeviceKind, device: Device) -> DeviceHandle:
    """The device, open. torch comes with it only where the runtime is one on torch, or the device has no other way."""
    if len(devices := parts(device)) > 1:
        return open_several(devices, lambda one: open_device(runtime, plugin, one))
    return plugin.watch(device) if runtime.needs_no_torch else plugin.open(device)


@contextmanager
def always_after(close: Callable[[], object]) -> Iterator[None]:
    """`close` runs at the end. When both raise, the first error is the one that is told, and the second is its note."""
    try:
        yield
    except Exception as error:
        try:
            close()
        except Exception as second:  # noqa: BLE001 - the error before it is the reason; this one is kept with it
            error.add_note(f"and then, while cleaning up: {type(second).__name__}: {second}")
        raise
    close()
