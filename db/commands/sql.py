"""An interactive prompt for SQL on the warehouse, reading only, with its data dictionary.

Statements end with ; and may have several lines. .help lists what else there is: .tables, .schema NAME, .examples, ...
Without a terminal the statements are read from stdin, and the exit code is that of the last one that went wrong.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

if __package__ in (None, ""):  # run as a file: its folder is on the path, the one above the package is wanted
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from benchmarking.cli_support import (
    Parser,
    add_database_flags,
    note,
    positive_seconds,
    run_command,
)
from db.console import Console
from db.warehouse import Warehouse

NAME = "benchhouse sql"
DEFAULT_TIMEOUT_S = 30.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    return run_command(NAME, _run, argv)


def _run(argv: Sequence[str]) -> int:
    arguments = _parser().parse_args(argv)

    def opened() -> Warehouse:
        return Warehouse.open(arguments.db_path, for_questions=True, lock_timeout_s=arguments.lock_timeout)

    opened().close()  # what is wrong with the file is told before anything is typed
    console = Console(opened=opened, timeout_s=arguments.timeout, mode=arguments.format)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return console.run(sys.stdin)
    from db.prompt import converse

    note(f"{arguments.db_path}, reading only. .help says what there is, Ctrl-D leaves.")
    return converse(console, _history())


def _parser() -> argparse.ArgumentParser:
    from db import answers

    parser = Parser(prog=NAME, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--format", choices=answers.FORMATS, default="table", help="how answers are shown (%(default)s)"
    )
    parser.add_argument(
        "--timeout",
        type=positive_seconds,
        default=DEFAULT_TIMEOUT_S,
        metavar="SECONDS",
        help="stop an answer after so long (%(default)g)",
    )
    add_database_flags(parser)
    return parser


def _history() -> Path:
    """The file that keeps what was typed, in the cache folder."""
    from benchmarking.builds.store import default_cache_dir
    from db.files import make_folder

    folder = default_cache_dir()
    make_folder(folder)
    return folder / "sql_history"


if __name__ == "__main__":
    sys.exit(main())
