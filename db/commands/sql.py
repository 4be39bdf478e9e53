"""Opens the DuckDB shell on the warehouse, read-only, and prints the data dictionary first.

No other file can be read or written. FROM columns_of('hardware_comparison') lists the columns of a table or view with
their meaning; .help lists the commands of the shell. In a terminal, the shell works on a snapshot of the database, so
runs can be stored while it is open. Without a terminal, statements are read from stdin, and the exit code is 1 if one
of them failed. The formats are the shell's own: vertical and markdown print control characters of stored texts as they
are, and json has NaN and Infinity, which are no JSON; benchhouse query has texts for both.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

if __package__ in (None, ""):  # run as a file: the path has its folder, not the repository
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from benchmarking.core.command_line import command
from benchmarking.core.errors import EXIT_OK, BenchhouseError, UsageError
from benchmarking.core.settings import add_flags, one_of
from benchmarking.core.shared_settings import COMMON
from db.commands.arguments import add_database, command_parser, open_to_read

NAME = "benchhouse sql"
EXAMPLES = """
examples:
  benchhouse sql
  benchhouse sql --examples
  echo "FROM hardware_comparison" | benchhouse sql --format csv
"""
PACKAGE = "duckdb_cli"

EXECUTABLE = "duckdb.exe" if os.name == "nt" else "duckdb"

MODES: dict[str, tuple[str, ...]] = {
    "table": (),
    "vertical": ("-line",),
    "markdown": ("-markdown",),
    "csv": ("-csv", "-nullvalue", ""),
    "json": ("-json",),
}
"""Format -> flags of the shell."""

# The shell's safe mode refuses commands that read or write files or start programs, gives access to no file but the
# database, and locks the settings. It allows `.pager COMMAND` only in a terminal, where users can start programs
# anyway. Statements from stdin never reach a pager.
BEFORE_LOCK = (
    "SET autoinstall_known_extensions = false; SET autoload_known_extensions = false;"
    " SET allow_community_extensions = false; SET memory_limit = '2GiB'; SET GLOBAL TimeZone = 'UTC';"
)
"""Settings that safe mode does not make, and that cannot be changed afterwards."""

COLUMNS_MACRO = """
CREATE TEMP MACRO columns_of(name) AS TABLE
SELECT column_name, data_type, comment AS meaning
FROM duckdb_columns() WHERE NOT internal AND table_name = name ORDER BY column_index
"""


@command(NAME, only_prints=True)
def main(argv: Sequence[str]) -> int:
    """Run the command; returns its exit code."""
    from benchmarking.core.child_process import hand_over
    from db.query.questions import MEMORY_BYTES, TimeLimitError

    parser = command_parser(NAME, __doc__, EXAMPLES)
    limit = "time limit for statements read from stdin, in seconds"
    modes = COMMON["format"].here(kind=one_of(MODES, "format"), default="table")
    add_flags(parser, modes, COMMON["timeout"].here(help=limit, default_words="none"))
    parser.add_argument("--examples", action="store_true", help="print example questions with their SQL, and exit")
    add_database(parser)
    arguments = parser.parse_args(argv)
    if arguments.examples:
        print("\n\n".join(f"-- {question}{sql};" for question, sql in EXAMPLE_QUERIES.items()))
        return EXIT_OK
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if is_terminal and arguments.timeout is not None:
        raise UsageError("--timeout limits statements read from stdin: in a terminal, stop a statement with Ctrl-C")
    with _opened(arguments, is_terminal=is_terminal) as (greeting, views, file):
        has_colours = is_terminal and not os.environ.get("NO_COLOR")
        command = shell_command(find_shell(), file, arguments.format, views, has_colours=has_colours)
        if is_terminal:
            print(greeting, flush=True)
        code = hand_over(command, limit_s=arguments.timeout, memory_bytes=MEMORY_BYTES, is_terminal=is_terminal)
    if code is None:
        raise TimeLimitError(f"not finished within {arguments.timeout:g} s: narrow the statements, or raise --timeout")
    return code


@contextmanager
def _opened(arguments: argparse.Namespace, *, is_terminal: bool) -> Iterator[tuple[str, str, str]]:
    """The greeting, SQL that creates our views if the file has other ones, and the file to open.

    The file is a snapshot for a lake, for a database that is being written, and for a terminal, which may stay open
    for long. Raises StorageError and its subclasses for a file that is not a warehouse.
    """
    from benchmarking.core.terminal import stdout_page
    from db.migrate import temporary_views
    from db.query import answers
    from db.warehouse import Warehouse

    with ExitStack() as stack:
        opened = Warehouse.open_copy(arguments.db_path) if is_terminal else open_to_read(arguments, for_questions=True)
        warehouse = stack.enter_context(opened)
        views = "" if warehouse.has_own_views else temporary_views()
        listing = answers.listing(answers.entries(warehouse), width=stdout_page().width or answers.WIDTH)
        greeting = (
            f"{listing}\n\n{arguments.db_path}, read-only. Columns: FROM columns_of('series'); "
            "example questions: benchhouse sql --examples; Ctrl-D exits."
        )
        if warehouse.file == arguments.db_path:
            stack.close()  # the shell opens it
        yield greeting, views, warehouse.file


class ShellMissingError(BenchhouseError):
    """The shell is not installed."""


def find_shell() -> Path:
    """The shell's executable: in its package, among this interpreter's scripts, or on PATH, in this order.

    The script that the package installs is skipped: it changes a setting, which safe mode refuses, and it exits on a
    Ctrl-C that is meant for a statement. Raises ShellMissingError.
    """
    spec = importlib.util.find_spec(PACKAGE)
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    folders += [sysconfig.get_path("scripts"), *os.environ.get("PATH", "").split(os.pathsep)]
    for folder in filter(os.path.isabs, folders):
        executable = shutil.which(EXECUTABLE, path=folder)
        if executable is not None and not _is_script(Path(executable)):
            return Path(executable)
    raise ShellMissingError(
        "the DuckDB shell is neither in this Python's packages nor on PATH: pip install duckdb-cli "
        '(benchhouse query "SELECT ..." works without it)'
    )


def shell_command(
    shell: Path, db_path: str, mode: str, views: str = "", *, has_colours: bool = True
) -> tuple[str, ...]:
    """The command that opens the database in the shell, locked down; no init file is run.

    `views` is SQL that creates our views for this session if the views in the file are not ours.
    """
    return (
        *(str(shell), "-no-init", "-readonly", *MODES[mode], *(() if has_colours else ("-cmd", ".highlight off"))),
        *("-cmd", BEFORE_LOCK, "-cmd", COLUMNS_MACRO, *(("-cmd", views) if views else ()), "-cmd", ".safe_mode"),
        os.path.abspath(db_path),  # a relative path could be read as a flag
    )


def _is_script(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"#!"


EXAMPLE_QUERIES = {
    "Which runtime is fastest for each model and point?": """
SELECT model_id, batch_size, sequence_length, device_name, runtime, precision, latency_median_ms
FROM hardware_comparison
WHERE times_fastest = 1""",
    "How much faster than eager float32 is each runtime, and how far off are its outputs?": """
SELECT model_id, batch_size, sequence_length, runtime, precision,
    speedup, speedup_ci_low, speedup_ci_high, output_error
FROM runtime_comparison
WHERE is_ranked AND speedup IS NOT NULL""",
    "How does throughput scale with batch size?": """
SELECT model_id, runtime, precision, sequence_length, batch_size, throughput_samples_per_sec,
    memory_peak_mb
FROM hardware_comparison
ORDER BY model_id, runtime, precision, sequence_length, batch_size""",
    "What could not be measured, and why?": """
SELECT model_id, device, runtime, precision, batch_size, sequence_length, status, error
FROM latest_results
WHERE status <> 'ok'""",
    "Which results are doubtful, and why?": """
SELECT doubt, validity, count(*) AS results
FROM (SELECT unnest(doubts) AS doubt, validity FROM all_results)
GROUP BY doubt, validity
ORDER BY results DESC, doubt""",
    "Which runs are the newest, and on which versions?": """
SELECT started_at, model_id, device, runtime, precision, status, versions['torch'] AS torch, host
FROM benchmark_runs
ORDER BY started_at DESC
LIMIT 20""",
    "How much do the launches of a result differ?": """
SELECT model_id, runtime, batch_size, raw.launch, raw.sample_count,
    raw.median AS median_ms, raw.p99 AS p99_ms
FROM raw_benchmark_data raw JOIN all_results USING (result_id)
WHERE raw.phase = 'measure' AND raw.metric = 'latency_wall'
ORDER BY model_id, runtime, batch_size, result_id, raw.launch""",
    "Where does the time of a fresh process go before its first call?": """
SELECT model_id, runtime, load_spawn_s, load_import_s, load_device_init_s, load_weights_read_s,
    load_to_device_s, load_time_s
FROM benchmark_runs
WHERE load_time_s IS NOT NULL
ORDER BY load_time_s DESC
LIMIT 20""",
}
"""Question -> its SQL, which begins on a new line."""


if __name__ == "__main__":
    sys.exit(main())
