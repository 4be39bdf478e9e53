"""Judges one selection of results against another, point by point, worst first.

A selection is a run or session (its id or how that begins), a git commit, latest, or FIELD=VALUE,... with fields such
as model, device, runtime, precision, tag.NAME, since; sql:CONDITION for anything else. Points match where all that
makes a series is the same, but for what both selections name and --across. With --by one selection is taken apart, and
each value is compared with the first (or --baseline).

The exit code says whether there was anything to compare, never what the verdict is: 0, or 3 where there was nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if __package__ in (None, ""):  # run as a file: its folder is on the path, that of the packages is wanted
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from benchmarking.core.command_line import Parser, add_database_flags, choice, names, note, run_command
from benchmarking.core.errors import EXIT_NOT_ENOUGH_DATA, EXIT_OK, UsageError
from benchmarking.core.metrics import DEFAULT_METRIC, JUDGED
from benchmarking.core.terminal import stdout_page
from db.analysis.compare.matching import across_column
from db.analysis.selection import EVERYTHING, FIELDS, Selection

if TYPE_CHECKING:
    from db.analysis.compare.comparison import Comparison
    from db.warehouse import Warehouse

NAME = "benchhouse compare"
BY = ("device", "runtime", "precision", "threads")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    return run_command(NAME, _run, argv)


def _run(argv: Sequence[str]) -> int:
    arguments = _parser().parse_args(argv)
    _check(arguments)
    across = [across_column(word) for word in arguments.across]
    selections = [Selection.parse(text) for text in arguments.selections]

    from db.warehouse import Warehouse

    with Warehouse.open(arguments.db_path, read_only=True, lock_timeout_s=arguments.lock_timeout) as warehouse:
        comparison = _comparison(warehouse, selections, across, arguments)
    _print(comparison, arguments)
    if comparison.is_empty:
        note(f"{NAME}: nothing can be compared: {_why_empty(comparison)}")
        return EXIT_NOT_ENOUGH_DATA
    return EXIT_OK


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog=NAME, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("selections", nargs="*", metavar="A B", help="two selections; with --by one, or none for all")
    parser.add_argument("--by", metavar="FIELD", help=f"compare the values of one: {', '.join(BY)}")
    parser.add_argument("--baseline", metavar="VALUE", help="--by: the value the others are compared with")
    parser.add_argument("--metric", default=DEFAULT_METRIC, metavar="COLUMN", help="what is compared (%(default)s)")
    parser.add_argument(
        "--across",
        type=names,
        default=(),
        metavar="FIELD,...",
        help="what may differ besides: hardware, runtime, precision, threads, ..., all but the point",
    )
    parser.add_argument("--only-changes", action="store_true", help="leave rows without a change out")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="all of it as JSON")
    form.add_argument("--markdown", action="store_true", help="for a comment on a pull request")
    add_database_flags(parser)
    return parser


def _check(arguments: argparse.Namespace) -> None:
    """See that what was asked makes sense, before anything is opened. Raises UsageError."""
    choice(arguments.metric, tuple(JUDGED), "metric")
    given = len(arguments.selections)
    if arguments.by is not None:
        choice(arguments.by, BY, "field of --by")
        if given > 1:
            raise UsageError(f"--by compares inside one selection: got {given}")
    elif given != 2:
        raise UsageError(f"name two selections to compare, or --by and one: got {given}")
    if arguments.baseline is not None and arguments.by is None:
        raise UsageError("--baseline names a value of --by: add it")


def _comparison(
    warehouse: Warehouse, selections: Sequence[Selection], across: Sequence[str], arguments: argparse.Namespace
) -> Comparison:
    from db.analysis.compare.comparison import compare, compare_within

    metric = JUDGED[arguments.metric]
    if arguments.by is None:
        before, after = selections
        return compare(warehouse, before, after, metric, across)
    selection = selections[0] if selections else EVERYTHING
    return compare_within(
        warehouse, selection, FIELDS[arguments.by], metric, baseline=arguments.baseline, across=across
    )


def _print(comparison: Comparison, arguments: argparse.Namespace) -> None:
    from benchmarking.core.records import to_json
    from db.analysis.compare.text import comparison_markdown, comparison_text

    if arguments.json:
        print(json.dumps(to_json(comparison), indent=2, ensure_ascii=False))
    elif arguments.markdown:
        print(comparison_markdown(comparison, only_changes=arguments.only_changes))
    else:
        print(comparison_text(comparison, only_changes=arguments.only_changes, page=stdout_page()))


def _why_empty(comparison: Comparison) -> str:
    if comparison.findings:
        return "each point has its reason above"
    if not comparison.after:
        return f"there is only {comparison.before}" if comparison.before else "no results are selected"
    sides = (("A", comparison.before, comparison.only_before), ("B", comparison.after, comparison.only_after))
    absent = [f"{name} ({text}) selects no results" for name, text, singles in sides if not singles]
    return "; ".join(absent) or "no point is on both sides"


if __name__ == "__main__":
    sys.exit(main())
