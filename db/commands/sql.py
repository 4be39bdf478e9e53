"""DuckDB's own shell on the warehouse: it reads only, reaches no other file, and is greeted by the data dictionary.

Without a terminal the statements are read from stdin, and the exit code is 1 if one of them failed. The columns of a
table or view, with their meaning: FROM columns_of('hardware_comparison'); .help lists the shell's own commands. No run
is stored while the shell is open: whoever measures meanwhile waits for the database, and keeps the run file.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

if __package__ in (None, ""):  # run as a file: its folder is on the path, the one above the package is wanted
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from benchmarking.core.command_line import Parser, add_database_flags, positive_seconds, run_command
from benchmarking.core.errors import EXIT_OK, UsageError

NAME = "benchhouse sql"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    return run_command(NAME, _run, argv)


def _run(argv: Sequence[str]) -> int:
    from benchmarking.core.child_process import hand_over
    from db.query.questions import TimeLimitError
    from db.query.shell import find_shell, shell_command

    arguments = _parser().parse_args(argv)
    if arguments.examples:
        print(_examples())
        return EXIT_OK
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if is_terminal and arguments.timeout is not None:
        raise UsageError("--timeout limits statements read from stdin: in a terminal, Ctrl-C stops one")
    greeting = _greeting(arguments)
    command = shell_command(find_shell(), arguments.db_path, arguments.format)
    if is_terminal:
        print(greeting, flush=True)
    code = hand_over(command, limit_s=arguments.timeout, is_terminal=is_terminal)
    if code is None:
        raise TimeLimitError(f"no end within {arguments.timeout:g} s: ask for less, or give it more time")
    return code


def _parser() -> argparse.ArgumentParser:
    from db.query.shell import MODES

    parser = Parser(prog=NAME, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--format", choices=MODES, default="table", help="format of the answers (default: %(default)s)")
    parser.add_argument(
        "--timeout",
        type=positive_seconds,
        metavar="SECONDS",
        help="time limit for the statements read from stdin, in seconds (default: none)",
    )
    parser.add_argument("--examples", action="store_true", help="print questions with their SQL, and leave")
    add_database_flags(parser)
    return parser


def _greeting(arguments: argparse.Namespace) -> str:
    """What tables and views there are. Raises StorageError and its kinds for a file that is no warehouse."""
    from benchmarking.core.terminal import stdout_page
    from db.query import dictionary
    from db.warehouse import Warehouse

    with Warehouse.open(arguments.db_path, for_questions=True, lock_timeout_s=arguments.lock_timeout) as warehouse:
        listing = dictionary.listing(dictionary.entries(warehouse), width=stdout_page().width or dictionary.WIDTH)
    return (
        f"{listing}\n\n{arguments.db_path}, read-only. Columns: FROM columns_of('series'); "
        "questions to start from: benchhouse sql --examples; Ctrl-D leaves."
    )


def _examples() -> str:
    """Questions and their SQL, as a script that the command itself takes."""
    from db.query.shell import EXAMPLES

    return "\n\n".join(f"-- {example.question}\n{example.sql};" for example in EXAMPLES)


if __name__ == "__main__":
    sys.exit(main())
