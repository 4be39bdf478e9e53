"""Measuring from Python: `benchmark_model` and `benchmark_script` return the same records as the commands."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarking.builds.inventory import lean_cache as lean
from benchmarking.builds.store import CACHE_VARIABLE
from benchmarking.cluster.target import open_target, remote_arguments
from benchmarking.core import plugins
from benchmarking.core.axes import AXES
from benchmarking.core.child_process import environment_variable
from benchmarking.core.device_contracts import DeviceHandle
from benchmarking.core.errors import UnsupportedError, UsageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.lazy_modules import torch
from benchmarking.core.plugins import default_runtime, device_named, names_with, processor, runtime_of_device_alias
from benchmarking.core.provenance import provenance, utc_now, uuid7
from benchmarking.core.records import PRECISIONS, Cell, Device, Json, LaunchLoad, Precision, Run, Scalar
from benchmarking.core.settings import takes_settings
from benchmarking.devices.support.select import probe_all
from benchmarking.measure.context import Settings
from benchmarking.scripts.analysis import Analysis
from benchmarking.scripts.script_models import OF_TARGETS, Models, Selection, analyse_each, split_arguments, targets
from benchmarking.sweep.plan.measuring_settings import CALLS, MEASURING, QUALITY, measured_by
from benchmarking.sweep.plan.plan import CellPlan, Machine
from benchmarking.sweep.plan.request import FIELDS, Request, plan_cell, plan_points, request_fields, runtime_named
from benchmarking.sweep.run.command_session import measure_plans
from benchmarking.workloads.support.given_modules import BuildSequence, read_sequence
from benchmarking.workloads.support.script_runs import CallArguments, module_hash, script_of_process

ELSEWHERE = ("device", "runtime", "precision")
"""Request fields that need a copy of the module, on another device, runtime or precision."""
OF_REQUESTS = tuple(name for name in FIELDS if name not in (*AXES, "tag", "description"))
"""Settings that are None where they are not given, since most do not apply to a module as it is."""


@takes_settings(
    MEASURING,
    *(*OF_REQUESTS, *AXES, *CALLS, *QUALITY),
    *("tag", "description", "cache_dir", "lean_cache"),
    lists=(*AXES, "tag"),
    defaults=dict.fromkeys((*OF_REQUESTS, *AXES)),
)
def benchmark_model(
    model: str | torch.nn.Module,
    inputs: Any = None,
    *,
    name: str | None = None,
    options: Mapping[str, Scalar] | None = None,
    build_only: bool = False,
    sequence: str | Path | None = None,
    backend: str = "local",
    host: str | Sequence[str] | None = None,
    use_slurm: bool | str | Path = False,
    setup: str | None = None,
    ssh_config: str | Path | None = None,
    **chosen: Any,
) -> Run:
    """Measure a model and return the run; nothing is stored.

    A torch module is measured in this process, on its current device, with `inputs`: a tensor, a tuple of positional
    arguments, or a mapping of keyword arguments. With `device`, `runtime` or `precision`, a copy is measured instead,
    also in this process and exported first if the runtime needs it (`rebuild`, `options` and `num_threads` are as the
    flags of the same names). This is a single launch, so the interval covers its calls, not other launches. `name` is
    the model's name in the run, by default its class.

    A model id (hub name, folder, or catalog name) is measured in fresh processes, like by the command.

    `chosen` are the settings of `benchhouse run`, by the names of its flags: `device`, `precision`, `batch_sizes`,
    `sequence_lengths`, `new_tokens`, `iterations`, `launches`, `timeout_s`, `tags`, ...; for a graph file also `dims`,
    `input_values` and `inputs_file`. `options` are those of the runtime.

    `backend="remote"` measures a model id on `host` ("user@machine"), `use_slurm` in a Slurm job (True, or the path of
    its configuration). `setup` (the environment of benchhouse there) and `ssh_config` are as the flags of the same
    names.

    `sequence` is a file whose `get_sequence()` returns the build stages. `cache_dir` is the folder of builds. With
    `lean_cache`, builds made by this call are deleted at its end. With `build_only`, the builds are made and all points
    are skipped.

    Raises UsageError for invalid arguments and other BenchhouseErrors for failures. A failed point of a model id is a
    failed result of the run. A script that calls this with a model id needs no main guard.
    """
    remote = remote_arguments(backend, host, use_slurm=use_slurm, setup=setup, ssh_config=ssh_config)
    metadata = {name: chosen[name] for name in ("tags", "description")}
    request = request_fields(chosen, without=("tag", "description"))
    if options is not None and not isinstance(options, Mapping):
        raise UsageError(f"options: expected a mapping of names to values, found {options!r}")
    if options is not None:
        request["options"] = dict(options)
    is_named = isinstance(model, str)
    if remote.cluster is not None and (not is_named or build_only):
        what = "build_only" if is_named else "a module of this process"
        raise UsageError(f"{what} works on this machine only: remove backend and use_slurm")
    if is_named and (inputs is not None or name is not None):
        raise UsageError("inputs and name apply to torch modules only: remove them for a model id")
    if is_named and sequence is not None:
        raise UsageError("sequence applies to torch modules and scripts only: remove it for a model id")
    if not is_named and (isinstance(model, type) or not hasattr(model, "forward")):
        found = f"the class {model.__name__}" if isinstance(model, type) else type(model).__name__
        raise UsageError(f"expected a model id or a torch module: found {found}")
    if name is not None and not isinstance(name, str):
        raise UsageError(f"name: expected text, found {name!r}")
    if not is_named and inputs is None:
        raise UsageError("a module needs inputs: pass a tensor, a tuple or a mapping")
    if not is_named and chosen["launches"] is not None:
        raise UsageError("launches applies to a model id only: a module is measured in this process, in one launch")
    measuring = measured_by(chosen if is_named else {**chosen, "launches": 1})
    if not is_named and measuring.quality is not None:
        raise UsageError("quality applies to a model id only: the quality of a module is not measured")
    with _cache(chosen["cache_dir"], is_lean=chosen["lean_cache"]):
        if isinstance(model, str):
            return _measure_model_id(model, measuring, {**request, **metadata}, remote, build_only=build_only)
        if build_only or sequence is not None or any(name in request for name in ELSEWHERE):
            stages = None if sequence is None else read_sequence(Path(sequence).resolve())
            fields = {**request, **metadata}
            return _measure_copy(model, inputs, name, measuring, fields, stages, build_only=build_only)
        if request:
            raise UsageError(
                f"{sorted(request)[0]} applies to a module only with device, runtime or precision: give one of these, "
                "or remove it"
            )
        return _measure_module(model, inputs, name, measuring, metadata)


@takes_settings(
    MEASURING,
    *("device", "runtime", "precision", "batch_size", "rebuild", "cache_dir", "lean_cache", *CALLS),
    *("timeout", "skip_unsupported", "tag", "description"),
    lists=("device", "runtime", "tag"),
    defaults={"device": ("auto",), "runtime": (), "precision": None, "batch_size": None},
)
def benchmark_script(
    input_script: str | Path | Sequence[str | Path] = (),
    *,
    search_dir: str | Path | None = None,
    benchmark_all: bool = False,
    script_args: str | Sequence[str] = (),
    max_depth: int = 0,
    analyze_only: bool = False,
    build_only: bool = False,
    sequence: str | Path | None = None,
    backend: str = "local",
    host: str | Sequence[str] | None = None,
    use_slurm: bool | str | Path = False,
    setup: str | None = None,
    ssh_config: str | Path | None = None,
    **chosen: Any,
) -> ScriptReport:
    """Measure the models that Python scripts call, with the inputs that the scripts used; nothing is stored.

    `input_script` is one or several files ("example.py", "example.py::d5b1ab77"), in `search_dir` if that is given;
    `benchmark_all` takes every script of that folder. Each script runs in separate processes, with `script_args`: a
    list of arguments, or a string that is split like by a shell, but without one. Modules are found down to `max_depth`
    levels below those that the script calls. `backend`, `host`, `use_slurm`, `setup` and `ssh_config` are as in
    `benchmark_model`; the scripts must have the same path on the other machine. `sequence` is a file whose
    `get_sequence()` returns the build stages. Each model has one run per device and runtime. Failures are in the report
    and do not stop the others. A script that calls this needs no main guard: while its own models are being found, it
    measures nothing here and gets an empty report.

    `chosen` are the settings of `benchhouse script`, by the names of its flags: `devices`, `runtimes`, `precision`
    (default: the script's), `iterations`, `launches`, `timeout_s`, `tags`, ...

    Raises UsageError for invalid arguments, and UnsupportedError when nothing can be measured on the devices and
    runtimes that are named.
    """
    if (running := script_of_process()) is not None:  # which would start itself over and over
        print(f"{running.name} is being measured: benchmark_script does nothing in it", file=sys.stderr)
        return ScriptReport(scripts=())
    remote = remote_arguments(backend, host, use_slurm=use_slurm, setup=setup, ssh_config=ssh_config)
    if remote.cluster is not None and (analyze_only or build_only or sequence is not None):
        raise UsageError(
            "analyze_only, build_only and sequence work on this machine only: remove backend and use_slurm"
        )
    plugins.check_measuring("measuring the models of a script")
    words = split_arguments(script_args)
    scripts = targets(
        (str(input_script),) if isinstance(input_script, str | Path) else tuple(map(str, input_script)),
        None if search_dir is None else str(search_dir),
        everything=benchmark_all,
    )
    request = Request(
        model_id="",
        build_only=build_only,
        settings=measured_by(chosen),
        command=tuple(sys.argv),
        **request_fields(chosen, without=OF_TARGETS),
    )
    selection = Selection(**{name: chosen[name] for name in ("devices", "runtimes", "precision")})
    selection.check(is_here=remote.cluster is None and not analyze_only)
    with _cache(chosen["cache_dir"], is_lean=chosen["lean_cache"]):
        models = Models()
        for _ in analyse_each(
            models,
            scripts,
            words,
            max_depth=max_depth,
            limit_s=request.timeout_s,
            sequence=None if sequence is None else str(sequence),
            batch_size=chosen["batch_size"],
            say=_silent,
        ):
            pass  # each is among the models
        if analyze_only:
            return ScriptReport(scripts=models.analyses, failures=tuple(models.failures))
        left_out: list[str] = []
        with open_target(remote, selection.devices, [script.path for script in scripts]) as target:
            models.plan(selection, request, uuid7(), left_out.append, machine=target.machine)
            models.check_planned()
            if build_only:
                models.build(_silent)
            runs = () if build_only else measure_plans(models.plans, target.executor)
            for run in runs:
                models.keep(run)
        return ScriptReport(
            scripts=models.analyses, runs=runs, failures=tuple(models.failures), left_out=tuple(left_out)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptReport:
    """The models found in scripts, their runs, and the failures."""

    scripts: tuple[Analysis, ...]
    runs: tuple[Run, ...] = ()
    """One for each model, device and runtime."""
    failures: tuple[str, ...] = ()
    """Scripts and models that failed, each with the reason."""
    left_out: tuple[str, ...] = ()
    """Unsupported combinations, each with the reason; and stale builds."""


@contextmanager
def _cache(folder: str | Path | None, *, is_lean: bool) -> Iterator[None]:
    """Inside, this is the folder of builds; with `is_lean`, builds made inside are deleted at the end."""
    with ExitStack() as stack:
        if folder is not None:
            path = str(Path(os.path.expanduser(folder)).absolute())
            stack.enter_context(environment_variable(CACHE_VARIABLE, path))
        stack.enter_context(lean(is_lean=is_lean, say=_silent))
        yield


def _silent(message: str) -> None:
    """Ignore progress messages: a function prints nothing."""


def _measure_copy(
    module: Any,
    inputs: Any,
    name: str | None,
    chosen: Settings,
    fields: dict[str, Any],
    stages: BuildSequence | None,
    *,
    build_only: bool,
) -> Run:
    """Measure a copy of a module in this process, on the requested device and runtime, else on its own device and at
    its own precision."""
    from benchmarking.runtimes.support.torch import model_loading
    from benchmarking.runtimes.support.torch.torch_session import arguments_of
    from benchmarking.sweep.run.preparation import has_build, needs_preparation, prepare_here
    from benchmarking.sweep.run.process import Job
    from benchmarking.sweep.run.supervisor import finished_run
    from benchmarking.sweep.run.worker import Stages, load, measure
    from benchmarking.workloads.support.given_modules import describe, recorded_calls, register_module
    from benchmarking.workloads.support.shown_batch import copy_to_call

    if fields.get("device") is None:
        device, handle = _device_of(module)
        handle.close()
        fields["device"] = device.selector
    fields.setdefault("runtime", runtime_of_device_alias(fields["device"]))
    fields["device"] = device_named(fields["device"])
    if fields.get("runtime") is not None:
        fields["runtime"] = runtime_named(fields["runtime"])
    if fields.get("precision") is None:  # of a module with parameters of several it has to be named
        of_stages = None if stages is None else stages.precision
        fields["precision"] = of_stages or _precision(model_loading.describe(module)["parameter_dtypes"])
    arguments = CallArguments(module, *arguments_of(inputs))
    arguments.detach()
    calls = recorded_calls(copy_to_call(module)[0], [arguments], [1])
    script_module = describe(module, module_hash(module), calls, sequence=stages)
    workload = script_module.workload(name or type(module).__name__)
    request = Request(
        model_id=workload.model_id, settings=chosen, build_only=build_only, command=tuple(sys.argv), **fields
    )
    register_module(module, workload, [arguments])
    points = tuple(call.point for call in calls)
    plan = plan_points(request, uuid7(), workload, points, skipped={}, machine=Machine())
    if stages is not None and not has_build(plan.cell):
        raise UnsupportedError(
            f"sequence: runtime {plan.cell.runtime} uses no builds: remove it or choose another runtime"
        )
    preparation = prepare_here(plan) if needs_preparation(plan.cell) else None
    if build_only:
        plan = _skipping(plan)
        return finished_run(plan, [], [], utc_now(), preparation)
    job = Job(
        cell=plan.cell,
        launch=0,
        points=plan.runnable,
        settings=plan.settings,
        spawned_at_ns=time.monotonic_ns(),
        preparation=preparation,
    )
    sent: list[Any] = []
    session, handle = load(job, Stages(0.0), sent.append)
    try:
        measurements = [measure(job, session, handle, point, sent.append, None) for point in job.points]
    finally:
        session.close()
        handle.close()
    loads = [one for one in sent if isinstance(one, LaunchLoad)]
    return finished_run(plan, loads, measurements, utc_now(), preparation)


def _skipping(plan: CellPlan) -> CellPlan:
    return replace(plan, skipped=dict.fromkeys((point.label for point in plan.points), "build_only: not measured"))


def _measure_model_id(
    model_id: str, chosen: Settings, fields: Mapping[str, Any], remote: argparse.Namespace, *, build_only: bool
) -> Run:
    from benchmarking.sweep.run.preparation import needs_preparation, prepare
    from benchmarking.sweep.run.supervisor import finished_run

    plugins.check_measuring()
    request = Request(model_id=model_id, settings=chosen, build_only=build_only, command=tuple(sys.argv), **fields)
    with open_target(remote, (request.device,)) as target:
        plan = plan_cell(request, uuid7(), machine=target.machine)
        if build_only:
            preparation = prepare(plan, _silent) if needs_preparation(plan.cell) else None
            return finished_run(_skipping(plan), [], [], utc_now(), preparation)
        (run,) = measure_plans([plan], target.executor)
    return run


def _measure_module(module: Any, inputs: Any, name: str | None, chosen: Settings, metadata: Mapping[str, Any]) -> Run:
    from benchmarking.devices.support.host import hardware
    from benchmarking.measure.machine_state import capture
    from benchmarking.measure.point import PIPELINED, measure_point
    from benchmarking.runtimes.support.torch.torch_session import ModuleSession
    from benchmarking.sweep.run.supervisor import finished_run

    session = ModuleSession(module, inputs)
    device, handle = _device_of(module)
    try:
        cell = Cell(
            workload=session.workload(name),
            device=device,
            requested_device=device.selector,
            runtime=default_runtime(),
            precision=_precision(session.verified.get("parameter_dtypes")),
            runtime_mode=chosen.mode,
        )
        plan = CellPlan(
            session_id=uuid7(),
            started_at=utc_now(),
            cell=cell,
            hardware=hardware(cell.device),
            provenance=provenance(tuple(sys.argv), metadata["tags"], metadata["description"]),
            environment=capture(),
            settings=chosen,
            timeout_s=None,
            points=(session.point(),),
        )
        (point,) = plan.points
        measurement = measure_point(session.operation(point), handle, point, 0, chosen, device=device)
        if not session.has_batch_in_outputs():  # what was taken for its items is a single one
            metrics = dict(measurement.metrics)
            if PIPELINED in metrics:
                metrics[PIPELINED] /= point.batch_size
            point, extra = session.point(), measurement.extra | {"items_per_call": 1}
            measurement = replace(measurement, point=point, metrics=metrics, extra=extra)
            plan = replace(plan, cell=replace(cell, workload=session.workload(name)), points=(point,))
        sizes = {} if session.weights_bytes is None else {"weights_bytes": session.weights_bytes}
        verified = {**session.verified, "parameter_count": session.parameter_count}
        load = LaunchLoad(launch=0, stages_s={}, memory_bytes=sizes, verified=verified)
        return finished_run(plan, [load], [measurement], utc_now())
    finally:
        session.close()
        handle.close()


def _device_of(module: Any) -> tuple[Device, DeviceHandle]:
    """The device of the module, opened. Raises UsageError for a device without a plugin."""
    torch_device = next(
        (parameter.device for parameter in module.parameters()), torch.device(str(processor().torch_type))
    )
    names = names_with(lambda kind: kind.torch_type == torch_device.type)
    if not names:
        raise UsageError(
            f"the module is on {torch_device}: expected a device of kind {', '.join(plugins.names(plugins.DEVICES))}"
        )
    found = [device for devices in probe_all(names).values() for device in devices if device.found]
    for device in found:
        plugin = plugins.device_kind(device.type)
        handle = plugin.open(device)
        if handle.torch_name is not None:
            its_device = torch.device(handle.torch_name)
            if (its_device.type, its_device.index or 0) == (torch_device.type, torch_device.index or 0):
                return device, handle
        handle.close()
    known = ", ".join(device.selector for device in found) or "nothing"
    raise UsageError(f"the module is on {torch_device}, which was not found: found {known}")


def _precision(dtypes: Json) -> Precision:
    """The precision of the module's parameters. Raises UsageError for mixed or unsupported ones."""
    names = sorted(str(dtype) for dtype in dtypes) if isinstance(dtypes, list) else []
    for precision in PRECISIONS:
        if names in ([precision], []):
            return precision
    raise UsageError(f"the module's parameters are {', '.join(names)}: expected one of {', '.join(PRECISIONS)}")


def measure_file(path: str, argv: Sequence[str] | None = None) -> int:
    """Measure the benchmarks in a file, like `benchhouse benches --benches FILE`; returns the exit code.

    Use it at the end of the file: `if __name__ == "__main__": sys.exit(measure_file(__file__))`. `argv` are flags of
    benchhouse batch, by default those of the command line.
    """
    from benchmarking.commands.batch import main

    return main(["--benches", path, *(sys.argv[1:] if argv is None else argv)])
