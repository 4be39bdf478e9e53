"""Brings other warehouses into this one: each run, machine and series once; a file that contradicts is refused."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if __package__ in (None, ""):  # run as a file: its folder is on the path, two above it are wanted
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from benchmarking.core.command_line import Parser, default_database, non_negative_seconds, note, run_command
from benchmarking.core.errors import EXIT_FAILED, EXIT_OK, StorageError, UsageError

if TYPE_CHECKING:
    from db.warehouse import Warehouse

NAME = "benchhouse merge"
WORDS = (
    ("benchmark_runs", "run", "runs"),
    ("benchmark_results", "result", "results"),
    ("raw_benchmark_data", "raw sample", "raw samples"),
    ("hardware_info", "machine", "machines"),
    ("series", "series", "series"),
    ("series_alias", "alias", "aliases"),
    ("change_points", "change point", "change points"),
    ("alerts", "alert", "alerts"),
    ("annotations", "annotation", "annotations"),
)
"""Table, and what its rows are called; tables with nothing new go unsaid."""

Report = dict[str, Any]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    return run_command(NAME, _run, argv)


def _run(argv: Sequence[str]) -> int:
    arguments = _parser().parse_args(argv)
    for path in arguments.others:
        if not path.is_file():
            raise UsageError(f"{path} does not exist: name the file of a warehouse")
    with _open(arguments) as warehouse:
        report = _merge(warehouse, arguments)
    _show(report, arguments)
    return EXIT_FAILED if report["refused"] else EXIT_OK


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog=NAME, description=__doc__)
    parser.add_argument("others", nargs="+", type=Path, metavar="OTHER.duckdb", help="a warehouse; it is only read")
    parser.add_argument("--db-path", default=default_database(), metavar="FILE", help="merge into it (%(default)s)")
    parser.add_argument(
        "--dry-run", action="store_true", help="say what each would bring to the database as it is, and bring nothing"
    )
    parser.add_argument(
        "--lock-timeout",
        type=non_negative_seconds,
        default=30.0,
        metavar="SECONDS",
        help="wait so long while another process holds one of the files (%(default)g)",
    )
    parser.add_argument("--json", action="store_true", help="print what was done as JSON")
    return parser


def _open(arguments: argparse.Namespace) -> Warehouse:
    from db.warehouse import MEMORY, Warehouse

    path = arguments.db_path
    if arguments.dry_run and not Path(path).exists():
        return Warehouse.open(MEMORY)
    return Warehouse.open(path, read_only=arguments.dry_run, lock_timeout_s=arguments.lock_timeout)


def _merge(warehouse: Warehouse, arguments: argparse.Namespace) -> Report:
    """Merge one after the other; one that is refused does not keep the others out."""
    from db.upkeep.merge import ConflictError, merge

    report: Report = {"database": arguments.db_path, "dry_run": arguments.dry_run, "merged": [], "refused": []}
    for path in arguments.others:
        try:
            merged = merge(warehouse, path, lock_timeout_s=arguments.lock_timeout, dry_run=arguments.dry_run)
        except StorageError as error:
            found = error.conflicts if isinstance(error, ConflictError) else ()
            conflicts = [dataclasses.asdict(conflict) for conflict in found]
            report["refused"].append({"file": str(path), "reason": str(error), "conflicts": conflicts})
        else:
            report["merged"].append({"file": str(path), **dataclasses.asdict(merged)})
    return report


def _show(report: Report, arguments: argparse.Namespace) -> None:
    for refused in report["refused"]:
        note(f"{NAME}: refused {refused['reason']}")
    if arguments.json:
        print(json.dumps(report, indent=2, ensure_ascii=False))
        return
    verb = "would bring" if arguments.dry_run else "brought"
    for merged in report["merged"]:
        print(f"{merged['file']} {verb} {_line(merged)}")


def _line(merged: Report) -> str:
    """What came in, what was there, and whose raw samples were kept, in a line."""
    new = [_count(merged["added"][table], one, many) for table, one, many in WORDS if merged["added"][table]]
    parts = [", ".join(new) if new else "nothing new"]
    if merged["present"]:
        parts.append(f"{_count(merged['present'], 'run', 'runs')} there already")
    if merged["samples_restored"]:
        results = _count(merged["samples_restored"], "result", "results")
        parts.append(f"raw samples of {results} in the place of quantiles")
    if merged["samples_kept"]:
        results = _count(merged["samples_kept"], "result", "results")
        parts.append(f"raw samples of {results} kept over its quantiles")
    return "; ".join(parts)


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}".replace(",", " ")


if __name__ == "__main__":
    sys.exit(main())
