"""Runtimes by name, and what every caller needs before a runtime opens a model: the device, the requests in flight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarking.core import plugins
from benchmarking.core.command_line import choice
from benchmarking.core.contracts import Runtime
from benchmarking.core.device_contracts import DeviceHandle, DeviceKind
from benchmarking.core.errors import UnsupportedError, UsageError
from benchmarking.core.records import Cell, Device, Point, Scalar
from benchmarking.devices.support.handles import open_several, parts

PACKAGE = "benchmarking.runtimes"


def default_runtime() -> str:
    """The name of the runtime that is used when none is named, and that others are compared with."""
    return next(runtime.name for runtime in _runtimes() if runtime.is_default)


def export_runtimes() -> Mapping[str, str]:
    """The usual runtime of each format of exported files: format -> runtime."""
    return {runtime.export_format: runtime.name for runtime in _runtimes() if runtime.export_format is not None}


def _runtimes() -> list[Runtime]:
    return [plugins.load(PACKAGE, name) for name in plugins.names(PACKAGE)]


def runtime_named(name: str) -> str:
    """The runtime of a name or alias. Raises UsageError for an unknown one, with similar names."""
    found = next((runtime.name for runtime in _runtimes() if name.lower() in runtime.aliases), name)
    return choice(found, plugins.names(PACKAGE), "runtime")


def open_device(runtime: Runtime, plugin: DeviceKind, device: Device) -> DeviceHandle:
    """The device, open for a runtime: without torch where the runtime needs none and the device has another way."""
    if len(devices := parts(device)) > 1:
        return open_several(devices, lambda one: open_device(runtime, plugin, one))
    return plugin.watch(device) if runtime.needs_no_torch else plugin.open(device)


def check_numbers(runtime: Runtime, mode: Mapping[str, Scalar], numbers: Sequence[int] | None) -> None:
    """Raise UnsupportedError where none of the requested numbers of concurrent requests is possible, UsageError where
    one is needed and none was given (None): it is part of what is measured, so there is no default."""
    if not runtime.runs_at_once(mode):
        if numbers is not None and 1 not in numbers:
            raise UnsupportedError(_one_at_a_time(runtime))
    elif numbers is None and runtime.concurrency_flag:
        raise UsageError(
            f"runtime {runtime.name} runs several requests at once with these settings: say how many with "
            "--concurrency, such as 1,2,4"
        )


def why_not_requests(cell: Cell, point: Point) -> str | None:
    """None, or why a point cannot have its number of requests in flight."""
    if point.concurrency == 1:
        return None
    runtime: Runtime = plugins.load(PACKAGE, cell.runtime)
    return None if runtime.runs_at_once(cell.runtime_mode) else _one_at_a_time(runtime)


def _one_at_a_time(runtime: Runtime) -> str:
    how = f": take {runtime.concurrency_flag} for more" if runtime.concurrency_flag else ""
    return f"runtime {runtime.name} runs one request at a time here{how}"
