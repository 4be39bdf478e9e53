"""Merges other warehouses into this one.

What this one already has is skipped. A warehouse that contradicts it is refused; a quality that both measured stays as
it is here, and so does an imported file that another version read otherwise.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

if __package__ in (None, ""):  # run as a file: the path has its folder, not the repository
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from benchmarking.core.command_line import command, note
from benchmarking.core.errors import EXIT_FAILED, EXIT_OK, StorageError, UsageError
from benchmarking.core.storage_paths import check_database, database_exists
from benchmarking.core.text import listed
from db.commands.arguments import add_database, add_shared, command_parser, print_json

NAME = "benchhouse merge"
EXAMPLES = """
examples:
  benchhouse merge laptop.duckdb server.duckdb
  benchhouse merge laptop.duckdb --db-path all.duckdb --dry-run
  benchhouse merge laptop.duckdb --db-path "ducklake:postgres:dbname=bench host=lab-db"
"""
EXIT_CODES = """
exit codes: 0 merged; 1 a warehouse was refused, and nothing of it was merged; 2 usage
"""
ROW_WORDS = (
    ("benchmark_runs", "run", "runs"),
    ("benchmark_results", "result", "results"),
    ("raw_benchmark_data", "raw sample", "raw samples"),
    ("requests", "request under load", "requests under load"),
    ("quality_results", "measure of quality", "measures of quality"),
    ("hardware_info", "machine", "machines"),
    ("series", "series", "series"),
    ("series_alias", "alias", "aliases"),
    ("change_points", "change point", "change points"),
    ("alerts", "alert", "alerts"),
    ("annotations", "annotation", "annotations"),
    ("profiles", "profile", "profiles"),
)
"""Table, singular and plural of its rows. Tables without new rows are not listed."""

MAX_LISTED = 5
"""Runs that a note names; --json has all."""
Report = dict[str, Any]


@command(NAME, interrupted="warehouses merged so far are kept: run the command again to continue")
def main(argv: Sequence[str]) -> int:
    """Run the command; returns its exit code."""
    parser = command_parser(NAME, __doc__, EXAMPLES, EXIT_CODES)
    parser.add_argument(
        "others", nargs="+", metavar="OTHER.duckdb", help="warehouses to merge: DuckDB files or ducklake:..."
    )
    add_shared(parser, dry_run="count what each would add; change nothing")
    add_shared(parser, json="print the outcome as JSON")
    add_database(parser, "DuckDB file, or ducklake:..., to merge into")
    arguments = parser.parse_args(argv)

    from db.connection import MEMORY
    from db.upkeep.merging import ConflictError, merge
    from db.warehouse import Warehouse

    for path in arguments.others:
        if not database_exists(path):
            raise UsageError(f"{path} does not exist: give a warehouse to merge")
    is_new = arguments.dry_run and not database_exists(arguments.db_path)
    if is_new:
        check_database(arguments.db_path)
    with (
        Warehouse.open(MEMORY)
        if is_new
        else Warehouse.open(arguments.db_path, read_only=arguments.dry_run, lock_timeout_s=arguments.lock_timeout)
    ) as warehouse:
        report: Report = {"database": arguments.db_path, "dry_run": arguments.dry_run, "merged": [], "refused": []}
        for path in arguments.others:
            try:  # a refused warehouse does not stop the rest
                merged = merge(warehouse, path, lock_timeout_s=arguments.lock_timeout, dry_run=arguments.dry_run)
            except StorageError as error:
                conflicts_found = error.conflicts if isinstance(error, ConflictError) else ()
                conflicts = [dataclasses.asdict(conflict) for conflict in conflicts_found]
                report["refused"].append({"file": path, "reason": str(error), "conflicts": conflicts})
            else:
                report["merged"].append({"file": path, **dataclasses.asdict(merged)})
    for refused in report["refused"]:
        of = "" if refused["reason"].startswith(refused["file"]) else f"{refused['file']}: "
        note(f"{NAME}: refused {of}{refused['reason']}")
    if arguments.json:
        print_json(report)
    else:
        verb = "would add" if arguments.dry_run else "added"
        for merged in report["merged"]:
            added = merged["added"]
            new = [_count(added[table], one, many) for table, one, many in ROW_WORDS if added[table]]
            new += (
                [_count(merged["triages"], "later triage of an alert", "later triages of alerts")]
                if merged["triages"]
                else []
            )
            parts = [", ".join(new) if new else "nothing new"]
            if merged["present"]:
                parts.append(f"{_count(merged['present'], 'run', 'runs')} already stored")
            if merged["samples_restored"]:
                results = _count(merged["samples_restored"], "result", "results")
                parts.append(f"raw data of {results}, compacted here, restored")
            if merged["samples_kept"]:
                results = _count(merged["samples_kept"], "result", "results")
                parts.append(f"raw data of {results}, compacted there, kept")
            print(f"{merged['file']} {verb} {'; '.join(parts)}")
            for about, (one, many), what in _left_out(merged):
                if about:
                    note(f"{NAME}: {_count(len(about), one, many)} {what}: {listed(about, MAX_LISTED)}")
    return EXIT_FAILED if report["refused"] else EXIT_OK


def _left_out(merged: Report) -> Iterator[tuple[list[str], tuple[str, str], str]]:
    """What was kept as it is here, or is stored twice now: the ids, the words for one and more of them, and why."""
    of_table: dict[str, list[str]] = {}
    for row in merged["left_out"]:
        of_table.setdefault(row["table"], []).append(row["subject"])
    runs = ("run", "runs")
    for table, words in (("alerts", ("alert", "alerts")), ("annotations", ("note", "notes"))):
        yield of_table.get(table, []), words, "about runs labelled or read otherwise here: kept as stored here"
    yield (
        list(merged["read_otherwise"]),
        runs,
        "of imported files that another version read otherwise there: kept as stored here (benchhouse import FILE "
        "--replace reads a file anew)",
    )
    yield (
        list(dict.fromkeys(subject.rpartition(" ")[0] for subject in of_table.get("quality_results", []))),
        runs,
        "whose quality both measured, with other outcomes: kept as it is here (benchhouse quality RUN --again measures "
        "it anew)",
    )
    yield (
        list(merged["beside"]),
        runs,
        "of imported files that are here under other labels, or in other runs of a file that grew, so their "
        "measurements are stored twice: delete the wrong ones with benchhouse delete",
    )


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}".replace(",", " ")


if __name__ == "__main__":
    sys.exit(main())
