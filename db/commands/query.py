"""Answers a question in SQL, reading only; or prints the data dictionary.

One statement, from the command line, from a file (--file) or from stdin ("-"). The database is opened read-only, no
other file can be reached, and the time is limited. Times are UTC.

  benchhouse query "SELECT model_id, runtime, latency_median_ms FROM hardware_comparison"
  benchhouse query "SELECT * FROM latest_results WHERE model_id = $model" --param model=gpt2 --format csv
  benchhouse query --describe hardware_comparison

exit codes: 0 answered; 1 the data or the file is at fault; 2 the statement is; 124 the time was over
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

if __package__ in (None, ""):  # run as a file: its folder is on the path, the one above the package is wanted
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from benchmarking.core.command_line import Parser, add_database_flags, positive_int, positive_seconds, run_command, tag
from benchmarking.core.errors import EXIT_OK, StorageError, UsageError
from benchmarking.core.terminal import stdout_page
from db.query import answers, dictionary
from db.query.questions import answering
from db.warehouse import Warehouse

NAME = "benchhouse query"
DEFAULT_TIMEOUT_S = 30.0
EVERYTHING = ""
"""What `--describe` alone stands for."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    return run_command(NAME, _run, argv)


def _run(argv: Sequence[str]) -> int:
    arguments = _parser().parse_args(argv)
    sql = None if arguments.describe is not None else _statement(arguments)
    with Warehouse.open(arguments.db_path, for_questions=True, lock_timeout_s=arguments.lock_timeout) as warehouse:
        if sql is None:
            _describe(warehouse, arguments)
        else:
            with answering(warehouse, sql, dict(arguments.param), timeout_s=arguments.timeout) as answer:
                answers.write(answer, arguments.format, rows=arguments.limit_rows)
    return EXIT_OK


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog=NAME, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sql", nargs="?", metavar="SQL", help="the statement; - reads it from stdin")
    parser.add_argument("--file", type=Path, metavar="FILE", help="read the statement from a file")
    parser.add_argument(
        "--describe",
        nargs="?",
        const=EVERYTHING,
        metavar="TABLE",
        help="what tables and views there are; or the columns of one, with unit and meaning",
    )
    parser.add_argument(
        "--param",
        action="append",
        default=[],
        type=tag,
        metavar="NAME=VALUE",
        help="what $NAME in the statement stands for: text, read as a number where one is wanted; may be repeated",
    )
    parser.add_argument("--format", choices=answers.FORMATS, default="table", help="default %(default)s")
    parser.add_argument(
        "--limit-rows",
        type=positive_int,
        default=answers.DEFAULT_ROWS,
        metavar="N",
        help="rows that table and vertical show (%(default)s); the other formats have all",
    )
    parser.add_argument(
        "--timeout",
        type=positive_seconds,
        default=DEFAULT_TIMEOUT_S,
        metavar="SECONDS",
        help="stop after so long (%(default)g)",
    )
    add_database_flags(parser)
    return parser


def _statement(arguments: argparse.Namespace) -> str:
    """The statement, from where it was said to be. Raises UsageError and StorageError."""
    if (arguments.sql is None) == (arguments.file is None):
        raise UsageError('give one statement: "SELECT ...", - for stdin, --file FILE; or --describe')
    try:
        if arguments.file is not None:
            return str(arguments.file.read_text(encoding="utf-8"))
        return sys.stdin.read() if arguments.sql == "-" else str(arguments.sql)
    except OSError as error:
        raise StorageError(f"cannot read {arguments.file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"the statement is not UTF-8 text: {error}") from error


def _describe(warehouse: Warehouse, arguments: argparse.Namespace) -> None:
    """Print the dictionary. Raises UsageError when there is no such table, or a statement is given as well."""
    if arguments.sql is not None or arguments.file is not None:
        raise UsageError("--describe stands alone: ask the question in a command of its own")
    name = None if arguments.describe == EVERYTHING else arguments.describe
    if arguments.format == "table":
        print(dictionary.text(warehouse, name, width=stdout_page().width or dictionary.WIDTH))
    else:
        answers.write(dictionary.dictionary_answer(warehouse, name), arguments.format, rows=sys.maxsize - 1)


if __name__ == "__main__":
    sys.exit(main())
