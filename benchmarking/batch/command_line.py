"""What is asked of a batch on the command line: the flags, and the plans they make together with a list of models."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarking.batch import model_list, report
from benchmarking.batch.model_list import BUILT_IN, readers
from benchmarking.batch.planning import PlanError, cell_requests, plan_all
from benchmarking.core.axes import BY_KEY
from benchmarking.core.command_line import Parser, names, note
from benchmarking.core.errors import UsageError
from benchmarking.core.records import PRECISIONS
from benchmarking.measure.settings import settings
from benchmarking.sweep.plan import flags
from benchmarking.sweep.plan.options import add_runtime_options, runtime_options
from benchmarking.sweep.plan.plan import CellPlan, Machine

OF_MODELS = ("runtimes", "weights", "num_threads", "cpu_list", "rebuild", *BY_KEY)
"""Settings that people's own benchmarks do not have; no options of runtimes either."""


def parser(name: str, description: str | None) -> Parser:
    """The flags of the command; a setting that is not given is None."""
    parser = Parser(
        prog=name,
        description=description,
        epilog=model_list.help_text(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = parser.add_argument_group("what is measured")
    source = what.add_mutually_exclusive_group()
    source.add_argument("--models", type=names, metavar="A,B", help="hub names, folders, or names of the catalog")
    source.add_argument("--model-list", metavar="FILE", help="a list of models: text, or YAML (.yaml, .yml), see below")
    what.add_argument("--benches", metavar="DIR", help="people's own benchmarks in the files of a folder")
    pattern = "names that match a pattern: models, or with --benches benchmarks; repeatable"
    what.add_argument("--include", action="append", default=[], metavar="PATTERN", help=f"only {pattern}")
    what.add_argument("--exclude", action="append", default=[], metavar="PATTERN", help=f"no {pattern}")
    what.add_argument("--enable-mock", action="store_true", help="run benchmarks that are mocks, too")
    what.add_argument("--devices", type=names, metavar="D,D", help="cpu, cuda[:N], null, auto, ...; default auto")
    what.add_argument(
        "--runtimes",
        type=names,
        metavar="R,R",
        help="eager, ..., or all that a device runs; without it what each device implies, else eager",
    )
    what.add_argument("--precisions", type=_choices(PRECISIONS), metavar="P,P", help="default float32")
    flags.add_model_options(what)
    add_runtime_options(parser)
    flags.add_grid(parser)
    flags.add_measuring(parser)
    flags.add_builds(parser)
    keep = parser.add_argument_group("what becomes of it")
    keep.add_argument("--no-save", action="store_true", help="keep no run files and store nothing")
    flags.add_keeping(keep)
    keep.add_argument("--report", metavar="FILE", help="write a report of the batch: FILE.md or FILE.html")
    keep.add_argument("--resume", action="store_true", help="go on with the newest unfinished batch of --output-dir")
    flags.add_showing(parser.add_argument_group("other"))
    parser.set_defaults(db_path=None, **dict.fromkeys(BUILT_IN))  # what is not given leaves the word to the list
    return parser


def check(arguments: argparse.Namespace) -> None:
    """See that the flags go together. Raises UsageError."""
    asked = arguments.models or arguments.model_list or arguments.benches
    if arguments.report is not None:
        report.check_place(Path(arguments.report))
    if arguments.resume and (asked or arguments.no_save or arguments.dry_run):
        raise UsageError("--resume goes on with a batch as it was begun: name only its --output-dir")
    if not asked and not arguments.resume:
        raise UsageError("--models a,b, --model-list FILE or --benches DIR is needed")
    if not (arguments.models or arguments.model_list or arguments.resume):
        _check_benches_alone(arguments)


def _check_benches_alone(arguments: argparse.Namespace) -> None:
    """Raise UsageError for flags that are a model's: a benchmark's own configurations say what it is run with."""
    for key in (*OF_MODELS, *runtime_options()):
        if getattr(arguments, key) is not None:
            flag = f"--{key.replace('_', '-')}"
            raise UsageError(f"{flag} is for models: the configurations in the files of --benches have their own")


def plans(
    arguments: argparse.Namespace, command: tuple[str, ...], session_id: str, machine: Machine
) -> tuple[CellPlan, ...]:
    """Everything that is to be measured. Raises what makes it impossible, all of it at once."""
    try:
        models = plan_all(cell_requests(_entries(arguments), _given(arguments), command), session_id, machine, note)
    except PlanError as error:
        for reason in error.reasons:
            note(reason)
        raise
    return models + _bench_plans(arguments, command, session_id, machine)


def _entries(arguments: argparse.Namespace) -> tuple[model_list.Entry, ...]:
    """The models that are asked for, less those that the patterns leave out."""
    entries: tuple[model_list.Entry, ...] = ()
    if arguments.models:
        entries = model_list.entries_from_names(arguments.models, "--models")
    elif arguments.model_list:
        entries = model_list.entries_from_file(Path(arguments.model_list))
    if not entries or arguments.benches:  # beside benchmarks the patterns are theirs
        return entries
    return model_list.select_entries(entries, arguments.include, arguments.exclude, "the command")


def _given(arguments: argparse.Namespace) -> dict[str, Any]:
    """The settings that were given on the command line, by their keys in a list."""
    given = {key: getattr(arguments, key, None) for key in readers()}
    given["tags"] = dict(arguments.tag) or None
    return {key: value for key, value in given.items() if value is not None}


def _bench_plans(
    arguments: argparse.Namespace, command: tuple[str, ...], session_id: str, machine: Machine
) -> tuple[CellPlan, ...]:
    """The plans of people's own benchmarks."""
    if arguments.benches is None:
        return ()
    from benchmarking.benches.discovery import discover
    from benchmarking.benches.planning import BenchPlanning, plan_benches

    found = discover(
        Path(arguments.benches),
        include=arguments.include,
        exclude=arguments.exclude,
        enable_mock=arguments.enable_mock,
    )
    for label, why in found.left_out.items():
        note(f"left out: {label}: {why}")
    chosen = {**BUILT_IN, **_given(arguments)}
    measuring = settings(
        chosen["profile"],
        iterations=chosen.get("iterations"),
        warmup_iterations=chosen.get("warmup_iterations"),
        launches=chosen.get("launches"),
    )
    planned: tuple[CellPlan, ...] = ()
    for device, precision in itertools.product(arguments.devices or (None,), arguments.precisions or (None,)):
        wishes = BenchPlanning(
            session_id=session_id,
            settings=measuring,
            device=device,
            precision=precision,
            timeout_s=chosen["timeout"],
            skip_unsupported=chosen["skip_unsupported"],
            command=command,
            tags=chosen["tags"],
            description=chosen.get("description"),
        )
        planned += plan_benches(found.benches, wishes, machine)
    return planned


def _choices(known: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    """A list of some of the known names, for argparse."""

    def read(text: str) -> tuple[str, ...]:
        found = names(text)
        for name in found:
            if name not in known:
                raise argparse.ArgumentTypeError(f"unknown {name!r}: known: {', '.join(known)}")
        return found

    return read
