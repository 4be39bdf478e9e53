"""Measuring from Python: `benchmark_model` returns the same record as the command."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from benchmarking.core import plugins
from benchmarking.core.contracts import Session
from benchmarking.core.device_contracts import DeviceHandle, DeviceKind
from benchmarking.core.errors import UsageError
from benchmarking.core.provenance import utc_now, uuid7
from benchmarking.core.records import PRECISIONS, Cell, Device, LaunchLoad, Precision, Run
from benchmarking.core.temporary import temporary_folder
from benchmarking.measure.settings import DEFAULT_PROFILE, ProfileName, Settings, settings
from benchmarking.runtimes.support.lookup import default_runtime
from benchmarking.sweep.plan.plan import CellPlan

if TYPE_CHECKING:
    import torch

DEVICES = "benchmarking.devices"


def benchmark_model(
    model: str | torch.nn.Module,
    inputs: Any = None,
    *,
    name: str | None = None,
    profile: ProfileName = DEFAULT_PROFILE,
    iterations: int | None = None,
    warmup_iterations: int | None = None,
    cold_cache: bool = False,
    tags: Mapping[str, str] | None = None,
    description: str | None = None,
    **request: Any,
) -> Run:
    """Measure a model and return the run; nothing is stored.

    A torch module is measured in this process, on its current device, with `inputs`: a tensor, a tuple of positional
    arguments, or a mapping of named ones. That is one launch, so its interval covers this process only. `name` is the
    model's name in the run, by default its class.

    A model id (hub name, folder, or catalog name) is measured in fresh processes, as by the command. `request` takes
    the other fields of `benchmarking.sweep.plan.request.Request` (device, precision, batch_sizes, sequence_lengths,
    new_tokens, ...), and `launches`.

    Raises UsageError for invalid arguments and other BenchhouseErrors for failures; a failed point of a model id is a
    failed result of the run. A script that calls this with a model id needs no main guard.
    """
    about = {"tags": dict(tags or {}), "description": description}
    if isinstance(model, str):
        if inputs is not None or name is not None:
            raise UsageError("inputs and name are for torch modules, not for a model id")
        chosen = settings(
            profile,
            iterations=iterations,
            warmup_iterations=warmup_iterations,
            launches=request.pop("launches", None),
            cold_cache=cold_cache,
        )
        return _measure_model_id(model, chosen, {**request, **about})
    if request:
        raise UsageError(f"{sorted(request)[0]} is for model ids; a module is measured as it is, on its current device")
    if inputs is None:
        raise UsageError("a module needs inputs: pass a tensor, a tuple or a mapping")
    chosen = settings(
        profile, iterations=iterations, warmup_iterations=warmup_iterations, launches=1, cold_cache=cold_cache
    )
    return _measure_module(model, inputs, name, chosen, about)


def _measure_model_id(model_id: str, chosen: Settings, fields: Mapping[str, Any]) -> Run:
    from benchmarking.sweep.plan.request import Request, plan_cell
    from benchmarking.sweep.run.supervisor import Observer, Track, sweep

    plugins.check_measuring()
    try:
        request = Request(model_id=model_id, settings=chosen, command=tuple(sys.argv), **fields)
    except TypeError as error:
        raise UsageError(f"benchmark_model: {error}") from error
    with temporary_folder("benchhouse-run") as folder:
        track = Track.start(folder, plan_cell(request, uuid7()))
        sweep([track], Observer())
        return track.run(utc_now())


def _measure_module(module: Any, inputs: Any, name: str | None, chosen: Settings, about: Mapping[str, Any]) -> Run:
    from benchmarking.measure.point import measure_point
    from benchmarking.runtimes.support.torch.session import ModuleSession, module_workload
    from benchmarking.sweep.run.supervisor import finished_run

    session = ModuleSession(module, inputs)
    device, handle = _device_of(module)
    try:
        cell = Cell(
            workload=module_workload(module, name),
            device=device,
            requested_device=device.selector,
            runtime=default_runtime(),
            precision=_precision_of(session),
            runtime_mode=chosen.mode,
        )
        plan = _plan(cell, session, chosen, about)
        (point,) = plan.points
        measurement = measure_point(session.operation(point), handle, point, 0, chosen, device=device)
        return finished_run(plan, [_load(session)], [measurement], utc_now())
    finally:
        session.close()
        handle.close()


def _plan(cell: Cell, session: Any, chosen: Settings, about: Mapping[str, Any]) -> CellPlan:
    from benchmarking.core.provenance import provenance
    from benchmarking.devices.support.kinds import hardware
    from benchmarking.measure.environment import capture

    return CellPlan(
        session_id=uuid7(),
        started_at=utc_now(),
        cell=cell,
        hardware=hardware(cell.device),
        provenance=provenance(tuple(sys.argv), about["tags"], about["description"]),
        environment=capture(),
        settings=chosen,
        timeout_s=None,
        points=(session.point(),),
    )


def _load(session: Session) -> LaunchLoad:
    """The load record of a module: its size and what was verified."""
    sizes = {} if session.weights_bytes is None else {"weights_bytes": session.weights_bytes}
    verified = {**session.verified, "parameter_count": session.parameter_count}
    return LaunchLoad(launch=0, stages_s={}, memory_bytes=sizes, verified=verified)


def _device_of(module: Any) -> tuple[Device, DeviceHandle]:
    """The device of the module, opened. Raises UsageError for a device without a plugin."""
    import torch

    from benchmarking.devices.support.kinds import names_with, processor
    from benchmarking.devices.support.select import probe_all

    place = next((parameter.device for parameter in module.parameters()), torch.device(str(processor().torch_type)))
    names = names_with(lambda kind: kind.torch_type == place.type)
    if not names:
        raise UsageError(f"the module is on {place}, which is none of {', '.join(plugins.names(DEVICES))}")
    found = [device for devices in probe_all(names).values() for device in devices if device.found]
    for device in found:
        plugin: DeviceKind = plugins.load(DEVICES, device.type)
        handle = plugin.open(device)
        if handle.torch_name is not None and _is_same(torch.device(handle.torch_name), place):
            return device, handle
        handle.close()
    known = ", ".join(device.selector for device in found) or "nothing"
    raise UsageError(f"the module is on {place}, but what was found is {known}")


def _is_same(one: torch.device, other: torch.device) -> bool:
    return one.type == other.type and (one.index or 0) == (other.index or 0)


def _precision_of(session: Session) -> Precision:
    """The precision of the module's parameters. Raises UsageError for mixed or unsupported ones."""
    dtypes = session.verified.get("parameter_dtypes")
    names = sorted(str(dtype) for dtype in dtypes) if isinstance(dtypes, list) else []
    for precision in PRECISIONS:
        if names in ([precision], []):
            return precision
    raise UsageError(f"the module's parameters are {', '.join(names)}: one of {', '.join(PRECISIONS)} is needed")
