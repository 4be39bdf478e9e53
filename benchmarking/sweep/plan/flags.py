"""Flags shared by several commands, so that a flag means the same everywhere; and back from a stored run to its request
and the equivalent command line.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarking.builds.store import BUILDS, CACHE_VARIABLE
from benchmarking.core import plugins
from benchmarking.core.axes import AXES
from benchmarking.core.command_line import add_model_id
from benchmarking.core.command_names import SCRIPTS
from benchmarking.core.errors import UnsupportedError, UsageError
from benchmarking.core.plugins import default_runtime
from benchmarking.core.provenance import MeasuredRun
from benchmarking.core.quality import QualitySettings
from benchmarking.core.records import INT32_MOST, Point, Scalar
from benchmarking.core.settings import add_flags, add_settings
from benchmarking.core.shared_settings import DATABASE_WAIT_S, DEVICE_WAIT_S, SHARED
from benchmarking.core.storage_paths import check_folder
from benchmarking.core.text import flag_of, visible
from benchmarking.measure.context import COLD_CACHE, settings
from benchmarking.sweep.plan.measuring_settings import (
    CALLS,
    GRAPH_INPUTS,
    MEASURING,
    QUALITY,
    runtime_options,
)

if TYPE_CHECKING:
    from benchmarking.sweep.plan.plan import CellPlan
    from benchmarking.sweep.plan.request import Request

OWN_LOGGER = "benchmarking"


def add_named_model(group: argparse._ArgumentGroup, *, is_needed: bool = True) -> None:
    """The model as the first argument or a flag, with its task and weights."""
    what = "name on the Hugging Face hub, local folder, or a name from benchhouse run --list-models"
    add_model_id(group, what, is_needed=is_needed)
    add_model(group)


def add_model(group: argparse._ArgumentGroup) -> None:
    add_settings(group, MEASURING, "task", "weights")


def add_graph_inputs(group: argparse._ArgumentGroup) -> None:
    """What only the user knows about the inputs of a graph file."""
    add_settings(group, MEASURING, *GRAPH_INPUTS)


def add_device(group: argparse._ArgumentGroup) -> None:
    """The device of a command that measures one model."""
    add_flags(group, MEASURING["device"].here(help=f"{MEASURING['device'].help}, D:0,D:1 for several GPUs as one"))


def add_runtime(
    group: argparse._ArgumentGroup, words: str, *, several: bool = False, default_words: str | None = None
) -> None:
    """The runtime, or with `several` a list of them; `words` say what the command does with it."""
    runtime, usual = MEASURING["runtime"], default_words or f"the device's own, else {default_runtime()}"
    lists = ("runtime",) if several else ()
    add_flags(group, runtime.here(help=f"{runtime.help}; {words}", default_words=usual), lists=lists)


def add_threads(group: argparse._ArgumentGroup, *, several: bool = False) -> None:
    """The processors and threads of the measuring process; `several` for a command that takes a list of numbers."""
    threads = MEASURING["num_threads"]
    threads = threads.here(help=f"{threads.help}; each value is a separate run") if several else threads
    add_flags(group, threads, MEASURING["cpu_list"], lists=("num_threads",) if several else ())


def add_grid(parser: argparse.ArgumentParser) -> None:
    grid = parser.add_argument_group("grid", "Every combination of these values is one point.")
    at_once = [
        f"{runtime.concurrency_flag} [{runtime.name}]".lstrip()
        for runtime in plugins.runtimes()
        if runtime.concurrency_flag is not None
    ]
    words = f"{AXES['concurrency'].implied}; more than 1 requires {' or '.join(at_once)}"
    axes = {name: MEASURING[name] for name in AXES}
    axes["concurrency"] = axes["concurrency"].here(default_words=words)
    add_flags(grid, *axes.values(), lists=AXES)


def add_measuring(parser: argparse.ArgumentParser, *, has_quality: bool = True) -> None:
    """How many calls and launches are measured, whether quality is, and what happens to points that cannot run."""
    quality = QUALITY if has_quality else ()
    names = (*CALLS, *quality, "timeout", "skip_unsupported")
    add_settings(parser.add_argument_group("measurement"), MEASURING, *names)


def add_builds(parser: argparse.ArgumentParser) -> None:
    """When exports, engines and reference outputs are built, and where they are cached."""
    add_settings(parser.add_argument_group("builds"), MEASURING, "cache_dir", "rebuild", "lean_cache")


def use_cache_dir(cache_dir: str | None, *, writes: bool = True) -> None:
    """Use the folder as the cache of this process and its workers. Raises StorageError for a folder that has no builds
    and cannot be written, if the command writes builds."""
    if cache_dir is None:
        return
    path = Path(os.path.expanduser(cache_dir)).absolute()
    if writes and not os.path.isdir(path / BUILDS):  # builds of another user can be read
        check_folder(path)
    os.environ[CACHE_VARIABLE] = str(path)


def add_saved(group: argparse._ArgumentGroup) -> None:
    """Whether runs are saved, in a command that saves by default: `arguments.save`."""
    group.add_argument("--no-save", dest="save", action="store_false", default=True, help=SHARED["no_save"].help)
    group.add_argument("--save", dest="save", action="store_true", help=argparse.SUPPRESS)


def add_turn(group: argparse._ArgumentGroup) -> None:
    """The folder in which a command measures one launch, for the commands that alternate two of them."""
    group.add_argument("--turn", type=Path, metavar="DIR", help=argparse.SUPPRESS)


def add_keeping(group: argparse._ArgumentGroup) -> None:
    """Where run files and the database are, and the labels of runs."""
    add_settings(group, SHARED, "output_dir")
    add_database_and_labels(group)


def add_database_and_labels(group: argparse._ArgumentGroup) -> None:
    """Where the database is, and the labels of runs."""
    what = "seconds to wait for a database or device that another process uses"
    words = f"{DATABASE_WAIT_S:g} for a database, {DEVICE_WAIT_S:g} for a device"
    add_flags(group, SHARED["db_path"], SHARED["lock_timeout"].here(help=what, default=None, default_words=words))
    add_settings(group, SHARED, "tag", "description", "anonymous")


def add_output_format(group: argparse._ArgumentGroup | argparse.ArgumentParser) -> None:
    """How results and progress are printed."""
    add_settings(group, SHARED, "json", "quiet")


@contextmanager
def logging_to_stderr(level: str | None) -> Iterator[None]:
    """Inside, log messages of our packages at this level or above go to stderr, one per line, with control characters
    escaped, since they may include the output of a model or benchmark. Without a level nothing is logged."""
    if level is None:
        yield
        return
    import logging

    def as_shown(record: logging.LogRecord) -> bool:
        record.msg, record.args = visible(record.getMessage()), ()
        return True

    handler, logger = logging.StreamHandler(), logging.getLogger(OWN_LOGGER)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    handler.setLevel(level.upper())
    handler.addFilter(as_shown)
    before = logger.level
    logger.setLevel(handler.level)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


def named_plans(arguments: argparse.Namespace, plans: Iterable[CellPlan]) -> tuple[CellPlan, ...]:
    """The plans, anonymous if requested."""
    return tuple(plan.anonymous() if arguments.anonymous else plan for plan in plans)


def repeated_request(run: MeasuredRun, points: Sequence[Point], tags: Mapping[str, str] | None = None) -> Request:
    """The request that repeats the points of the run, on the grid that spans them.

    It requests what actually ran, such as the device and weights that "auto" found. Raises UnsupportedError for a run
    that no command can repeat, and for one whose settings name code, since a stored run may come from anyone.
    """
    from benchmarking.sweep.plan.request import Request

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
        dims=run.dims,
        input_values=run.input_values,
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
        *(SCRIPTS["run"], "--model-id", request.model_id, "--device", request.device),
        *_flag("--runtime", request.runtime),
        *("--precision", request.precision),
        *_flag("--task", request.task),
        *("--weights", request.weights),
        *_flag("--num-threads", request.num_threads),
        *_flag("--cpu-list", request.cpu_list),
        *(word for name, value in request.options.items() for word in _flag(flag_of(name), value)),
        *(word for name, size in request.dims.items() for word in ("--dim", f"{name}={size}")),
        *(word for name, value in request.input_values.items() for word in ("--input", f"{name}={value}")),
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
    if (code := plugins.runtime(run.runtime).foreign_code(run.runtime_mode)) is not None:
        return f"it runs the code in {code.path!r}: if you trust it, write the command yourself, with {code.flag}"
    options = runtime_options()
    given = set(run.runtime_mode) - {COLD_CACHE}
    unknown = sorted(name for name in given if run.runtime not in options.get(name, ()))
    if unknown:  # it would become a separate flag
        return f"runtime {run.runtime} has no option {unknown[0]!r}"
    counts = ("launches", "fixed_iterations", "fixed_warmup_iterations")
    if wrong := [name for name in counts if not isinstance(run.settings.get(name), int | None)]:
        return f"its {wrong[0]} is not a number"
    of_inputs: tuple[Any, ...] = (run.dims, run.input_values)
    is_by_name = all(isinstance(values, Mapping) for values in of_inputs)
    return None if is_by_name else "its dims or input_values are not values by name"


def _flag(flag: str, value: object) -> tuple[str, ...]:
    return () if value is None else (flag, str(value))
