"""Replaces the raw samples of old results by quantiles of each launch; results and their statistics are kept."""

from __future__ import annotations

import argparse
import dataclasses
import os
import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

if __package__ in (None, ""):  # run as a file: its folder is on the path, two above it are wanted
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from benchmarking.core.command_line import Parser, note, run_command
from benchmarking.core.errors import EXIT_OK, UsageError
from benchmarking.core.units import bytes_to_mb
from db.commands.arguments import add_database, add_selection, command_parser, confirm, open_to_read, print_json

if TYPE_CHECKING:
    from db.analysis.selection import Selection

NAME = "benchhouse compact"
EXAMPLES = """
examples:
  benchhouse compact --raw-older-than 180d --dry-run
  benchhouse compact --raw-older-than 26w model=gpt2 --yes
"""
DAYS = {"d": 1, "w": 7}
KEPT = (
    "kept: every column of benchmark_results; of each launch its number of samples, mean, median and p99; "
    "its least and greatest sample and every 5 % between them (view raw_quantiles)"
)

Report = dict[str, Any]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    return run_command(NAME, _run, argv, interrupted="samples were replaced all or none: the same command goes on")


def _run(argv: Sequence[str]) -> int:
    from db.analysis.selection import Selection

    arguments = _parser().parse_args(argv)
    selection = Selection.parse(arguments.selection)
    before = datetime.now(UTC).replace(tzinfo=None, microsecond=0) - arguments.raw_older_than
    results, report = _plan(arguments, selection, before)
    if not arguments.json:
        print("\n".join(_lines(report)))
    if report["rows"] and not arguments.dry_run:
        if not arguments.yes:
            confirm("Replace them?", arguments.db_path)
        _replace(report, results, arguments)
    if arguments.json:
        print_json(report)
    return EXIT_OK


def _parser() -> Parser:
    parser = command_parser(NAME, __doc__, EXAMPLES)
    add_selection(parser)
    parser.add_argument(
        "--raw-older-than",
        type=_age,
        required=True,
        metavar="AGE",
        help="least age of the runs, in days or weeks, such as 180d or 26w",
    )
    parser.add_argument("--dry-run", action="store_true", help="report the effect, measured on a copy; change nothing")
    parser.add_argument("--yes", action="store_true", help="neither ask nor measure on a copy first")
    parser.add_argument("--json", action="store_true", help="print the outcome as JSON")
    add_database(parser)
    return parser


def _age(text: str) -> timedelta:
    found = re.fullmatch(r"(\d{1,6})([dw])", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"takes days or weeks such as 180d or 26w: got {text!r}")
    age = timedelta(days=int(found[1]) * DAYS[found[2]])
    if age > datetime.now() - datetime.min:
        raise argparse.ArgumentTypeError(f"is older than the calendar: {text!r}")
    return age


def _plan(arguments: argparse.Namespace, selection: Selection, before: datetime) -> tuple[list[str], Report]:
    """The selected results, and what would become of their samples."""
    from db.upkeep import compact

    with open_to_read(arguments) as warehouse:
        results = compact.old_results(warehouse, before, selection)
        forecast = compact.forecast(warehouse, results)
        report = {
            "database": arguments.db_path,
            "before": before.isoformat(),
            "dry_run": arguments.dry_run,
            **dataclasses.asdict(forecast),
            "quantiles": len(compact.QUANTILES) * forecast.rows,
            "quantiles_each": len(compact.QUANTILES),
            "least": compact.MIN_SAMPLES,
        }
        if forecast.rows and not (arguments.yes and not arguments.dry_run):
            _check_terminal(arguments)
            sizes = compact.sizes(warehouse, results)
            report["measured_on_a_copy"] = {f"{name}_bytes": size for name, size in dataclasses.asdict(sizes).items()}
    return results, report


def _check_terminal(arguments: argparse.Namespace) -> None:
    """Raises UsageError where a confirmation is needed and there is no terminal."""
    if not arguments.dry_run and not sys.stdin.isatty():
        raise UsageError(f"compacting {arguments.db_path} cannot be undone: check with --dry-run, then add --yes")


def _replace(report: Report, results: Sequence[str], arguments: argparse.Namespace) -> None:
    """Replace the samples, rewrite the file, and add its sizes to the report."""
    from db.upkeep import compact
    from db.warehouse import Warehouse

    path, wait_s = Path(arguments.db_path), arguments.lock_timeout
    before = path.stat().st_size
    with Warehouse.open(path, lock_timeout_s=wait_s) as warehouse:
        compact.replace_samples(warehouse, results)
    if os.name == "nt":
        note(f"{NAME}: on Windows the file cannot be rewritten under its lock: later runs use its free space")
    else:
        Warehouse.compact(path, lock_timeout_s=wait_s)
    report["replaced"] = {"before_bytes": before, "after_bytes": path.stat().st_size}
    if not arguments.json:
        print(f"replaced: {_change(before, path.stat().st_size)}")


def _lines(report: Report) -> list[str]:
    day = report["before"].replace("T", " ")
    if not report["rows"]:
        return [f"nothing to replace in runs from before {day} UTC", *_rest(report)]
    samples, results, rows, quantiles = (_number(report[name]) for name in ("samples", "results", "rows", "quantiles"))
    lines = [
        f"{samples} raw samples of {results} result{'s' * (report['results'] != 1)} of runs from before {day} UTC",
        f"become {quantiles} quantiles: {report['quantiles_each']} for each launch and metric ({rows})",
        KEPT,
    ]
    sizes = report.get("measured_on_a_copy")
    if sizes is not None:
        change = _change(sizes["before_bytes"], sizes["after_bytes"])
        lines.append(f"file: {change}, measured on a copy ({_mb(sizes['rewritten_bytes'])} by rewriting it only)")
    return [*lines, *_rest(report)]


def _rest(report: Report) -> list[str]:
    """What is left unchanged, in a line."""
    parts = []
    if report["short_rows"]:
        parts.append(f"{_number(report['short_rows'])} launches and metrics of fewer than {report['least']} samples")
    if report["compacted_rows"]:
        parts.append(f"{_number(report['compacted_rows'])} that have only quantiles")
    return [f"unchanged: {', '.join(parts)}"] if parts else []


def _change(before_bytes: int, after_bytes: int) -> str:
    return f"{_mb(before_bytes)} -> {_mb(after_bytes)}"


def _mb(size_bytes: int) -> str:
    return f"{bytes_to_mb(size_bytes):.1f} MB"


def _number(value: int) -> str:
    return f"{value:,}".replace(",", " ")


if __name__ == "__main__":
    sys.exit(main())
