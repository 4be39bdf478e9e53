"""The DuckDB command-line shell: finding it, the command that opens a warehouse in it, and example questions.

The shell's safe mode refuses commands that read or write files or start programs, gives access to no file but the
database, and locks the settings. It allows `.pager COMMAND` only in a terminal, where users can start programs anyway.
Statements from stdin never reach a pager.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from benchmarking.core.errors import BenchhouseError

PACKAGE = "duckdb_cli"

EXECUTABLE = "duckdb.exe" if os.name == "nt" else "duckdb"

MODES: dict[str, tuple[str, ...]] = {
    "table": (),
    "vertical": ("-line",),
    "markdown": ("-markdown",),
    "csv": ("-csv",),
    "json": ("-json",),
}
"""Format -> flags of the shell."""

BEFORE_LOCK = (
    "SET autoinstall_known_extensions = false; SET autoload_known_extensions = false;"
    " SET allow_community_extensions = false; SET memory_limit = '2GiB'; SET GLOBAL TimeZone = 'UTC';"
)
"""Settings that safe mode does not make, and that cannot be changed afterwards."""

COLUMNS_OF = """
CREATE TEMP MACRO columns_of(name) AS TABLE
SELECT column_name, data_type, comment AS meaning
FROM duckdb_columns() WHERE NOT internal AND table_name = name ORDER BY column_index
"""


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
        found = shutil.which(EXECUTABLE, path=folder)
        if found is not None and not _is_script(Path(found)):
            return Path(found)
    raise ShellMissingError(
        "the DuckDB shell is neither in this Python's packages nor on PATH: pip install duckdb-cli "
        '(benchhouse query "SELECT ..." works without it)'
    )


def shell_command(shell: Path, db_path: str, mode: str, views: str = "") -> tuple[str, ...]:
    """The command that opens the database in the shell, locked down; no init file is run.

    `views` is SQL that creates our views for this session if the views in the file are not ours.
    """
    return (
        *(str(shell), "-no-init", "-readonly", *MODES[mode]),
        *("-cmd", BEFORE_LOCK, "-cmd", COLUMNS_OF, *(("-cmd", views) if views else ()), "-cmd", ".safe_mode"),
        os.path.abspath(db_path),  # a relative path could be read as a flag
    )


def _is_script(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"#!"


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A question and its SQL."""

    question: str
    sql: str


EXAMPLES = (
    Example(
        question="Which runtime is fastest for each model and point?",
        sql="""SELECT model_id, batch_size, sequence_length, device_name, runtime, precision, latency_median_ms
FROM hardware_comparison
WHERE times_fastest = 1""",
    ),
    Example(
        question="How much faster than eager float32 is each runtime, and how far off are its outputs?",
        sql="""SELECT model_id, batch_size, sequence_length, runtime, precision,
    speedup, speedup_ci_low, speedup_ci_high, output_error
FROM runtime_comparison
WHERE is_ranked AND speedup IS NOT NULL""",
    ),
    Example(
        question="How does throughput scale with batch size?",
        sql="""SELECT model_id, runtime, precision, sequence_length, batch_size, throughput_samples_per_sec,
    memory_peak_mb
FROM hardware_comparison
ORDER BY model_id, runtime, precision, sequence_length, batch_size""",
    ),
    Example(
        question="What could not be measured, and why?",
        sql="""SELECT model_id, device, runtime, precision, batch_size, sequence_length, status, error
FROM latest_results
WHERE status <> 'ok'""",
    ),
    Example(
        question="Which results are doubtful, and why?",
        sql="""SELECT doubt, validity, count(*) AS results
FROM (SELECT unnest(doubts) AS doubt, validity FROM all_results)
GROUP BY doubt, validity
ORDER BY results DESC, doubt""",
    ),
    Example(
        question="Which runs are the newest, and on which versions?",
        sql="""SELECT started_at, model_id, device, runtime, precision, status, versions['torch'] AS torch, host
FROM benchmark_runs
ORDER BY started_at DESC
LIMIT 20""",
    ),
    Example(
        question="How much do the launches of a result differ?",
        sql="""SELECT model_id, runtime, batch_size, raw.launch, raw.sample_count,
    raw.median AS median_ms, raw.p99 AS p99_ms
FROM raw_benchmark_data raw JOIN all_results USING (result_id)
WHERE raw.phase = 'measure' AND raw.metric = 'latency_wall'
ORDER BY model_id, runtime, batch_size, result_id, raw.launch""",
    ),
    Example(
        question="Where does the time of a fresh process go before its first call?",
        sql="""SELECT model_id, runtime, load_spawn_s, load_import_s, load_device_init_s, load_weights_read_s,
    load_to_device_s, load_time_s
FROM benchmark_runs
WHERE load_time_s IS NOT NULL
ORDER BY load_time_s DESC
LIMIT 20""",
    ),
)
