"""Turns a user's request into the plan of a cell, or of a cell for each of several runtimes: resolves names and checks
every point, before anything runs.

2026-11-21: with several runtimes, `--device auto` is resolved for the baseline and applies to all. If each runtime
chose its own device, the comparison would be between devices.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, fields, replace
from typing import Any

from benchmarking.core import plugins
from benchmarking.core.axes import AXES, DEFAULT_BATCH_SIZES, FURTHER
from benchmarking.core.command_line import choice
from benchmarking.core.command_names import as_typed
from benchmarking.core.contracts import Runtime
from benchmarking.core.errors import UnsupportedError, UsageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.model_contracts import WorkloadFamily
from benchmarking.core.plugins import default_runtime, has, is_processor
from benchmarking.core.provenance import utc_now
from benchmarking.core.records import (
    Cell,
    Device,
    Point,
    Precision,
    Rebuild,
    Scalar,
    WeightsChoice,
    Workload,
)
from benchmarking.core.settings import TAGS
from benchmarking.core.suggestions import flags_in
from benchmarking.core.text import first_few, grouped
from benchmarking.devices.support.handles import parts
from benchmarking.measure.context import Settings
from benchmarking.sweep.plan.measuring_settings import (
    AUTO,
    MEASURING,
    check_shared_options,
    measured_by,
    options_in,
    options_of,
    runtime_options,
)
from benchmarking.sweep.plan.plan import CellPlan, Machine, check_points, grid
from benchmarking.workloads.support.families import no_axis, plugin_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request to measure; None means the default."""

    model_id: str
    device: str = AUTO
    runtime: str | None = None
    precision: Precision = MEASURING["precision"].default
    task: str | None = None
    weights: WeightsChoice = MEASURING["weights"].default
    batch_sizes: tuple[int, ...] = DEFAULT_BATCH_SIZES
    sequence_lengths: tuple[int, ...] | None = None
    new_tokens: tuple[int, ...] | None = None
    concurrency: tuple[int, ...] | None = None
    """Requests in flight; None means one, and is an error with settings that run several."""
    axes: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Values of the axes in `benchmarking.core.axes.FURTHER`, by name."""
    shared_axes: frozenset[str] = frozenset()
    """Axes requested for several models at once, ignored for models that lack them."""
    dims: Mapping[str, int | str] = field(default_factory=dict)
    """For a graph file: sizes of free dimensions by name, or "batch"."""
    input_values: Mapping[str, float] = field(default_factory=dict)
    """For a graph file: a value for all elements of an input, by input."""
    inputs_file: str | None = None
    """For a graph file: a .npz file with whole inputs."""
    num_threads: int | None = None
    cpu_list: str | None = None
    options: Mapping[str, Scalar] = field(default_factory=dict)
    """Runtime options by name."""
    shared_options: frozenset[str] = frozenset()
    """Options requested for several runtimes at once, ignored for runtimes that lack them."""
    rebuild: Rebuild = MEASURING["rebuild"].default
    build_only: bool = False
    """Whether to make builds only and measure nothing."""
    settings: Settings
    timeout_s: float = MEASURING["timeout"].default
    skip_unsupported: bool | None = None
    """None, as False, for commands that have no such flag."""
    command: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    description: str | None = None

    @property
    def family_axes(self) -> dict[str, tuple[float, ...]]:
        """The requested values of the axes that only some models have, by name."""
        fields = [axis for axis in AXES.values() if axis.is_field and not axis.of_every_model]
        requested = {**{axis.name: getattr(self, axis.key) for axis in fields}, **self.axes}
        return {name: values for name, values in requested.items() if values is not None}


_FIELDS = {one.name for one in fields(Request)}
FIELDS: Mapping[str, str] = {
    setting.name: found
    for setting in MEASURING.values()
    if (found := next((one for one in (setting.field, setting.key, setting.name) if one in _FIELDS), None))
}
"""Setting -> the field of `Request` that holds it; the axes in `Request.axes` are not among them."""


def request_fields(values: Mapping[str, Any], *, without: Collection[str] = ()) -> dict[str, Any]:
    """The fields of a `Request` for the settings among parsed flags, keys of a YAML list or parameters of a function:
    what is missing or None is left out, and so are the settings in `without`. One value of an axis becomes a list.
    Raises UsageError for a name that is given twice."""
    found: dict[str, Any] = {}
    for name in (*FIELDS, *FURTHER):
        setting = MEASURING[name]
        keys = filter(None, (setting.field, setting.plural, name))
        value = next((values[key] for key in keys if values.get(key) is not None), None)
        if value is None or name in without:
            continue
        if setting.kind.is_repeated and not isinstance(value, Mapping):
            names = [key for key, _ in value]
            twice = [] if setting.kind is TAGS else sorted({key for key in names if names.count(key) > 1})
            if twice:
                raise UsageError(f"{setting.flag} {twice[0]} is given {names.count(twice[0])} times: give it once")
            value = dict(value)
        elif name in AXES and not isinstance(value, tuple):
            value = (value,)
        if name in FIELDS:
            found[FIELDS[name]] = value
        else:
            found.setdefault("axes", {})[name] = value
    return found


def requests_of(arguments: argparse.Namespace, model_id: str, command: tuple[str, ...]) -> tuple[Request, ...]:
    """The requests of a command that measures one model, by its parsed flags: one for each precision and number of
    threads; the runtime is not set yet."""
    values = vars(arguments)
    first = Request(
        model_id=model_id,
        options=options_in(values),
        settings=measured_by(values),
        command=command,
        **request_fields(values, without=("runtime", "precision", "num_threads")),
    )
    precisions = arguments.precisions if "precisions" in values else (arguments.precision,)
    threads = arguments.num_threads
    return tuple(
        replace(first, precision=precision, num_threads=count)
        for precision in precisions
        for count in (threads if isinstance(threads, tuple) else (threads,))
    )


def workload_of(request: Request) -> Workload:
    """The workload of a request; may query the hub. Raises UsageError and StorageError as `resolve` does."""
    from benchmarking.workloads.support.graph_file import GraphChoices
    from benchmarking.workloads.support.resolve import resolve

    graph = GraphChoices(dimensions=request.dims, values=request.input_values, file=request.inputs_file)
    seed = request.settings.seed
    return resolve(request.model_id, task=request.task, weights=request.weights, seed=seed, graph=graph)


def default_sizes(request: Request, sizes: Mapping[str, int], words: Sequence[str]) -> dict[str, Any]:
    """A command's own default sizes by axis, as fields of the request: those of axes that the model has and for which
    its words have no flag. A sequence is no longer than the model takes."""
    typed = {flag.removesuffix("s") for flag in flags_in(words)}
    left = {name: size for name, size in sizes.items() if MEASURING[name].flag.removesuffix("s") not in typed}
    if not left:
        return {}
    workload = workload_of(request)
    family = plugin_of(workload)
    axes = {"batch_size": (1,), **family.axes(workload), **request.family_axes}
    limit, only = workload.max_sequence_length, family.only_batch_size(workload)
    if "sequence_length" in left and limit is not None:
        left["sequence_length"] = max(1, min(left["sequence_length"], limit - int(max(axes.get("new_tokens", (0,))))))
    if "batch_size" in left and only is not None:
        left["batch_size"] = only
    return {AXES[name].key: (size,) for name, size in left.items() if name in axes}


def plan_cell(
    request: Request, session_id: str, *, workload: Workload | None = None, machine: Machine | None = None
) -> CellPlan:
    """The plan of one cell. Raises UsageError with the reason if it cannot be measured.

    `workload` and `machine` can be shared by the plans of many cells; by default they are looked up.
    """
    machine = Machine() if machine is None else machine
    workload = workload_of(request) if workload is None else workload
    family = plugin_of(workload)
    points = requested_points(request, workload, family)
    skipped = check_points(
        points, lambda point: family.check(workload, point), skip_unsupported=request.skip_unsupported
    )
    return plan_points(request, session_id, workload, points, skipped=skipped, machine=machine)


def plan_points(
    request: Request,
    session_id: str,
    workload: Workload,
    points: tuple[Point, ...],
    *,
    skipped: Mapping[str, str],
    machine: Machine,
) -> CellPlan:
    """The plan of a cell with this workload and these points; everything else is taken from the request."""
    from benchmarking.runtimes.support.torch.several_devices import why_not_point
    from benchmarking.workloads.support import exported_folder
    from benchmarking.workloads.support.footprint import Fit

    cell, why_not = _cell(request, workload, machine)
    settings = request.settings
    if cell.runtime in plugins.names(plugins.RUNTIMES):
        runtime = plugins.runtime(cell.runtime)
        settings = replace(settings, point_per_process=settings.point_per_process or runtime.point_per_process)
    fit = Fit.of(cell, machine.free_memory(cell.device), is_here=machine.is_here)
    if why_not is not None:
        skipped = {point.label: why_not for point in points}
    else:
        runnable = tuple(point for point in points if point.label not in skipped)
        unsupported = check_points(
            runnable,
            lambda point: (
                exported_folder.why_not_point(workload, point)
                or why_not_point(cell, point)
                or why_not_requests(cell, point)
            ),
            skip_unsupported=request.skip_unsupported,
        )
        runnable = tuple(point for point in runnable if point.label not in unsupported)
        skipped = {**skipped, **unsupported, **fit.unfit_points(runnable, may_skip=request.skip_unsupported)}
    return CellPlan(
        session_id=session_id,
        started_at=utc_now(),
        cell=cell,
        hardware=machine.hardware(cell.device),
        provenance=machine.provenance(request.command, request.tags, request.description),
        environment=machine.environment | fit.readings,
        settings=settings,
        timeout_s=request.timeout_s,
        rebuild=request.rebuild,
        points=points,
        skipped=skipped,
    )


def _implied_runtime(device: str) -> str | None:
    """The runtime of a kind of devices that has one of its own; None for others, and for an unknown kind."""
    kind = plugins.kind_of(device.partition(":")[0])
    return None if kind is None else kind.implied_runtime


def runtime_for(request: Request, device: Device) -> str:
    """The requested runtime, else the one implied by the device, else the default."""
    if request.runtime is not None:
        return choice(request.runtime, plugins.names(plugins.RUNTIMES), "runtime")
    return _implied_runtime(device.type) or default_runtime()


def options_for(request: Request, runtime: str, workload: Workload) -> Mapping[str, Scalar]:
    """The requested options, without shared ones that this runtime lacks."""
    inapplicable = request.shared_options - set(options_of(runtime, workload))
    return {name: value for name, value in request.options.items() if name not in inapplicable}


def _cell(request: Request, workload: Workload, machine: Machine) -> tuple[Cell, str | None]:
    """The cell, and the reason if it is unsupported and to be recorded as skipped. A process that is bound to
    processors has one thread per core by default, in every runtime."""
    from benchmarking.devices.support import binding
    from benchmarking.devices.support.select import select

    device, mode, reason = None, None, None
    cpu_list, num_threads = request.cpu_list, request.num_threads
    try:
        if cpu_list is not None:
            cpu_list = binding.checked_cpu_list(cpu_list)
            num_threads = num_threads or binding.default_threads(binding.parse_cpu_list(cpu_list))
        device = select(request.device, lambda device: _unsupported_reason(request, device, workload), machine.devices)
        runtime = plugins.runtime(runtime_for(request, device))
        mode = dict(runtime.mode(device, workload, options_for(request, runtime.name, workload)))
        mode = dict(runtime.mode_at(request.precision, mode)) | request.settings.mode
        check_numbers(runtime, mode, request.concurrency)
    except UnsupportedError as error:
        if not request.skip_unsupported:
            raise
        reason = str(error)
        if device is None:  # that of skipped points: as found, or marked as absent
            device = Device(type=request.device.split(":")[0], selector=request.device, found=False, why_not=reason)
            if request.device != AUTO:
                with suppress(UnsupportedError):
                    device = select(request.device, lambda device: None, machine.devices)
    name = runtime_for(request, device)
    cell = Cell(
        workload=workload,
        device=device,
        requested_device=request.device,
        runtime=name,
        runtime_mode=dict(options_for(request, name, workload)) if mode is None else mode,
        precision=request.precision,
        num_threads=num_threads,
        cpu_list=cpu_list,
    )
    return cell, reason


def _unsupported_reason(request: Request, device: Device, workload: Workload) -> str | None:
    """None, or why the device does not support the request."""
    from benchmarking.workloads.support import quantized_weights

    name = runtime_for(request, device)
    if name not in plugins.names(plugins.RUNTIMES):
        return f"{device.selector} needs runtime {name}, which does not exist in this version"
    runtime = plugins.runtime(name)
    if (why_not := runtime.why_not_on(device)) is not None:
        own = _implied_runtime(device.type)
        instead = f", whose runtime is {own}: leave --runtime out, or choose another --device"
        return why_not if own in (None, name) else why_not + instead
    if (missing := runtime.missing()) is not None:
        return f"runtime {name}: {missing}"
    if runtime.builds_only and not request.build_only:
        return f"runtime {name} only makes builds and cannot run them: use benchhouse script --build-only"
    why_not = quantized_weights.why_not(
        workload, request.precision, on_processor=is_processor(device.type), loads_quantized=runtime.loads_quantized
    )
    if why_not is not None:
        return why_not
    if request.precision not in device.precisions:
        why_not = f"{device.selector} ({device.name}) does not support {request.precision}"
        return why_not + _use_instead(device, runtime, workload)
    with_torch = not runtime.needs_no_torch
    if request.settings.cold_cache and not has(
        device.type, lambda kind: kind.flushes_cache(device, with_torch=with_torch)
    ):
        return f"--cold-cache: the cache of {device.selector} cannot be flushed under runtime {name}"
    if len(parts(device)) > 1 and not runtime.runs_on_several:
        return f"runtime {name} uses a single device, not {device.selector}"
    if (why_not := runtime.supports(device, workload, request.precision)) is not None:
        return why_not if ": use " in why_not else why_not + _use_instead(device, runtime, workload)
    if request.device == AUTO and request.runtime is None:  # else it is a usage error, of `Runtime.mode`
        known = {option.name for option in runtime.declared_options}
        for option in sorted(set(options_for(request, name, workload)) - known):
            having = ", ".join(runtime_options().get(option, ()))
            choose = f": --runtime chooses one that has it ({having})" if having else ""
            return f"runtime {name} has no option {option!r}{choose}"
    return None


def _use_instead(device: Device, runtime: Runtime, workload: Workload) -> str:
    """The precisions at which both the device and the runtime run the workload; empty without any."""
    able = [precision for precision in device.precisions if runtime.supports(device, workload, precision) is None]
    return f": use one of {', '.join(able)}" if able else ""


def requested_points(request: Request, workload: Workload, family: WorkloadFamily) -> tuple[Point, ...]:
    """The grid of a request: requested values, and the family's defaults. Default sequence lengths without a valid
    point are dropped; requested ones never are. Raises UsageError for an axis that the workload lacks, unless it is
    shared."""
    only = family.only_batch_size(workload)
    is_default = request.batch_sizes == DEFAULT_BATCH_SIZES
    batch_sizes = (only,) if is_default and only is not None else request.batch_sizes
    of_family = family.axes(workload)
    inapplicable = request.shared_axes - set(of_family)
    requested = {name: values for name, values in request.family_axes.items() if name not in inapplicable}
    for name in requested:
        if name not in of_family:
            raise UsageError(no_axis(workload, name, of_family))
    axes = {"batch_size": batch_sizes, **of_family, **requested}
    axes |= {} if request.concurrency is None else {"concurrency": request.concurrency}
    points = grid(axes)
    if request.sequence_lengths is not None or "sequence_length" not in axes:
        return points
    possible = {point.sequence_length for point in points if family.check(workload, point) is None}
    if possible:
        return tuple(point for point in points if point.sequence_length in possible)
    new_tokens = int(max(axes.get("new_tokens", ()), default=0))
    limit = workload.max_sequence_length
    if limit is None or min(axes["sequence_length"]) + new_tokens <= limit:
        return points  # the model is long enough: the actual problem is reported
    # The model is too short for every default length: its maximum, less the tokens to generate.
    if limit - new_tokens < 1:
        raise UsageError(f"--new-tokens exceeds the limit of {limit} tokens of {workload.model_id}: generate fewer")
    return grid({**axes, "sequence_length": (limit - new_tokens,)})


ALL = "all"
MOST_REASONS = 4
"""Reasons why runtimes are unsupported that an error lists; the rest are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimePlans:
    plans: tuple[CellPlan, ...]
    refused: Mapping[str, str] = field(default_factory=dict)
    """Runtime -> why it is left out; only for runtimes that were not named."""

    def report_refused(self, say: Callable[[str], None]) -> None:
        """Report the runtimes that are left out, one line each."""
        for runtime, why in self.refused.items():
            say(f"left out: {runtime}: {why}")


def plan_runtimes(
    request: Request,
    names: Sequence[str],
    session_id: str,
    *,
    may_refuse: bool = False,
    workload: Workload | None = None,
    machine: Machine | None = None,
) -> RuntimePlans:
    """The plans of a request with each of these runtimes; `("all",)` is every runtime that is compared with eager.

    Runtimes that were not named (all, or `may_refuse`) and cannot run here are left out, with the reason; so are those
    of "all" that would run on an emulation, unless the device is one.
    `workload` and `machine` are looked up by default. Raises UsageError with all reasons if a named runtime cannot run,
    unless the request skips unsupported points; and if no runtime is left.
    """
    is_all = tuple(names) == (ALL,)
    may_refuse = may_refuse or is_all
    known = plugins.names(plugins.RUNTIMES)
    if ALL in names:
        if len(names) > 1:
            raise UsageError(f"--runtime {','.join(names)}: all already includes the others: remove their names")
        runtimes = tuple(name for name in known if plugins.runtime(name).is_compared)
    else:
        for name in names:
            choice(name, (*known, ALL), "runtime")
            if names.count(name) > 1:
                raise UsageError(f"runtime {name} is given twice: remove one")
        runtimes = tuple(names)
    workload = workload_of(request) if workload is None else workload
    machine = Machine() if machine is None else machine
    device, default = request.device, default_runtime()
    plans: dict[str, CellPlan] = {}
    refused: dict[str, UnsupportedError] = {}
    for name in sorted(runtimes, key=lambda name: name != default):  # the first plan determines the device
        shared = replace(request, shared_options=frozenset(request.options), runtime=name, device=device)
        try:
            plan = plan_cell(shared, session_id, workload=workload, machine=machine)
        except UnsupportedError as error:
            refused[name] = error
            continue
        if is_all and (emulation := plugins.runtime(name).emulated_on(plan.cell.device)) is not None:
            refused[name] = UnsupportedError(f"{emulation}: --runtimes {default},{name} measures that")
            continue
        device = plan.cell.device.selector if plan.cell.device.found else device
        plans[name] = replace(plan, cell=replace(plan.cell, requested_device=request.device))
    if refused and not plans and (own := _implied_runtime(device)) not in (None, *runtimes):
        several = first_few(runtimes, MOST_REASONS, ", ")
        raise UnsupportedError(
            f"--device {device} has runtime {own}, not {several}: choose another, such as --device cpu"
        )
    if refused and (not may_refuse or not plans):
        by_reason = grouped((str(why), name) for name, why in refused.items())
        reasons = first_few([f"{', '.join(same)}: {why}" for why, same in by_reason.items()], MOST_REASONS, "; ")
        reasons += f"; {as_typed('run')} --list-runtimes shows what each runs on" * (len(by_reason) > MOST_REASONS)
        how = "" if may_refuse else "; use --skip-unsupported to skip them and measure the others"
        raise UnsupportedError(
            f"nothing measured: {len(refused)} of {len(runtimes)} runtimes are unsupported: {reasons}{how}"
        )
    check_shared_options(frozenset(request.options), [plan.cell for plan in plans.values()])
    return RuntimePlans(
        plans=tuple(plans[name] for name in runtimes if name in plans),
        refused={name: str(error) for name, error in refused.items()},
    )


def runtime_named(name: str) -> str:
    """The runtime with a name or alias. Raises UsageError with similar names if there is none."""
    found = next((runtime.name for runtime in plugins.runtimes() if name.lower() in runtime.aliases), name)
    return choice(found, plugins.names(plugins.RUNTIMES), "runtime")


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
