"""Runs a read-only SQL query, or prints the data dictionary.

The query is one statement from the command line, a file (--file) or stdin ("-"). It has a time limit and cannot read
other files. Times are in UTC.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

if __package__ in (None, ""):  # run as a file: the path has its folder, not the repository
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from benchmarking.core.command_line import add_aliases, command
from benchmarking.core.errors import EXIT_OK, FormatError, UsageError
from benchmarking.core.metrics import METRICS
from benchmarking.core.settings import PATH, TAGS, Setting, add_flags, one_of
from benchmarking.core.shared_settings import COMMON
from benchmarking.core.terminal import stdout_page
from benchmarking.core.untrusted.input_files import read_text
from benchmarking.core.untrusted.redaction import readable
from db.analysis.selection import probable_part
from db.commands.arguments import add_database, command_parser, open_to_read
from db.query import answers
from db.query.questions import answering

NAME = "benchhouse query"
EXAMPLES = """
examples:
  benchhouse query "SELECT model_id, runtime, latency_median_ms FROM hardware_comparison"
  benchhouse query "SELECT * FROM latest_results WHERE model_id = $model" --param model=gpt2 --format csv
  benchhouse query --describe hardware_comparison
"""
EXIT_CODES = """
exit codes: 0 answered; 1 error in the data or the file; 2 error in the statement; 124 time limit
"""
DEFAULT_TIMEOUT_S = 30.0
MAX_STATEMENT_BYTES = 1_000_000
WORD = re.compile(r"\S*[^\s;()]")
"""A word alone, which is no statement."""
NO_STATEMENT = ("is no statement", "syntax error")
"""What is said of such a word, unlike of CHECKPOINT, which is a statement that is refused."""
LABEL = re.compile(r"\btags?\.([\w-]+)")
"""A label as selections name it."""
EVERYTHING = ""
"""The value of `--describe` without a table."""


@command(NAME, only_prints=True)
def main(argv: Sequence[str]) -> int:
    """Run the command; returns its exit code."""
    parser = command_parser(NAME, __doc__, EXAMPLES, EXIT_CODES)
    what = parser.add_argument_group("question")
    what.add_argument("sql", nargs="?", metavar="SQL", help="statement, or - for stdin")
    value = "value of $NAME in the statement, a number where one is expected and else text; repeatable"
    file = Setting("file", PATH, "file with the statement")
    add_flags(what, file, Setting("param", TAGS, value, metavar="NAME=VALUE"))
    words = "print the data dictionary instead: all tables and views, or the columns of TABLE with unit and meaning"
    what.add_argument("--describe", nargs="?", const=EVERYTHING, metavar="TABLE", help=words)
    add_flags(what, COMMON["timeout"].here(help="time limit, in seconds", default=DEFAULT_TIMEOUT_S))
    output = parser.add_argument_group("output")
    most = "maximum rows in the formats table and vertical; the others print all"
    add_flags(
        output,
        COMMON["format"].here(kind=one_of(answers.FORMATS, "format"), default="table"),
        COMMON["rows"].here(help=most, default=answers.DEFAULT_ROWS),
    )
    add_aliases(output, parser._option_string_actions["--rows"], "--limit-rows")
    add_database(parser)
    arguments = parser.parse_args(argv)
    sql = None if arguments.describe is not None else _statement(arguments)
    if sql is None:
        with open_to_read(arguments, for_questions=True) as warehouse:
            if arguments.sql is not None or arguments.file is not None:
                raise UsageError("--describe takes no statement: run the statement without it")
            name = None if arguments.describe == EVERYTHING else arguments.describe
            if arguments.format == "table":
                print(answers.dictionary_text(warehouse, name, width=stdout_page().width or answers.WIDTH))
            else:
                answers.write(answers.dictionary_answer(warehouse, name), arguments.format, rows=sys.maxsize - 1)
        return EXIT_OK
    limits = {"timeout_s": arguments.timeout, "lock_timeout_s": arguments.lock_timeout}
    try:
        with answering(arguments.db_path, sql, dict(arguments.param), **limits) as answer:
            answers.write(answer, arguments.format, rows=arguments.rows)
    except UsageError as error:
        if (label := LABEL.search(sql)) is not None and "tag" in str(error):
            raise UsageError(f"{error}; a label is tags['{label[1]}'] in SQL") from error
        if not WORD.fullmatch(sql) or not any(words in str(error) for words in NO_STATEMENT):
            raise
        raise UsageError(f"{sql!r} is no statement: {_meant(arguments, sql)}") from error
    return EXIT_OK


def _meant(arguments: argparse.Namespace, word: str) -> str:
    """What a word in place of a statement probably means."""
    with open_to_read(arguments, for_questions=True) as warehouse:
        if word in [entry.name for entry in answers.entries(warehouse)]:
            return f'write "SELECT * FROM {word}", or --describe {word} for its columns'
    if word in METRICS:
        return f'write "SELECT run_id, model_id, {word} FROM all_results"'
    part = word if "=" in word else probable_part(word)
    return f'write "SELECT ..."; stored results are shown by benchhouse show{"" if " " in part else f" {part}"}'


def _statement(arguments: argparse.Namespace) -> str:
    """The statement, from the command line, a file or stdin. Raises UsageError and StorageError."""
    if (arguments.sql is None) == (arguments.file is None):
        raise UsageError('expected one statement: "SELECT ...", - for stdin, or --file FILE; or --describe')
    if arguments.file is not None and not arguments.file.exists():
        raise UsageError(f"--file {arguments.file} does not exist: check the path")
    try:
        if arguments.file is not None:
            return read_text(arguments.file, MAX_STATEMENT_BYTES)
        sql = sys.stdin.read(MAX_STATEMENT_BYTES + 1) if arguments.sql == "-" else readable(arguments.sql)
    except FormatError as error:
        raise UsageError(f"--file {error}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"the statement is not UTF-8 text: {error}") from error
    if len(sql) > MAX_STATEMENT_BYTES:
        raise UsageError(f"the statement is larger than {MAX_STATEMENT_BYTES / 1e6:g} MB")
    return sql


if __name__ == "__main__":
    sys.exit(main())
