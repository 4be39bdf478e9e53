"""Flags that several commands have, in one place: the same flag means the same everywhere."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from benchmarking.builds.store import CACHE_VARIABLE
from benchmarking.core.axes import AXES, FURTHER, POINT_FIELDS
from benchmarking.core.command_line import (
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
from benchmarking.core.records import REBUILDS
from benchmarking.measure.settings import PROFILES, Settings, settings
from benchmarking.sweep.plan.options import options_in
from benchmarking.sweep.plan.request import DEFAULT_TIMEOUT_S, Request

DEFAULT_OUTPUT_DIR = "benchmark_results"
DEFAULT_PROFILE = "standard"


def add_model_options(group: argparse._ArgumentGroup) -> None:
    """How a model is loaded and run, beside device, runtime and precision."""
    group.add_argument(
        "--weights",
        choices=("auto", "pretrained", "random"),
        default="auto",
        help="auto takes pretrained weights where they can be had, else seeded random ones, and says so",
    )
    group.add_argument("--num-threads", type=positive_int, metavar="N", help="intra-op threads")
    group.add_argument("--cpu-list", metavar="LIST", help="logical processors to run on, such as 0-3,8")


def add_grid(parser: argparse.ArgumentParser) -> None:
    """The axes of the grid."""
    grid = parser.add_argument_group("grid")
    for axis in AXES.values():
        read, metavar = (positive_numbers, "S,S") if axis.kind is float else (positive_ints, "N,N")
        shown = f"; default {','.join(map(str, axis.default))}" if axis.default else ""
        grid.add_argument(axis.flag, type=read, default=axis.default, metavar=metavar, help=axis.help + shown)


def add_measuring(parser: argparse.ArgumentParser) -> None:
    """How long and how often is measured, and what becomes of what cannot be."""
    how = parser.add_argument_group("how it is measured")
    how.add_argument("--profile", choices=tuple(PROFILES), default=DEFAULT_PROFILE, help="how exact, and so how long")
    how.add_argument("--iterations", type=positive_int, metavar="N", help="exactly N timed calls per point and launch")
    how.add_argument("--warmup-iterations", type=non_negative_int, metavar="N", help="exactly N calls before them")
    how.add_argument("--launches", type=positive_int, metavar="N", help="fresh processes")
    how.add_argument(
        "--timeout",
        type=positive_seconds,
        default=DEFAULT_TIMEOUT_S,
        metavar="S",
        help=f"seconds for loading, and for each point of a launch (default {DEFAULT_TIMEOUT_S:g})",
    )
    how.add_argument("--skip-unsupported", action="store_true", help="store what cannot be as skipped, with its reason")


def add_builds(parser: argparse.ArgumentParser) -> None:
    """What of exports, engines and reference outputs is made, and where it is kept."""
    group = parser.add_argument_group("builds")
    add_cache_dir(group)
    group.add_argument(
        "--rebuild", choices=REBUILDS, default="if_needed", help="make builds that are there already, or make none"
    )
    group.add_argument("--lean-cache", action="store_true", help="delete the builds that this command made, at its end")


def add_cache_dir(group: argparse._ArgumentGroup) -> None:
    """Where builds are."""
    group.add_argument(
        "--cache-dir", metavar="DIR", help=f"where builds are (default ${CACHE_VARIABLE}, or this user's cache folder)"
    )


def use_cache_dir(cache_dir: str | None) -> None:
    """Make the folder this process's cache and its workers'. Raises UsageError for a path that is no folder."""
    if cache_dir is None:
        return
    path = Path(cache_dir).expanduser().absolute()
    if path.exists() and not path.is_dir():
        raise UsageError(f"--cache-dir {cache_dir}: that is a file: name a folder")
    os.environ[CACHE_VARIABLE] = str(path)


def add_keeping(group: argparse._ArgumentGroup) -> None:
    """Where run files and the database are, and what is written to them beside the numbers."""
    group.add_argument(
        "--output-dir", default=DEFAULT_OUTPUT_DIR, metavar="DIR", help="run files (default %(default)s)"
    )
    group.add_argument(
        "--db-path",
        default=default_database(),
        metavar="FILE",
        help="DuckDB file (default $BENCHMARK_DB_PATH or benchmark_db.duckdb)",
    )
    group.add_argument(
        "--lock-timeout",
        type=non_negative_seconds,
        default=30.0,
        metavar="S",
        help="seconds to wait for a database in use (default %(default)g)",
    )
    group.add_argument(
        "--tag", type=tag, action="append", default=[], metavar="K=V", help="label of the run; repeatable"
    )
    group.add_argument("--description", help="a sentence about the run")


def add_showing(group: argparse._ArgumentGroup) -> None:
    """What is printed."""
    group.add_argument("--dry-run", action="store_true", help="print the plan and measure nothing")
    group.add_argument("--json", action="store_true", help="results on stdout as JSON")
    group.add_argument("--quiet", action="store_true", help="no progress on stderr")


def axes(arguments: argparse.Namespace) -> dict[str, tuple[float, ...]]:
    """The values that were given for further axes, by axis."""
    given = {name: getattr(arguments, axis.key) for name, axis in FURTHER.items()}
    return {axis: values for axis, values in given.items() if values is not None}


def chosen_settings(arguments: argparse.Namespace) -> Settings:
    """The settings that the measuring flags choose."""
    return settings(
        arguments.profile,
        iterations=arguments.iterations,
        warmup_iterations=arguments.warmup_iterations,
        launches=arguments.launches,
    )


def request(arguments: argparse.Namespace, model_id: str, command: tuple[str, ...]) -> Request:
    """What the flags of a command that measures one model ask for, its runtime left open."""
    return Request(
        model_id=model_id,
        device=arguments.device,
        precision=arguments.precision,
        task=arguments.task,
        weights=arguments.weights,
        **{AXES[name].key: getattr(arguments, AXES[name].key) for name in POINT_FIELDS},
        axes=axes(arguments),
        num_threads=arguments.num_threads,
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
