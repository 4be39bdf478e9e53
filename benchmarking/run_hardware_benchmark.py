"""Measures one model on one device over a grid of batch sizes and sequence lengths, and keeps what it measured."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

if __package__ in (None, ""):  # run as a file: its folder is on the path, the one above is wanted
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarking import ab, listings
from benchmarking.builds.cleaning import lean_cache
from benchmarking.core.command_line import Parser, names, note, run_command
from benchmarking.core.errors import UsageError
from benchmarking.core.provenance import uuid7
from benchmarking.core.records import PRECISIONS
from benchmarking.sweep.plan import flags
from benchmarking.sweep.plan.options import add_runtime_options
from benchmarking.sweep.plan.plan import CellPlan
from benchmarking.sweep.plan.request import plan_cell
from benchmarking.sweep.plan.several_runtimes import ALL, plan_runtimes, show_runtimes
from benchmarking.sweep.run import session
from benchmarking.sweep.run.turns import take_turn, without_turn_flag
from benchmarking.sweep.run.warehouse import Ingest, database

NAME = "run_hardware_benchmark"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    return run_command(NAME, _run, argv)


def _run(argv: Sequence[str]) -> int:
    arguments = _parser().parse_args(argv)
    flags.use_cache_dir(arguments.cache_dir)
    if (listing := _listing(arguments)) is not None:
        return listings.show(listing, as_json=arguments.json)
    with lean_cache(is_lean=arguments.lean_cache and not arguments.dry_run, say=note):
        return _measure(arguments, argv)


def _measure(arguments: argparse.Namespace, argv: Sequence[str]) -> int:
    show = session.Show(json=arguments.json, quiet=arguments.quiet)
    output_dir = Path(arguments.output_dir)
    if arguments.resume:
        return session.resume(output_dir, _database(arguments), show, model_id=arguments.model_id)
    if arguments.calibrate_device:
        return _calibrate(arguments, argv, show)
    if arguments.model_id is None:
        raise UsageError("--model-id is needed: a hub name, a folder, or a name that --list-models shows")
    if arguments.turn is not None and not arguments.dry_run:
        return take_turn(arguments.turn, lambda: _plans(arguments, argv, show)[0], quiet=arguments.quiet)
    ab.check_comparison_flags(arguments)
    if arguments.interleave and not arguments.dry_run:
        return _measure_in_turns(arguments, argv)
    plans, show = _plans(arguments, argv, show)
    if arguments.dry_run:
        return session.show_plans(plans, show)
    if arguments.compare_to is not None:
        show = ab.show_comparison(show, arguments, [plan.run_id for plan in plans])
    return session.run_plans(plans, output_dir if arguments.save else None, _database(arguments), show)


def _measure_in_turns(arguments: argparse.Namespace, argv: Sequence[str]) -> int:
    """Measure the stored run's command and this one, launch by launch, and judge the difference."""
    from benchmarking.ab import compare_in_turns, output_options

    rounds = flags.chosen_settings(arguments).launches
    return compare_in_turns(ab.arms(arguments, argv), rounds, output_options(arguments))


def _plans(
    arguments: argparse.Namespace, argv: Sequence[str], show: session.Show
) -> tuple[Sequence[CellPlan], session.Show]:
    """What is to be measured, and how it is shown."""
    request = flags.request(arguments, arguments.model_id, (NAME, *without_turn_flag(argv)))
    if arguments.runtime is not None and (len(arguments.runtime) > 1 or ALL in arguments.runtime):
        planned = plan_runtimes(request, arguments.runtime, uuid7())
        planned.tell(note)
        return planned.plans, show_runtimes(show, planned.refused)
    (runtime,) = arguments.runtime or (None,)
    return (plan_cell(replace(request, runtime=runtime), uuid7()),), show


def _calibrate(arguments: argparse.Namespace, argv: Sequence[str], show: session.Show) -> int:
    """Measure the device's own peaks; every flag that is not a model's or the grid's means what it always does."""
    from benchmarking.benches.planning import BenchPlanning
    from benchmarking.calibration.planning import plan_calibration
    from benchmarking.measure.peaks import table

    if arguments.model_id is not None:
        raise UsageError("--calibrate-device measures the device, not a model: leave --model-id out")
    planning = BenchPlanning(
        session_id=uuid7(),
        settings=flags.chosen_settings(arguments),
        timeout_s=arguments.timeout,
        command=(NAME, *argv),
        tags=dict(arguments.tag),
        description=arguments.description,
    )
    calibration = plan_calibration(planning, arguments.device, _silence if arguments.quiet else note)
    if arguments.dry_run:
        return session.show_plans(calibration.plans, show)
    show = replace(show, text=lambda runs, page: table(runs, calibration.remarks, page))
    database, output_dir = _database(arguments), Path(arguments.output_dir) if arguments.save else None
    return session.run_plans(calibration.plans, output_dir, database, show)


def _silence(message: str) -> None:
    """For --quiet."""


def _database(arguments: argparse.Namespace) -> Ingest | None:
    """What stores a run; None when nothing is to be kept. A run that is resumed was begun with --save."""
    if not (arguments.save or arguments.resume):
        return None
    return database(arguments.db_path, arguments.lock_timeout, quiet=arguments.quiet)


def _listing(arguments: argparse.Namespace) -> listings.Listing | None:
    """What is asked to be listed, if anything is."""
    if arguments.list_devices:
        return listings.devices()
    if arguments.list_runtimes:
        return listings.runtimes()
    return listings.models() if arguments.list_models else None


def _parser() -> Parser:
    parser = Parser(prog=NAME, description=__doc__)
    what = parser.add_argument_group("what is measured")
    what.add_argument("--model-id", metavar="MODEL", help="hub name, folder, or a name that --list-models shows")
    what.add_argument(
        "--device",
        default="auto",
        help="cpu, cuda[:N], rocm[:N], mps, openvino[:X], qnn, null or auto; several GPUs as one: cuda:0,cuda:1",
    )
    what.add_argument(
        "--runtime",
        type=names,
        metavar="R,R",
        help="eager, ..., several to compare them, or all; without it what the device implies, else eager",
    )
    what.add_argument("--precision", choices=PRECISIONS, default="float32", help="of weights and arithmetic")
    what.add_argument("--task", help="Hugging Face task name; without it the family's own")
    flags.add_model_options(what)
    add_runtime_options(parser)
    flags.add_grid(parser)
    flags.add_measuring(parser)
    flags.add_builds(parser)
    keep = parser.add_argument_group("what becomes of it")
    keep.add_argument("--save", action="store_true", help="write a run file and store it in the database")
    flags.add_keeping(keep)
    keep.add_argument("--resume", action="store_true", help="finish and store the unfinished runs of --output-dir")
    ab.add_comparison_flags(keep)
    keep.add_argument(
        "--turn",
        type=Path,
        metavar="DIR",
        help="measure one launch of the run in DIR and leave the rest for later turns, as benchhouse ab does",
    )
    other = parser.add_argument_group("other")
    other.add_argument(
        "--calibrate-device",
        action="store_true",
        help="measure the peak rates of the device: matrix products and a copy",
    )
    other.add_argument("--list-devices", action="store_true", help="every kind of device: found, or why not")
    other.add_argument("--list-runtimes", action="store_true", help="every runtime: found, or why not")
    other.add_argument("--list-models", action="store_true", help="models of the catalog, in the cache, and exported")
    flags.add_showing(other)
    return parser


if __name__ == "__main__":
    sys.exit(main())
