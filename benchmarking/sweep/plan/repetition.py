"""Repeats a stored run: its request and the equivalent command line, from its stored fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from benchmarking.core import plugins
from benchmarking.core.axes import AXES
from benchmarking.core.errors import UnsupportedError, UsageError
from benchmarking.core.provenance import MeasuredRun
from benchmarking.core.quality import QualitySettings
from benchmarking.core.records import INT32_MOST, Point, Scalar
from benchmarking.measure.context import COLD_CACHE, settings
from benchmarking.sweep.plan.measuring_settings import runtime_options
from benchmarking.sweep.plan.plan import foreign_code
from benchmarking.sweep.plan.request import Request

COMMAND = "run_hardware_benchmark"


def repeated_request(run: MeasuredRun, points: Sequence[Point], tags: Mapping[str, str] | None = None) -> Request:
    """The request that repeats the points of the run, on the grid that spans them.

    It requests what actually ran, such as the device and weights that "auto" found. Raises UnsupportedError for a run
    that no command can repeat, and for one whose settings name code, since a stored run may come from anyone.
    """
    if (why_not := _unrepeatable_reason(run)) is not None:
        raise UnsupportedError(f"run {run.run_id} cannot be repeated: {why_not}")
    spanned = {name: sorted({v for point in points if (v := point.value(name)) is not None}) for name in AXES}
    # Most runtimes reject an axis that is given with only its implied value.
    values: dict[str, tuple[Any, ...]] = {
        name: tuple(numbers) for name, numbers in spanned.items() if numbers and numbers != [AXES[name].implied]
    }
    fields: dict[str, Any] = {AXES[name].key: values.pop(name) for name in list(values) if AXES[name].is_field}
    chosen: dict[str, Any] = dict(run.settings)
    request = Request(
        model_id=run.model_id,
        device=run.device,
        runtime=run.runtime,
        precision=run.precision,
        task=run.task,
        weights="pretrained" if run.weights == "pretrained" else "random",
        **fields,
        axes=values,
        num_threads=run.num_threads,
        cpu_list=run.cpu_list,
        options={name: str(value) for name, value in run.runtime_mode.items() if name != COLD_CACHE},
        settings=settings(
            chosen.get("profile", "standard"),
            iterations=chosen.get("fixed_iterations"),
            warmup_iterations=chosen.get("fixed_warmup_iterations"),
            launches=chosen.get("launches"),
            cold_cache=bool(run.runtime_mode.get(COLD_CACHE)),
        ),
        tags=run.tags if tags is None else tags,
    )
    request = replace(request, settings=replace(request.settings, quality=_quality(chosen.get("quality"))))
    return replace(request, command=command_line(request))


def command_line(request: Request) -> tuple[str, ...]:
    """The command line that requests the same grid, without tags and output flags."""
    chosen = request.settings
    grid: list[str] = []
    for axis in AXES.values():
        values = getattr(request, axis.key) if axis.is_field else request.axes.get(axis.name)
        grid += [] if values is None else [axis.flag, ",".join(map("{:.15g}".format, values))]
    return (
        *(COMMAND, "--model-id", request.model_id, "--device", request.device),
        *_flag("--runtime", request.runtime),
        *("--precision", request.precision),
        *_flag("--task", request.task),
        *("--weights", request.weights),
        *_flag("--num-threads", request.num_threads),
        *_flag("--cpu-list", request.cpu_list),
        *(word for name, value in request.options.items() for word in _flag(f"--{name.replace('_', '-')}", value)),
        *grid,
        *("--profile", chosen.profile, "--launches", str(chosen.launches)),
        *_flag("--iterations", chosen.fixed_iterations),
        *_flag("--warmup-iterations", chosen.fixed_warmup_iterations),
        *(("--cold-cache",) if chosen.cold_cache else ()),
        *(() if chosen.quality is None else ("--quality-windows", str(chosen.quality.windows))),
    )


def _quality(stored: object) -> QualitySettings | None:
    """The stored settings of the quality; None if it was not measured, or on a user's text or file: a stored run may
    come from anyone, and must not name files to read."""
    if not isinstance(stored, dict) or stored.get("text") is not None or stored.get("file") is not None:
        return None
    windows = stored.get("windows")
    return QualitySettings(windows=windows) if isinstance(windows, int) and 0 < windows <= INT32_MOST else None


def repeated_command(runs: Sequence[MeasuredRun]) -> tuple[str, ...]:
    """The single command that repeats all points of the runs, with their tags.

    Raises UsageError for runs that differ in more than their runtime, UnsupportedError as `repeated_request` does.
    """
    requests = [repeated_request(run, run.points) for run in runs]
    options: dict[str, Scalar] = {}
    for request in requests:
        options = {**request.options, **options}
    shared = [replace(request, runtime=None, options={}) for request in requests]
    distinct = {(command_line(request), tuple(request.tags.items())) for request in shared}
    if len(distinct) != 1 or any({**options, **request.options} != options for request in requests):
        commands = len({command_line(request) for request in requests})
        raise UsageError(f"these runs need {max(commands, 2)} different commands: choose one run")
    runtimes = ",".join(dict.fromkeys(run.runtime for run in runs))
    skipping = ("--skip-unsupported",) if any(run.has_skipped_points for run in runs) else ()
    tags = (word for name, value in requests[0].tags.items() for word in ("--tag", f"{name}={value}"))
    return (*command_line(replace(requests[0], runtime=runtimes, options=options)), *skipping, *tags)


def _unrepeatable_reason(run: MeasuredRun) -> str | None:
    """Why a command cannot or must not repeat a stored run; None if it can."""
    if run.why_not_repeatable is not None:
        return run.why_not_repeatable
    if run.runtime not in plugins.names(plugins.RUNTIMES):
        return f"unknown runtime {run.runtime!r}"
    if (code := foreign_code(run.runtime, run.runtime_mode)) is not None:
        return f"it runs the code in {code.path!r}: if you trust it, write the command yourself, with {code.flag}"
    options = runtime_options()
    given = set(run.runtime_mode) - {COLD_CACHE}
    unknown = sorted(name for name in given if run.runtime not in options.get(name, ()))
    if unknown:  # it would become a separate flag
        return f"runtime {run.runtime} has no option {unknown[0]!r}"
    counts = ("launches", "fixed_iterations", "fixed_warmup_iterations")
    wrong = [name for name in counts if not isinstance(run.settings.get(name), int | None)]
    return f"its {wrong[0]} is not a number" if wrong else None


def _flag(flag: str, value: object) -> tuple[str, ...]:
    return () if value is None else (flag, str(value))
