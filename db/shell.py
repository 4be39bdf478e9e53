"""DuckDB's command-line shell: where it is installed, and the command that opens a warehouse in it, locked down.

The shell's safe mode refuses the commands that read and write files or start programs, shuts off every file but the
database, and locks the settings. What it leaves open is `.pager COMMAND`, in a terminal only: whoever sits there can
start programs anyway. Statements from stdin never reach a pager.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sysconfig
from pathlib import Path

from benchmarking.errors import BenchhouseError

PACKAGE = "duckdb_cli"
EXECUTABLE = "duckdb.exe" if os.name == "nt" else "duckdb"
MODES: dict[str, tuple[str, ...]] = {
    "table": (),
    "vertical": ("-line",),
    "markdown": ("-markdown",),
    "csv": ("-csv",),
    "json": ("-json",),
}
"""Format -> the shell's flags for it."""
BEFORE_LOCK = (
    "SET autoinstall_known_extensions = false; SET autoload_known_extensions = false;"
    " SET allow_community_extensions = false;"
)
"""What safe mode leaves as it is, and cannot be changed once it is on."""
COLUMNS_OF = """
CREATE TEMP MACRO columns_of(name) AS TABLE
SELECT column_name, data_type, comment AS meaning
FROM duckdb_columns() WHERE NOT internal AND table_name = name ORDER BY column_index
"""


class ShellMissingError(BenchhouseError):
    """The shell is not installed."""


def find_shell() -> Path:
    """The shell's executable: the package's beside this interpreter, else among its scripts, else on PATH.

    The script that the package installs is passed over: it changes a setting, which safe mode refuses, and ends at a
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
        "DuckDB's shell is needed, and there is none beside this Python or on PATH: pip install duckdb-cli "
        '(benchhouse query "SELECT ..." answers without it)'
    )


def shell_command(shell: Path, db_path: str, mode: str) -> tuple[str, ...]:
    """The command that opens the database in the shell: no init file is run, nothing but the database can be read."""
    return (
        *(str(shell), "-no-init", "-readonly", *MODES[mode]),
        *("-cmd", BEFORE_LOCK, "-cmd", COLUMNS_OF, "-cmd", ".safe_mode"),
        os.path.abspath(db_path),  # a name of its own would else be read as a flag
    )


def _is_script(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"#!"
