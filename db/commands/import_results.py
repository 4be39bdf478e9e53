"""Imports other tools' result files into the warehouse.

The format of each file is detected, and files that were imported before are skipped. --list-formats lists the formats.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

if __package__ in (None, ""):  # run as a file: the path has its folder, not the repository
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from benchmarking.core.command_line import Parser, choice, note, run_command, tag
from benchmarking.core.database_paths import is_lake
from benchmarking.core.errors import EXIT_FAILED, EXIT_OK, UsageError
from benchmarking.core.records import PRECISIONS, Run
from benchmarking.core.tables import Table, table_text
from benchmarking.core.terminal import stdout_page
from db.commands.arguments import add_database, command_parser, print_json
from db.connection import database_files

if TYPE_CHECKING:
    from db.importers.support.files import ForeignFile
    from db.importers.support.importing import GivenValues, Imported, Store
    from db.warehouse import Warehouse

NAME = "benchhouse import"
EXAMPLES = """
examples:
  benchhouse import results.json --dry-run
  benchhouse import vllm_results/ --device cuda --device-name "NVIDIA H100 80GB HBM3" --tag suite=serving
  benchhouse import --list-formats
"""
EXIT_CODES = """
exit codes: 0 imported; 1 a file was refused; 2 usage
"""

STATE_WORDS = {
    "imported": "imported",
    "present": "already stored",
    "nothing": "no results in",
    "unknown": "unknown format",
    "refused": "refused",
}
"""State of a file -> words."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    return run_command(NAME, _run, argv, interrupted="stored files are kept: run the command again to continue")


def _run(argv: Sequence[str]) -> int:
    arguments = _parser().parse_args(argv)
    if arguments.list_formats:
        _list_formats(as_json=arguments.json)
        return EXIT_OK
    _check(arguments)
    outcomes = _import(arguments)
    if arguments.json:
        print_json(_report(outcomes, arguments))
    else:
        _show(outcomes, arguments)
    return EXIT_FAILED if any(one.state == "refused" for one in outcomes) else EXIT_OK


def _parser() -> Parser:
    parser = command_parser(NAME, __doc__, EXAMPLES, EXIT_CODES)
    input_group = parser.add_argument_group("input")
    input_group.add_argument(
        "files", nargs="*", type=Path, metavar="FILE|FOLDER", help="result files, or folders to search at any depth"
    )
    input_group.add_argument("--format", metavar="NAME", help="format of the files (default: detected)")
    input_group.add_argument("--list-formats", action="store_true", help="list the formats and exit")
    input_group.add_argument(
        "--dry-run", action="store_true", help="read the files and report their content; store nothing"
    )
    values = parser.add_argument_group("values missing from the files, or to override theirs")
    values.add_argument("--model-id", metavar="ID", help="model")
    values.add_argument("--device", metavar="DEVICE", help="device: cpu, cuda, cuda:1, rocm, mps, openvino:GPU, ...")
    values.add_argument(
        "--device-name", metavar="NAME", help='device name as the vendor gives it, such as "NVIDIA H100 80GB HBM3"'
    )
    values.add_argument("--precision", choices=PRECISIONS, help="precision of the computation")
    values.add_argument(
        "--date", type=_date, metavar="TIME", help="time of measurement, ISO 8601 (in UTC if it has no time zone)"
    )
    values.add_argument(
        "--tag", action="append", default=[], type=tag, metavar="K=V", help="label of the runs; repeatable"
    )
    parser.add_argument("--json", action="store_true", help="print the outcome as JSON")
    add_database(parser)
    return parser


def _date(text: str) -> datetime:
    """A naive UTC time from ISO 8601, for argparse."""
    try:
        time = datetime.fromisoformat(text)
        return time if time.tzinfo is None else time.astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"expected a date or time in ISO 8601: got {text!r}") from None


def _list_formats(*, as_json: bool) -> None:
    from db.importers.support.files import importers

    formats = {importer.name: importer.summary for importer in importers()}
    table = Table(headings=("format", "reads"), rows=tuple(formats.items()))
    print(json.dumps(formats, indent=2, ensure_ascii=False) if as_json else table_text(table, stdout_page()))


def _check(arguments: argparse.Namespace) -> None:
    """Check the arguments before reading anything. Raises UsageError."""
    from benchmarking.core import plugins

    if not arguments.files:
        raise UsageError("no files: give result files, or folders of them (--list-formats lists the formats)")
    for path in arguments.files:
        if not path.exists():
            raise UsageError(f"{path} does not exist: give a result file, or a folder of them")
    if arguments.format is not None:
        choice(arguments.format, plugins.names("db.importers"), "format")


def _import(arguments: argparse.Namespace) -> list[Imported]:
    from db.importers.support.importing import files_in, import_file

    values = _given_values(arguments)
    with _store_function(arguments) as store:
        return [
            import_file(path, is_named, arguments.format, values, store)
            for path, is_named in files_in(arguments.files)
            if not _is_database(path, arguments.db_path)
        ]


def _given_values(arguments: argparse.Namespace) -> GivenValues:
    from db.importers.support.importing import GivenValues

    return GivenValues(
        model_id=arguments.model_id,
        device=arguments.device,
        device_name=arguments.device_name,
        precision=arguments.precision,
        started_at=arguments.date,
        tags=dict(arguments.tag),
    )


def _is_database(path: Path, database: str) -> bool:
    """Whether the file is the database to write to, or its write-ahead log."""
    return not is_lake(database) and os.path.realpath(path) in database_files(database).values()


@contextmanager
def _store_function(arguments: argparse.Namespace) -> Iterator[Store]:
    """A function that stores the runs of a file. The first file opens or creates the database, except in a dry run."""
    opened: list[Warehouse] = []

    def store(runs: Sequence[Run], file: ForeignFile) -> int:
        if arguments.dry_run:
            return len(runs)
        if not opened:
            from db.warehouse import Warehouse

            opened.append(Warehouse.open(arguments.db_path, lock_timeout_s=arguments.lock_timeout))
        return opened[0].ingest_all(runs, source=str(file.path.resolve()), source_sha256=file.sha256)

    try:
        yield store
    finally:
        for warehouse in opened:
            warehouse.close()


def _report(outcomes: Sequence[Imported], arguments: argparse.Namespace) -> dict[str, object]:
    return {
        "database": arguments.db_path,
        "dry_run": arguments.dry_run,
        "files": [dataclasses.asdict(one) | {"path": str(one.path)} for one in outcomes],
        "counts": {state: sum(one.state == state for one in outcomes) for state in STATE_WORDS},
    }


def _show(outcomes: Sequence[Imported], arguments: argparse.Namespace) -> None:
    """Print imported files on stdout, and refused files on stderr."""
    from benchmarking.core.large_samples import MAX_RAW

    for one in outcomes:
        if one.compacted:
            too_many = f"more than {MAX_RAW} samples: stored without the samples, which the file keeps"
            note(f"{NAME}: {one.path}: {too_many}")
        if one.state == "refused":
            note(f"{NAME}: refused {_reason(one)}")
        else:
            print(_line(one, "would import" if arguments.dry_run else "imported"))
    if unnamed := sum(one.nameless for one in outcomes if one.state == "imported"):
        note(
            f"{NAME}: {_counted(unnamed, 'run')} on unnamed hardware, which all counts as one machine: "
            "name it with --device-name"
        )
    print(_total(outcomes) + (" (dry run: nothing was stored)" if arguments.dry_run else ""))


def _total(outcomes: Sequence[Imported]) -> str:
    counts = Counter[str](one.state for one in outcomes)
    words = ", ".join(
        f"{counts[state]} {STATE_WORDS[state]}" for state in STATE_WORDS if counts[state] or state == "imported"
    )
    new_runs = sum(one.new_runs for one in outcomes)
    return f"files: {words}; new: {_counted(new_runs, 'run')}"


def _line(one: Imported, imported: str) -> str:
    if one.state in ("unknown", "nothing"):
        return f"{STATE_WORDS[one.state]} {one.path}" + (f": {_reason_without_path(one)}" if one.reason else "")
    doubts = ", ".join(f"{kind} ({count})" for kind, count in sorted(one.doubts.items()))
    parts = [
        f"{imported if one.state == 'imported' else STATE_WORDS[one.state]} {one.path}: {one.format}",
        _counted(one.new_runs if one.state == "imported" else one.runs, "run"),
        _counted(one.results, "result"),
        _counted(one.samples, "sample"),
    ]
    return f"{parts[0]}: {', '.join(parts[1:])}" + (f"; doubts: {doubts}" if doubts else "")


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _reason(one: Imported) -> str:
    """The reason, prefixed with the file name."""
    reason = one.reason or ""
    return reason if reason.startswith(str(one.path)) else f"{one.path}: {reason}"


def _reason_without_path(one: Imported) -> str:
    return (one.reason or "").removeprefix(f"{one.path}: ")


if __name__ == "__main__":
    sys.exit(main())
