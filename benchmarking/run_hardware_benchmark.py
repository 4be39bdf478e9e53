"""Measures one model on one device over a grid of batch sizes and sequence lengths, and keeps what it measured."""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

if __package__ in (None, ""):  # run as a file: its folder is on the path, the one above is wanted
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarking.cli_support import (
    Parser,
    default_database,
    non_negative_int,
    non_negative_seconds,
    note,
    positive_int,
    positive_ints,
    positive_numbers,
    positive_seconds,
    run_command,
    tag,
)
from benchmarking.errors import EXIT_OK, StorageError, UsageError
from benchmarking.measure.settings import PROFILES, settings
from benchmarking.records import PRECISIONS
from benchmarking.sweep import session
from benchmarking.sweep.request import DEFAULT_BATCH_SIZES, DEFAULT_TIMEOUT_S, Request

NAME = "run_hardware_benchmark"
DEFAULT_OUTPUT_DIR = "benchmark_results"
AXIS_FLAGS = {
    "image_size": "image_sizes",
    "audio_seconds": "audio_seconds",
    "steps": "steps",
    "documents": "documents",
    "top_k": "top_k",
}
"""Further axes of the grid, and the flag of each."""
WITHOUT_DUCKDB = (
    "duckdb is not installed, so only the run file is written: load it with setup_benchmark_db --ingest where duckdb is"
)


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
    if arguments.model_id is None:
        raise UsageError("--model-id is needed: a hub name, a folder, or a name that --list-models shows")
    request = _request(arguments, argv)
    if arguments.dry_run:
        return session.dry_run([request], show)
    return session.run([request], output_dir if arguments.save else None, _database(arguments), show)


def _database(arguments: argparse.Namespace) -> session.Ingest | None:
    """What stores a run, seen to work before anything is measured; None when nothing is to be kept.

    A run that is resumed was begun with --save.
    """
    if not (arguments.save or arguments.resume):
        return None
    has_duckdb = importlib.util.find_spec("duckdb") is not None
    if has_duckdb:
        _check_database(arguments.db_path)
    else:
        note(WITHOUT_DUCKDB)

    def ingest(path: Path) -> None:
        if not has_duckdb:
            raise StorageError(WITHOUT_DUCKDB)
        from db.warehouse import Warehouse

        with Warehouse.open(arguments.db_path, lock_timeout_s=arguments.lock_timeout) as warehouse:
            warehouse.ingest_file(path)
        if not arguments.quiet:
            note(f"stored in {arguments.db_path}")

    return ingest


def _check_database(db_path: str) -> None:
    """Make the database if it is missing, and raise StorageError now, not after an hour, when it is no warehouse.

    Done by a process of its own: this one stays small beside the worker.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-m", "db.ready", db_path]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode != EXIT_OK:
        said = done.stderr.strip().splitlines()
        raise StorageError(said[-1] if said else f"{db_path}: the check of the database ended with {done.returncode}")


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
        axes={axis: values for axis, flag in AXIS_FLAGS.items() if (values := getattr(arguments, flag)) is not None},
        num_threads=arguments.num_threads,
        options={} if arguments.attention is None else {"attention": arguments.attention},
        settings=settings(
            arguments.profile,
            iterations=arguments.iterations,
            warmup_iterations=arguments.warmup_iterations,
            launches=arguments.launches,
        ),
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
    what.add_argument(
        "--weights",
        choices=("auto", "pretrained", "random"),
        default="auto",
        help="auto takes pretrained weights where they can be had, else seeded random ones, and says so",
    )
    what.add_argument("--attention", help="attention implementation (eager, sdpa, ...); without it the runtime's own")
    what.add_argument("--num-threads", type=positive_int, metavar="N", help="intra-op threads")
    grid = parser.add_argument_group("grid")
    _add_list(grid, "--batch-sizes", DEFAULT_BATCH_SIZES, "sequences, images, ... per call")
    _add_list(grid, "--sequence-lengths", None, "tokens per sequence; default 128,512 for text")
    _add_list(grid, "--new-tokens", None, "tokens to generate per sequence, where the task generates; default 16")
    _add_list(grid, "--image-sizes", None, "pixels a side, where images go in or come out; default the model's own")
    grid.add_argument("--audio-seconds", type=positive_numbers, metavar="S,S", help="seconds of speech per sequence")
    _add_list(grid, "--steps", None, "denoising steps per call of a diffusion model")
    _add_list(grid, "--documents", None, "documents of the corpus of retrieval-augmented generation")
    _add_list(grid, "--top-k", None, "documents retrieved per question")
    how = parser.add_argument_group("how it is measured")
    how.add_argument("--profile", choices=tuple(PROFILES), default="standard", help="how exact, and so how long")
    how.add_argument("--iterations", type=positive_int, metavar="N", help="exactly N timed calls per point and launch")
    how.add_argument("--warmup-iterations", type=non_negative_int, metavar="N", help="exactly N calls before them")
    how.add_argument("--launches", type=positive_int, metavar="N", help="fresh processes")
    how.add_argument(
        "--timeout",
        type=positive_seconds,
        default=DEFAULT_TIMEOUT_S,
        metavar="S",
        help="seconds for loading, and for each point of a launch (default %(default)g)",
    )
    how.add_argument("--skip-unsupported", action="store_true", help="store what cannot be as skipped, with its reason")
    _add_keeping(parser)
    _add_showing(parser)
    return parser


def _add_keeping(parser: Parser) -> None:
    keep = parser.add_argument_group("what becomes of it")
    keep.add_argument("--save", action="store_true", help="write a run file and store it in the database")
    keep.add_argument("--output-dir", default=DEFAULT_OUTPUT_DIR, metavar="DIR", help="run files (default %(default)s)")
    keep.add_argument(
        "--db-path",
        default=default_database(),
        metavar="FILE",
        help="DuckDB file (default $BENCHMARK_DB_PATH or benchmark_db.duckdb)",
    )
    keep.add_argument(
        "--lock-timeout",
        type=non_negative_seconds,
        default=30.0,
        metavar="S",
        help="seconds to wait for a database in use (default %(default)g)",
    )
    keep.add_argument(
        "--tag", type=tag, action="append", default=[], metavar="K=V", help="label of the run; repeatable"
    )
    keep.add_argument("--description", help="a sentence about the run")
    keep.add_argument("--resume", action="store_true", help="finish and store the unfinished runs of --output-dir")


def _add_showing(parser: Parser) -> None:
    other = parser.add_argument_group("other")
    other.add_argument("--dry-run", action="store_true", help="print the plan and measure nothing")
    other.add_argument("--list-devices", action="store_true", help="every kind of device: found, or why not")
    other.add_argument("--list-models", action="store_true", help="the models that need no network")
    other.add_argument("--json", action="store_true", help="results on stdout as JSON")
    other.add_argument("--quiet", action="store_true", help="no progress on stderr")


def _add_list(group: argparse._ArgumentGroup, flag: str, default: tuple[int, ...] | None, text: str) -> None:
    shown = f"; default {_text(default)}" if default else ""
    group.add_argument(flag, type=positive_ints, default=default, metavar="N,N", help=text + shown)


def _text(values: Sequence[int]) -> str:
    return ",".join(map(str, values))


if __name__ == "__main__":
    sys.exit(main())
