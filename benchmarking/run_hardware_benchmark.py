"""Measures one model on one device over a grid of batch sizes and sequence lengths, and keeps what it measured."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

if __package__ in (None, ""):  # run as a file: its folder is on the path, the one above is wanted
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarking import flags
from benchmarking.cli_support import Parser, note, run_command
from benchmarking.errors import EXIT_OK, UsageError
from benchmarking.ids import uuid7
from benchmarking.measure.settings import Settings, settings
from benchmarking.records import PRECISIONS
from benchmarking.storing import Ingest, database
from benchmarking.sweep import session
from benchmarking.sweep.request import OPTIONS, Request

NAME = "run_hardware_benchmark"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    return run_command(NAME, _run, argv)


def _run(argv: Sequence[str]) -> int:
    arguments = _parser().parse_args(argv)
    if arguments.list_devices:
        return _list_devices(arguments.json)
    if arguments.list_models:
        return _list_models(arguments.json)
    show = session.Show(json=arguments.json, quiet=arguments.quiet)
    output_dir = Path(arguments.output_dir)
    if arguments.resume:
        return session.resume(output_dir, _database(arguments), show, model_id=arguments.model_id)
    if arguments.calibrate_device:
        return _calibrate(arguments, argv, show)
    if arguments.model_id is None:
        raise UsageError("--model-id is needed: a hub name, a folder, or a name that --list-models shows")
    request = _request(arguments, argv)
    if arguments.dry_run:
        return session.dry_run([request], show)
    return session.run([request], output_dir if arguments.save else None, _database(arguments), show)


def _calibrate(arguments: argparse.Namespace, argv: Sequence[str], show: session.Show) -> int:
    """Measure the device's own peaks; every flag that is not a model's or the grid's means what it always does."""
    from benchmarking.benches.planning import BenchPlanning
    from benchmarking.calibration.peaks import table
    from benchmarking.calibration.planning import plan_calibration

    if arguments.model_id is not None:
        raise UsageError("--calibrate-device measures the device, not a model: leave --model-id out")
    planning = BenchPlanning(
        session_id=uuid7(),
        settings=_settings(arguments),
        timeout_s=arguments.timeout,
        command=(NAME, *argv),
        tags=dict(arguments.tag),
        description=arguments.description,
    )
    calibration = plan_calibration(planning, arguments.device, _silence if arguments.quiet else note)
    if arguments.dry_run:
        return session.show_plans(calibration.plans, show)
    show = replace(show, text=lambda runs: table(runs, calibration.remarks))
    database, output_dir = _database(arguments), Path(arguments.output_dir) if arguments.save else None
    return session.run_plans(calibration.plans, output_dir, database, show)


def _silence(message: str) -> None:
    """For --quiet."""


def _settings(arguments: argparse.Namespace) -> Settings:
    return settings(
        arguments.profile,
        iterations=arguments.iterations,
        warmup_iterations=arguments.warmup_iterations,
        launches=arguments.launches,
    )


def _database(arguments: argparse.Namespace) -> Ingest | None:
    """What stores a run; None when nothing is to be kept. A run that is resumed was begun with --save."""
    if not (arguments.save or arguments.resume):
        return None
    return database(arguments.db_path, arguments.lock_timeout, quiet=arguments.quiet)


def _request(arguments: argparse.Namespace, argv: Sequence[str]) -> Request:
    return Request(
        model_id=arguments.model_id,
        device=arguments.device,
        runtime=arguments.runtime,
        precision=arguments.precision,
        task=arguments.task,
        weights=arguments.weights,
        batch_sizes=arguments.batch_sizes,
        sequence_lengths=arguments.sequence_lengths,
        new_tokens=arguments.new_tokens,
        axes=flags.axes(arguments),
        num_threads=arguments.num_threads,
        options={name: value for name in OPTIONS if (value := getattr(arguments, name)) is not None},
        settings=_settings(arguments),
        timeout_s=arguments.timeout,
        skip_unsupported=arguments.skip_unsupported,
        command=(NAME, *argv),
        tags=dict(arguments.tag),
        description=arguments.description,
    )


def _list_devices(as_json: bool) -> int:
    import json

    from benchmarking.devices._listing import listing_json, listing_text
    from benchmarking.devices._probing import probe_all

    found = probe_all()
    print(json.dumps(listing_json(found), indent=1) if as_json else listing_text(found))
    return EXIT_OK


def _list_models(as_json: bool) -> int:
    import json

    from benchmarking.workloads._listing import listing_json, listing_text

    print(json.dumps(listing_json(), indent=1) if as_json else listing_text())
    return EXIT_OK


def _parser() -> Parser:
    parser = Parser(prog=NAME, description=__doc__)
    what = parser.add_argument_group("what is measured")
    what.add_argument("--model-id", metavar="MODEL", help="hub name, folder, or a name that --list-models shows")
    what.add_argument("--device", default="auto", help="cpu, cuda[:N], rocm[:N], mps, openvino[:X], qnn, null or auto")
    what.add_argument("--runtime", help="eager, ...; without it what the device implies, else eager")
    what.add_argument("--precision", choices=PRECISIONS, default="float32", help="of weights and arithmetic")
    what.add_argument("--task", help="Hugging Face task name; without it the family's own")
    flags.add_model_options(what)
    flags.add_grid(parser)
    flags.add_measuring(parser)
    keep = parser.add_argument_group("what becomes of it")
    keep.add_argument("--save", action="store_true", help="write a run file and store it in the database")
    flags.add_keeping(keep)
    keep.add_argument("--resume", action="store_true", help="finish and store the unfinished runs of --output-dir")
    other = parser.add_argument_group("other")
    other.add_argument(
        "--calibrate-device",
        action="store_true",
        help="measure the peak rates of the device: matrix products and a copy",
    )
    other.add_argument("--list-devices", action="store_true", help="every kind of device: found, or why not")
    other.add_argument("--list-models", action="store_true", help="the models that need no network")
    flags.add_showing(other)
    return parser


if __name__ == "__main__":
    sys.exit(main())
