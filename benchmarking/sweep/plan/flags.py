"""Flags shared by several commands, so that a flag means the same everywhere."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarking.builds.store import BUILDS, CACHE_VARIABLE
from benchmarking.core import plugins
from benchmarking.core.axes import AXES
from benchmarking.core.command_line import add_model_id
from benchmarking.core.settings import add_settings
from benchmarking.core.shared_settings import DATABASE_WAIT_S, DEVICE_WAIT_S, SHARED
from benchmarking.core.storage_paths import check_folder
from benchmarking.core.text import visible
from benchmarking.measure.context import Settings
from benchmarking.runtimes.support.lookup import default_runtime
from benchmarking.sweep.plan.measuring_settings import (
    CALLS,
    GRAPH_INPUTS,
    MEASURING,
    QUALITY,
    measured_by,
    options_in,
)

if TYPE_CHECKING:
    from benchmarking.sweep.plan.plan import CellPlan
    from benchmarking.sweep.plan.request import Request


def add_named_model(group: argparse._ArgumentGroup) -> None:
    """The model as the first argument or a flag, with its task and weights."""
    add_model_id(group, "name on the Hugging Face hub, local folder, or a name from benchhouse run --list-models")
    add_model(group)


def add_model(group: argparse._ArgumentGroup) -> None:
    """The task and the weights of a model."""
    add_settings(group, MEASURING, "task", "weights")


def add_graph_inputs(group: argparse._ArgumentGroup) -> None:
    """What only the user knows about the inputs of a graph file."""
    add_settings(group, MEASURING, *GRAPH_INPUTS)


def add_device(group: argparse._ArgumentGroup) -> None:
    """The device of a command that measures one model."""
    helps = {"device": f"{MEASURING['device'].help}, D:0,D:1 for several GPUs as one"}
    add_settings(group, MEASURING, "device", helps=helps)


def add_runtime(
    group: argparse._ArgumentGroup, words: str, *, several: bool = False, default_words: str | None = None
) -> None:
    """The runtime, or with `several` a list of them; `words` say what the command does with it."""
    add_settings(
        group,
        MEASURING,
        "runtime",
        lists=("runtime",) if several else (),
        helps={"runtime": f"{MEASURING['runtime'].help}; {words}"},
        default_words={"runtime": default_words or f"the device's own, else {default_runtime()}"},
    )


def add_threads(group: argparse._ArgumentGroup, *, several: bool = False) -> None:
    """The processors and threads of the measuring process; `several` for a command that takes a list of numbers."""
    helps = {"num_threads": f"{MEASURING['num_threads'].help}; each value is a separate run"} if several else {}
    lists = ("num_threads",) if several else ()
    add_settings(group, MEASURING, "num_threads", "cpu_list", lists=lists, helps=helps)


def add_grid(parser: argparse.ArgumentParser) -> None:
    """The axes of the grid."""
    grid = parser.add_argument_group("grid", "Every combination of these values is one point.")
    at_once = [
        f"{runtime.concurrency_flag} [{runtime.name}]".lstrip()
        for runtime in plugins.runtimes()
        if runtime.concurrency_flag is not None
    ]
    words = {"concurrency": f"{AXES['concurrency'].implied}; more than 1 requires {' or '.join(at_once)}"}
    add_settings(grid, MEASURING, *AXES, lists=AXES, default_words=words)


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
    path = Path(cache_dir).expanduser().absolute()
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
    add_settings(
        group,
        SHARED,
        *("db_path", "lock_timeout", "tag", "description", "anonymous"),
        defaults={"lock_timeout": None},
        default_words={"lock_timeout": f"{DATABASE_WAIT_S:g} for a database, {DEVICE_WAIT_S:g} for a device"},
        helps={"lock_timeout": "seconds to wait for a database or device that another process uses"},
    )


def add_output_format(group: argparse._ArgumentGroup | argparse.ArgumentParser) -> None:
    """How results and progress are printed."""
    add_settings(group, SHARED, "json", "quiet")


OWN_LOGGER = "benchmarking"


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


def chosen_settings(arguments: argparse.Namespace) -> Settings:
    """The settings chosen by the measurement flags."""
    return measured_by(vars(arguments))


def requests(arguments: argparse.Namespace, model_id: str, command: tuple[str, ...]) -> tuple[Request, ...]:
    """The requests of a command that measures one model, one for each precision and number of threads; the runtime is
    not set yet."""
    from benchmarking.sweep.plan.request import Request, request_fields

    first = Request(
        model_id=model_id,
        options=options_in(vars(arguments)),
        settings=chosen_settings(arguments),
        command=command,
        **request_fields(vars(arguments), without=("runtime", "precision", "num_threads")),
    )
    precisions = arguments.precisions if hasattr(arguments, "precisions") else (arguments.precision,)
    threads = arguments.num_threads
    return tuple(
        replace(first, precision=precision, num_threads=count)
        for precision in precisions
        for count in (threads if isinstance(threads, tuple) else (threads,))
    )


def request(arguments: argparse.Namespace, model_id: str, command: tuple[str, ...]) -> Request:
    """The request of a command with a single precision and number of threads."""
    (only,) = requests(arguments, model_id, command)
    return only
