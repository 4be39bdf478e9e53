"""Flags shared by several commands, so that a flag means the same everywhere."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from benchmarking.builds.store import CACHE_VARIABLE
from benchmarking.core import plugins
from benchmarking.core.axes import AXES, FURTHER, POINT_FIELDS
from benchmarking.core.command_line import (
    DEFAULT_DATABASE,
    default_database,
    non_negative_int,
    non_negative_seconds,
    positive_int,
    positive_ints,
    positive_numbers,
    positive_seconds,
    tag,
)
from benchmarking.core.errors import UsageError
from benchmarking.core.records import PRECISIONS, REBUILDS, WEIGHTS_CHOICES, available
from benchmarking.core.text import visible
from benchmarking.measure.settings import DEFAULT_PROFILE, PROFILES, Settings, settings
from benchmarking.sweep.plan.options import options_in, runtimes
from benchmarking.sweep.plan.plan import CellPlan
from benchmarking.sweep.plan.request import DEFAULT_TIMEOUT_S, Request
from benchmarking.sweep.run.lock import WAIT_S
from benchmarking.sweep.run.warehouse import DATABASE_WAIT_S

DEFAULT_OUTPUT_DIR = "benchmark_results"


def add_named_model(group: argparse._ArgumentGroup) -> None:
    """The model as a positional argument, with its task and weights."""
    group.add_argument(
        "model",
        metavar="MODEL",
        help="name on the Hugging Face hub, local folder, or a name from run_hardware_benchmark --list-models",
    )
    add_model(group)


def add_model(group: argparse._ArgumentGroup) -> None:
    """The task and the weights of a model."""
    group.add_argument("--task", help="Hugging Face task name (default: the model's own)")
    add_weights(group)


def add_weights(group: argparse._ArgumentGroup) -> None:
    """Where the values of a model's weights come from."""
    group.add_argument(
        "--weights",
        choices=WEIGHTS_CHOICES,
        default="auto",
        help="pretrained weights, seeded random ones, or auto: pretrained if available, else random (default: auto)",
    )


def add_device(group: argparse._ArgumentGroup) -> None:
    """The device of a command that measures one model."""
    kinds = ", ".join(plugins.names("benchmarking.devices"))
    group.add_argument(
        "--device",
        default="auto",
        metavar="D",
        help=f"{kinds} or auto; D:N for number N, D:0,D:1 for several GPUs as one (default: auto)",
    )


def add_precision(group: argparse._ArgumentGroup) -> None:
    """The precision of a command that measures one model."""
    group.add_argument(
        "--precision",
        type=available,
        choices=PRECISIONS,
        default="float32",
        help="precision of weights and arithmetic (default: float32)",
    )


def add_threads(group: argparse._ArgumentGroup, *, several: bool = False) -> None:
    """The processors and threads of the measuring process; `several` for a command that takes a list of numbers."""
    group.add_argument(
        "--num-threads",
        type=positive_ints if several else positive_int,
        metavar="N,N" if several else "N",
        help=f"intra-op threads{'; each value is a separate run' * several} (default: the runtime's)",
    )
    group.add_argument("--cpu-list", metavar="LIST", help="logical CPUs to run on, such as 0-3,8 (default: all)")


def add_grid(parser: argparse.ArgumentParser) -> None:
    """The axes of the grid."""
    grid = parser.add_argument_group("grid", "Every combination of these values is one point.")
    at_once = [
        f"{runtime.concurrency_flag} [{runtime.name}]".lstrip()
        for runtime in runtimes()
        if runtime.concurrency_flag is not None
    ]
    notes = {"concurrency": f"; more than 1 requires {' or '.join(at_once)}"}
    for axis in AXES.values():
        read, metavar = (positive_numbers, "S,S") if axis.kind is float else (positive_ints, "N,N")
        shown = f" (default: {','.join(map(str, axis.default))})" if axis.default else ""
        text = axis.help + shown + notes.get(axis.name, "")
        grid.add_argument(
            axis.flag, *axis.other_flags, type=read, dest=axis.key, default=axis.default, metavar=metavar, help=text
        )


def add_measuring(parser: argparse.ArgumentParser) -> None:
    """How many calls and launches are measured, and what happens to points that cannot run."""
    group = parser.add_argument_group("measurement")
    launches = ", ".join(f"{one.launches} with {name}" for name, one in PROFILES.items())
    group.add_argument(
        "--profile",
        choices=tuple(PROFILES),
        default=DEFAULT_PROFILE,
        help=f"measurement profile, from fastest to most precise (default: {DEFAULT_PROFILE})",
    )
    group.add_argument(
        "--iterations",
        type=positive_int,
        metavar="N",
        help="timed calls per point and launch (default: until the confidence interval of the mean is narrow enough)",
    )
    group.add_argument(
        "--warmup-iterations",
        type=non_negative_int,
        metavar="N",
        help="untimed calls before the timed ones (default: until latency is steady)",
    )
    group.add_argument(
        "--launches",
        type=positive_int,
        metavar="N",
        help=f"fresh processes per point (default: {launches}; 5 for comparisons)",
    )
    group.add_argument(
        "--cold-cache",
        action="store_true",
        help="flush the device's last-level cache before each timed call; results are a separate series",
    )
    group.add_argument(
        "--timeout",
        type=positive_seconds,
        default=DEFAULT_TIMEOUT_S,
        metavar="S",
        help=f"time limit in seconds for loading, and for each point of a launch (default: {DEFAULT_TIMEOUT_S:g})",
    )
    group.add_argument(
        "--skip-unsupported",
        action="store_true",
        help="record unsupported points as skipped, with the reason (default: refuse the run)",
    )


def add_builds(parser: argparse.ArgumentParser) -> None:
    """When exports, engines and reference outputs are built, and where they are cached."""
    group = parser.add_argument_group("builds")
    add_cache_dir(group)
    add_rebuild(group)
    group.add_argument(
        "--lean-cache", action="store_true", help="delete the artifacts built by this command when it ends"
    )


def add_rebuild(group: argparse._ArgumentGroup) -> None:
    """When cached artifacts are rebuilt."""
    group.add_argument(
        "--rebuild",
        choices=REBUILDS,
        default="if_needed",
        help="when to rebuild cached artifacts: exports, engines and reference outputs (default: if_needed)",
    )


def add_cache_dir(group: argparse._ArgumentGroup) -> None:
    """The folder of cached artifacts."""
    group.add_argument(
        "-d",
        "--cache-dir",
        metavar="DIR",
        help=f"folder of cached artifacts (default: ${CACHE_VARIABLE}, else the user's cache folder)",
    )


def use_cache_dir(cache_dir: str | None) -> None:
    """Use the folder as the cache of this process and its workers. Raises UsageError for a path that is not a
    folder."""
    if cache_dir is None:
        return
    path = Path(cache_dir).expanduser().absolute()
    if path.exists() and not path.is_dir():
        raise UsageError(f"--cache-dir {cache_dir} is a file: choose a folder")
    os.environ[CACHE_VARIABLE] = str(path)


def add_keeping(group: argparse._ArgumentGroup) -> None:
    """Where run files and the database are, and the labels of runs."""
    group.add_argument(
        "--output-dir", default=DEFAULT_OUTPUT_DIR, metavar="DIR", help="folder of run files (default: %(default)s)"
    )
    add_database_and_labels(group)


def add_database_and_labels(group: argparse._ArgumentGroup) -> None:
    """Where the database is, and the labels of runs."""
    group.add_argument(
        "--db-path",
        default=default_database(),
        metavar="FILE",
        help=f"DuckDB file, or ducklake:... (default: $BENCHMARK_DB_PATH, else {DEFAULT_DATABASE})",
    )
    group.add_argument(
        "--lock-timeout",
        type=non_negative_seconds,
        metavar="S",
        help="seconds to wait for a database or device that another process uses (default: "
        f"{DATABASE_WAIT_S:g} for a database, {WAIT_S:g} for a device)",
    )
    group.add_argument(
        "--tag", type=tag, action="append", default=[], metavar="K=V", help="label of the run; repeatable"
    )
    group.add_argument("--description", metavar="TEXT", help="description of the run")
    group.add_argument("--anonymous", action="store_true", help="omit host and user names from everything saved")


def add_save(group: argparse._ArgumentGroup) -> None:
    """Whether runs are saved."""
    group.add_argument(
        "--save", action="store_true", help="write run files and store them in the database (default: print only)"
    )


def add_output_format(group: argparse._ArgumentGroup | argparse.ArgumentParser) -> None:
    """How results and progress are printed."""
    group.add_argument("--json", action="store_true", help="results on stdout as JSON (default: tables)")
    group.add_argument("--quiet", action="store_true", help="no progress on stderr")


LOG_LEVELS = ("debug", "info", "warning", "error")
OWN_LOGGER = "benchmarking"


def add_log_level(group: argparse._ArgumentGroup) -> None:
    """What is logged on stderr."""
    group.add_argument(
        "--log-level",
        choices=LOG_LEVELS,
        help="minimum severity of log messages on stderr; debug includes the output of the measuring processes "
        "(default: no log)",
    )


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


def add_dry_run(group: argparse._ArgumentGroup) -> None:
    """Whether to print the plan only."""
    group.add_argument("--dry-run", action="store_true", help="print the plan and measure nothing")


def axes(arguments: argparse.Namespace) -> dict[str, tuple[float, ...]]:
    """The values given for further axes, by axis."""
    given = {name: getattr(arguments, axis.key) for name, axis in FURTHER.items()}
    return {axis: values for axis, values in given.items() if values is not None}


def named_plans(arguments: argparse.Namespace, plans: Iterable[CellPlan]) -> tuple[CellPlan, ...]:
    """The plans, anonymous if requested."""
    return tuple(plan.anonymous() if arguments.anonymous else plan for plan in plans)


def chosen_settings(arguments: argparse.Namespace) -> Settings:
    """The settings chosen by the measurement flags."""
    return settings(
        arguments.profile,
        iterations=arguments.iterations,
        warmup_iterations=arguments.warmup_iterations,
        launches=arguments.launches,
        cold_cache=arguments.cold_cache,
    )


def requests(arguments: argparse.Namespace, model_id: str, command: tuple[str, ...]) -> tuple[Request, ...]:
    """The requests of a command that measures one model, one per number of threads; the runtime is not set yet."""
    given = arguments.num_threads
    first = _request(arguments, model_id, command)
    return tuple(replace(first, num_threads=count) for count in (given if isinstance(given, tuple) else (given,)))


def request(arguments: argparse.Namespace, model_id: str, command: tuple[str, ...]) -> Request:
    """The request of a command with a single number of threads."""
    (only,) = requests(arguments, model_id, command)
    return only


def _request(arguments: argparse.Namespace, model_id: str, command: tuple[str, ...]) -> Request:
    return Request(
        model_id=model_id,
        device=arguments.device,
        precision=arguments.precision,
        task=arguments.task,
        weights=arguments.weights,
        **{AXES[name].key: getattr(arguments, AXES[name].key) for name in POINT_FIELDS},
        axes=axes(arguments),
        cpu_list=arguments.cpu_list,
        options=options_in(vars(arguments)),
        rebuild=arguments.rebuild,
        settings=chosen_settings(arguments),
        timeout_s=arguments.timeout,
        skip_unsupported=arguments.skip_unsupported,
        command=command,
        tags=dict(arguments.tag),
        description=arguments.description,
    )
