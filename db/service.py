"""The warehouse's entry point for measuring commands: `python -m db.service TASK DATABASE ...`.

A measuring command must stay small and must not hold the database, so it imports nothing from db: for each task it
starts this module, and no other, as a process. The answer is on stdout, or an error as its last line, with the exit
code; what is said meanwhile, as while it waits, is on stderr, which the command's user sees.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from benchmarking.core.argument_types import non_negative_seconds
from benchmarking.core.codec import from_json, to_json
from benchmarking.core.command_line import Parser, hide_pandas, one_line
from benchmarking.core.errors import (
    EXIT_FAILED,
    EXIT_OK,
    BenchhouseError,
    FormatError,
    LockedError,
    StorageError,
    storage_errors,
)
from benchmarking.core.quality import Quality
from benchmarking.core.shared_settings import DATABASE_WAIT_S
from benchmarking.core.storage_paths import check_database, database_exists, is_lake
from benchmarking.core.terminal import guarded_streams
from benchmarking.core.text import markdown_escaped
from benchmarking.core.untrusted.redaction import know_secrets_in
from benchmarking.core.verdicts.words import EXIT_GATE_FAILED, FLAG, HELP, conditions
from db.warehouse import Warehouse


def main(argv: Sequence[str] | None = None) -> int:
    """Run one task; returns 0, 3 if nothing could be compared, or the exit code of the error."""
    with guarded_streams():
        know_secrets_in(sys.argv[1:] if argv is None else argv)
        parser = Parser(prog="db.service", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
        tasks = parser.add_subparsers(required=True, metavar="TASK")
        prepare = tasks.add_parser("prepare", help="create the database if it is missing, or check that it opens")
        store = tasks.add_parser("store", help="store run files whose runs are not stored already")
        runs = tasks.add_parser(
            "runs", help="print the runs with selected results, oldest first, as JSON (MeasuredRun)"
        )
        compare = tasks.add_parser("compare", help="compare two selections, as benchhouse compare does")
        peaks = tasks.add_parser("peaks", help="print the measured peak rates of a device as JSON")
        quality = tasks.add_parser("quality", help="store the quality of stored runs")
        tasks_of = (
            *((prepare, _prepare), (store, _store), (runs, _runs), (compare, _compare), (peaks, _peaks)),
            (quality, _quality),
        )
        for task, answer in tasks_of:
            task.add_argument("database", metavar="DATABASE", help="DuckDB file")
            task.set_defaults(answer=answer)
        store.add_argument("run_files", type=Path, nargs="+", metavar="RUN_FILE", help="JSON file of a run")
        quality.add_argument("file", type=Path, metavar="FILE", help="JSON: run id -> quality")
        peaks.add_argument("hardware_id", metavar="HARDWARE_ID", help="as in hardware_info")
        for task in (prepare, store, peaks, quality):
            task.add_argument(
                "--lock-timeout", type=non_negative_seconds, default=DATABASE_WAIT_S, help="seconds to wait"
            )
        runs.add_argument("selection", metavar="SELECTION", help="as benchhouse compare takes it")
        compare.add_argument("before", metavar="A", help="selection")
        compare.add_argument("after", metavar="B", help="selection")
        compare.add_argument("--metric", default="latency_median_ms", metavar="COLUMN", help="default %(default)s")
        compare.add_argument("--json", action="store_true", help="the comparison as JSON")
        compare.add_argument("--markdown", action="store_true", help="the comparison as Markdown")
        compare.add_argument("--junit", type=Path, metavar="FILE", help="JUnit XML of benchhouse ab")
        compare.add_argument("--failed", action="store_true", help="points could not be measured: an error in JUnit")
        compare.add_argument(FLAG, type=conditions, default=(), metavar="VERDICTS", help=HELP)
        for side in ("before", "after"):
            compare.add_argument(f"--{side}-name", metavar="TEXT", help="what the text calls it (default: selection)")
        arguments = parser.parse_args(argv)
        try:
            code: int = arguments.answer(arguments)
        except BenchhouseError as error:
            print(one_line(str(error)))
            return error.exit_code
        return code


def _prepare(arguments: argparse.Namespace) -> int:
    """Create or open the database, whose folder takes the log of a change. A locked file is fine: storing will wait for
    it. A lake's server may be restarting, which must not end a command that has yet to measure."""
    check_database(arguments.database)
    wait_s = arguments.lock_timeout if is_lake(arguments.database) else 0.0
    with suppress(LockedError):
        Warehouse.open(arguments.database, lock_timeout_s=wait_s).close()
    return EXIT_OK


def _store(arguments: argparse.Namespace) -> int:
    with Warehouse.open(arguments.database, lock_timeout_s=arguments.lock_timeout) as warehouse:
        refused = []
        for run_file in arguments.run_files:
            try:
                warehouse.ingest_file(run_file)
            except FormatError as error:
                refused.append(f"refused {error}")
    if refused:
        raise StorageError("; ".join(refused))
    return EXIT_OK


def _quality(arguments: argparse.Namespace) -> int:
    from db.run_records import store_quality

    found = {run_id: from_json(Quality, one, run_id) for run_id, one in json.loads(arguments.file.read_text()).items()}
    with Warehouse.open(arguments.database, lock_timeout_s=arguments.lock_timeout) as warehouse:
        store_quality(warehouse, found)
    return EXIT_OK


def _runs(arguments: argparse.Namespace) -> int:
    from db.analysis.selection import Selection
    from db.run_records import measured_runs

    selection = Selection.parse(arguments.selection).resolved(arguments.database)
    with Warehouse.open(arguments.database, read_only=True) as warehouse:
        print(json.dumps(to_json(measured_runs(warehouse, selection.condition, selection.values))))
    return EXIT_OK


def _compare(arguments: argparse.Namespace) -> int:
    """Compare two selections, in which everything but the point may differ. A failed --fail-on has an exit code of its
    own, since 1 is that of an error."""
    from benchmarking.core.terminal import stdout_page
    from db.analysis.compare.comparison import compare
    from db.analysis.compare.comparison_text import comparison_junit, comparison_markdown, comparison_text
    from db.analysis.compare.matching import across_column
    from db.analysis.selection import Selection, judged_metric

    before, after = (Selection.parse(text).resolved(arguments.database) for text in (arguments.before, arguments.after))
    with Warehouse.open(arguments.database, read_only=True) as warehouse:
        metric = judged_metric(warehouse, arguments.metric)
        comparison = compare(warehouse, before, after, metric, [across_column("all")])
    gate = comparison.gate(metric, arguments.fail_on)
    if arguments.json:
        document = {**to_json(comparison), **({"gate": to_json(gate)} if arguments.fail_on else {})}
        print(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        named = replace(
            comparison,
            before=arguments.before_name or comparison.before,
            after=arguments.after_name or comparison.after,
        )
        outcome = [gate.text] if arguments.fail_on else []
        if arguments.markdown:
            print("\n\n".join([comparison_markdown(named), *map(markdown_escaped, outcome)]))
        else:
            print("\n".join([comparison_text(named, page=stdout_page()), *outcome]))
    if arguments.junit is not None:
        failed = (EXIT_FAILED, "points could not be measured")
        ended = failed if arguments.failed else (gate.exit_code, gate.text)
        xml = comparison_junit(comparison, arguments.fail_on, *ended, suite="benchhouse ab")
        with storage_errors(f"cannot write {arguments.junit}"):
            arguments.junit.write_text(xml, encoding="utf-8")
    return EXIT_GATE_FAILED if gate.exit_code == EXIT_FAILED else gate.exit_code


def _peaks(arguments: argparse.Namespace) -> int:
    """Print the peak rates; empty for a device that was never calibrated, and without a database."""
    from db.run_records import measured_peaks

    peaks = {}
    if database_exists(arguments.database):
        with Warehouse.open(arguments.database, read_only=True, lock_timeout_s=arguments.lock_timeout) as warehouse:
            peaks = measured_peaks(warehouse, arguments.hardware_id)
    print(json.dumps(peaks))
    return EXIT_OK


if __name__ == "__main__":
    hide_pandas()
    sys.exit(main())
