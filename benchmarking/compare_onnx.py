"""Measures one model with PyTorch (eager), ONNX Runtime and OpenVINO, and says how many times as fast each is.

Of these three, those that cannot run here are left out, with the reason; --runtimes names others. The speed-up is the
ratio of median latencies at a point; over the points the geometric mean is shown, with the best and the worst.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

if __package__ in (None, ""):  # run as a file: its folder is on the path, the one above is wanted
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarking.builds.cleaning import lean_cache
from benchmarking.core.command_line import Parser, names, note, run_command
from benchmarking.core.errors import UnsupportedError, UsageError
from benchmarking.core.provenance import uuid7
from benchmarking.core.records import PRECISIONS
from benchmarking.sweep.plan import flags
from benchmarking.sweep.plan.options import add_runtime_options
from benchmarking.sweep.plan.several_runtimes import ALL, RuntimePlans, plan_runtimes, show_runtimes
from benchmarking.sweep.run import session
from benchmarking.sweep.run.warehouse import database

NAME = "compare_onnx"
RUNTIMES = ("eager", "onnxruntime", "openvino")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    return run_command(NAME, _run, argv)


def _run(argv: Sequence[str]) -> int:
    arguments = _parser().parse_args(argv)
    flags.use_cache_dir(arguments.cache_dir)
    planned = _planned(arguments, argv)
    show = show_runtimes(session.Show(json=arguments.json, quiet=arguments.quiet), planned.refused)
    planned.tell(note)
    if arguments.dry_run:
        return session.show_plans(planned.plans, show)
    ingest = database(arguments.db_path, arguments.lock_timeout, quiet=arguments.quiet) if arguments.save else None
    with lean_cache(is_lean=arguments.lean_cache, say=note):
        return session.run_plans(planned.plans, Path(arguments.output_dir) if arguments.save else None, ingest, show)


def _planned(arguments: argparse.Namespace, argv: Sequence[str]) -> RuntimePlans:
    """The plans. Raises UsageError where there is nothing to compare."""
    request = flags.request(arguments, arguments.model, (NAME, *argv))
    runtimes = arguments.runtimes or RUNTIMES
    if len(runtimes) < 2 and runtimes != (ALL,):
        raise UsageError(f"--runtimes {runtimes[0]}: a comparison takes two or more")
    planned = plan_runtimes(request, runtimes, uuid7(), may_refuse=arguments.runtimes is None)
    if len(planned.plans) < 2:
        reasons = "; ".join(f"{runtime}: {why}" for runtime, why in planned.refused.items())
        raise UnsupportedError(f"nothing to compare {planned.plans[0].cell.runtime} with: {reasons}")
    return planned


def _parser() -> Parser:
    parser = Parser(prog=NAME, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_argument_group("what is measured")
    what.add_argument("model", metavar="MODEL", help="hub name, folder, or a name that --list-models shows")
    what.add_argument(
        "--runtimes",
        type=names,
        metavar="R,R",
        help=f"two or more runtimes, or all; without it {', '.join(RUNTIMES)}, less what cannot run here",
    )
    what.add_argument("--device", default="auto", help="cpu, cuda[:N], ..., or auto: the best that eager runs on")
    what.add_argument("--precision", choices=PRECISIONS, default="float32", help="of weights and arithmetic")
    what.add_argument("--task", help="Hugging Face task name; without it the family's own")
    flags.add_model_options(what)
    add_runtime_options(parser)
    flags.add_grid(parser)
    flags.add_measuring(parser)
    flags.add_builds(parser)
    keep = parser.add_argument_group("what becomes of it")
    keep.add_argument("--save", action="store_true", help="write run files and store them in the database")
    flags.add_keeping(keep)
    flags.add_showing(parser.add_argument_group("other"))
    return parser


if __name__ == "__main__":
    sys.exit(main())
