"""Runtimes by name, and checks that callers need before a runtime opens a model: device and requests in flight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarking.core import plugins
from benchmarking.core.command_line import choice
from benchmarking.core.contracts import Runtime
from benchmarking.core.device_contracts import DeviceHandle, DeviceKind
from benchmarking.core.errors import UnsupportedError, UsageError
from benchmarking.core.records import Cell, Device, Point, Scalar
from benchmarking.devices.support.handles import open_several, parts


def default_runtime() -> str:
    """The name of the runtime used by default, with which others are compared."""
    return next(runtime.name for runtime in plugins.runtimes() if runtime.is_default)


def compiling_runtime() -> str:
    """The name of the runtime that compiles a model's code."""
    return next(runtime.name for runtime in plugins.runtimes() if getattr(runtime, "compiles", False) is True)


def export_runtimes() -> Mapping[str, str]:
    """The usual runtime for each format of exported files."""
    return {runtime.export_format: runtime.name for runtime in plugins.runtimes() if runtime.export_format is not None}


def runtime_named(name: str) -> str:
    """The runtime with a name or alias. Raises UsageError with similar names if there is none."""
    found = next((runtime.name for runtime in plugins.runtimes() if name.lower() in runtime.aliases), name)
    return choice(found, plugins.names(plugins.RUNTIMES), "runtime")


def runtime_of_device_alias(request: str) -> str | None:
    """The runtime that a `--device` value stands for too: ONNX Runtime's for "x86"; None for a name of ours."""
    name = request.partition(":")[0].lower()
    return next((runtime.name for runtime in plugins.runtimes() if name in runtime.device_aliases), None)


def open_device(runtime: Runtime, plugin: DeviceKind, device: Device) -> DeviceHandle:
    """Open the device for a runtime: without torch if neither the runtime nor the device needs it."""
    if len(devices := parts(device)) > 1:
        return open_several(devices, lambda one: _open_one(runtime, plugin, one, devices))
    return _open_one(runtime, plugin, device)


def _open_one(runtime: Runtime, plugin: DeviceKind, device: Device, together: Sequence[Device] = ()) -> DeviceHandle:
    return plugin.watch(device, together) if runtime.needs_no_torch else plugin.open(device)


def check_numbers(runtime: Runtime, mode: Mapping[str, Scalar], numbers: Sequence[int] | None) -> None:
    """Raise UnsupportedError if none of the requested numbers of concurrent requests is possible, UsageError if one is
    needed but not given (None): it is part of what is measured, so there is no default."""
    if not runtime.runs_at_once(mode):
        if numbers is not None and 1 not in numbers:
            raise UnsupportedError(_one_at_a_time(runtime))
    elif numbers is None and runtime.concurrency_flag:
        raise UsageError(
            f"runtime {runtime.name} keeps several requests in flight with these settings: set --concurrency, "
            "such as 1,2,4"
        )


def why_not_requests(cell: Cell, point: Point) -> str | None:
    """None, or why a point cannot have its number of requests in flight."""
    if point.concurrency == 1:
        return None
    runtime = plugins.runtime(cell.runtime)
    return None if runtime.runs_at_once(cell.runtime_mode) else _one_at_a_time(runtime)


def _one_at_a_time(runtime: Runtime) -> str:
    how = f": use {runtime.concurrency_flag} for more" if runtime.concurrency_flag else ""
    return f"runtime {runtime.name} runs one request at a time here{how}"
