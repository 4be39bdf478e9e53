"""Opens the DuckDB shell on the warehouse, read-only, and prints the data dictionary first.

No other file can be read or written. FROM columns_of('hardware_comparison') lists the columns of a table or view with
their meaning; .help lists the commands of the shell. In a terminal, the shell works on a snapshot of the database, so
runs can be stored while it is open. Without a terminal, statements are read from stdin, and the exit code is 1 if one
of them failed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

if __package__ in (None, ""):  # run as a file: the path has its folder, not the repository
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from benchmarking.core.command_line import Parser, positive_seconds, run_command
from benchmarking.core.errors import EXIT_OK, UsageError
from db.commands.arguments import add_database, command_parser, open_to_read

NAME = "benchhouse sql"
EXAMPLES = """
examples:
  benchhouse sql
  benchhouse sql --examples
  echo "FROM hardware_comparison" | benchhouse sql --format csv
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    return run_command(NAME, _run, argv)


def _run(argv: Sequence[str]) -> int:
    from benchmarking.core.child_process import hand_over
    from db.query.questions import MEMORY_BYTES, TimeLimitError
    from db.query.shell import find_shell, shell_command

    arguments = _parser().parse_args(argv)
    if arguments.examples:
        print(_examples())
        return EXIT_OK
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if is_terminal and arguments.timeout is not None:
        raise UsageError("--timeout limits statements read from stdin: in a terminal, stop a statement with Ctrl-C")
    with _opened(arguments, is_terminal=is_terminal) as (greeting, views, file):
        command = shell_command(find_shell(), file, arguments.format, views)
        if is_terminal:
            print(greeting, flush=True)
        code = hand_over(command, limit_s=arguments.timeout, memory_bytes=MEMORY_BYTES, is_terminal=is_terminal)
    if code is None:
        raise TimeLimitError(f"not finished within {arguments.timeout:g} s: narrow the statements, or raise --timeout")
    return code


def _parser() -> Parser:
    from db.query.shell import MODES

    parser = command_parser(NAME, __doc__, EXAMPLES)
    parser.add_argument("--format", choices=MODES, default="table", help="format of the answers (default: %(default)s)")
    parser.add_argument(
        "--timeout",
        type=positive_seconds,
        metavar="SECONDS",
        help="time limit for statements read from stdin, in seconds (default: none)",
    )
    parser.add_argument("--examples", action="store_true", help="print example questions with their SQL, and exit")
    add_database(parser)
    return parser


@contextmanager
def _opened(arguments: argparse.Namespace, *, is_terminal: bool) -> Iterator[tuple[str, str, str]]:
    """The greeting, SQL that creates our views if the file has other ones, and the file to open.

    The file is a snapshot for a lake, for a database that is being written, and for a terminal, which may stay open
    for long. Raises StorageError and its subclasses for a file that is not a warehouse.
    """
    from benchmarking.core.terminal import stdout_page
    from db.migrate import temporary_views
    from db.query import dictionary
    from db.warehouse import Warehouse

    with ExitStack() as stack:
        opened = Warehouse.open_copy(arguments.db_path) if is_terminal else open_to_read(arguments, for_questions=True)
        warehouse = stack.enter_context(opened)
        views = "" if warehouse.has_own_views else temporary_views()
        listing = dictionary.listing(dictionary.entries(warehouse), width=stdout_page().width or dictionary.WIDTH)
        greeting = (
            f"{listing}\n\n{arguments.db_path}, read-only. Columns: FROM columns_of('series'); "
            "example questions: benchhouse sql --examples; Ctrl-D exits."
        )
        if warehouse.file == arguments.db_path:
            stack.close()  # the shell opens it
        yield greeting, views, warehouse.file


def _examples() -> str:
    """Questions and their SQL, as a script for the shell."""
    from db.query.shell import EXAMPLES

    return "\n\n".join(f"-- {example.question}\n{example.sql};" for example in EXAMPLES)


if __name__ == "__main__":
    sys.exit(main())
